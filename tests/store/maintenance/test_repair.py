"""`verify --repair`: what can be healed is, what cannot is named, and nothing ever gets worse."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from keepfast.model.entry import Entry
from keepfast.model.errors import KeepfastError
from keepfast.model.event import CREATED, Event
from keepfast.store.digest import digest
from keepfast.store.maintenance.rebuild import rebuild
from keepfast.store.maintenance.repair import RepairResult, repair
from keepfast.store.maintenance.space import compact
from keepfast.store.maintenance.verify import Problem, verify
from keepfast.store.packs import PackWriter, read_index
from keepfast.store.place import Place
from keepfast.store.repository import Repository
from keepfast.store.rows import CHUNKS, CheckpointRow, Location, Query
from keepfast.store.save import ReplacedRows
from tests.faults.mutations import mutate
from tests.faults.sample import Load, Sample, load, make, open_engine, truth, versions

SHORT, FULL = 40, 600

Files = tuple[CheckpointRow, list[tuple[Entry, bytes]]]
"""A version without its document: what the ledger says about it, and every path with its bytes."""


@pytest.fixture(scope="module")
def sample() -> Iterator[Sample]:
    with TemporaryDirectory(prefix="keepfast-healing-") as folder:
        yield make(Path(folder))


@pytest.fixture(scope="module")
def known(sample: Sample) -> dict[str, Load]:
    return truth(sample.place())


@pytest.fixture
def store(sample: Sample, tmp_path: Path) -> Path:
    """A copy of the sample's store; the folders it protects are the sample's own."""
    return sample.copy(tmp_path / "store")


def place(store: Path) -> Place:
    return Place(str(store), durable=False)


def loads(store: Path) -> tuple[dict[str, Files], dict[str, object]]:
    """What still loads: files with everything the ledger says about them, and documents."""
    files: dict[str, Files] = {}
    documents: dict[str, object] = {}
    try:
        repository = place(store).open()
    except KeepfastError:
        return files, documents
    try:
        for name, row in versions(repository):
            try:
                documents[name] = repository.document(row)
            except KeepfastError:
                pass
            try:
                state = [
                    (entry, repository.contents.load(entry.content) if entry.kind == "f" else b"")
                    for entry in repository.ledger.state(row.workspace, row.version)
                ]
            except KeepfastError:
                continue
            files[name] = row._replace(document=b""), state
    except KeepfastError:
        pass
    finally:
        repository.close()
    return files, documents


def files_of(known: dict[str, Load]) -> dict[str, Files]:
    return {name: (row._replace(document=b""), state) for name, (row, _, _, state) in known.items()}


def problems(store: Path) -> list[Problem]:
    repository = place(store).open()
    try:
        return verify(repository, str(store)).problems
    finally:
        repository.close()


def names(found: list[Problem]) -> set[str]:
    return {name for problem in found for name in problem.checkpoints}


def assert_healed(store: Path, known: dict[str, Load]) -> RepairResult:
    """Repair, and claim that everything is as it was: every file of every version, and a readable document for each."""
    result = repair(place(store))
    files, documents = loads(store)

    assert [problem.text for problem in result.lost] == []
    assert result.healed
    assert problems(store) == []
    assert files == files_of(known)
    assert documents.keys() == known.keys()
    return result


def damage(path: Path, at: int, length: int = 1) -> None:
    data = bytearray(path.read_bytes())
    for byte in range(at, at + length):
        data[byte] ^= 0x55
    path.write_bytes(data)


def damage_blob(store: Path, key: bytes) -> None:
    """Flip a byte inside the stored frame that holds this blob."""
    repository = place(store).open()
    try:
        spot = repository.ledger.locate([key])[key]
    finally:
        repository.close()
    inside = spot.offset + spot.length // 2 if stored_raw(store, spot) else spot.stored // 2
    damage(store / f"packs/{spot.pack}.pack", spot.frame + 1 + min(inside, spot.stored - 2))


def stored_raw(store: Path, spot: Location) -> bool:
    return (store / f"packs/{spot.pack}.pack").read_bytes()[spot.frame] == 0


def content(known: dict[str, Load], version: str, path: bytes) -> bytes:
    """The digest of a file in a version, which is called as in `v5 alpha`."""
    number, _, folder = version.partition(" ")
    for name, (_, _, _, state) in known.items():
        if name.startswith(f"{number} of ") and name.endswith(f"/{folder}"):
            return next(entry.content for entry, _ in state if entry.path == path)
    raise LookupError(version)


def full_name(known: dict[str, Load], version: str) -> str:
    number, _, folder = version.partition(" ")
    return next(name for name in known if name.startswith(f"{number} of ") and name.endswith(f"/{folder}"))


# Contents


def test_nothing_is_done_to_a_store_that_is_well(store: Path) -> None:
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}

    result = repair(place(store))

    assert (result.healed, result.lost) == ([], [])
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_damaged_content_is_healed_from_the_unchanged_file_on_disk(store: Path, known: dict[str, Load]) -> None:
    damage_blob(store, content(known, "v5 alpha", b"new/file.txt"))
    concerned = names(problems(store))

    assert full_name(known, "v5 alpha") in concerned
    assert_healed(store, known)


def test_a_damaged_content_is_healed_from_another_copy(tmp_path: Path) -> None:
    """Two saves at the same time stored it twice; it is nowhere on disk any more."""
    engine = open_engine(tmp_path / "store")
    roots = [tmp_path / name for name in ("one", "two", "three")]
    for root in roots:
        root.mkdir()
        engine.workspaces.init(os.fsencode(root))
    repository = engine.repository()
    data = Random(5).randbytes(50_000)
    rows = repository.ledger.workspaces()
    savings = [repository.begin(row.id) for row in rows[:2]]
    for saving in savings:
        entry = Entry(b"file", "f", 0o644, 0, len(data), 0, 0, saving.small(data), b"")
        saving.finish(_header(f"cp-{saving.row.id[:26]}"), [entry], ReplacedRows())
    engine.close()
    known = truth(place(tmp_path / "store"))
    damage_blob(tmp_path / "store", entry.content)

    assert len(list((tmp_path / "store/packs").iterdir())) == 2
    assert len(names(problems(tmp_path / "store"))) == 2
    assert_healed(tmp_path / "store", known)


def _header(identity: str) -> dict[str, object]:
    return {
        "id": identity, "created_at": 1, "trigger": "manual", "created_by": "user", "message": "", "name": None,
        "tags": [], "pinned": False, "session": None, "task": None,
    }  # fmt: skip


def test_a_damaged_chunk_is_healed_from_the_large_file_on_disk(store: Path, known: dict[str, Load]) -> None:
    lose_blob(store, chunks_of(store, content(known, "v8 alpha", b"large.bin"))[3])

    assert {full_name(known, "v8 alpha"), full_name(known, "v3 alpha")} <= names(problems(store))
    assert_healed(store, known)


def test_a_damaged_list_of_chunks_is_healed_from_the_large_file_on_disk(store: Path, known: dict[str, Load]) -> None:
    lose_blob(store, content(known, "v8 alpha", b"large.bin"))

    assert full_name(known, "v8 alpha") in names(problems(store))
    assert_healed(store, known)


def test_a_chunk_that_is_on_no_disk_is_lost_with_the_versions_that_need_it_alone(
    store: Path, known: dict[str, Load]
) -> None:
    """Before the insertion, that part of the file was another one; only v3 has it."""
    old = set(chunks_of(store, content(known, "v3 alpha", b"large.bin")))
    gone = old - set(chunks_of(store, content(known, "v4 alpha", b"large.bin")))
    lose_blob(store, min(gone))

    result = repair(place(store))
    files, _ = loads(store)
    lost = {full_name(known, "v3 alpha")}

    assert names(result.lost) == lost
    assert files == {name: value for name, value in files_of(known).items() if name not in lost}
    assert problems_in_words(store) == [problem.text for problem in result.lost]


def chunks_of(store: Path, key: bytes) -> list[bytes]:
    repository = place(store).open()
    try:
        data, kind = repository.contents.blob(key)
    finally:
        repository.close()
    assert kind == CHUNKS
    return [data[at : at + 32] for at in range(0, len(data), 32)]


def problems_in_words(store: Path) -> list[str]:
    return [problem.text for problem in problems(store)]


def test_what_cannot_be_healed_is_named_and_the_rest_goes_on(store: Path, known: dict[str, Load]) -> None:
    """`docs/raw.bin` is on no disk any more: v3, v4 and v5 had it. Compaction and saving must not stumble over that."""
    lose_blob(store, content(known, "v5 alpha", b"docs/raw.bin"))

    result = repair(place(store))
    files, _ = loads(store)
    lost = {full_name(known, f"v{number} alpha") for number in (3, 4, 5)}

    assert names(result.lost) == lost
    assert files == {name: value for name, value in files_of(known).items() if name not in lost}
    repository = place(store).open()
    compact(repository, str(store), everything=True)
    repository.close()
    assert names(problems(store)) == lost
    assert loads(store)[0] == files


def test_a_content_that_comes_back_to_the_disk_heals_later(sample: Sample, store: Path, known: dict[str, Load]) -> None:
    name = next(name for name in known if name.startswith("v5 ") and name.endswith("alpha"))
    bytes_of = {entry.path: data for entry, data in known[name][3]}
    lose_blob(store, content(known, "v5 alpha", b"docs/raw.bin"))
    repair(place(store))
    path = sample.alpha / "docs/raw.bin"
    path.parent.mkdir()
    path.write_bytes(bytes_of[b"docs/raw.bin"])
    try:
        assert_healed(store, known)
    finally:
        shutil.rmtree(path.parent)


def test_a_pipe_in_the_place_of_a_file_does_not_stop_the_search(
    sample: Sample, store: Path, known: dict[str, Load]
) -> None:
    path = sample.alpha / "docs/raw.bin"
    path.parent.mkdir()
    os.mkfifo(path)
    try:
        lose_blob(store, content(known, "v5 alpha", b"docs/raw.bin"))

        assert len(names(repair(place(store)).lost)) == 3
    finally:
        shutil.rmtree(path.parent)


# Packs


def test_every_missing_pack_is_healed_or_named(sample: Sample, known: dict[str, Load], tmp_path: Path) -> None:
    for number, pack in enumerate(sorted((sample.store / "packs").iterdir())):
        store = sample.copy(tmp_path / str(number))
        (store / "packs" / pack.name).unlink()

        result = repair(place(store))
        files, documents = loads(store)

        lost = names(result.lost)
        assert files.keys() == known.keys() - lost, pack.name
        assert files == {name: value for name, value in files_of(known).items() if name not in lost}
        assert documents.keys() == known.keys(), pack.name
        assert names(problems(store)) == lost


def test_a_damaged_index_is_healed_from_the_ledger(sample: Sample, known: dict[str, Load], tmp_path: Path) -> None:
    for number, pack in enumerate(sorted((sample.store / "packs").iterdir())):
        store = sample.copy(tmp_path / str(number))
        damage(store / "packs" / pack.name, pack.stat().st_size - 100, 20)

        assert_healed(store, known)
        assert (store / "damaged" / pack.name).exists()


def test_a_pack_damaged_by_whom_repair_has_written_it_is_healed_again(store: Path, known: dict[str, Load]) -> None:
    """The new pack would get the very name of the damaged one."""
    key = content(known, "v5 alpha", b"new/file.txt")
    damage_blob(store, key)
    assert_healed(store, known)
    damage_blob(store, key)

    assert_healed(store, known)


def test_compaction_that_would_write_a_pack_anew_keeps_it(store: Path, known: dict[str, Load]) -> None:
    """A pack is named after its index: rewritten with the same contents it has the same name, and must not be dropped."""
    repository = place(store).open()
    compact(repository, str(store), everything=True)
    compact(repository, str(store), everything=True)
    names_before = repository.blobs.names()
    writer = PackWriter(repository.blobs)
    writer.add(digest(b"of no version"), b"of no version", 0)
    writer.sync()
    with repository.ledger.transaction() as tx:
        tx.add_pack(writer.name, writer.size, writer.entries())
        writer.finish()

    compact(repository, str(store), everything=True)

    assert repository.blobs.names() == names_before
    repository.close()
    assert problems(store) == []
    assert loads(store)[0] == files_of(known)


# Documents


@pytest.mark.parametrize("version", ["v3 alpha", "v4 alpha", "v5 alpha", "v7 alpha", "v8 alpha", "v1 beta", "v3 beta"])
def test_a_damaged_document_is_written_again_from_the_ledger(store: Path, known: dict[str, Load], version: str) -> None:
    name = full_name(known, version)
    lose_blob(store, known[name][0].document)

    assert name in names(problems(store))
    assert_healed(store, known)
    assert rebuilt_equals(store, known)


def test_a_lost_document_of_a_forgotten_version_does_not_take_later_ones_along(
    store: Path, known: dict[str, Load]
) -> None:
    """v6 is hidden, but v7 is a change against it."""
    repository = place(store).open()
    workspace = known[full_name(known, "v5 alpha")][0].workspace
    row = repository.ledger.checkpoint(workspace, 6)
    repository.close()
    assert row is not None and row.forgotten
    lose_blob(store, row.document)

    assert_healed(store, known)
    assert rebuilt_equals(store, known)


def test_a_lost_keyframe_is_written_again(store: Path, known: dict[str, Load]) -> None:
    repository = place(store).open()
    own = {row.document for row in repository.ledger.find(Query(forgotten=True))}
    keyframes = [key for key, spot in repository.ledger.locations() if spot.kind == 2 and key not in own]
    repository.close()
    assert len(keyframes) == 1
    lose_blob(store, keyframes[0])

    assert_healed(store, known)
    assert rebuilt_equals(store, known)


def test_a_version_whose_document_and_ledger_are_lost_is_named_and_the_next_save_is_whole(
    sample: Sample, known: dict[str, Load], tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    other = make(folder)
    known = truth(other.place())
    lost = full_name(known, "v4 beta")
    lose_blob(other.store, known[lost][0].document)
    (other.store / "ledger.db").unlink()

    result = repair(other.place())

    assert names(result.lost) == {lost}
    assert loads(other.store)[0] == {name: value for name, value in files_of(known).items() if name != lost}
    engine = open_engine(other.store)
    (other.beta / "b.txt").write_text("after the loss\n")
    outcome = engine.handle(Event(os.fsencode(other.beta), 5, message="after"))
    row = engine.repository().ledger.checkpoint(known[lost][0].workspace, 5)
    assert (outcome.status, outcome.version) == (CREATED, 5)
    assert row is not None
    paths = {entry.path for entry, _ in load(engine.repository(), row)[3]}
    engine.close()
    assert paths == {entry.path for entry, _ in known[lost][3]}
    assert names(problems(other.store)) == {lost}


def lose_blob(store: Path, key: bytes) -> None:
    """Make one blob unreadable and leave its neighbours alone: in a new pack, as compaction would write it."""
    repository = place(store).open()
    try:
        spot = repository.ledger.locate([key])[key]
        _, entries, _ = read_index(repository.blobs, spot.pack)
        writer = PackWriter(repository.blobs, level=3, frame=1)  # one blob to a frame
        for other, place_ in entries:
            writer.add(other, repository.contents.fetch(place_), place_.kind)
        writer.sync()
        with repository.ledger.transaction() as tx:
            tx.add_pack(writer.name, writer.size, ())
            writer.finish()
            known = repository.ledger.locate([other for other, _ in entries])
            tx.drop_packs([spot.pack], [entry for entry in writer.entries() if known[entry[0]].pack == spot.pack])
            _note_swap(repository, tx, [writer.name], [spot.pack])
        repository.blobs.delete(spot.pack)
    finally:
        repository.close()
    damage_blob(store, key)


def _note_swap(repository: Repository, tx: object, new: list[str], gone: list[str]) -> None:
    from keepfast.store.store_log import append_store_record

    append_store_record(repository, tx, {"r": "compact", "new": new, "gone": gone})  # type: ignore[arg-type]


def rebuilt_equals(store: Path, known: dict[str, Load]) -> bool:
    """Does a ledger made from packs and logs alone answer the same?"""
    before = loads(store)
    (store / "ledger.db").unlink()
    rebuild(place(store))
    return loads(store) == before and before[0] == files_of(known) and problems(store) == []


# Logs


@pytest.mark.parametrize("line", [0, 1, 4, -2, -1])
@pytest.mark.parametrize("folder", ["alpha", "beta"])
def test_a_damaged_line_of_a_log_is_written_again(
    sample: Sample, store: Path, known: dict[str, Load], folder: str, line: int
) -> None:
    path = log_of(store, known, folder)
    lines = path.read_bytes().splitlines(keepends=True)
    damage(path, sum(map(len, lines[:line])) if line >= 0 else path.stat().st_size - sum(map(len, lines[line:])), 9)

    assert_healed(store, known)
    assert rebuilt_equals(store, known)


@pytest.mark.parametrize("kept", [0, 1, 4, -1])
def test_a_log_that_was_cut_is_written_again(store: Path, known: dict[str, Load], kept: int) -> None:
    path = log_of(store, known, "alpha")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:kept]))

    assert_healed(store, known)
    assert rebuilt_equals(store, known)


def test_a_log_that_is_gone_is_written_again(store: Path, known: dict[str, Load]) -> None:
    log_of(store, known, "beta").unlink()

    assert_healed(store, known)
    assert rebuilt_equals(store, known)


def test_logs_that_were_swapped_are_written_again(store: Path, known: dict[str, Load]) -> None:
    one, two = log_of(store, known, "alpha"), log_of(store, known, "beta")
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)

    assert_healed(store, known)
    assert rebuilt_equals(store, known)


@pytest.mark.parametrize("way", ["damaged", "cut", "gone"])
def test_the_stores_own_log_is_healed(store: Path, known: dict[str, Load], way: str) -> None:
    path = store / "log/store.log"
    if way == "damaged":
        damage(path, 50)
    elif way == "cut":
        path.write_bytes(b"")
    else:
        path.unlink()

    assert_healed(store, known)
    repository = place(store).open()
    compact(repository, str(store), everything=True)
    repository.close()
    assert loads(store)[0] == files_of(known)
    assert problems(store) == []


def log_of(store: Path, known: dict[str, Load], folder: str) -> Path:
    workspace = next(row.workspace for name, (row, *_) in known.items() if name.endswith(f"/{folder}"))
    return store / f"log/{workspace}.log"


# The ledger and the format file


def test_a_lost_ledger_is_rebuilt_with_equal_answers(store: Path, known: dict[str, Load]) -> None:
    before = loads(store)

    assert rebuilt_equals(store, known)
    assert loads(store) == before


@pytest.mark.parametrize("moment", ["early", "before compaction", "after compaction", "late", "none", "empty", "noise"])
def test_a_missing_older_or_damaged_ledger_is_made_again(
    sample: Sample, store: Path, known: dict[str, Load], moment: str
) -> None:
    ledger = store / "ledger.db"
    if moment == "none":
        ledger.unlink()
    elif moment in ("empty", "noise"):
        ledger.write_bytes(Random(1).randbytes(70_000) if moment == "noise" else b"")
    else:
        shutil.copyfile(sample.ledgers[moment], ledger)

    result = repair(place(store))

    assert result.lost == []
    assert problems(store) == []
    assert loads(store)[0] == files_of(known)


def test_every_page_of_the_ledger_can_be_lost(sample: Sample, known: dict[str, Load], tmp_path: Path) -> None:
    size = (sample.store / "ledger.db").stat().st_size
    for page in range(0, size, 4096):
        store = sample.copy(tmp_path / str(page))
        with open(store / "ledger.db", "r+b") as file:
            file.seek(page)
            file.write(bytes(4096))

        result = repair(place(store))

        assert result.lost == [], page
        assert loads(store)[0] == files_of(known), page


@pytest.mark.parametrize(
    "text", [b"", b"holdfast store\nversion 1\n", b"\0" * 61, b"holdfast store\nversion x\nid 0\n"]
)
def test_the_format_file_is_written_again(store: Path, known: dict[str, Load], text: bytes) -> None:
    (store / "format").write_bytes(text)

    assert_healed(store, known)


def test_a_format_file_that_is_gone_is_written_again(store: Path, known: dict[str, Load]) -> None:
    (store / "format").unlink()

    assert_healed(store, known)


@pytest.mark.parametrize("folder", ["alpha", "beta"])
def test_a_lost_ledger_and_a_damaged_line_cost_no_version(
    sample: Sample, known: dict[str, Load], tmp_path: Path, folder: str
) -> None:
    """The lines behind it prove themselves, and the documents tell of the version whose line is gone."""
    lines = log_of(sample.store, known, folder).read_bytes().splitlines(keepends=True)
    for number, text in enumerate(lines):
        if b'"r":"checkpoint"' not in text and number:
            continue
        store = sample.copy(tmp_path / str(number))
        damage(log_of(store, known, folder), sum(map(len, lines[:number])) + 12, 4)
        (store / "ledger.db").unlink()

        result = repair(place(store))
        files, documents = loads(store)

        assert [problem.text for problem in result.lost] == [], number
        assert files.keys() == documents.keys() == known.keys(), number
        right = {name: value[1] for name, value in files_of(known).items()}
        assert {name: value[1] for name, value in files.items()} == right, number


@pytest.mark.parametrize("other", ["beta", "store"])
def test_swapped_logs_and_a_lost_ledger_cost_nothing(store: Path, known: dict[str, Load], other: str) -> None:
    """The first line of a log says whose it is."""
    one = log_of(store, known, "alpha")
    two = store / "log/store.log" if other == "store" else log_of(store, known, other)
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    (store / "ledger.db").unlink()

    assert_healed(store, known)


def test_a_log_and_a_ledger_that_are_gone_cost_no_version(store: Path, known: dict[str, Load]) -> None:
    """Documents know their versions. What was forgotten and is not swept yet may come back; labels given later go."""
    log_of(store, known, "alpha").unlink()
    (store / "ledger.db").unlink()

    result = repair(place(store))
    files, documents = loads(store)

    assert [problem.text for problem in result.lost] == []
    assert files.keys() >= known.keys() and documents.keys() >= known.keys()
    assert {name: files[name][1] for name in known} == {name: value[1] for name, value in files_of(known).items()}


def test_a_log_cut_short_and_a_lost_ledger_cost_no_version(
    sample: Sample, known: dict[str, Load], tmp_path: Path
) -> None:
    """Nothing in the log says that there was more; the documents do."""
    lines = log_of(sample.store, known, "alpha").read_bytes().splitlines(keepends=True)
    for kept in range(len(lines)):
        store = sample.copy(tmp_path / str(kept))
        log_of(store, known, "alpha").write_bytes(b"".join(lines[:kept]))
        (store / "ledger.db").unlink()

        assert not names(repair(place(store)).lost) & known.keys(), kept  # but versions that had been forgotten
        assert {name: value[1] for name, value in loads(store)[0].items() if name in known} == {
            name: value[1] for name, value in files_of(known).items()
        }, kept


def test_a_version_without_line_and_document_is_named(store: Path, known: dict[str, Load]) -> None:
    path, name = log_of(store, known, "beta"), full_name(known, "v3 beta")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([line for line in lines if b'"v":3' not in line]))
    lose_blob(store, known[name][0].document)
    (store / "ledger.db").unlink()

    result = repair(place(store))

    assert name in names(result.lost)
    assert loads(store)[0].keys() & known.keys() == known.keys() - names(result.lost)


# Whatever it is


@pytest.mark.timeout(3600)
def test_repair_never_makes_anything_worse(
    sample: Sample, known: dict[str, Load], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Random damage, once or twice: what loaded before loads after, and repairing twice is repairing once."""
    healed = lost = 0
    for seed in range(FULL if request.config.getoption("campaign") else SHORT):
        random = Random(seed)
        store = sample.copy(tmp_path / str(seed))
        words = [mutate(store, random) for _ in range(random.choice([1, 1, 2]))]
        files, documents = loads(Path(shutil.copytree(store, tmp_path / f"{seed}-damaged")))
        right = files_of(known)
        try:
            result = repair(place(store))
            again = repair(place(store))
        except KeepfastError as error:
            assert files == {}, (seed, words, error)  # refused as a whole: nothing loaded before either
            continue
        files_now, documents_now = loads(store)
        good = [name for name in files if files[name] == right.get(name)]
        # What stood in nothing but a damaged log and a damaged ledger may have lost its label, or come back.
        part = slice(None) if len(words) == 1 else slice(1, None)
        kept = {name: files_now[name] for name in files_now if name in right or len(words) == 1}

        assert [name for name in good if name not in files_now] == [], (seed, words)
        assert [name for name in kept if kept[name][part] != right[name][part]] == [], (seed, words)
        # With two damages a version can be lost of which the document alone was left: it is named.
        excused = set() if len(words) == 1 else names(result.lost)
        assert documents.keys() & right.keys() <= documents_now.keys() | excused, (seed, words)
        assert right.keys() - files_now.keys() <= names(result.lost), (seed, words)
        assert again.healed == [], (seed, words)
        assert [(p.text, p.checkpoints) for p in again.lost] == [(p.text, p.checkpoints) for p in result.lost], seed
        healed += bool(result.healed)
        lost += bool(result.lost)
        for folder in (store, tmp_path / f"{seed}-damaged"):
            shutil.rmtree(folder)

    print(f"\nhealed something in {healed} stores, something stayed lost in {lost}")
    assert healed > 5


def test_a_ledger_that_was_made_smaller_is_not_called_damaged(store: Path) -> None:
    """SQLite writes its tables down in another order when it gives free pages back."""
    repository = place(store).open()
    repository.ledger.file.fetch("VACUUM")  # type: ignore[attr-defined]
    repository.close()

    repository = place(store).open()
    found = verify(repository, str(store)).problems
    repository.close()

    assert not found
