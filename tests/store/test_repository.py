"""The repository keeps what it promises, over the ports in memory and over the real ones."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EIO, ENOSPC, EROFS
from pathlib import Path
from threading import Event, Timer
from typing import Any, cast

import pytest
from blake3 import blake3
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keepfast.model import document, steps
from keepfast.model.entry import ATTRIBUTES, Entry, checked_path, gone
from keepfast.model.errors import Damaged, DiskFull, Failed, KeepfastError, NoWorkspace, Unreachable
from keepfast.model.ids import checkpoint_id
from keepfast.model.strict_json import dumps, loads
from keepfast.store.compression import zstd_module
from keepfast.store.digest import ZERO, digest
from keepfast.store.factory import create_store, open_store
from keepfast.store.maintenance.space import forget
from keepfast.store.packs import END, MAGIC, RAW, ZLIB, ZSTD, PackWriter, compress, decompress, read_index
from keepfast.store.ports import Blobs, Ledger, Records, Transaction
from keepfast.store.records import Chain, format_line
from keepfast.store.repository import Repository
from keepfast.store.rows import CHUNKS, CONTENT, DOCUMENT, CheckpointRow, Location, Query, WorkspaceRow
from keepfast.store.save import CHUNK_MAX, SYNC_IN_BACKGROUND_ROWS, CheckpointWriter, SaveConflict
from tests.store.memory_store import MemoryBlobs, MemoryLedger, MemoryRecords

MB = 1 << 20
NOON = 1_800_000_000_000_000_000
KOREAN = "문서/보고서.txt".encode()


# -- A store of either kind


class Store:
    """The three ports, and as many repositories over them as processes would open."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.path = str(folder / "store") if kind == "local" else ""
        first = create_store(self.path, durable=False) if self.path else None
        self.blobs: Blobs = first.blobs if first else MemoryBlobs()
        self.records: Records = first.records if first else MemoryRecords()
        self.ledger: Ledger = first.ledger if first else MemoryLedger()

    def open(self) -> Repository:
        if self.path:
            return open_store(self.path, durable=False)
        return Repository("0" * 32, self.blobs, self.records, self.ledger)

    def stored_bytes(self) -> int:
        return sum(map(self.blobs.size, self.blobs.names()))


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(request.param, tmp_path)


@pytest.fixture
def repository(store: Store) -> Repository:
    """Over a store with one workspace, `ws`."""
    repository = store.open()
    repository.register("ws", b"/w", NOON)
    return repository


_noise = random.Random(1)


def header(**fields: Any) -> dict[str, Any]:
    return {
        "id": checkpoint_id(NOON, _noise.randbytes(10)),
        "created_at": NOON,
        "trigger": "manual",
        "created_by": "user",
        "message": "",
        "name": None,
        "tags": [],
        "pinned": False,
        "session": None,
        "task": None,
        "cwd": "",
        "git": None,
        "tool": "0.1.0",
        **fields,
    }


Files = dict[bytes, bytes | None]
"""Path and content; None: gone."""


def rows_of(saving: CheckpointWriter, files: Files) -> dict[bytes, Entry]:
    rows = {}
    for path, content in files.items():
        if content is None:
            rows[path] = gone(path)
            continue
        key = saving.small(content) if len(content) <= 4 * MB else saving.large(io.BytesIO(content).read)
        rows[path] = Entry(path, "f", 0o644, 0, len(content), 7, 0, key, b"")
    return rows


def save(repository: Repository, files: Files, workspace: str = "ws", **fields: Any) -> CheckpointRow:
    saving = repository.begin(workspace)
    changed, old = saving.changes(rows_of(saving, files), None)
    return saving.finish(header(**fields), changed, old)


def contents(repository: Repository, version: int, workspace: str = "ws") -> Files:
    return {row.path: repository.contents.load(row.content) for row in repository.ledger.state(workspace, version)}


def everything(ledger: Ledger) -> list[Any]:
    return [
        ledger.workspaces(),
        ledger.find(Query(forgotten=True)),
        [list(ledger.intervals(row.id)) for row in ledger.workspaces()],
        sorted(ledger.locations()),
        sorted(ledger.packs()),
        ledger.meta("seq"),
    ]


# -- Saving and loading


def test_contents_come_back_version_by_version(store: Store, repository: Repository) -> None:
    save(repository, {b"a": b"one", b"empty": b"", KOREAN: "내용".encode()})
    save(repository, {b"a": b"two", b"\xff": b"\0" * 1000})
    save(repository, {b"a": None})

    again = store.open()
    assert contents(again, 1) == {b"a": b"one", b"empty": b"", KOREAN: "내용".encode()}
    assert contents(again, 2) == {b"a": b"two", b"empty": b"", KOREAN: "내용".encode(), b"\xff": b"\0" * 1000}
    assert contents(again, 3) == {b"empty": b"", KOREAN: "내용".encode(), b"\xff": b"\0" * 1000}


def test_a_checkpoint_says_what_it_was_told(store: Store, repository: Repository) -> None:
    told = header(
        message="고침 🎉",
        name="이름",
        tags=["a", "b c"],
        session="s",
        task="t",
        pinned=True,
        trigger="turn",
        created_by="auto",
    )
    saving = repository.begin("ws")
    row = saving.finish(told, *saving.changes(rows_of(saving, {b"a": b"12345"}), None))

    assert row == CheckpointRow(
        "ws", 1, told["id"], row.document, 1, NOON, "turn", "auto", "고침 🎉", "이름", "a\nb c", "s", "t", 1, 0, 1,
        1, 5, store.stored_bytes(), row.tree,
    )  # fmt: skip
    head, rows = store.open().document(row)
    assert {key: head.members[key] for key in told} == told
    assert (head.workspace, head.members["parent"], head.keyframe) == ("ws", None, True)
    assert [entry.path for entry in rows] == [b"a"]


def test_each_document_names_the_one_before_and_holds_changes_only(repository: Repository) -> None:
    first = save(repository, {b"a": b"1", b"b": b"1"})
    second = save(repository, {b"b": b"2", b"a": b"1"})

    head, rows = repository.document(second)
    assert (head.parent, head.keyframe) == (first.document.hex(), False)
    assert [row.path for row in rows] == [b"b"]
    assert second.changed == 1


def test_after_a_walk_what_was_not_seen_is_gone(repository: Repository) -> None:
    save(repository, {b"a": b"1", b"b": b"1", b"c": b"1"})
    saving = repository.begin("ws")
    changed, old = saving.changes(rows_of(saving, {b"c": b"2"}), {b"a", b"c"})
    saving.finish(header(), changed, old)

    assert contents(repository, 2) == {b"a": b"1", b"c": b"2"}


@pytest.mark.parametrize("size", [0, 1, 16 << 10, 5 * MB])
def test_a_streamed_content_of_any_size_comes_back(repository: Repository, size: int) -> None:
    content = random.Random(size).randbytes(size)
    saving = repository.begin("ws")
    key = saving.large(io.BytesIO(content).read)
    row = Entry(b"a", "f", 0o644, 0, size, 0, 0, key, b"")
    saving.finish(header(), *saving.changes({b"a": row}, None))

    assert key == digest(content)
    assert repository.contents.load(key) == content
    assert max(map(len, repository.contents.stream(key))) <= CHUNK_MAX


