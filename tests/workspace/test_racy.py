"""Nothing slips between two saves: not an edit in the same instant, not one during the save, nor a file that resists."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from keepfast.model.entry import UNSTEADY, Entry
from keepfast.store.digest import digest
from keepfast.workspace import stat_cache as cache
from keepfast.workspace import stat_cache_writer
from keepfast.workspace import walk as walking
from keepfast.workspace.capture import Capture
from keepfast.workspace.directory import list_folder
from keepfast.workspace.reader import capture
from keepfast.workspace.scan import recheck
from keepfast.workspace.walk import walk
from tests.equipment.saver import Saver
from tests.equipment.trees import ROOT, Agent, disk

pytestmark = pytest.mark.timeout(7200)  # campaigns take long
NOBODY = 65534
CLOCKS = {
    # Each file system stamps files by a clock of its own kind; the last two are those of older kernels and disks.
    "here": None,
    "ticks": ["mkfs.ext3", "-q", "-I", "256"],
    "seconds": ["mkfs.ext3", "-q", "-I", "128"],
}


@pytest.fixture(params=CLOCKS)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system with a fine clock, with one of 4 ms, with one of whole seconds."""
    make = CLOCKS[request.param]
    if make is None:
        yield tmp_path
        return
    if not ROOT or shutil.which(make[0]) is None:
        pytest.skip("needs root and mkfs.ext3")
    image, mount = tmp_path / "image", tmp_path / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run([*make, str(image)], check=True, capture_output=True)
    # As ext3: ext4 would stamp finer than its clock ticks.
    mounted = subprocess.run(["mount", "-o", "loop", "-t", "ext3", str(image), str(mount)], check=False)
    if mounted.returncode:
        pytest.skip("cannot mount here")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.fixture(params=["accelerated", "in Python"])
def racer(request: pytest.FixtureRequest, ground: Path) -> Iterator[Saver]:
    (ground / "work").mkdir()
    saver = Saver(ground / "work", ground / "store", capture__accelerator=request.param == "accelerated")
    yield saver
    saver.close()


def times(request: pytest.FixtureRequest, few: int) -> range:
    return range(few * 20 if request.config.getoption("campaign") else few)


def test_an_edit_that_keeps_the_size_right_after_a_save_is_seen(racer: Saver, request: pytest.FixtureRequest) -> None:
    files = [racer.root / name for name in ("a", "b", "c")]
    for file in files:
        file.write_bytes(b"00000000")
    racer.save()
    for number in times(request, 150):
        file = files[number % 3]
        before = file.stat()
        with file.open("r+b") as handle:
            handle.write(b"%08d" % (number + 1))
        if number % 2:
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as `cp -p` and git do
        racer.save()

        assert racer.read(file.name) == b"%08d" % (number + 1)


