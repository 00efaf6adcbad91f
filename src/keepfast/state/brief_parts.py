"""Parts of one brief: whichever hook of a session's start comes first builds them, and leaves the others theirs."""

from __future__ import annotations

from fcntl import LOCK_EX, LOCK_NB, flock, lockf
from posix import close as close_fd
from posix import fstat, ftruncate, listdir, pread, pwrite, stat, unlink
from time import monotonic, sleep

from keepfast.model.light_json import dumps, loads
from keepfast.state import sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

KIND = "brief"
PATIENCE, STEP = 20.0, 0.02
"""Seconds that a hook waits for the one that builds, of the thirty that it has; one that dies lets go of its lock at once."""
LIFE = 20_000_000_000
"""Nanoseconds after which nobody comes for a part any more; below the rest between two starts of one session."""
MOST = 256 << 10
FIRST = "first"
FOLLOWING, MOMENT = 1.0, 0.03
"""Seconds that a later part waits for the first one's hook to end, and then for the client to hear of that."""


def shared(
    folder: str,
    session: str,
    key: list[str],
    number: int,
    others: list[int],
    build: Callable[[], list[str]],
    clock: Callable[[], int],
    patience: float = PATIENCE,
) -> list[str]:
    """All parts if they were built here, else as many with only `number` filled: what another hook left for this one.

    `key` says of what the brief is: workspace, session, source, checkpoint. Parts of anything else are not taken.
    `others` are the numbers of hooks that may still come for theirs. Whatever is wrong with the file, `build` is called.
    """
    name = sessions.path(folder, session, KIND)
    fd = _locked(name, patience)
    if fd < 0:
        return build()
    try:
        left = _left(fd, key, clock())
        if str(number) in left:
            mine = left.pop(str(number))
            _leave(fd, name, key, left, clock())
            return [*[""] * (number - 1), mine]
        _leave(fd, name, key, {}, clock(), keep=True)  # of another start
        parts = build()
        wanted = {str(other): parts[other - 1] for other in others if 0 < other <= len(parts) and other != number}
        _leave(fd, name, key, wanted, clock())
        return parts
    finally:
        close_fd(fd)


def lead(folder: str, session: str, now: int) -> None:
    """Let the hooks of later parts wait until this process ends: a client joins texts in the order in which hooks end.

    The lock is the process's own: whatever it forks does not have it, and it goes with the process.
    """
    try:
        fd = sessions.opened(sessions.path(folder, session, FIRST))
        lockf(fd, LOCK_EX | LOCK_NB)
        ftruncate(fd, 0)
        pwrite(fd, str(now).encode("ascii"), 0)
    except OSError:
        pass  # the parts can be read in any order


def follow(folder: str, session: str, clock: Callable[[], int], patience: float = FOLLOWING) -> None:
    """Wait until the hook of the first part has ended, but not for long: it may never come."""
    end = monotonic() + patience
    while monotonic() < end:
        if _has_ended(sessions.path(folder, session, FIRST), clock()):
            sleep(MOMENT)
            return
        sleep(STEP)


def _has_ended(name: str, now: int) -> bool:
    """Did the first hook of this very start begin, and is it gone?"""
    try:
        fd = sessions.opened(name)
    except OSError:
        return False
    try:
        begun = pread(fd, MOST, 0)
        if not begun.isdigit() or not 0 <= now - int(begun) < LIFE:
            return False
        lockf(fd, LOCK_EX | LOCK_NB)
    except OSError:
        return False
    finally:
        close_fd(fd)
    return True


def sweep(folder: str, now: int) -> None:
    """Take away parts that nobody came for. Texts of a conversation do not lie about."""
    place = folder + sessions.FOLDER
    try:
        found = [f"{place}/{name}" for name in listdir(place) if name.endswith((f".{KIND}", f".{FIRST}"))]
    except OSError:
        return
    for name in found:
        try:
            if not 0 <= now - stat(name).st_mtime_ns < LIFE:
                _unlink_free(name)
        except OSError:
            continue


def _locked(name: str, patience: float) -> int:
    """The file under its lock; -1 if it cannot be had, or not in time."""
    end = monotonic() + patience
    while True:
        try:
            fd = sessions.opened(name)
        except OSError:
            return -1
        try:
            while not _try(fd):
                if monotonic() >= end:
                    close_fd(fd)
                    return -1
                sleep(STEP)
            if _is_there(fd, name):
                return fd
        except OSError:
            close_fd(fd)
            return -1
        close_fd(fd)  # whoever had it took it away


def _try(fd: int) -> bool:
    try:
        flock(fd, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(fd: int, name: str) -> bool:
    try:
        here, there = fstat(fd), stat(name)
    except FileNotFoundError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _left(fd: int, key: list[str], now: int) -> dict[str, str]:
    """The parts that lie there, if they are of the same brief and fresh."""
    try:
        found = loads(pread(fd, MOST, 0))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict) or found.get("key") != key:
        return {}
    at, parts = found.get("at"), found.get("parts")
    if type(at) is not int or not 0 <= now - at < LIFE or not isinstance(parts, dict):
        return {}
    return {number: text for number, text in parts.items() if isinstance(text, str)}


def _leave(fd: int, name: str, key: list[str], parts: dict[str, str], now: int, keep: bool = False) -> None:
    """Write what is left for others; the file goes when nothing is. It may fail: then each builds its own."""
    try:
        ftruncate(fd, 0)
        if parts:
            pwrite(fd, dumps({"key": key, "at": now, "parts": parts}).encode("ascii"), 0)
        elif not keep:
            unlink(name)
    except OSError:
        pass


def _unlink_free(name: str) -> None:
    """Take the file away unless somebody is at it."""
    fd = sessions.opened(name)
    try:
        if _try(fd) and _is_there(fd, name):
            unlink(name)
    finally:
        close_fd(fd)