def test_a_large_file_costs_about_what_changed_in_it(store: Store, repository: Repository) -> None:
    """30 MB; then 1 MB of it is overwritten; then 1 MB is put in near the start."""
    content = random.Random(30).randbytes(30 * MB)
    save(repository, {b"big": content})
    assert 30 * MB < store.stored_bytes() < 30.2 * MB

    edited = content[: 10 * MB] + random.Random(31).randbytes(MB) + content[11 * MB :]
    before = store.stored_bytes()
    row = save(repository, {b"big": edited})
    assert MB < store.stored_bytes() - before < 1.5 * MB
    assert row.added == store.stored_bytes() - before

    grown = edited[: 5 * MB] + random.Random(32).randbytes(MB) + edited[5 * MB :]
    before = store.stored_bytes()
    save(repository, {b"big": grown})
    assert MB < store.stored_bytes() - before < 1.5 * MB

    again = store.open()
    assert [
        contents(again, version)[b"big"] == whole for version, whole in ((1, content), (2, edited), (3, grown))
    ] == [True] * 3


def test_the_same_content_is_stored_once_over_files_versions_and_workspaces(
    store: Store, repository: Repository
) -> None:
    content = random.Random(2).randbytes(MB)
    save(repository, {b"a": content, b"copy": content})
    once = store.stored_bytes()
    assert once < MB + 10_000

    repository.register("other", b"/other", NOON)
    save(repository, {b"moved": content, b"a": None})
    save(store.open(), {b"b": content}, "other")

    assert store.stored_bytes() < once + 10_000
    assert contents(repository, 1, "other") == {b"b": content}


def test_a_large_file_in_a_second_workspace_costs_its_document_only(store: Store, repository: Repository) -> None:
    content = random.Random(3).randbytes(6 * MB)
    save(repository, {b"a": content})
    once = store.stored_bytes()
    repository.register("other", b"/other", NOON)
    save(repository, {b"b": content}, "other")

    assert store.stored_bytes() < once + 10_000
    assert contents(repository, 1, "other") == {b"b": content}


def test_an_empty_workspace_and_an_unchanged_one_can_be_saved(repository: Repository) -> None:
    save(repository, {})
    save(repository, {b"a": b"1"})
    row = save(repository, {b"a": b"1"}, message="nothing new")

    assert (row.version, row.changed, row.files) == (3, 0, 1)
    assert contents(repository, 1) == {}
    assert contents(repository, 3) == {b"a": b"1"}


def test_a_text_with_half_a_character_does_not_stop_a_save(store: Store, repository: Repository) -> None:
    """A shell's stray byte, an emoji cut in two by JavaScript: the document keeps it, the ledger shows a `?`."""
    told: dict[str, Any] = {
        "message": "cut \ud83d",
        "name": "\udcff",
        "tags": ["\udc80x"],
        "session": "s\udfff",
        "task": "\ud800",
    }
    row = save(repository, {b"a": b"1"}, **told)

    assert (row.message, row.name, row.tags, row.session, row.task) == ("cut ?", "?", "?x", "s?", "?")
    assert {key: repository.document(row)[0].members[key] for key in told} == told

    repository.commit("ws", lambda tx, now: [{"r": "name", "v": 1, "name": "x\udcfe"}])

    assert [row.version for row in store.open().ledger.find(Query(name="x?"))] == [1]


def test_a_workspace_nobody_registered_is_refused(repository: Repository) -> None:
    assert repository.workspace("none") is None
    with pytest.raises(NoWorkspace):
        repository.begin("none")


def test_a_workspace_that_moved_keeps_its_past(store: Store, repository: Repository) -> None:
    save(repository, {b"a": b"1"})
    row = repository.register("ws", b"/moved/\xff\n" + KOREAN, NOON + 1)

    assert (row.path, row.version) == (b"/moved/\xff\n" + KOREAN, 1)
    assert [record["r"] for record in Chain(store.records.read("ws")).records] == [
        "workspace",
        "checkpoint",
        "workspace",
    ]


PATHS = st.sampled_from([b"a", b"b/c", b"b/d", KOREAN, b"\xff", b"l"])
CONTENTS = st.one_of(st.none(), st.sampled_from([b"", b"one", b"two", b"x" * 5000]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(PATHS, CONTENTS), min_size=1, max_size=8))
def test_every_version_of_any_life_is_whole_and_its_sums_are_right(life: list[Files]) -> None:
    repository = Repository("0" * 32, MemoryBlobs(), MemoryRecords(), MemoryLedger())
    repository.register("ws", b"/w", NOON)
    model: dict[bytes, bytes] = {}
    expected = []
    for files in life:
        for path, content in files.items():
            model.pop(path, None)
            if content is not None:
                model[path] = content
        row = save(repository, files)
        expected.append(dict(model))
        check_sums(repository, row)

    for version, state in enumerate(expected, 1):
        assert contents(repository, version) == state


def check_sums(repository: Repository, row: CheckpointRow) -> None:
    """Recompute tree and counts from the state, by the words of docs/format/checkpoint.md."""
    tree, counts = 0, {"bytes": 0}
    for entry in repository.ledger.state(row.workspace, row.version):
        counts[entry.kind] = counts.get(entry.kind, 0) + 1
        counts["bytes"] += entry.size if entry.kind == "f" else 0
        if entry.kind in "fld":
            text = entry.kind.encode() + f"{entry.mode:04o}".encode() + entry.path + b"\0" + entry.content
            tree += int.from_bytes(blake3(text).digest(), "little")
    head = repository.document(row)[0]
    assert head.tree == row.tree == f"{tree % 2**256:064x}"
    assert head.counts == {kind: number for kind, number in counts.items() if number}
    assert (row.files, row.bytes) == (counts.get("f", 0), counts["bytes"])
    workspace = repository.workspace(row.workspace)
    assert workspace is not None
    assert (workspace.tree, loads(workspace.counts)) == (head.tree, head.counts)


def test_sums_count_every_kind_and_forget_what_went(repository: Repository) -> None:
    def finish(*rows: Entry) -> CheckpointRow:
        saving = repository.begin("ws")
        changed, old = saving.changes({row.path: row for row in rows}, None)
        row = saving.finish(header(), changed, old)
        check_sums(repository, row)
        return row

    def made(path: bytes, kind: str, size: int = 0, content: bytes = b"", mode: int = 0o644) -> Entry:
        return Entry(path, kind, mode, 0, size, 0, 0, content, b"")

    first = finish(
        made(b"d", "d", mode=0o755), made(b"d/f", "f", 5, ZERO), made(b"l", "l", 1, b"d"), made(b"o", "o", 10**12),
        made(b"s", "s"), made(b"t", "f", 7, ZERO, 0o4755), made(b"u", "u"), made(b"x", "x"), made(b"i", "i", 9),
    )  # fmt: skip
    finish(made(b"d/f", "l", 2, b"zz"), made(b"o", "f", 3, ZERO), gone(b"t"), made(b"x", "d"))
    third = finish(*[gone(path) for path in (b"d", b"d/f", b"i", b"l", b"o", b"s", b"u", b"x")])

    assert repository.document(first)[0].counts == {
        "d": 1, "f": 2, "l": 1, "o": 1, "s": 1, "u": 1, "x": 1, "i": 1, "bytes": 12,
    }  # fmt: skip
    assert (third.tree, repository.document(third)[0].counts) == ("0" * 64, {})


def test_the_same_tree_has_the_same_sum_whatever_way_it_came_about(repository: Repository) -> None:
    repository.register("other", b"/other", NOON)
    save(repository, {b"a": b"1", b"b": b"2"})
    save(repository, {b"a": b"3", b"c": b"4"})
    back = save(repository, {b"a": b"1", b"c": None})
    fresh = save(repository, {b"b": b"2", b"a": b"1"}, "other")

    assert back.tree == fresh.tree
    assert back.tree != save(repository, {b"a": b"2"}).tree


