"""The check of all known files says the same in C and in Python, and no cache, however damaged, can crash it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis.strategies import binary

from keepfast.workspace import stat_cache as cache
from keepfast.workspace import stat_cache_writer
from keepfast.workspace.capture import Capture
from keepfast.workspace.directory import _listing, list_changed, list_folder, runs_of
from keepfast.workspace.scan import recheck
from keepfast.workspace.stat_cache import Cache
from keepfast.workspace.walk import walk
from tests.equipment.trees import Agent, Step, rounds

if TYPE_CHECKING:
    from keepfast.workspace.selection import Listing

accelerator = pytest.importorskip("keepfast.workspace._check", reason="built without a compiler")

pytestmark = pytest.mark.timeout(7200)  # campaigns take long
FAR = 1 << 62
"""A clock so late that every time is trusted."""


@contextmanager
def tree() -> Iterator[tuple[Path, int]]:
    folder = Path(tempfile.mkdtemp(prefix="keepfast-check-"))
    fd = os.open(folder, os.O_RDONLY)
    try:
        yield folder, fd
    finally:
        os.close(fd)
        shutil.rmtree(folder, ignore_errors=True)


def remember(fd: int, now: int = FAR) -> Cache:
    """The cache of everything below a folder."""
    scan = walk(fd, None, Capture(ignored="all"), now, lambda path: False)
    return Cache(stat_cache_writer.encode(b"test", 0, scan.columns, scan.names, scan.paths, scan.marks))


def check_both(known: Cache, fd: int) -> tuple[list[int], list[int]]:
    """Check in Python and in C, with one thread and with more; all must agree."""
    files, folders = cache.check(known, fd, accelerated=False)
    for threads in (1, 2, 3, 8):
        found = accelerator.check(known.raw, fd, threads)

        assert [memoryview(part).cast("I").tolist() for part in found] == [list(files), list(folders)]
    return list(files), list(folders)


def truth(known: Cache, root: Path) -> tuple[list[bytes], list[bytes]]:
    """Files and folders that differ from the cache, found path by path."""
    ctimes, sizes, inodes, mtimes, folder_ctimes, folder_inodes, counts = known.columns()
    changed, changed_folders, names, at = [], [], known.names(), 0
    for number, path in enumerate(known.paths()):
        below = Path(os.fsdecode(os.path.join(os.fsencode(root), path) if path else os.fsencode(root)))
        try:
            seen = below.lstat()
            is_folder = below.is_dir() and not below.is_symlink()
        except OSError:
            is_folder = False
        if not is_folder:
            changed_folders.append(path)
            changed += [os.path.join(path, name) for name in names[at : at + counts[number]]]
            at += counts[number]
            continue
        if (seen.st_mtime_ns % (1 << 64), seen.st_ctime_ns, seen.st_ino) != (
            mtimes[number],
            folder_ctimes[number],
            folder_inodes[number],
        ):
            changed_folders.append(path)
        for file in range(at, at + counts[number]):
            try:
                seen = (below / os.fsdecode(names[file])).lstat()
            except OSError:
                changed.append(os.path.join(path, names[file]))
                continue
            if (seen.st_ctime_ns, seen.st_size, seen.st_ino) != (ctimes[file], sizes[file], inodes[file]):
                changed.append(os.path.join(path, names[file]))
        at += counts[number]
    return changed, changed_folders


@given(rounds)
def test_both_checks_name_exactly_what_changed(history: list[list[Step]]) -> None:
    with tree() as (root, fd):
        agent = Agent(root)
        for steps in history:
            for step in steps:
                agent.work(step)
            known = remember(fd)
            if all(len(path) < 3000 for path in known.paths()):  # longer ones are always looked at again
                assert check_both(known, fd) == ([], [])
            for step in steps:
                agent.work(step)
            files, folders = check_both(known, fd)
            if any(len(path) >= 3000 for path in known.paths()):
                continue
            starts, names, paths = [], known.names(), known.paths()
            for number, count in enumerate(known.columns()[6]):
                starts += [number] * count

            assert truth(known, root) == (
                [os.path.join(paths[starts[file]], names[file]) for file in files],
                [paths[folder] for folder in folders],
            )


@pytest.mark.parametrize("column", range(6))
def test_each_fact_counts_for_itself(column: int) -> None:
    with tree() as (root, fd):
        (root / "file").write_text("x")
        known = remember(fd)
        columns = known.columns()
        columns[column][0] += 1
        told = Cache(stat_cache_writer.encode(b"", 0, columns, known.names(), known.paths(), known.marks()))

        assert check_both(told, fd) == (([0], []) if column < 3 else ([], [0]))


def test_what_is_not_trusted_is_named_although_nothing_changed() -> None:
    """A cache written in the very moment of a change must not vouch for it."""
    with tree() as (root, fd):
        (root / "file").write_text("now")
        (root / "folder").mkdir()
        known = remember(fd, now=0)

        files, folders = check_both(known, fd)

        assert (len(files), len(folders)) == (1, 2)


def test_a_folder_that_cannot_be_opened_is_named_with_its_files() -> None:
    """Nobody has looked at them, so nobody may call them unchanged."""
    with tree() as (root, fd):
        (root / "folder").mkdir()
        (root / "folder" / "file").write_text("x")
        (root / "last").write_text("x")
        known = remember(fd)
        (root / "folder").rename(root / "moved")
        (root / "last").write_text("y")

        files, folders = check_both(known, fd)

        assert {known.names()[number] for number in files} == {b"file", b"last"}
        assert {known.paths()[number] for number in folders} == {b"", b"folder"}


def test_a_link_in_the_place_of_a_folder_is_not_followed() -> None:
    with tree() as (root, fd):
        (root / "folder").mkdir()
        known = remember(fd)
        (root / "folder").rename(root / "moved")
        (root / "folder").symlink_to("moved")

        _, folders = check_both(known, fd)

        assert {known.paths()[number] for number in folders} == {b"", b"folder"}


@pytest.mark.parametrize("files", [1, 15, 16, 40])
def test_files_of_small_and_of_large_folders_are_looked_at_alike(files: int) -> None:
    """A folder with few files is not opened: its files are reached by their whole path."""
    with tree() as (root, fd):
        for place in ("near", "far/below"):
            (root / place).mkdir(parents=True)
            for number in range(files):
                (root / place / f"file-{number}").write_text("x")
        known = remember(fd)

        assert check_both(known, fd) == ([], [])

        (root / "far" / "below" / "file-0").write_text("y")
        (root / "near").rename(root / "moved")
        (root / "near").symlink_to("moved")
        named, folders = check_both(known, fd)

        assert len(named) == files + 1  # all behind the link, although they are the same ones
        assert {known.paths()[number] for number in folders} == {b"", b"near"}


def test_a_folder_whose_path_is_longer_than_the_kernel_takes_at_once_is_looked_at() -> None:
    with tree() as (_, fd):
        folder = os.dup(fd)
        for _ in range(6):
            os.mkdir("n" * 200, dir_fd=folder)
            below = os.open("n" * 200, os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = below
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
        known = remember(fd)

        assert check_both(known, fd) == ([], [])

        os.utime("file", dir_fd=folder)
        os.close(folder)
        files, _ = check_both(known, fd)

        assert [known.names()[number] for number in files] == [b"file"]


@pytest.mark.parametrize("known", [0, 1, 7, 30])
def test_a_folder_is_listed_alike_in_c_and_in_python(known: int) -> None:
    with tree() as (root, fd):
        for number in range(30):
            (root / f"file-{number}").write_bytes(bytes(number))
        (root / "folder").mkdir()
        (root / "link").symlink_to("folder")
        (root / "broken").symlink_to("nowhere")
        os.mkfifo(root / "pipe")
        os.close(os.open(os.fsencode(root) + b"/odd-\xff\n", os.O_WRONLY | os.O_CREAT))
        sure = {b"file-%d" % number: 1000 - number for number in range(known)} | {b"gone": 5}

        found = list_folder(fd, b"", sure)

        assert found[2] == sorted(1000 - number for number in range(known))
        assert [name for name, is_folder, _ in found[1] if is_folder] == [b"folder"]
        assert len(found[1]) == 30 - known + 5


def test_a_time_beyond_64_bits_of_nanoseconds_is_listed_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    os.utime(tmp_path / "file", (15 * 10**9, 15 * 10**9))
    set_to = os.lstat(tmp_path / "file").st_mtime_ns
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        ((_, _, seen),) = list_folder(fd, b"")[1]
        assert seen is not None and seen.st_mtime_ns == set_to
    finally:
        os.close(fd)


def scanned(root: int, known: Cache, capture: Capture) -> dict[str, object] | None:
    """What a re-check finds, in a form that does not depend on the order in which it was found."""
    scan = recheck(root, known, capture, FAR, *cache.check(known, root, capture.accelerated))
    if scan is None:
        return None
    raw = stat_cache_writer.encode(b"", 0, scan.columns, scan.text or b"", scan.paths, scan.marks)
    next_one = Cache(raw)
    columns, names, at = next_one.columns(), next_one.names(), 0
    folders, files = {}, {}
    for number, path in enumerate(next_one.paths()):
        folders[path] = [column[number] for column in columns[3:]]
        for file in range(at, at + columns[6][number]):
            files[path, names[file]] = [column[file] for column in columns[:3]]
        at += columns[6][number]
    assert at == len(names) == len(files)
    for path, place in scan.places.items():
        assert os.path.basename(path) == names[place]
    return {
        "folders": folders,
        "files": files,
        "marks": set(next_one.marks()),
        "candidates": sorted((path, seen.st_ino, seen.st_ctime_ns) for path, seen in scan.candidates),
        "changed folders": sorted((path, seen.st_mode, seen.st_uid) for path, seen in scan.folders),
        "left": sorted((path, kind, flags) for path, kind, flags, _ in scan.left),
        "gone": sorted(scan.removed),
        "seen": scan.seen,
        "places": set(scan.places),
    }


@given(rounds)
def test_what_a_recheck_finds_is_the_same_in_c_and_in_python(history: list[list[Step]]) -> None:
    with tree() as (root, fd):
        agent = Agent(root)
        for steps in history:
            for step in steps:
                agent.work(step)
            known = remember(fd)
            for step in steps:
                agent.work(step)
            for ignored in ("all", "small"):
                fast, plain = [
                    scanned(fd, known, Capture(ignored=ignored, exclude_marked=("CACHEDIR.TAG", "a"), accelerated=way))
                    for way in (True, False)
                ]

                assert fast == plain


@pytest.mark.parametrize("files", [0, 1, 5, 300])
def test_folders_that_changed_are_listed_together_as_they_are_one_by_one(files: int) -> None:
    """What is as it was is counted in runs; whatever decides about a folder is told by name, changed or not."""
    with tree() as (root, fd):
        for folder in ("a", "b/c", *[f"many-{number}" for number in range(20)]):
            (root / folder).mkdir(parents=True)
            for name in (".gitignore", ".hidden", "CACHEDIR.TAG", *[f"file-{number}" for number in range(files)]):
                (root / folder / name).write_text(name)
        known = remember(fd)
        for place in [root / os.fsdecode(path) for path in known.paths()]:
            (place / "new").write_text("x")
            (place / "below").mkdir()
            (place / ".hidden").unlink(missing_ok=True)
            for number in range(0, files, 3):
                (place / f"file-{number}").unlink(missing_ok=True)
            if (place / "file-1").exists():
                (place / "file-1").write_text("longer than before")

        changed = cache.check(known, fd)
        found = list_changed(fd, known, known.paths(), *changed, [b"CACHEDIR.TAG"])

        assert set(found) == set(known.paths())
        names, at = known.names(), 0
        for path, count in zip(known.paths(), known.counts(), strict=True):
            numbers = {names[number]: number for number in range(at, at + count)}
            apart = {name for name in numbers if name[0] == 46 or name == b"CACHEDIR.TAG"}
            touched = set(changed[0])
            sure = {name: number for name, number in numbers.items() if number not in touched and name not in apart}
            at += count
            seen, entries, kept = list_folder(fd, path, sure)
            told, listed, numbered, runs = found[path]
            for name in ("st_mode", "st_ino", "st_dev", "st_uid", "st_gid", "st_size", "st_mtime_ns", "st_ctime_ns"):
                assert getattr(told, name) == getattr(seen, name)
            assert [(name, is_folder) for name, is_folder, _ in listed] == [(name, there) for name, there, _ in entries]
            for (_, _, one), (_, _, other) in zip(listed, entries, strict=True):
                assert (one is None) == (other is None)
                assert one is None or other is None or one.st_ctime_ns == other.st_ctime_ns
            assert runs == runs_of(kept)
            assert numbered == {
                name: at for name, at in numbers.items() if name in apart or name in dict(_first(listed))
            }


def _first(entries: Listing) -> list[tuple[bytes, bool]]:
    return [(name, is_folder) for name, is_folder, _ in entries]


def test_listing_a_folder_does_not_count_as_using_it() -> None:
    with tree() as (root, fd):
        for folder in ("a", "b"):
            (root / folder).mkdir()
        known = remember(fd)
        (root / "a" / "new").write_text("x")
        os.utime(root / "a", (1, 1))

        list_changed(fd, known, known.paths(), *cache.check(known, fd), [])
        list_folder(fd, b"a")

        assert (root / "a").stat().st_atime == 1


@pytest.mark.parametrize("numbers", [[], [0], [0, 1, 2, 3], [1, 3], [4]])
def test_where_names_begin_is_the_same_in_c_and_in_python(numbers: list[int]) -> None:
    with tree() as (root, fd):
        for name in ("one", "another", "x", "last"):
            (root / name).write_text("x")
        known = remember(fd)

        found = known.offsets(numbers)

        assert found == known.offsets(numbers, accelerated=False)
        text = bytes(known.text())
        assert [text[at:].partition(b"\0")[0] for at in found] == [[*known.names(), b""][at] for at in numbers]


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        with pytest.raises(NotADirectoryError):
            _listing(fd, {})
    finally:
        os.close(fd)


@given(binary(max_size=300))
def test_the_checksum_is_that_of_zlib(data: bytes) -> None:
    for start in range(min(8, len(data) + 1)):  # at every alignment
        assert accelerator.crc32(memoryview(data)[start:]) == crc32(data[start:])


@pytest.mark.parametrize("length", [*range(120, 200), 255, 256, 1023, 4096, 65_537, 1 << 20])
def test_the_checksum_of_long_texts_is_that_of_zlib(length: int) -> None:
    data = Random(length).randbytes(length)

    assert accelerator.crc32(data) == crc32(data)
    assert accelerator.crc32(memoryview(data)[1:]) == crc32(data[1:])


def test_times_beyond_64_bits_and_inodes_of_64_bits_fit(tmp_path: Path) -> None:
    """Anybody can set a time in the year 2400; some file systems use every bit of an inode."""
    columns = [[-1], [0], [(1 << 64) - 1], [(1 << 63) + 5], [7], [1 << 63], [1]]
    stat_cache_writer.store(str(tmp_path / "cache"), b"id", 0, columns, [b"name"], [b""], {b"xpath"})

    known = cache.load(str(tmp_path / "cache"))

    assert known is not None
    assert known.columns() == columns
    assert (known.identity, known.names(), known.paths(), known.marks()) == (b"id", [b"name"], [b""], [b"xpath"])


@pytest.mark.parametrize("damage", ["cut", "flip", "magic", "empty", "folder", "missing"])
def test_a_cache_that_is_not_whole_is_no_cache(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "cache"
    with tree() as (root, fd):
        (root / "file").write_text("x")
        raw = remember(fd).raw
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes(
            {"cut": raw[:-1], "flip": raw[:-3] + b"~" + raw[-2:], "magic": b"X" + raw[1:], "empty": b""}[damage]
        )

    assert cache.load(str(path)) is None


FUZZ = """
import os, random, struct, sys
from keepfast.workspace import _check
from keepfast.workspace.stat_cache import Cache
from keepfast.workspace.plain_check import check as check_plainly

