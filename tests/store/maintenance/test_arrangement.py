"""A compacted pack is small because of what lies together in it: versions, copies and renamed files cost little more than one."""

from __future__ import annotations

import itertools
import random

import pytest

from keepfast.store.digest import digest
from keepfast.store.maintenance import compaction
from keepfast.store.maintenance.arrangement import FRAME_OF_SIMILAR, _group_by_name, arrange, batches
from keepfast.store.maintenance.compaction import Compactor
from keepfast.store.maintenance.space import compact, store_size
from keepfast.store.rows import CONTENT, DOCUMENT, Location
from tests.equipment.saver import Saver

NOISE = random.Random(5).randbytes(40_000)
LARGE = random.Random(6).randbytes(6 << 20)


def compacted(saver: Saver) -> tuple[int, dict[bytes, Location]]:
    engine = saver.engine()
    try:
        repository = engine.repository()
        compact(repository, str(saver.store), everything=True)
        return store_size(repository), dict(repository.ledger.locations())
    finally:
        engine.close()


def frame_of(places: dict[bytes, Location], data: bytes) -> tuple[str, int]:
    place = places[digest(data)]
    return place.pack, place.frame


@pytest.mark.parametrize(
    "names",
    [
        ["main.c"],
        ["a/main.c", "b/main.c", "c/deep/main.c"],
        ["main.c", "n5-3-main.c", "r12-ab-main.c", "old_main.c"],
        ["n5-3-main.c", "r12-ab-main.c"],
        ["Makefile", "sub/Makefile"],
    ],
)
def test_versions_copies_and_renamed_files_share_a_frame(saver: Saver, names: list[str]) -> None:
    chance, made = random.Random(7), []
    for number in range(6):
        for name in names:
            made.append(NOISE + b"%d %s" % (number, name.encode()))
            (saver.root / name).parent.mkdir(parents=True, exist_ok=True)
            (saver.root / name).write_bytes(made[-1])
        # Lies between them in the order of paths.
        (saver.root / f"m{number}.bin").write_bytes(chance.randbytes(300_000))
        saver.save("manual")

    size, places = compacted(saver)

    assert len({frame_of(places, data) for data in made}) == 1
    assert size < 6 * 300_000 + 1.5 * len(NOISE) + 20_000


def test_a_history_of_small_edits_renames_and_copies_takes_little_more_than_one_copy(saver: Saver) -> None:
    chance = random.Random(8)
    for number in range(40):
        (saver.root / f"part{number}.py").write_bytes(chance.randbytes(20_000))
    saver.save("manual")
    one, _ = compacted(saver)
    for turn in range(60):
        paths = sorted(saver.root.glob("*.py"))
        for path in chance.sample(paths, 5):
            path.write_bytes(path.read_bytes() + b"# %d\n" % turn)
        moved, model = chance.sample(paths, 2)
        moved.rename(saver.root / f"r{turn}-{moved.name}")
        (saver.root / f"n{turn}-{model.name}").write_bytes(b"# new\n" + (model.read_bytes() if model.exists() else b""))
        saver.save("manual")

    size, _ = compacted(saver)

    assert size < 1.2 * one


def test_an_edit_of_a_large_file_costs_no_whole_chunk(saver: Saver) -> None:
    path = saver.root / "large.bin"
    path.write_bytes(LARGE)
    saver.save("manual")
    one, _ = compacted(saver)
    for number in range(20):
        data = bytearray(path.read_bytes())
        data[3 << 20 : (3 << 20) + 20] = b"change %013d" % number
        path.write_bytes(data)
        saver.save("manual")

    size, _ = compacted(saver)

    assert size < one + 128_000


def test_what_the_newest_version_has_comes_first_in_its_frame(saver: Saver) -> None:
    for number in range(8):
        for name in ("one.txt", "other-one.txt"):
            (saver.root / name).write_bytes(NOISE[: 4000 + number] + name.encode())
        saver.save("manual")

    _, places = compacted(saver)

    newest = [places[digest(NOISE[:4007] + name)] for name in (b"one.txt", b"other-one.txt")]
    first = {place.offset for place in places.values() if (place.pack, place.frame) == newest[0][:2]}
    assert {place.offset for place in newest} == set(sorted(first)[:2])


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["x/main.c", "main.c", "y/main.c"], 1),
        (["main.c", "domain.c", "brain.c"], 3),
        (["n1-a.c", "n1-b.c"], 2),
        (["foo.c", "foo.h"], 2),
        (["n4-fs.c", "r9-77-fs.c", "fs.c", "vfs.c"], 2),
        (["index.test.ts", "other.test.ts"], 1),
        (["README", "LICENSE", ".gitignore", "a.c", "b.c"], 5),
        (["file1", "file2", "file12"], 3),
    ],
)
def test_kin_end_with_the_same_words(names: list[str], groups: int) -> None:
    kin = _group_by_name({name.encode() for name in names})

    assert kin.keys() == {name.encode() for name in names}
    assert len(set(kin.values())) == groups
    assert all(head <= path and kin[head] == head for path, head in kin.items())