# -- When something fails


class FailingLedger:
    """A ledger whose commits fail as on a full disk, as often as asked; `meanwhile` runs right after such a failure."""

    def __init__(self, ledger: Ledger, times: int = 1, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.ledger, self.times, self.meanwhile = ledger, times, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        failed = False
        try:
            with self.ledger.transaction() as tx:
                yield tx
                if self.times:
                    self.times -= 1
                    failed = True
                    raise DiskFull("The disk is full.")
        finally:
            if failed:
                self.meanwhile()


class StubbornRecords(MemoryRecords):
    """Logs that cannot be cut, over other logs."""

    def __init__(self, records: Records) -> None:
        self.records = records

    def append(self, log: str, lines: bytes) -> None:
        self.records.append(log, lines)

    def read(self, log: str) -> bytes:
        return self.records.read(log)

    def truncate(self, log: str, size: int) -> None:
        raise OSError("no")


def failing(store: Store, times: int = 1, meanwhile: Callable[[], object] = lambda: None) -> Repository:
    ledger = cast(Ledger, FailingLedger(store.open().ledger, times, meanwhile))
    return Repository("0" * 32, store.blobs, store.records, ledger)


def leave_record_without_row(store: Store, files: Files) -> None:
    """What a process leaves behind that is killed after the record and before the commit."""
    ledger = cast(Ledger, FailingLedger(store.open().ledger))
    with pytest.raises(DiskFull):
        save(Repository("0" * 32, store.blobs, StubbornRecords(store.records), ledger), files)


def test_a_commit_that_fails_cuts_its_record_off_again(store: Store, repository: Repository) -> None:
    save(repository, {b"a": b"1"})
    log, rows, packs = store.records.read("ws"), everything(store.ledger), sorted(store.blobs.names())
    with pytest.raises(DiskFull):
        save(failing(store), {b"a": b"2"})

    assert store.records.read("ws") == log
    assert everything(store.ledger) == rows
    assert sorted(store.blobs.names()) == packs, "what was written takes no room"

    row = save(store.open(), {b"a": b"3"})

    assert row.version == 2
    assert contents(store.open(), 2) == {b"a": b"3"}


@pytest.mark.parametrize("is_cut", [True, False])
def test_whether_a_forgetting_that_failed_became_true_is_told_by_the_log(
    store: Store, repository: Repository, is_cut: bool
) -> None:
    """Its record is adopted by whoever comes next, unless it could be cut off again."""
    for number in range(3):
        save(repository, {b"a": b"%d" % number})
    ledger = cast(Ledger, FailingLedger(store.open().ledger))
    records = store.records if is_cut else StubbornRecords(store.records)
    failing_one = Repository("0" * 32, store.blobs, records, ledger)
    if is_cut:
        with pytest.raises(DiskFull):
            forget(failing_one, "ws", [1, 2], "test")
    else:
        forget(failing_one, "ws", [1, 2], "test")

    repository = store.open()
    repository.workspace("ws")
    left = [row.version for row in repository.ledger.find(Query(workspace="ws"))]
    assert left == ([3, 2, 1] if is_cut else [3])


def test_an_earlier_forgetting_of_some_is_not_taken_for_one_of_all(store: Store, repository: Repository) -> None:
    for number in range(3):
        save(repository, {b"a": b"%d" % number})
    forget(repository, "ws", [1], "test")

    with pytest.raises(DiskFull):
        forget(failing(store), "ws", [2, 3], "test")

    assert [row.version for row in store.open().ledger.find(Query(workspace="ws"))] == [3, 2]


def test_the_same_repository_goes_on_after_a_failure(store: Store, repository: Repository) -> None:
    unlucky = failing(store)
    for _ in range(3):
        cast(FailingLedger, unlucky.ledger).times = 1
        with pytest.raises(DiskFull):
            save(unlucky, {b"a": b"1"})

    assert save(unlucky, {b"a": b"1"}).version == 1
    assert contents(store.open(), 1) == {b"a": b"1"}


MANY: Files = {b"%d" % number: b"content %d" % number for number in range(SYNC_IN_BACKGROUND_ROWS)}


@pytest.mark.parametrize("when", ["pack:written", "pack:synced", "pack:renamed"])
def test_of_many_files_a_pack_that_cannot_be_made_durable_leaves_everything_as_it_was(
    when: str, tmp_path: Path
) -> None:
    """It is synced while the rows are made, in a thread; its error comes out all the same, and takes the rows back."""
    store = Store("local", tmp_path)
    repository = store.open()
    repository.register("ws", b"/w", NOON)
    save(repository, {b"a": b"1"})
    log, rows = store.records.read("ws"), everything(store.ledger)

    def fail(name: str) -> None:
        if name == when:
            raise OSError(ENOSPC, "No space left on device")

    saving = repository.begin("ws")
    changed, old = saving.changes(rows_of(saving, MANY), None)
    steps.observer = fail
    try:
        with pytest.raises(DiskFull):
            saving.finish(header(), changed, old)
    finally:
        steps.observer = None
        saving.abort()

    assert store.records.read("ws") == log
    assert everything(store.ledger) == rows
    assert not [*(Path(store.path) / "tmp").iterdir()]
    assert save(repository, MANY).version == 2
    assert contents(store.open(), 2) == MANY | {b"a": b"1"}


def test_a_save_that_is_given_up_waits_for_the_thread_that_syncs_its_pack(tmp_path: Path) -> None:
    store = Store("local", tmp_path)
    repository = store.open()
    repository.register("ws", b"/w", NOON)
    begun, go = Event(), Event()

    def wait(name: str) -> None:
        if name == "pack:written":
            begun.set()
            assert go.wait(60)

    saving = repository.begin("ws")
    changed, old = saving.changes(rows_of(saving, MANY), None)
    save(store.open(), {b"a": b"1"})  # another one was faster
    steps.observer = wait
    try:
        Timer(0.2, go.set).start()
        with pytest.raises(SaveConflict):
            saving.finish(header(), changed, old)
        saving.abort()
    finally:
        steps.observer = None

    assert begun.is_set() and go.is_set()
    assert not [*(Path(store.path) / "tmp").iterdir()]


def test_a_failed_first_registration_leaves_no_workspace(store: Store) -> None:
    with pytest.raises(DiskFull):
        failing(store).register("new", b"/new", NOON)

    assert store.records.size("new") == 0
    assert store.open().workspace("new") is None
    assert store.open().register("new", b"/new", NOON).path == b"/new"


def test_a_record_adopted_by_another_process_is_not_cut_off_by_the_one_that_failed(
    store: Store, repository: Repository
) -> None:
    """Between its failed commit and its cut others may come: they adopt the record and build on it, so the save is done."""
    save(repository, {b"a": b"1"})
    made = save(failing(store, meanwhile=lambda: save(store.open(), {b"b": b"3"})), {b"a": b"2"})

    assert made.version == 2
    again = store.open()
    row = again.workspace("ws")
    assert row is not None
    assert (row.version, row.log_size) == (3, store.records.size("ws"))
    assert contents(again, 3) == {b"a": b"2", b"b": b"3"}


def test_an_interrupt_right_after_the_commit_takes_nothing_back(store: Store, repository: Repository) -> None:
    """Control-C while the lock is let go: the checkpoint is durable, and its record stays."""

    def interrupt(name: str) -> None:
        if name == "ledger:committed":
            steps.observer = None
            raise KeyboardInterrupt

    save(repository, {b"a": b"1"})
    saving = repository.begin("ws")
    rows = rows_of(saving, {b"a": b"2"})
    steps.observer = interrupt
    try:
        with pytest.raises(KeyboardInterrupt):
            saving.finish(header(), *saving.changes(rows, None))
    finally:
        steps.observer = None

    assert contents(store.open(), 2) == {b"a": b"2"}
    assert save(repository, {b"a": b"3"}).version == 3


def test_an_error_in_the_work_leaves_log_and_rows_alone(store: Store, repository: Repository) -> None:
    save(repository, {b"a": b"1"})
    log, rows = store.records.read("ws"), everything(store.ledger)

    def work(tx: Transaction, row: WorkspaceRow | None) -> list[dict[str, Any]]:
        tx.set_meta("seq", "99")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        repository.commit("ws", work)
    assert (store.records.read("ws"), everything(store.ledger)) == (log, rows)


def test_two_saves_at_once_do_not_become_one(store: Store, repository: Repository) -> None:
    """Whoever is late is told, and nothing of it is seen."""
    late, early = store.open().begin("ws"), store.open().begin("ws")
    ready = late.changes(rows_of(late, {b"a": b"late"}), None)
    early.finish(header(), *early.changes(rows_of(early, {b"a": b"early"}), None))
    log, names = store.records.read("ws"), store.blobs.names()

    with pytest.raises(SaveConflict):
        late.finish(header(), *ready)
    late.abort()
    assert (store.records.read("ws"), store.blobs.names()) == (log, names)
    assert contents(repository, 1) == {b"a": b"early"}
    assert store.blobs.sweep() == 0


def test_a_content_swept_while_it_was_saved_again_is_stored_anew(store: Store, repository: Repository) -> None:
    content = b"kept nowhere else" * 100
    save(repository, {b"a": content})
    saving = repository.begin("ws")
    rows = rows_of(saving, {b"b": content})
    saving.store_waiting_blobs()
    with store.ledger.transaction() as tx:
        tx.drop_packs([pack.name for pack in store.ledger.packs()], [])

    with pytest.raises(SaveConflict):
        saving.finish(header(), *saving.changes(rows, None))
    saving.abort()
    save(repository, {b"b": content})
    assert repository.contents.load(digest(content)) == content


def test_an_aborted_save_leaves_nothing(store: Store, repository: Repository) -> None:
    log, names = store.records.read("ws"), store.blobs.names()
    saving = repository.begin("ws")
    saving.small(random.Random(1).randbytes(3 * MB))
    saving.large(io.BytesIO(random.Random(2).randbytes(5 * MB)).read)
    saving.abort()

    assert (store.records.read("ws"), store.blobs.names(), store.blobs.sweep()) == (log, names, 0)
    assert save(repository, {b"a": b"1"}).version == 1


# -- Log and ledger apart


def test_a_complete_record_without_a_row_is_adopted(store: Store, repository: Repository) -> None:
    save(repository, {b"a": b"1"})
    leave_record_without_row(store, {b"a": b"2", b"b": b"2"})
    found = store.ledger.workspace("ws")
    assert found is not None
    assert found.version == 1

    again = store.open()
    row = again.workspace("ws")

    assert row is not None
    assert (row.version, row.log_size) == (2, store.records.size("ws"))
    assert contents(again, 2) == {b"a": b"2", b"b": b"2"}
    assert save(again, {b"c": b"3"}).version == 3


def test_the_process_that_failed_adopts_its_own_record_whole(store: Store, repository: Repository) -> None:
    """Its commit failed and the record could not be cut off: its next save finds contents, not just rows."""
    ledger = cast(Ledger, FailingLedger(store.open().ledger))
    unlucky = Repository("0" * 32, store.blobs, StubbornRecords(store.records), ledger)
    with pytest.raises(DiskFull):
        save(unlucky, {b"a": b"1"})
    save(unlucky, {b"b": b"2"})

    assert contents(unlucky, 2) == {b"a": b"1", b"b": b"2"}
    assert contents(store.open(), 1) == {b"a": b"1"}


def test_whoever_saves_next_adopts_first(store: Store, repository: Repository) -> None:
    leave_record_without_row(store, {b"a": b"1"})

    assert save(store.open(), {b"b": b"2"}).version == 2
    assert contents(store.open(), 2) == {b"a": b"1", b"b": b"2"}


def test_an_empty_ledger_is_filled_from_the_log_alone(store: Store, repository: Repository) -> None:
    """All rows are derived: pins, names and forgettings too."""
    for number in range(1, 6):
        save(repository, {b"a": b"%d" % number, b"f%d" % number: b"x"}, tags=[f"t{number}"], message=f"m{number}")
    for record in (
        {"r": "pin", "v": 1},
        {"r": "pin", "v": 2},
        {"r": "unpin", "v": 2},
        {"r": "name", "v": 3, "name": "n"},
        {"r": "name", "v": 4, "name": "gone again"},
        {"r": "name", "v": 4, "name": None},
        {"r": "forget", "v": [2, 3], "why": "test"},
    ):
        repository.commit("ws", lambda tx, row, record=record: [record])  # type: ignore[misc]
    save(repository, {b"a": b"last"})

    ledger = MemoryLedger()
    Repository("0" * 32, store.blobs, store.records, ledger).workspace("ws")

    assert everything(ledger) == everything(store.ledger)
    assert [row.version for row in ledger.find(Query())] == [6, 5, 4, 1]
    assert [(row.version, row.pinned, row.name, row.tags) for row in ledger.find(Query(forgotten=True))] == [
        (6, 0, "", ""), (5, 0, "", "t5"), (4, 0, "", "t4"), (3, 0, "n", "t3"), (2, 0, "", "t2"), (1, 1, "", "t1"),
    ]  # fmt: skip


def test_an_adopted_record_whose_pack_is_missing_is_damage(store: Store, repository: Repository) -> None:
    names = set(store.blobs.names())
    leave_record_without_row(store, {b"a": b"1"})
    for name in set(store.blobs.names()) - names:
        store.blobs.delete(name)

    log = store.records.read("ws")
    with pytest.raises(Damaged):
        store.open().workspace("ws")
    assert store.records.read("ws") == log


def test_a_record_torn_anywhere_is_cut_off(tmp_path: Path) -> None:
    store = Store("memory", tmp_path)
    repository = store.open()
    repository.register("ws", b"/w", NOON)
    save(repository, {b"a": b"1"})
    whole = store.records.read("ws")
    save(repository, {b"a": b"2"})
    longer = store.records.read("ws")

    for end in range(len(whole) + 1, len(longer)):
        records = MemoryRecords()
        records.append("ws", longer[:end])
        again = Repository("0" * 32, store.blobs, records, MemoryLedger())
        row = again.workspace("ws")
        assert row is not None
        assert (row.version, row.log_size, records.read("ws")) == (1, len(whole), whole)


@pytest.mark.parametrize(
    "rest", [b"{", b'{"r":"pin","v":1}', b"\0" * 300, b'{"r":"pin","v":1} ' + b"0" * 64 + b"\n", b"\n"]
)
def test_the_trace_of_a_write_cut_short_is_removed_by_the_next_writer(
    store: Store, repository: Repository, rest: bytes
) -> None:
    save(repository, {b"a": b"1"})
    whole = store.records.read("ws")
    store.records.append("ws", rest)

    assert save(store.open(), {b"a": b"2"}).version == 2
    assert store.records.read("ws").startswith(whole + b'{"r":"checkpoint"')
    assert not Chain(store.records.read("ws")).rest


def test_bad_lines_before_the_last_are_damage_and_nothing_is_cut(store: Store, repository: Repository) -> None:
    save(repository, {b"a": b"1"})
    store.records.append("ws", b"{} " + b"0" * 64 + b"\n{} " + b"1" * 64 + b"\n")
    log, rows = store.records.read("ws"), everything(store.ledger)

    for attempt in (lambda again: again.workspace("ws"), lambda again: save(again, {b"a": b"2"})):
        with pytest.raises(Damaged):
            attempt(store.open())
    assert (store.records.read("ws"), everything(store.ledger)) == (log, rows)


@pytest.mark.parametrize("missing", [1, 65, 100_000])
def test_a_log_shorter_than_the_ledger_says_is_damage(store: Store, repository: Repository, missing: int) -> None:
    save(repository, {b"a": b"1"})
    save(repository, {b"a": b"2"})
    store.records.truncate("ws", max(0, store.records.size("ws") - missing))
    log, rows = store.records.read("ws"), everything(store.ledger)

    for attempt in (
        lambda again: again.workspace("ws"),
        lambda again: save(again, {b"a": b"3"}),
        lambda again: again.register("ws", b"/moved", NOON),
    ):
        with pytest.raises(Damaged):
            attempt(store.open())
    assert (store.records.read("ws"), everything(store.ledger)) == (log, rows)


def test_versions_and_sequence_numbers_strictly_increase(store: Store, repository: Repository) -> None:
    """Whoever saves, whatever failed in between."""
    repository.register("other", b"/other", NOON)
    rows = []
    for number in range(4):
        for each in (repository, store.open()):
            rows.append(save(each, {b"a": b"%d" % number}))
            rows.append(save(each, {b"a": b"%d" % number}, "other"))
        with pytest.raises(DiskFull):
            save(failing(store), {b"a": b"lost"})

    assert [row.version for row in rows if row.workspace == "ws"] == list(range(1, 9))
    assert [row.version for row in rows if row.workspace == "other"] == list(range(1, 9))
    assert [row.seq for row in rows] == list(range(1, 17))


def append_records(store: Store, *crafted: dict[str, Any]) -> None:
    """Append lines whose digests are right, whatever they say."""
    head = Chain(store.records.read("ws")).head
    for record in crafted:
        text, head = format_line(head, record)
        store.records.append("ws", text)


def test_records_of_an_unknown_kind_are_kept_and_ignored(store: Store, repository: Repository) -> None:
    save(repository, {b"a": b"1"})
    before = everything(store.ledger)[1:]
    repository.commit("ws", lambda tx, row: [{"r": "seal", "by": ["a", {"newer": "keepfast"}], "v": "x"}])
    append_records(store, {"r": "other"}, {"no kind": 1}, {"r": ["pin"], "v": 1})

    again = store.open()
    row = again.workspace("ws")
    assert row is not None
    assert (row.version, row.log_size) == (1, store.records.size("ws"))
    assert everything(store.ledger)[1:] == before

    assert save(again, {b"a": b"2"}).version == 2
    assert b'{"r":"seal","by":["a",{"newer":"keepfast"}],"v":"x"} ' in store.records.read("ws")
    assert len(Chain(store.records.read("ws")).records) == 7


CRAFTED = [
    {"r": "checkpoint"},
    {"r": "checkpoint", "v": 2},
    {"r": "checkpoint", "v": "2", "doc": "00" * 32, "packs": []},
    {"r": "checkpoint", "v": None, "doc": "00" * 32, "packs": []},
    {"r": "checkpoint", "v": 2, "doc": "no hex", "packs": []},
    {"r": "checkpoint", "v": 2, "doc": 5, "packs": []},
    {"r": "checkpoint", "v": 2, "doc": "00" * 32, "packs": []},
    {"r": "checkpoint", "v": 2, "doc": "00" * 32, "packs": ["../../etc/passwd"]},
    {"r": "checkpoint", "v": 2, "doc": "00" * 32, "packs": ["a\0b"]},
    {"r": "checkpoint", "v": 2, "doc": "00" * 32, "packs": [5]},
    {"r": "checkpoint", "v": 2, "doc": "00" * 32, "packs": 5},
    {"r": "checkpoint", "v": 2, "doc": "00" * 32},
    {"r": "pin"},
    {"r": "pin", "v": 99},
    {"r": "pin", "v": [1]},
    {"r": "unpin", "v": {}},
    {"r": "name", "v": 1},
    {"r": "name", "v": 1, "name": 5},
    {"r": "forget"},
    {"r": "forget", "v": 1},
    {"r": "forget", "v": ["x"]},
    {"r": "forget", "v": [[]]},
    {"r": "keyframe"},
    {"r": "workspace"},
    {"r": "workspace", "path": 5},
]


@pytest.mark.parametrize("record", CRAFTED, ids=dumps)
def test_a_crafted_record_is_damage_and_never_another_error(
    store: Store, repository: Repository, record: dict[str, Any]
) -> None:
    save(repository, {b"a": b"1"})
    append_records(store, record)
    log, rows = store.records.read("ws"), everything(store.ledger)

    with pytest.raises(Damaged):
        store.open().workspace("ws")
    assert (store.records.read("ws"), everything(store.ledger)) == (log, rows)


@pytest.mark.parametrize("version", [2, 1, 0, -1])
def test_a_record_that_goes_back_in_versions_is_damage(store: Store, repository: Repository, version: int) -> None:
    save(repository, {b"a": b"1"})
    save(repository, {b"a": b"2"})
    append_records(store, {**Chain(store.records.read("ws")).records[-1], "v": version})

    with pytest.raises(Damaged):
        store.open().workspace("ws")


def test_a_log_under_another_workspaces_name_is_damage(store: Store, repository: Repository) -> None:
    save(repository, {b"a": b"1"})
    store.records.append("copy", store.records.read("ws"))

    with pytest.raises(Damaged):
        store.open().workspace("copy")
    with pytest.raises(Damaged):
        Repository("0" * 32, store.blobs, store.records, MemoryLedger()).workspace("copy")


def test_a_log_that_does_not_begin_with_its_workspace_is_damage(store: Store) -> None:
    store.records.append("ws", format_line(ZERO, {"r": "pin", "v": 1})[0])

    with pytest.raises(Damaged):
        store.open().workspace("ws")


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_flipped_bit_anywhere_in_a_log_ends_the_chain_there(at: int, flip: int) -> None:
    data, head, ends = b"", ZERO, [0]
    for number in range(20):
        text, head = format_line(head, {"r": "pin", "v": number, "text": "가\n나 다"})
        data += text
        ends.append(len(data))
    at %= len(data)
    chain = Chain(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])

    assert chain.size == max(end for end in ends if end <= at)
    assert chain.rest == (data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])[chain.size :]


