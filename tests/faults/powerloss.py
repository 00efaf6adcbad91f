"""Power loss: every block write and flush of a disk is logged; any moment of the log can be made into a disk again.

A loop device lies on a file that a small FUSE server keeps in memory. Whatever the file system writes arrives there as
a write, every barrier as an fsync, and every acknowledgement as a mark, all in one order. A crash at one place of the
log leaves what was flushed before, and any part of what was written since: nothing, all, some writes, or torn ones.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from . import disks
from .stage import module

WRITE, FLUSH, MARK = b"W", b"F", b"M"
HEAD = struct.Struct("<cQI")
SECTOR = 512
MODES = ("none", "all", "some", "torn")


class Entry(NamedTuple):
    """One thing that happened to the disk: a write at an offset, a flush, or a mark."""

    kind: bytes
    offset: int
    data: bytes


class Disk:
    """A recorded disk: mounted at `mount`; `mark` takes acknowledgements."""

    def __init__(self, mount: Path, mark: Path) -> None:
        self.mount, self.mark_file = mount, mark

    def mark(self, text: str) -> None:
        with open(self.mark_file, "wb", buffering=0) as file:
            file.write(text.encode())


@contextmanager
def recording(folder: Path, kind: str, megabytes: int) -> Iterator[Disk]:
    """A new file system whose every write is recorded into `folder/log`; complete when the context has ended."""
    served, mount = folder / "served", folder / "mount"
    for path in (served, mount):
        path.mkdir(parents=True, exist_ok=True)
    with _server(served, megabytes, folder / "log"), disks.loop_device(served / "disk") as device:
        disks.make(kind, device)
        with disks.mounted(device, mount, kind):
            subprocess.run(["sync", "-f", str(mount)], check=True)
            disk = Disk(mount, served / "mark")
            disk.mark("START")
            yield disk
            disk.mark("END")


def read_log(path: Path) -> list[Entry]:
    """Return everything that happened, in order."""
    data, at, entries = path.read_bytes(), 0, []
    while at < len(data):
        kind, offset, length = HEAD.unpack_from(data, at)
        at += HEAD.size
        entries.append(Entry(kind, offset, data[at : at + length]))
        at += length
    return entries


class Crash(NamedTuple):
    """A moment at which the power goes, what became of the writes in flight, and what had been promised by then."""

    at: int
    mode: str
    in_flight: int
    marks: list[str]
    image: bytearray


def crashes(entries: list[Entry], megabytes: int, points: int, random: Random, since: str = "START") -> Iterator[Crash]:
    """Yield `points` crashes between the marks START, or another one, and END, in order.

    Half of them come right after an acknowledgement: there a missing sync shows, if anywhere.
    """
    begin, end = (
        next(at for at, entry in enumerate(entries) if (entry.kind, entry.data) == (MARK, text.encode()))
        for text in (since, "END")
    )
    anywhere = list(range(begin + 1, end + 1))
    after_promise = [at + 1 for at in anywhere[:-1] if entries[at].kind == MARK]
    chosen = set(random.sample(after_promise, min(len(after_promise), points // 2)))
    rest = [at for at in anywhere if at not in chosen]
    chosen.update(random.sample(rest, min(len(rest), points - len(chosen))))
    durable, in_flight, marks = bytearray(megabytes << 20), list[Entry](), list[str]()
    for at, entry in enumerate(entries):
        if at in chosen:
            mode = random.choice(MODES)
            yield Crash(at, mode, len(in_flight), list(marks), crashed(durable, in_flight, mode, random))
        if entry.kind == WRITE:
            in_flight.append(entry)
        elif entry.kind == FLUSH:
            for write in in_flight:
                durable[write.offset : write.offset + len(write.data)] = write.data
            in_flight.clear()
        else:
            marks.append(entry.data.decode())


def crashed(durable: bytearray, in_flight: list[Entry], mode: str, random: Random) -> bytearray:
    """The disk after the power went: what is durable, and what the mode says of the writes in flight."""
    image = bytearray(durable)
    for write in in_flight:
        step = SECTOR if mode == "torn" else len(write.data)
        for at in range(0, len(write.data), step):
            if mode == "all" or (mode in ("some", "torn") and random.random() < 0.5):
                part = write.data[at : at + step]
                image[write.offset + at : write.offset + at + len(part)] = part
    return image


@contextmanager
def revived(crash: Crash, folder: Path, kind: str) -> Iterator[bool]:
    """Mount the crashed disk where it was mounted before; False if the file system itself is beyond that."""
    image = Path("/dev/shm") / f"keepfast-{os.getpid()}.img"
    try:
        image.write_bytes(crash.image)
        with disks.loop_device(image) as device:
            try:
                mounting = disks.mounted(device, folder / "mount", kind)
                mounting.__enter__()
            except OSError:
                yield False
                return
            try:
                yield True
            finally:
                mounting.__exit__(None, None, None)
    finally:
        image.unlink(missing_ok=True)


# The server


@contextmanager
def _server(served: Path, megabytes: int, log: Path) -> Iterator[None]:
    process = subprocess.Popen(module("powerloss", served, megabytes, log), stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(100):
            if (served / "disk").exists():
                break
            if process.poll() is not None:
                raise OSError(f"the FUSE server ended: {process.stderr.read() if process.stderr else ''}")
            time.sleep(0.05)
        yield
    finally:
        if os.path.ismount(served):
            disks.unmount(served)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(arguments: list[str]) -> int:
    """Serve `disk` and `mark` below the first argument until that is unmounted."""
    import mfusepy

    mount, megabytes, log = arguments[0], int(arguments[1]), open(arguments[2], "wb", buffering=1 << 20)
    disk = bytearray(megabytes << 20)

    def record(kind: bytes, offset: int = 0, data: bytes = b"") -> None:
        log.write(HEAD.pack(kind, offset, len(data)) + data)

    class Server(mfusepy.Operations):  # type: ignore[misc]
        use_ns = True

        def getattr(self, path: str, fh: object = None) -> dict[str, Any]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
            if path not in ("/disk", "/mark"):
                raise mfusepy.FuseOSError(errno.ENOENT)
            return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": len(disk) if path == "/disk" else 0}

        def readdir(self, path: str, fh: object) -> list[str]:
            return [".", "..", "disk", "mark"]

        def open(self, path: str, flags: object) -> int:
            return 3

        def read(self, path: str, size: int, offset: int, fh: object) -> bytes:
            return bytes(disk[offset : offset + size])

        def write(self, path: str, data: bytes, offset: int, fh: object) -> int:
            if path == "/mark":
                record(MARK, 0, data)
                return len(data)
            if offset + len(data) > len(disk):
                raise mfusepy.FuseOSError(errno.ENOSPC)
            disk[offset : offset + len(data)] = data
            record(WRITE, offset, data)
            return len(data)

        def fsync(self, path: str, datasync: object, fh: object) -> int:
            record(FLUSH)
            return 0

        def truncate(self, path: str, length: int, fh: object = None) -> int:
            return 0

        def destroy(self, path: str) -> None:
            log.close()

    # One thread: the order of the log is the order of things. No cache: every write arrives at once.
    mfusepy.FUSE(Server(), mount, foreground=True, nothreads=True, direct_io=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