def test_every_content_has_exactly_one_frame_and_no_frame_is_too_large(saver: Saver) -> None:
    chance = random.Random(9)
    for turn in range(12):
        for number in range(30):
            name = (
                chance.choice(["", "a/", "b/"]) + chance.choice(["x", "y-x", "z", "q-z.c"]) + chance.choice(["", ".c"])
            )
            (saver.root / name).parent.mkdir(exist_ok=True)
            (saver.root / name).write_bytes(chance.randbytes(9) * chance.randrange(30_000) + b"%d %d" % (turn, number))
        saver.save("manual")
    engine = saver.engine()
    try:
        entries = list(engine.repository().ledger.locations())
        frames = arrange(engine.repository(), entries, set())
    finally:
        engine.close()

    assert sorted(entry for frame in frames for entry in frame) == sorted(entries)
    assert all(sum(place.length for _, place in frame) <= FRAME_OF_SIMILAR for frame in frames)
    assert {len({place.kind == DOCUMENT for _, place in frame}) for frame in frames} <= {1, 2}
    assert [frame for batch in batches(frames, 1 << 20) for frame in batch] == frames
    assert all(sum(p.length for f in batch[:-1] for _, p in f) < 1 << 20 for batch in batches(frames, 1 << 20))


def test_each_old_frame_is_unpacked_once_where_memory_suffices(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    for turn in range(10):
        for number in range(20):
            (saver.root / f"file{number}").write_bytes(b"%d " % number * 500 + b"%d" % turn)
        saver.save("manual")
    engine = saver.engine()
    try:
        repository = engine.repository()
        frames = {(place.pack, place.frame) for _, place in repository.ledger.locations()}
        unpacked: list[tuple[str, int]] = []
        read = repository.blobs.read

        def counting(name: str, offset: int, length: int) -> bytes:
            unpacked.append((name, offset))
            return read(name, offset, length)

        compaction = Compactor(repository, True, None)
        compaction.living = {key for key, _ in repository.ledger.locations()}
        monkeypatch.setattr(repository.blobs, "read", counting)
        writers, moved = compaction._copy({pack.name for pack in repository.ledger.packs()})
        for writer in writers:
            writer.abort()
    finally:
        engine.close()

    assert sorted(unpacked) == sorted(frames)
    assert sum(place.kind == CONTENT for _, place in moved) == 200


def test_a_store_too_large_to_be_written_as_a_whole_brings_versions_together_and_writes_no_byte_often(
    saver: Saver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes that decide are scaled down with the store. Nothing here can be compressed, but versions are alike."""
    for name in ("SMALL_PACK", "REWRITE_WHOLE_BYTES", "REPACK_BYTES", "JOIN_BYTES"):
        monkeypatch.setattr(compaction, name, getattr(compaction, name) >> 8)
    chance = random.Random(10)
    (saver.root / "base.bin").write_bytes(chance.randbytes(3 << 20))
    for number in range(8):
        (saver.root / f"part{number}.py").write_bytes(chance.randbytes(20_000))
    saver.save("manual")
    engine = saver.engine()
    repository = engine.repository()
    base, added, written = store_size(repository), 0, 0
    for turn in range(10):
        for number in range(12):
            before = store_size(repository)
            path = saver.root / f"part{chance.randrange(8)}.py"
            path.write_bytes(path.read_bytes() + b"# %d %d\n" % (turn, number))
            saver.save("manual")
            added += store_size(repository) - before
        names = {pack.name for pack in repository.ledger.packs()}
        compact(repository, str(saver.store))
        written += sum(pack.size for pack in repository.ledger.packs() if pack.name not in names)
    size = store_size(repository)
    engine.close()

    assert added > 120 * 20_000
    assert size - base < 3 * 8 * 20_000 + 120 * 1000  # not one copy of all for each compaction
    assert written < added


def test_what_saves_have_packed_is_compressed_anew_a_part_at_a_time_and_only_where_it_helps(
    saver: Saver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "SMALL_PACK", 1 << 10)
    monkeypatch.setattr(compaction, "REPACK_BYTES", 80 << 10)
    monkeypatch.setattr(compaction, "REWRITE_WHOLE_BYTES", 0)
    monkeypatch.setattr(compaction, "JOIN_BYTES", 0)
    chance = random.Random(11)
    (saver.root / "noise").write_bytes(chance.randbytes(200_000))
    saver.save("manual")
    for number in range(4):
        text = b" ".join(b"%x" % chance.getrandbits(64) for _ in range(6000))
        (saver.root / f"text{number}").write_bytes(text)
        saver.save("manual")
    engine = saver.engine()
    repository = engine.repository()
    kept = [{pack.name for pack in repository.ledger.packs()}]
    for _ in range(5):
        compact(repository, str(saver.store))
        kept.append({pack.name for pack in repository.ledger.packs()})
    noise = repository.ledger.locate([digest((saver.root / "noise").read_bytes())])
    engine.close()

    gone = [len(before - after) for before, after in itertools.pairwise(kept)]
    assert gone == [1, 1, 1, 1, 0]
    assert {place.pack for place in noise.values()} <= kept[0]