# -- Damage in packs


def test_no_flipped_byte_in_a_frame_changes_a_content_unnoticed(tmp_path: Path) -> None:
    store = Store("memory", tmp_path)
    repository = store.open()
    repository.register("ws", b"/w", NOON)
    content = b"some text that compresses, some text that compresses"
    save(repository, {b"a": content, b"b": b"another"})
    (name,) = store.blobs.names()
    pack = store.blobs.read(name, 0, store.blobs.size(name))
    table = struct.unpack("<Q", pack[-64:-56])[0]

    for at in range(8, table):
        bad = MemoryBlobs()
        put(bad, name, pack[:at] + bytes([pack[at] ^ 1 << at % 8]) + pack[at + 1 :])
        again = Repository("0" * 32, bad, store.records, store.ledger)
        try:
            assert again.contents.load(digest(content)) == content
        except Damaged:
            pass


def test_contents_that_are_not_there_are_damage(store: Store, repository: Repository) -> None:
    row = save(repository, {b"a": b"1" * 1000})
    with pytest.raises(Damaged):
        repository.contents.load(ZERO)
    for name in store.blobs.names():
        store.blobs.delete(name)

    with pytest.raises(Damaged):
        store.open().contents.load(digest(b"1" * 1000))
    with pytest.raises(Damaged):
        store.open().document(row)