seed, examples, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
raw, root, chance = open(sys.argv[4], "rb").read(), os.open(folder, os.O_RDONLY), random.Random(seed)
NUMBERS = [0, 1, 2, 3, 7, 8, 63, 64, 255, 2**31, 2**32 - 1, 2**32, 2**61, 2**62, 2**63 - 1, 2**64 - 1, 2**63, 2**64 - 8]
accepted = 0


def fails(call, *values):
    try:
        call(*values)
    except ValueError:
        return True
    return False


for _ in range(examples):
    bad = bytearray(raw)
    for _ in range(chance.randint(1, 4)):
        kind = chance.randrange(6)
        if kind == 0:  # a number of the header
            at = 16 + 8 * chance.randrange(6)
            near = struct.unpack_from("<Q", bad, at)[0] + chance.randint(-9, 9)
            bad[at : at + 8] = struct.pack("<Q", chance.choice([*NUMBERS, near]) % 2**64)
        elif kind == 1:  # the length of the identity
            bad[12:16] = struct.pack("<I", chance.choice([0, 1, 8, 16, 2**31, 2**32 - 8, chance.randrange(2**32)]))
        elif kind == 2 and len(bad) > 64:
            bad[chance.randrange(12, len(bad))] ^= 1 << chance.randrange(8)
        elif kind == 3 and len(bad) > 72:
            at = chance.randrange(64, len(bad) - 8) // 8 * 8
            bad[at : at + 8] = struct.pack("<Q", chance.choice(NUMBERS))
        elif kind == 4 and chance.random() < 0.3:
            bad = bad[: chance.randrange(len(bad) + 1)] + bytes(chance.randrange(3) * 8)
        elif kind == 5:  # lengths whose sum is right only because it overflows
            lengths = struct.unpack_from("<3Q", bad, 32)
            huge = [2**63 - 1, 2**63 - 1, sum(lengths) + 2]
            chance.shuffle(huge)
            bad[32:56] = struct.pack("<3Q", *[number % 2**64 for number in huge])
        if len(bad) < 64:
            break
    bad = bytes(bad)
    try:
        known = Cache(bad)
    except ValueError:
        known = None
    try:
        found = _check.check(bad, root, chance.choice([-1, 0, 1, 2, 8, 99]))
    except ValueError:
        assert known is None and fails(_check.offsets, bad, b"") and fails(_check.list_changed, bad, root, 1, b"", b"", b"")
        assert fails(_check.join_pieces, bad, b"", b"", b"")
        continue
    assert known is not None
    accepted += 1
    files, folders = [memoryview(part).cast("I").tolist() for part in found]
    assert all(number < known.files for number in files) and all(number < known.folders for number in folders)
    assert (files, folders) == check_plainly(known, root)
    listed = _check.list_changed(bad, root, chance.choice([-1, 0, 1, 2, 99]), *found, b"CACHEDIR.TAG" + bytes(1))
    assert len(listed) == len(folders) and len(_check.offsets(bad, found[0])) == len(files)
    pieces = [0, known.files, 1, 0, 1, 0, known.files // 2, known.files, 1]
    columns, text = _check.join_pieces(bad, bytes(24), b"new" + bytes(1), struct.pack("9I", *pieces))
    names = known.names()
    assert text.split(bytes(1))[:-1] == [*names, b"new", *names[known.files // 2 :]] and len(columns) % 24 == 0
    numbers = [chance.choice([0, 1, 2, known.files, known.files + 1, 2**32 - 1]) for _ in range(6)]
    if any(of_old > 1 or first > end or end > (known.files if of_old else 1) for first, end, of_old in
           (numbers[:3], numbers[3:])):
        assert fails(_check.join_pieces, bad, bytes(24), b"new" + bytes(1), struct.pack("6I", *numbers))
    assert fails(_check.join_pieces, bad, bytes(24), b"new", b"") and fails(_check.join_pieces, bad, bytes(8), b"", b"")
    for wrong in (bytes(8), bytes([255] * 4)):
        assert fails(_check.list_changed, bad, root, 1, b"", wrong, b"")
        assert fails(_check.offsets, bad, wrong)
print(accepted)
"""


@pytest.mark.parametrize("seed", range(4))
def test_no_malformed_cache_crashes_the_check(tmp_path: Path, seed: int, request: pytest.FixtureRequest) -> None:
    examples = 200_000 if request.config.getoption("campaign") else 5_000
    with tree() as (root, fd):
        agent = Agent(root)
        for number in range(40):
            agent.work((number * 7 + seed, number * 13, number * 17, number * 19))
        (tmp_path / "raw").write_bytes(remember(fd).raw)

        command = [sys.executable, "-c", FUZZ, str(seed), str(examples), str(root), str(tmp_path / "raw")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > examples // 100  # many were damaged where it does not matter, and were checked
