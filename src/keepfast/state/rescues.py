"""Versions that a destructive command relied on, each with the time of the command, kept for a day."""

from __future__ import annotations

from fcntl import LOCK_EX, flock
from os import O_APPEND, O_CLOEXEC, O_CREAT, O_RDWR, O_WRONLY, close, fstat, ftruncate, pread, pwrite
from os import open as open_fd

from keepfast.fsutil.durable import write_all

NAME = "/rescues"
DAY = 86_400_000_000_000


def note(folder: str, version: int, at: int) -> None:
    """Record that this version holds everything that a command may destroy. It may be old, if nothing changed since."""
    fd = open_fd(folder + NAME, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
    try:
        _lock(fd)
        write_all(fd, b"%d %d\n" % (version, at))
    finally:
        close(fd)


def read(folder: str) -> dict[int, int]:
    """Return version → when a command last relied on it; damaged lines are skipped."""
    try:
        with open(folder + NAME, "rb") as file:
            return _parsed(file.read())
    except OSError:
        return {}


def sweep(folder: str) -> None:
    """Remove lines a day older than the newest one: if the clock jumps ahead, nothing is removed."""
    try:
        fd = open_fd(folder + NAME, O_RDWR | O_CLOEXEC)
    except OSError:
        return
    try:
        _lock(fd)
        times = _parsed(pread(fd, fstat(fd).st_size, 0))
        newest = max(times.values(), default=0)
        rest = b"".join([b"%d %d\n" % entry for entry in times.items() if newest - entry[1] < DAY])
        pwrite(fd, rest, 0)
        ftruncate(fd, len(rest))
    finally:
        close(fd)


def _parsed(text: bytes) -> dict[int, int]:
    times: dict[int, int] = {}
    for line in text.split(b"\n"):
        version, _, at = line.partition(b" ")
        if version.isdigit() and at.isdigit():
            times[int(version)] = max(int(at), times.get(int(version), 0))
    return times


def _lock(fd: int) -> None:
    flock(fd, LOCK_EX)