@pytest.mark.parametrize(
    "place",
    [
        {"frame": 1 << 40},
        {"stored": 1 << 40},
        {"stored": 0},
        {"stored": 3},
        {"offset": 1 << 40},
        {"length": 1 << 40},
        {"length": 5},
        {"offset": 1},
        {"kind": CHUNKS},
        {"kind": 77},
    ],
    ids=repr,
)
def test_a_ledger_that_lies_about_a_place_is_damage_not_a_wrong_content(
    store: Store, repository: Repository, place: dict[str, Any]
) -> None:
    content = bytes(range(100)) * 10
    save(repository, {b"a": content})
    true = store.ledger.locate([digest(content)])[digest(content)]
    with store.ledger.transaction() as tx:
        tx.drop_packs([], [(digest(content), true._replace(**place))])

    again = store.open()
    if place == {"kind": 77}:
        assert again.contents.load(digest(content)) == content
    else:
        with pytest.raises(Damaged):
            again.contents.load(digest(content))


@pytest.mark.parametrize(
    "chunks", [b"", b"x", ZERO, digest(b"one"), digest(b"two") + digest(b"one"), digest(b"one")[:31]]
)
def test_a_chunk_list_that_does_not_add_up_is_damage(repository: Repository, chunks: bytes) -> None:
    whole = b"one" + b"two"
    writer = PackWriter(repository.blobs)
    writer.add(digest(b"one"), b"one", CONTENT)
    writer.add(digest(b"two"), b"two", CONTENT)
    writer.add(digest(whole), chunks, CHUNKS)
    register(repository, writer)

    with pytest.raises(Damaged):
        repository.contents.load(digest(whole))


