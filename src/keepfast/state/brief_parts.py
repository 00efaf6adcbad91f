"""Parts of one brief: the first hook of a session's start builds all of them, and stores the other hooks' parts."""

from __future__ import annotations

from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, flock, lockf
from os import close as close_fd
from os import fstat, ftruncate, listdir, pread, pwrite, stat, unlink
from time import monotonic, sleep

from keepfast.model.strict_json import dumps, loads
from keepfast.state import sessions

KIND = "brief"
MAX_WAIT, POLL_PAUSE = 20.0, 0.02
"""Seconds that a hook waits for the one that builds (it has thirty); the lock of a hook that dies is released at once."""
MAX_AGE = 20_000_000_000
"""Nanoseconds after which a part is stale; less than the minimum between two starts of one session."""
MAX_PART_BYTES = 256 << 10
FIRST = "first"
MAX_WAIT_FOR_FIRST, CLIENT_DELAY = 1.0, 0.03
"""Seconds that a later part waits for the first one's hook to end, and then for the client to notice."""


def build_or_take(
    folder: str,
    session: str,
    key: list[str],
    number: int,
    others: list[int],
    build: Callable[[], list[str]],
    clock: Callable[[], int],
    patience: float = MAX_WAIT,
) -> list[str]:
    """Return all parts if they were built here; otherwise only part `number`, which another hook stored, the rest empty.

    `key` identifies the brief: workspace, session, source, checkpoint; parts with another key are ignored. `others` are
    the numbers of hooks that may still ask for their parts. If the file cannot be used, `build` is called.
    """
    name = sessions.path(folder, session, KIND)
    fd = _locked(name, patience)
    if fd < 0:
        return build()
    try:
        remaining = _remaining_parts(fd, key, clock())
        if str(number) in remaining:
            mine = remaining.pop(str(number))
            _write_parts(fd, name, key, remaining, clock())
            return [*[""] * (number - 1), mine]
        _write_parts(fd, name, key, {}, clock(), keep=True)  # of another start
        parts = build()
        other_parts = {str(other): parts[other - 1] for other in others if 0 < other <= len(parts) and other != number}
        _write_parts(fd, name, key, other_parts, clock())
        return parts
    finally:
        close_fd(fd)


def hold_first(folder: str, session: str, now: int) -> None:
    """Make the hooks of later parts wait until this process ends: a client joins texts in the order in which hooks end.

    The lock belongs to the process: its children do not inherit it, and it ends with the process.
    """
    try:
        fd = sessions.open_private(sessions.path(folder, session, FIRST))
        lockf(fd, LOCK_EX | LOCK_NB)
        ftruncate(fd, 0)
        pwrite(fd, str(now).encode("ascii"), 0)
    except OSError:
        pass  # the parts can be read in any order


def wait_for_first(folder: str, session: str, clock: Callable[[], int], patience: float = MAX_WAIT_FOR_FIRST) -> None:
    """Wait until the hook of the first part has ended, but not for long: it may never start."""
    end = monotonic() + patience
    while monotonic() < end:
        if _has_ended(sessions.path(folder, session, FIRST), clock()):
            sleep(CLIENT_DELAY)
            return
        sleep(POLL_PAUSE)


def _has_ended(name: str, now: int) -> bool:
    """Return whether the first hook of this very start began and ended."""
    try:
        fd = sessions.open_private(name)
    except OSError:
        return False
    try:
        begun = pread(fd, MAX_PART_BYTES, 0)
        if not begun.isdigit() or not 0 <= now - int(begun) < MAX_AGE:
            return False
        lockf(fd, LOCK_EX | LOCK_NB)
    except OSError:
        return False
    finally:
        close_fd(fd)
    return True


def sweep(folder: str, now: int) -> None:
    """Remove parts that no hook asked for: they hold texts of a conversation."""
    place = folder + sessions.FOLDER
    try:
        paths = [f"{place}/{path}" for path in listdir(place) if path.endswith((f".{KIND}", f".{FIRST}"))]
    except OSError:
        return
    for path in paths:
        try:
            if not 0 <= now - stat(path).st_mtime_ns < MAX_AGE:
                _unlink_free(path)
        except OSError:
            continue


def _locked(name: str, patience: float) -> int:
    """Open and lock the file; return -1 if that fails, or takes too long."""
    end = monotonic() + patience
    while True:
        try:
            fd = sessions.open_private(name)
        except OSError:
            return -1
        try:
            while not _try_lock(fd):
                if monotonic() >= end:
                    close_fd(fd)
                    return -1
                sleep(POLL_PAUSE)
            if _is_current(fd, name):
                return fd
        except OSError:
            close_fd(fd)
            return -1
        close_fd(fd)  # its previous holder removed it


def _try_lock(fd: int) -> bool:
    try:
        flock(fd, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_current(fd: int, name: str) -> bool:
    try:
        opened, named = fstat(fd), stat(name)
    except FileNotFoundError:
        return False
    return (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)


def _remaining_parts(fd: int, key: list[str], now: int) -> dict[str, str]:
    """Return the stored parts, if they belong to the same brief and are not stale."""
    try:
        content = loads(pread(fd, MAX_PART_BYTES, 0))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict) or content.get("key") != key:
        return {}
    at, parts = content.get("at"), content.get("parts")
    if type(at) is not int or not 0 <= now - at < MAX_AGE or not isinstance(parts, dict):
        return {}
    return {number: text for number, text in parts.items() if isinstance(text, str)}


def _write_parts(fd: int, name: str, key: list[str], parts: dict[str, str], now: int, keep: bool = False) -> None:
    """Write the parts for other hooks; without any, remove the file. If that fails, each hook builds its own."""
    try:
        ftruncate(fd, 0)
        if parts:
            pwrite(fd, dumps({"key": key, "at": now, "parts": parts}).encode("ascii"), 0)
        elif not keep:
            unlink(name)
    except OSError:
        pass


def _unlink_free(name: str) -> None:
    """Remove the file unless a process has it locked."""
    fd = sessions.open_private(name)
    try:
        if _try_lock(fd) and _is_current(fd, name):
            unlink(name)
    finally:
        close_fd(fd)