def test_with_the_store_on_another_disk_edits_are_seen_as_well(
    ground: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Two disks may stamp by different clocks."""
    work = ground / "work"
    work.mkdir()
    if work.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("one disk only")
    (work / "file").write_bytes(b"00000000")
    saver = Saver(work, tmp_path / "store")
    for number in times(request, 40):
        with (work / "file").open("r+b") as handle:
            handle.write(b"%08d" % number)
        saver.save()

        assert saver.read("file") == b"%08d" % number
    saver.close()


def test_a_file_put_in_the_place_of_another_right_after_a_save_is_seen(
    racer: Saver, request: pytest.FixtureRequest
) -> None:
    file, new = racer.root / "file", racer.root / "new"
    for number in times(request, 60):
        new.write_bytes(b"%08d" % number)
        new.rename(file)
        racer.save()

        assert racer.read("file") == b"%08d" % number
        assert set(racer.kinds()) == {"file"}


def test_names_that_come_and_go_right_after_a_save_are_seen(racer: Saver, request: pytest.FixtureRequest) -> None:
    folder = racer.root / "folder"
    folder.mkdir()
    for number in times(request, 60):
        (folder / f"file{number}").touch()
        if number:
            (folder / f"file{number - 1}").unlink()
        racer.save()

        assert set(racer.kinds()) == {"folder", f"folder/file{number}"}


def test_a_mode_changed_right_after_a_save_is_seen(racer: Saver, request: pytest.FixtureRequest) -> None:
    file, folder = racer.root / "file", racer.root / "folder"
    file.touch()
    folder.mkdir()
    for number in times(request, 60):
        file.chmod(0o600 + number % 64)
        folder.chmod(0o700 + number % 64)
        racer.save()

        assert racer.state()[b"file"].mode == 0o600 + number % 64
        assert racer.state()[b"folder"].mode == 0o700 + number % 64


def test_an_edit_that_races_a_save_is_in_this_version_or_the_next(racer: Saver, request: pytest.FixtureRequest) -> None:
    file = racer.root / "file"
    file.write_bytes(b"00000000")
    chance = Random(1)
    for number in times(request, 30):
        pause = chance.random() * 0.01

        def edit(number: int = number, pause: float = pause) -> None:
            threading.Event().wait(pause)
            with file.open("r+b") as handle:
                handle.write(b"%08d" % (number + 1))

        editor = threading.Thread(target=edit)
        editor.start()
        racer.save()
        editor.join()
        racer.save()

        assert racer.read("file") == b"%08d" % (number + 1)


def test_a_tree_that_is_worked_on_during_saves_is_whole_in_the_version_after(
    make_saver: Callable[..., Saver], root: Path, request: pytest.FixtureRequest
) -> None:
    saver = make_saver(capture__exclude_marked=[], capture__max_file_size="1GB", capture__ignored="all")
    chance = Random(2)
    for _ in times(request, 6):
        done = threading.Event()

        def work(done: threading.Event = done, seed: int = chance.randrange(1 << 30)) -> None:
            agent, own = Agent(root), Random(seed)
            while not done.is_set():
                deed, a, b, c = (own.randrange(10_000) for _ in range(4))
                agent.work((deed, a, b, c % 90))

        worker = threading.Thread(target=work)
        worker.start()
        for _ in range(8):
            saver.save()
        done.set()
        worker.join()
        saver.save()

        assert saver.contents() == {path: entry for path, entry in disk(root).items() if entry[0] != "s"}


def test_a_full_scan_that_lies_in_the_future_is_not_believed(saver: Saver, root: Path) -> None:
    """The clock was set back: the cache must not put off the daily scan for as long."""
    (root / "file").write_text("x")
    saver.save()
    known = cache.load(str(saver.cache()))
    assert known is not None
    far = known.full_scan_at + (1 << 60)
    parts = known.columns(), known.names(), known.paths(), known.marks()
    stat_cache_writer.store(str(saver.cache()), known.identity, far, *parts)

    saver.save()

    after = cache.load(str(saver.cache()))
    assert after is not None
    assert known.full_scan_at <= after.full_scan_at < far


def test_times_in_the_future_are_not_trusted(root: Path) -> None:
    """After the clock was set back, a file may get the very time it has already."""
    (root / "file").write_text("x")
    (root / "folder").mkdir()
    fd = os.open(root, os.O_RDONLY)

    scan = walk(fd, None, Capture(), (root / "file").stat().st_ctime_ns, lambda path: False)

    os.close(fd)
    assert list(scan.columns[0]) == [-1]
    assert list(scan.columns[4]) == [-1, -1]


# A file that does not hold still while it is read. The sink acts in the middle of the reading.


class Sink:
    """Keeps contents in memory, and does something first each time it is given one."""

    def __init__(self, act: Callable[[int], None]) -> None:
        self.act, self.calls = act, 0
        self.kept: dict[bytes, bytes] = {}

    def small(self, data: bytes) -> bytes:
        self.calls += 1
        self.act(self.calls)
        self.kept[digest(data)] = data
        return digest(data)

    def large(self, read: Callable[[int], bytes]) -> bytes:
        data = read(1 << 20)
        self.calls += 1
        self.act(self.calls)
        while more := read(1 << 20):
            data += more
        self.kept[digest(data)] = data
        return digest(data)

    def sealed(self, read: Callable[[int], bytes]) -> bytes:
        return self.large(read)

    def is_copy(self, size: int, data: bytes | None) -> bool:
        return False


def read_with(root: Path, sink: Sink) -> tuple[dict[bytes, Entry], list[int]]:
    """Walk and read; return the rows and the ctimes that the next cache gets."""
    fd = os.open(root, os.O_RDONLY)
    try:
        scan = walk(fd, None, Capture(), 1 << 62, lambda path: False)
        rows = capture(fd, scan, 1 << 62, sink)
        ctimes = dict(zip(scan.names, scan.columns[0], strict=True))
        return rows, [ctimes[path] for path in sorted(ctimes)]
    finally:
        os.close(fd)


def overwrite(path: Path, text: bytes) -> None:
    with path.open("r+b") as file:
        file.write(text)


def test_a_file_that_changes_while_it_is_read_is_read_again(root: Path) -> None:
    file = root / "file"
    file.write_bytes(bytes(5 << 20))
    sink = Sink(lambda call: overwrite(file, b"changed") if call == 1 else None)

    rows, ctimes = read_with(root, sink)

    assert sink.calls == 2
    assert sink.kept[rows[b"file"].content] == file.read_bytes()
    assert not rows[b"file"].flags & UNSTEADY
    assert ctimes == [-1]  # what the scan had seen was another one


def test_a_file_that_never_holds_still_is_flagged_and_read_again_at_the_next_save(root: Path) -> None:
    file = root / "file"
    file.write_bytes(bytes(5 << 20))
    sink = Sink(lambda call: overwrite(file, b"%d" % call))

    rows, ctimes = read_with(root, sink)

    assert sink.calls == 3
    assert rows[b"file"].flags & UNSTEADY
    assert ctimes == [-1]


def test_after_a_recheck_too_the_right_file_is_read_again(root: Path) -> None:
    """Folders are reordered by a re-check: what is not to be trusted must be found where it is then."""
    for name in ("a/1", "a/2", "b/3", "z/file"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(bytes(5 << 20))
    fd = os.open(root, os.O_RDONLY)
    first = walk(fd, None, Capture(), 1 << 62, lambda path: False)
    known = cache.Cache(stat_cache_writer.encode(b"", 0, first.columns, first.names, first.paths, first.marks))
    (root / "a" / "0 new").touch()
    overwrite(root / "z" / "file", b"changed")
    scan = recheck(fd, known, Capture(), 1 << 62, *cache.check(known, fd))
    assert scan is not None

    rows = capture(fd, scan, 1 << 62, Sink(lambda call: overwrite(root / "z" / "file", b"%d" % call)))

    os.close(fd)
    assert rows[b"z/file"].flags & UNSTEADY
    assert scan.text is not None
    trusted = dict(zip(scan.text.split(b"\0")[:-1], scan.columns[0], strict=True))
    assert {name for name, ctime in trusted.items() if ctime == -1} == {b"file"}


def test_a_file_that_grows_faster_than_it_is_read_comes_to_an_end(root: Path) -> None:
    file = root / "file"
    file.write_bytes(bytes(5 << 20))

    class Endless(Sink):
        def large(self, read: Callable[[int], bytes]) -> bytes:
            self.calls += 1
            length = 0
            while more := read(1 << 20):
                length += len(more)
                if length < 100 << 20:
                    os.truncate(file, (5 << 20) + 2 * length)
            return digest(b"%d" % length)

    rows, _ = read_with(root, Endless(lambda call: None))

    assert rows[b"file"].flags & UNSTEADY
    assert rows[b"file"].size < 200 << 20


def test_what_vanishes_or_becomes_something_else_before_it_is_read_is_told_as_it_is(root: Path) -> None:
    names = ["1 file", "2 folder", "3 pipe", "4 link", "5 gone", "6 socket", "7 other"]
    for name in names:
        (root / name).write_text(name)
    (root / "8 link").symlink_to("target")
    (root / "9 folder").mkdir()
    (root / "9 folder" / "file").write_text("x")

    def act(call: int) -> None:
        if call > 1:
            return
        for name in [*names[1:], "8 link"]:
            (root / name).unlink()
        shutil.rmtree(root / "9 folder")
        (root / "2 folder").mkdir()
        os.mkfifo(root / "3 pipe")
        (root / "4 link").symlink_to("somewhere")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(root / "6 socket"))
        (root / "7 other").write_text("another")
        (root / "8 link").write_text("a file now")

    sink = Sink(act)
    rows, ctimes = read_with(root, sink)

    told = {os.fsdecode(path): row.kind for path, row in rows.items()}
    assert told == {
        "1 file": "f", "2 folder": "u", "3 pipe": "s", "4 link": "l", "5 gone": "u", "6 socket": "s", "7 other": "f",
        "8 link": "f", "9 folder": "d", "9 folder/file": "u",
    }  # fmt: skip
    assert sink.kept[rows[b"7 other"].content] == b"another"
    assert sink.kept[rows[b"8 link"].content] == b"a file now"
    assert rows[b"4 link"].content == b"somewhere"
    seen = {name: (root / name).lstat().st_ctime_ns for name in ("4 link",)}
    assert ctimes.count(-1) >= 5 and seen["4 link"] not in ctimes  # all of it is looked at again


@pytest.mark.parametrize("size", [10, 5 << 20])
def test_a_full_store_is_not_taken_for_an_unreadable_file(root: Path, size: int) -> None:
    (root / "file").write_bytes(bytes(size))

    def fail(call: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        read_with(root, Sink(fail))


# Files and folders that cannot be read.


@contextmanager
def as_nobody() -> Iterator[None]:
    """Work without the privileges of root, for whom everything is readable."""
    if not ROOT:
        yield
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def private() -> Iterator[Saver]:
    """A workspace and a store that belong to nobody."""
    folder = Path(tempfile.mkdtemp(prefix="keepfast-nobody-"))
    if ROOT:
        # Everything is loaded while it can be: the interpreter may lie where nobody can read.
        warm = Saver(folder, folder / "warm")
        (folder / "file").write_text("x")
        warm.save()
        warm.contents()
        warm.close()
        subprocess.run(["find", str(folder), "-mindepth", "1", "-delete"], check=True)
        os.chown(folder, NOBODY, NOBODY)
    with as_nobody():
        (folder / "work").mkdir()
        saver = Saver(folder / "work", folder / "store")
    yield saver
    saver.close()
    subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=True)
    shutil.rmtree(folder)


def test_an_unreadable_file_is_named_and_captured_once_it_is_readable(private: Saver) -> None:
    file = private.root / "file"
    with as_nobody():
        (private.root / "fine").write_text("fine")
        file.write_text("secret")
        file.chmod(0)
        private.save()
        first = private.kinds()
        again = private.save()
        file.chmod(0o600)
        private.save()

        assert first == {"fine": "f", "file": "u"}
        assert again.status == "unchanged"
        assert private.read("file") == b"secret"


def test_a_file_that_becomes_unreadable_stays_in_the_versions_before(private: Saver) -> None:
    with as_nobody():
        (private.root / "file").write_text("x")
        private.save()
        (private.root / "file").chmod(0)
        private.save()

        assert private.read("file", version=1) == b"x"
        assert private.kinds() == {"file": "u"}


@pytest.mark.parametrize(("mode", "named"), [(0o000, "folder"), (0o311, "folder"), (0o444, "folder/file")])
def test_an_unreadable_folder_is_named_and_captured_once_it_is_readable(private: Saver, mode: int, named: str) -> None:
    """Without the right to list, the folder is named; with the right to list and no more, each of its entries."""
    folder = private.root / "folder"
    with as_nobody():
        (folder / "inner").mkdir(parents=True)
        (folder / "file").write_text("x")
        (folder / "inner" / "deep").write_text("y")
        (private.root / "fine").write_text("fine")
        folder.chmod(mode)
        private.save()
        first = private.kinds()
        private.save()
        folder.chmod(0o755)
        private.save()

        assert first[named] == "u"
        assert first["fine"] == "f"
        assert "folder/inner/deep" not in first
        assert private.contents() == disk(private.root)


def test_a_folder_closed_after_a_save_is_named_and_comes_back_when_opened(private: Saver) -> None:
    folder = private.root / "a" / "b"
    with as_nobody():
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
        private.save()
        whole = private.contents()
        (private.root / "a").chmod(0)
        private.save()
        closed = private.kinds()
        (private.root / "a").chmod(0o755)
        private.save()

        assert closed == {"a": "u"}
        assert private.contents() == whole


def test_an_unreadable_entry_that_goes_is_gone(private: Saver) -> None:
    folder = private.root / "folder"
    with as_nobody():
        for name in ("a", "b"):
            (folder / name).mkdir(parents=True)
            (folder / f"{name}.txt").write_text(name)
        folder.chmod(0o444)
        private.save()
        first = private.kinds()
        time.sleep(0.05)
        private.save()
        folder.chmod(0o755)
        shutil.rmtree(folder / "a")
        (folder / "a.txt").unlink()
        folder.chmod(0o444)
        private.save()

        assert first == {"folder": "d", "folder/a": "u", "folder/a.txt": "u", "folder/b": "u", "folder/b.txt": "u"}
        assert private.kinds() == {"folder": "d", "folder/b": "u", "folder/b.txt": "u"}


@pytest.mark.skipif(not ROOT, reason="needs two users")
def test_what_one_user_could_not_read_another_one_captures(private: Saver) -> None:
    with as_nobody():
        (private.root / "file").write_text("secret")
        (private.root / "file").chmod(0)
        private.save()
        time.sleep(0.05)
        private.save()
        first = private.kinds()

    private.save()

    assert first == {"file": "u"}
    assert private.read("file") == b"secret"


def test_a_file_that_is_removed_while_it_is_read_is_kept_as_it_was(root: Path) -> None:
    file = root / "large"
    file.write_bytes(b"x" * (9 << 20))

    class Removing(Sink):
        def large(self, read: Callable[[int], bytes]) -> bytes:
            first = read(1 << 20)
            file.unlink(missing_ok=True)
            parts = [first]
            while more := read(1 << 20):
                parts.append(more)
            return self.small(b"".join(parts))

    sink = Removing(lambda call: None)
    rows, _ = read_with(root, sink)

    assert (rows[b"large"].kind, rows[b"large"].flags & UNSTEADY) == ("f", 0)
    assert sink.kept[rows[b"large"].content] == b"x" * (9 << 20)


@pytest.mark.parametrize("when", ["emptied", "removed"])
def test_a_folder_whose_content_goes_while_the_tree_is_scanned_is_left_out_and_not_empty(
    root: Path, saver: Saver, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    (root / "a").write_text("x")
    (root / "d1" / "deep").mkdir(parents=True)
    (root / "d1" / "file").write_text("x")
    real = list_folder

    def listed(top: int, path: bytes, *rest: Any, **more: Any) -> Any:
        if path == b"d1" and (root / "d1").exists():
            time.sleep(0.02)
            shutil.rmtree(root / "d1")
            if when == "emptied":
                (root / "d1").mkdir()
        return real(top, path, *rest, **more)

    monkeypatch.setattr(walking, "list_folder", listed)
    saver.save()
    monkeypatch.undo()
    assert saver.kinds() == {"a": "f", "d1": "u"}
    saver.save()

    assert saver.kinds() == ({"a": "f", "d1": "d"} if when == "emptied" else {"a": "f"})