def register(repository: Repository, writer: PackWriter) -> None:
    writer.sync()
    writer.finish()
    with repository.ledger.transaction() as tx:
        tx.add_pack(writer.name, writer.size, writer.entries())


def test_a_chunk_list_among_the_chunks_is_not_followed(repository: Repository) -> None:
    """A list that holds itself would never end."""
    key = digest(b"whatever")
    writer = PackWriter(repository.blobs)
    writer.add(key, key * 3, CHUNKS)
    register(repository, writer)

    with pytest.raises(Damaged):
        repository.contents.load(key)


# -- Documents

NUMBERS = st.integers(0, 2**63 - 1)
PARTS = st.binary(min_size=1, max_size=8).filter(
    lambda part: b"/" not in part and b"\0" not in part and part not in (b".", b"..")
)
ANY_PATHS = st.lists(PARTS, min_size=1, max_size=4).map(b"/".join)
TARGETS = st.binary(max_size=20).map(lambda target: target.replace(b"\0", b"0"))


@st.composite
def rows(draw: st.DrawFn, kinds: str = "fldxoius-") -> list[Entry]:
    result = []
    for path in sorted(draw(st.sets(ANY_PATHS, max_size=12))):
        kind = draw(st.sampled_from(kinds))
        content = draw(st.binary(min_size=32, max_size=32)) if kind == "f" else draw(TARGETS) if kind == "l" else b""
        flags = draw(st.integers(0, 255))
        extra = draw(st.binary(max_size=30)) if flags & ATTRIBUTES else b""
        mtime = draw(st.integers(-(2**63), 2**63 - 1))
        result.append(
            Entry(path, kind, draw(st.integers(0, 0o7777)), flags, draw(NUMBERS), mtime, draw(NUMBERS), content, extra)
        )
    return result


def full_header(**fields: Any) -> dict[str, Any]:
    made = header(id="cp-x", v=1, keyframe=False, parent=None, counts={"f": 1}, tree="0" * 64)
    return {**made, **fields}


@given(rows(), st.text(), st.lists(st.text()))
def test_a_document_comes_back_as_it_was(entries: list[Entry], message: str, tags: list[str]) -> None:
    head = full_header(message=message, tags=tags, unknown={"from": ["a newer", None, 1.5]})
    data = document.encode(document.Header(head), entries)

    found, rows = document.decode(data)
    assert (found.members, rows) == (head, entries)
    assert document.header(data).members == head


@given(rows("fldxoius"))
def test_a_keyframe_comes_back_as_it_was(entries: list[Entry]) -> None:
    head = full_header(keyframe=True)

    found, rows = document.decode(document.encode(document.Header(head), entries))

    assert (found.members, rows) == (head, entries)


HEAD = dumps(full_header()).encode()


def crafted(
    *,
    magic: bytes = document.MAGIC,
    head: bytes = HEAD,
    kinds: bytes = b"f",
    flags: bytes | None = None,
    numbers: tuple[int, int, int] = (0, 0, 0),
    paths: bytes = b"a\0",
    digests: bytes | None = None,
    targets: bytes = b"",
    extras: bytes = b"",
    length: int | None = None,
    count: int | None = None,
) -> bytes:
    """A document by hand, every part of which may be wrong."""
    many = len(kinds)
    return b"".join(
        [
            magic,
            (len(head) if length is None else length).to_bytes(8, "little"),
            (many if count is None else count).to_bytes(8, "little"),
            head,
            kinds,
            struct.pack("<H", 0o644) * many,
            bytes(many) if flags is None else flags,
            struct.pack("<Q", numbers[0]) * many,
            struct.pack("<q", numbers[1]) * many,
            struct.pack("<Q", numbers[2]) * many,
            paths,
            bytes(32 * kinds.count(b"f")) if digests is None else digests,
            targets,
            extras,
        ]
    )


def with_head(**fields: Any) -> bytes:
    return crafted(head=dumps(full_header(**fields)).encode())


def without(key: str) -> bytes:
    return crafted(head=dumps({name: value for name, value in full_header().items() if name != key}).encode())


