"""Versions that a destructive command relied on: each line one of them and when, for a day, whatever it was taken for."""

from __future__ import annotations

from posix import O_APPEND, O_CLOEXEC, O_CREAT, O_RDWR, O_WRONLY, close, fstat, ftruncate, pread, pwrite
from posix import open as open_fd

from keepfast.fsutil.durable import write_all

NAME = "/rescues"
DAY = 86_400_000_000_000


def note(folder: str, version: int, at: int) -> None:
    """Write down that all a command may destroy is in this version. It may be an old one, if nothing changed since."""
    fd = open_fd(folder + NAME, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
    try:
        _lock(fd)
        write_all(fd, b"%d %d\n" % (version, at))
    finally:
        close(fd)


def read(folder: str) -> dict[int, int]:
    """Version → when a command last relied on it; lines that are not whole are passed over."""
    try:
        with open(folder + NAME, "rb") as file:
            return _parsed(file.read())
    except OSError:
        return {}


def sweep(folder: str) -> None:
    """Drop what is a day older than the newest line: a clock that jumps ahead drops nothing."""
    try:
        fd = open_fd(folder + NAME, O_RDWR | O_CLOEXEC)
    except OSError:
        return
    try:
        _lock(fd)
        found = _parsed(pread(fd, fstat(fd).st_size, 0))
        newest = max(found.values(), default=0)
        rest = b"".join([b"%d %d\n" % one for one in found.items() if newest - one[1] < DAY])
        pwrite(fd, rest, 0)
        ftruncate(fd, len(rest))
    finally:
        close(fd)


def _parsed(text: bytes) -> dict[int, int]:
    found: dict[int, int] = {}
    for line in text.split(b"\n"):
        version, _, at = line.partition(b" ")
        if version.isdigit() and at.isdigit():
            found[int(version)] = max(int(at), found.get(int(version), 0))
    return found


def _lock(fd: int) -> None:
    from fcntl import LOCK_EX, flock

    flock(fd, LOCK_EX)