def hostile_documents() -> Iterator[tuple[str, bytes]]:
    for path in (
        b"", b"/", b"/etc/passwd", b"//", b".", b"..", b"../a", b"a/..", b"a/../b", b"a/./b", b"./a", b"a/", b"a//b",
        b"/a/",
        b"a/b/../../..", b"../../../../root/.ssh/authorized_keys", KOREAN + b"/..", b"\xff/../x", b"..\0",
    ):  # fmt: skip
        yield f"path {path!r}", crafted(paths=path + b"\0")
    yield "two paths: the same", crafted(kinds=b"dd", paths=b"a\0a\0")
    yield "two paths: not sorted", crafted(kinds=b"dd", paths=b"b\0a\0")
    yield "two paths: sorted as text, not as bytes", crafted(kinds=b"dd", paths=b"a/b\0a.b\0")
    yield "three paths: the last twice", crafted(kinds=b"ddd", paths=b"a\0b\0b\0")
    yield "NUL inside a path", crafted(kinds=b"d", paths=b"a\0b\0")
    yield "NUL instead of a path", crafted(kinds=b"d", paths=b"\0a\0")
    yield "no NUL after a path", crafted(kinds=b"d", paths=b"a")
    yield "NUL inside a target", crafted(kinds=b"l", targets=b"a\0b\0")
    yield "no NUL after a target", crafted(kinds=b"l", targets=b"a")
    yield "no target", crafted(kinds=b"l")
    for kind in range(256):
        if chr(kind) not in "fldxoius-":
            yield f"kind {kind}", crafted(kinds=bytes([kind]))
    for name, number in (("2^64-1", 2**64 - 1), ("2^63", 2**63), ("2^40", 2**40), ("10^6", 10**6), ("2", 2), ("0", 0)):
        yield f"count {name}", crafted(count=number)
        yield f"length of header {name}", crafted(length=number)
    for name, numbers in (("size", (2**63, 0, 0)), ("largest size", (2**64 - 1, 0, 0)), ("group", (0, 0, 2**63))):
        yield f"number too large: {name}", crafted(numbers=numbers)
    yield "digest short", crafted(digests=bytes(31))
    yield "digest long", crafted(digests=bytes(33))
    yield "no digest", crafted(digests=b"")
    yield "bytes after the end", crafted() + b"\0"
    yield "another document after the end", crafted() * 2
    yield "extra without its length", crafted(flags=b"\4")
    yield "extra cut short", crafted(flags=b"\4", extras=b"\5\0\0\0abcd")
    yield "extra of 4 GB", crafted(flags=b"\4", extras=b"\xff\xff\xff\xffabcd")
    yield "extra that nobody announced", crafted(extras=b"\4\0\0\0abcd")
    yield "gone in a keyframe", crafted(head=dumps(full_header(keyframe=True)).encode(), kinds=b"-")
    yield "nothing", b""
    yield "no magic", crafted(magic=b"")
    yield "magic of a later format", crafted(magic=b"HFDOC02\n")
    yield "a pack", MAGIC + bytes(100)
    for text in (
        b"", b" ", b"null", b"[]", b"1", b'"v"', b"{}", b"{", b'{"v":1', b'{"v":1}}', b"{'v':1}", b'{"v":1,}', b"\xff",
        b"\xef\xbb\xbf{}", b'{"v":NaN}', b'{"v":Infinity}', b"NaN", b'{"v":"1"}', b'{"v":null}', b'{"v":2}',
        b"{" * 100_000, b"[" * 100_000,
        b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"v":1,"deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"v":' + b"9" * 10_000 + b"}", HEAD[:-1], HEAD + b"x", HEAD.decode().encode("utf-16"),
        HEAD[:-1] + b',"x":NaN}', HEAD[:-1] + b',"x":-Infinity}', HEAD[:-1] + b',"x":"\n"}',
        HEAD[:-1] + b',"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    ):  # fmt: skip
        yield f"header {text[:20]!r} ({len(text)})", crafted(head=text)
    for key in document.REQUIRED_MEMBERS:
        yield f"header without {key}", without(key)
        yield (
            f"header with another {key}",
            with_head(**{key: {"not": ["what", "is", "expected"]} if key != "counts" else []}),
        )
    yield "tags that are no texts", with_head(tags=["a", 5])
    yield "counts that are no numbers", with_head(counts={"f": "x"})
    yield "counts that are nested", with_head(counts={"f": {}})
    yield "counts out of all bounds", with_head(counts={"f": 10**30})
    yield "time out of all bounds", with_head(created_at=2**63)
    yield "tree too short", with_head(tree="0" * 63)
    yield "tree not hex", with_head(tree="g" * 64)


HOSTILE = dict(hostile_documents())


def test_the_documents_by_hand_are_right_apart_from_what_is_wrong() -> None:
    assert len(HOSTILE) > 300
    assert document.decode(crafted())[1] == [Entry(b"a", "f", 0o644, 0, 0, 0, 0, bytes(32), b"")]
    assert document.decode(crafted(kinds=b"l", targets=b"../anywhere\0"))[1][0].content == b"../anywhere"
    assert document.decode(crafted(flags=b"\4", extras=b"\4\0\0\0abcd"))[1][0].extra == b"abcd"
    assert document.decode(crafted(kinds=b"dd", paths=b"a.b\0a/b\0", digests=b""))[1][1].path == b"a/b"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_refused_as_damaged_without_asking_for_memory(name: str) -> None:
    data = HOSTILE[name]
    tracemalloc.start()
    try:
        with pytest.raises(Damaged):
            document.decode(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < MB + 60 * len(data)


def test_a_document_cut_short_at_any_length_is_refused() -> None:
    entries = [
        Entry(b"a", "f", 0o644, 0, 3, 1, 0, bytes(range(32)), b""),
        Entry(b"b/c", "l", 0o777, 4, 3, 1, 0, b"target", b'{"uid":0}'),
        Entry(b"d", "-", 0, 0, 0, 0, 0, b"", b""),
        Entry(b"e", "f", 0o644, 4, 3, 1, 9, bytes(32), b"xx"),
    ]
    whole = document.encode(document.Header(full_header()), entries)
    for end in range(len(whole)):
        with pytest.raises(Damaged):
            document.decode(whole[:end])
        if end < 24 + len(HEAD):
            with pytest.raises(Damaged):
                document.header(whole[:end])


@settings(max_examples=300)
@given(
    rows(),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4),
)
@example([], [(0.0, 0, b"x")])
def test_a_changed_document_is_read_or_damaged_and_never_anything_else(
    entries: list[Entry], changes: list[tuple[float, int, bytes]]
) -> None:
    data = document.encode(document.Header(full_header()), entries)
    for where, how, what in changes:
        at = int(where * len(data))
        data = data[:at] + (what if how else b"") + data[at + (len(what) if how != 1 else 0) :]
    try:
        found = document.decode(data)[1]
    except Damaged:
        return
    paths = [checked_path(row.path) for row in found]
    assert paths == sorted(set(paths))


@given(st.binary(max_size=200))
def test_any_bytes_are_damaged_or_a_document(data: bytes) -> None:
    for bytes_ in (data, document.MAGIC + data, document.MAGIC + bytes(16) + data):
        with pytest.raises(Damaged):
            document.decode(bytes_)
        with pytest.raises(Damaged):
            document.header(bytes_)


def test_a_hostile_document_in_a_record_is_damage(store: Store, repository: Repository) -> None:
    """Whoever can write documents can write digests too: adoption refuses it as a whole."""
    save(repository, {b"a": b"1"})
    data = crafted(paths=b"../../evil\0")
    writer = PackWriter(store.blobs)
    writer.add(digest(data), data, DOCUMENT)
    writer.sync()
    writer.finish()
    append_records(
        store,
        {"r": "checkpoint", "v": 2, "id": "x", "doc": digest(data).hex(), "packs": [writer.name], "at": 1, "seq": 2},
    )

    with pytest.raises(Damaged):
        store.open().workspace("ws")


# -- Packs


def put(blobs: Blobs, name: str, data: bytes) -> None:
    upload = blobs.create()
    upload.write(data)
    upload.sync()
    upload.finish(name)


def packed(*parts: bytes, **options: int) -> tuple[MemoryBlobs, PackWriter]:
    blobs = MemoryBlobs()
    writer = PackWriter(blobs, **options)
    for number, part in enumerate(parts):
        writer.add(digest(part), part, number % 3)
    writer.sync()
    writer.finish()
    return blobs, writer


def unpacked(blobs: Blobs, place: Location) -> bytes:
    frame = decompress(blobs.read(place.pack, place.frame, place.stored))
    return frame[place.offset : place.offset + place.length]


PIECES = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda seed, size: random.Random(seed).randbytes(size), st.integers(0, 9), st.integers(0, 3000)),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(PIECES, max_size=30), st.sampled_from([1, 100, 2000, 1 << 20]), st.sampled_from([1, 3]), st.integers(1, 3)
)
def test_a_pack_gives_back_what_was_put_in(pieces: list[bytes], frame: int, level: int, threads: int) -> None:
    blobs, writer = packed(*pieces, frame=frame, level=level, threads=threads)

    size, entries, frames = read_index(blobs, writer.name)
    assert (size, entries, frames) == (writer.size, list(writer.entries()), writer.frames)
    assert [key for key, _ in entries] == [digest(piece) for piece in pieces]
    assert [place.kind for _, place in entries] == [number % 3 for number in range(len(pieces))]
    assert [unpacked(blobs, place) for _, place in entries] == pieces


def test_frames_are_stored_with_every_codec_and_come_back() -> None:
    text, noise = b"text " * (4 * MB // 5), random.Random(1).randbytes(3 * MB)
    blobs, writer = packed(b"small text" * 10, text, noise)

    codecs = {blobs.read(writer.name, frame[0], 1)[0] for frame in writer.frames}
    assert codecs == {RAW, ZLIB, ZSTD}
    assert [unpacked(blobs, place) for _, place in writer.entries()] == [b"small text" * 10, text, noise]


def test_an_index_with_a_flipped_bit_anywhere_is_refused() -> None:
    blobs, writer = packed(b"one", b"two" * 100, b"", b"four", frame=200)
    data = blobs.read(writer.name, 0, writer.size)
    table = struct.unpack("<Q", data[-64:-56])[0]

    for at in (*range(8), *range(table, len(data))):
        for bit in range(8):
            bad = MemoryBlobs()
            put(bad, writer.name, data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            with pytest.raises(Damaged):
                read_index(bad, writer.name)


def test_a_pack_cut_short_at_any_length_or_grown_is_refused() -> None:
    blobs, writer = packed(b"one", b"two" * 100, b"", b"four", frame=200)
    data = blobs.read(writer.name, 0, writer.size)

    for other in (*[data[:end] for end in range(len(data))], data + b"\0", data * 2):
        bad = MemoryBlobs()
        put(bad, writer.name, other)
        with pytest.raises(Damaged):
            read_index(bad, writer.name)


def test_a_pack_under_another_name_is_refused() -> None:
    blobs, writer = packed(b"one")
    put(blobs, "0" * 32, blobs.read(writer.name, 0, writer.size))

    with pytest.raises(Damaged):
        read_index(blobs, "0" * 32)


def test_a_pack_that_is_not_there_is_a_file_not_found_error() -> None:
    with pytest.raises(FileNotFoundError):
        read_index(MemoryBlobs(), "0" * 32)


def signed(
    frames: list[tuple[int, int, int, int]], lengths: list[int], body: bytes, table: int | None = None
) -> tuple[str, bytes]:
    """A pack by hand whose digests are right, whatever it says."""
    index = b"".join([struct.pack("<QQQQ", *frame) for frame in frames]) + bytes(32 * len(lengths))
    index += struct.pack(f"<{len(lengths)}Q", *lengths) + bytes(len(lengths))
    index += struct.pack("<QQQ", len(MAGIC + body) if table is None else table, len(frames), len(lengths))
    return digest(index)[:16].hex(), MAGIC + body + index + digest(index) + END


BODY = b"\0abc"


@pytest.mark.parametrize(
    ("frames", "lengths"),
    [
        ([(8, 4, 3, 2)], [3]),
        ([(8, 4, 3, 0)], [3]),
        ([(8, 4, 3, 2**63)], [3]),
        ([], [3]),
        ([(8, 4, 3, 1)], []),
        ([(8, 5, 3, 1)], [3]),
        ([(8, 3, 3, 1)], [3]),
        ([(8, 2**63, 3, 1)], [3]),
        ([(7, 4, 3, 1)], [3]),
        ([(2**64 - 1, 4, 3, 1)], [3]),
        ([(8, 4, 4, 1)], [3]),
        ([(8, 4, 3, 1)], [4]),
        ([(8, 4, 2**63, 1)], [2**63]),
        ([(8, 4, 2**31, 1)], [2**31]),
        ([(8, 4, 3, 1), (8, 4, 3, 1)], [3, 3]),
    ],
)
def test_an_index_that_contradicts_itself_is_refused_although_its_digest_is_right(
    frames: list[tuple[int, int, int, int]], lengths: list[int]
) -> None:
    name, data = signed(frames, lengths, BODY)
    blobs = MemoryBlobs()
    put(blobs, name, data)

    with pytest.raises(Damaged):
        read_index(blobs, name)


def test_the_pack_by_hand_is_right_apart_from_what_is_wrong() -> None:
    name, data = signed([(8, 4, 3, 1)], [3], BODY)
    blobs = MemoryBlobs()
    put(blobs, name, data)

    assert read_index(blobs, name)[1] == [(ZERO, Location(name, 8, 4, 0, 3, 0))]


def bombs(size: int) -> list[bytes]:
    """Frames of a few bytes that say they are this large."""
    squeeze = zstd_module().ZstdCompressor(level=1)
    grains = [squeeze.compress(bytes(MB)) for _ in range(size // MB)]
    return [bytes([ZLIB]) + zlib.compress(bytes(size), 9), bytes([ZSTD]) + b"".join([*grains, squeeze.flush()])]


def test_a_decompression_bomb_is_refused_at_the_bound() -> None:
    for bomb in bombs(64 * MB):
        assert len(bomb) < 100_000
        tracemalloc.start()
        try:
            with pytest.raises(Damaged):
                decompress(bomb, 2 * MB)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

        assert peak < 8 * MB


def test_a_frame_that_is_larger_than_its_blobs_need_is_refused_when_it_is_read(repository: Repository) -> None:
    """The ledger knows how much a blob needs; a shared frame is never over 64 MB."""
    bomb = bombs(80 * MB)[1]
    name, data = signed([(8, len(bomb), 3, 1)], [3], bomb)
    put(repository.blobs, name, data)
    with repository.ledger.transaction() as tx:
        tx.add_pack(name, len(data), read_index(repository.blobs, name)[1])

    with pytest.raises(Damaged):
        repository.contents.load(ZERO)


@given(st.binary(max_size=300), st.sampled_from([b"", b"\0", b"\1", b"\2", b"\3", b"\xff"]))
def test_any_bytes_as_a_frame_are_damaged_or_decompress(data: bytes, codec: bytes) -> None:
    try:
        decompress(codec + data)
    except Damaged:
        pass


@given(st.binary(max_size=3000), st.integers(1, 5), st.data())
def test_a_frame_cut_short_is_damaged(raw: bytes, level: int, data: st.DataObject) -> None:
    for stored in (compress(raw, level), bytes([ZLIB]) + zlib.compress(raw)):
        assert decompress(stored) == raw
        end = data.draw(st.integers(1, len(stored) - 1)) if len(stored) > 1 else 1
        if stored[0] != RAW and end < len(stored):
            with pytest.raises(Damaged):
                decompress(stored[:end])


def test_an_empty_frame_and_an_unknown_codec_are_damaged() -> None:
    for stored in (b"", b"\3abc", b"\xffabc"):
        with pytest.raises(Damaged):
            decompress(stored)


@pytest.mark.parametrize(("number", "kind"), [(EIO, Failed), (ENOSPC, DiskFull), (EROFS, Unreachable)])
def test_a_disk_that_refuses_a_record_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[KeepfastError]
) -> None:
    """Whatever front end asks: a raw error of the operating system says nothing to anybody."""
    repository = create_store(str(tmp_path / "store"), durable=False)
    repository.register("a" * 32, b"/somewhere", 1)
    before = repository.ledger.workspace("a" * 32)

    def fails(log: str, lines: bytes) -> None:
        raise OSError(number, "this disk does not want to")

    monkeypatch.setattr(repository.records, "append", fails)
    with pytest.raises(kind, match="store"):
        repository.register("a" * 32, b"/elsewhere", 2)

    assert repository.ledger.workspace("a" * 32) == before
    repository.close()
