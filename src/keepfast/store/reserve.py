"""The reserve: a file that keeps disk space allocated, so that forgetting and compaction work on a full disk."""

from __future__ import annotations

from collections.abc import Callable
from errno import EINVAL, EOPNOTSUPP
from fcntl import LOCK_EX, LOCK_NB, flock
from os import (
    O_CLOEXEC,
    O_CREAT,
    O_NOFOLLOW,
    O_RDONLY,
    O_RDWR,
    close,
    fstat,
    ftruncate,
    listdir,
    lseek,
    stat,
    statvfs,
    unlink,
)
from os import open as open_fd
from typing import TypeVar

try:
    from os import posix_fallocate
except ImportError:  # macOS has none
    posix_fallocate = None  # type: ignore[assignment]

from keepfast.fsutil.durable import FULL, explain, write_all
from keepfast.model.errors import DiskFull

Done = TypeVar("Done")

NAME = "/reserve"
RESERVE_STEP_BYTES, MAX_RESERVE_BYTES = 1 << 20, 64 << 20
DISPOSABLE = ("/search.db", "/search.db-journal")
"""Recreated by the next search, so they are removed too when the disk is full."""
MIN_PACK, OF_DISK = 1 << 20, 256


def reserve_size(folder: str) -> int:
    """Return the size that the reserve of this store must have: SQLite's journal can become as large as the ledger."""
    try:
        ledger = stat(folder + "/ledger.db").st_size
    except FileNotFoundError:
        ledger = 0
    return min(RESERVE_STEP_BYTES * (1 + -(-ledger // RESERVE_STEP_BYTES)), MAX_RESERVE_BYTES)


def max_pack_size(folder: str, most: int) -> int:
    """Return the largest pack size: a small part of the disk, so that a pack can still be rewritten on a full disk."""
    try:
        disk = statvfs(folder) if folder else None
    except OSError:
        disk = None
    return most if disk is None else max(MIN_PACK, min(most, disk.f_blocks * disk.f_frsize // OF_DISK))


def free_space(folder: str) -> int:
    """Return the free bytes on the store's disk."""
    disk = statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def disk_full_hint(folder: str) -> str:
    """Return the hint for a full disk: forget checkpoints, or free space elsewhere if the reserve for that is gone."""
    try:
        return DiskFull.hint if stat(folder + NAME).st_size >= RESERVE_STEP_BYTES else _free_space_hint(folder)
    except OSError:
        return _free_space_hint(folder)


def _free_space_hint(folder: str) -> str:
    try:
        free = free_space(folder)
    except OSError:
        free = 0
    missing = -(-max(reserve_size(folder) - free, RESERVE_STEP_BYTES) // RESERVE_STEP_BYTES)
    return (
        f"Free {missing} MB on the disk of {folder} and run the command again, or move the store to another "
        "disk and run `keepfast --store NEWPATH init`."
    )


def ensure_reserve(folder: str) -> None:
    """Create the reserve, or grow it to the required size, before a save takes space. Raises `DiskFull`."""
    required = reserve_size(folder)
    try:
        if stat(folder + NAME).st_size >= required:
            return
    except FileNotFoundError:
        pass
    try:
        with _ReserveLock(folder) as turn:
            if not turn.is_ours:
                # Another process is using the reserve to free space: it needs the room that we would take.
                raise DiskFull(
                    f"The disk is full: the reserve of the store {folder} is in use.", "Try again in a moment."
                )
            _grow(folder, required)
    except OSError as error:
        if error.errno in FULL:
            raise DiskFull(
                f"The disk is full: no space for the reserve of the store {folder}.", disk_full_hint(folder)
            ) from None
        raise explain(error, "Creating the store's reserve", folder) from None


def try_ensure_reserve(folder: str) -> None:
    """Create or grow the reserve if there is space; else the next save tries again."""
    try:
        ensure_reserve(folder)
    except DiskFull:
        pass


def with_reserve(folder: str, what: str, work: Callable[[], Done]) -> Done:
    """Run `work`. If the disk is full, release the reserve, run it once more, and allocate the reserve again."""
    try:
        try:
            return work()
        except (DiskFull, OSError) as error:
            if not folder or not is_full(error):
                raise
            first = error
        with _ReserveLock(folder) as turn:
            if not turn.is_ours:
                raise first
            _release(folder)
            try:
                return _without_repeat_hint(folder, what, work)
            finally:
                _reclaim(folder)
    except OSError as error:
        raise explain(error, what, folder) from None


def _release(folder: str) -> None:
    """Remove the reserve and disposable files. They are removed, not truncated: the disk may be out of inodes."""
    had_reserve = _remove(folder + NAME)
    for name in DISPOSABLE:
        _remove(folder + name)
    if had_reserve:
        return
    # There is no reserve. Without its stat cache a workspace's next save reads every file: better than no way to forget.
    try:
        workspaces = listdir(folder + "/workspaces")
    except OSError:
        return
    for workspace in workspaces:
        _remove(f"{folder}/workspaces/{workspace}/cache")


def _without_repeat_hint(folder: str, what: str, work: Callable[[], Done]) -> Done:
    """Run `work`; if the disk is full even so, replace the hint to forget checkpoints by one to free space."""
    try:
        return work()
    except OSError as error:
        explained = explain(error, what, folder)
    except DiskFull as error:
        explained = error
    if isinstance(explained, DiskFull) and explained.hint == DiskFull.hint:
        explained.hint = _free_space_hint(folder)
    raise explained from None


def is_full(error: Exception) -> bool:
    return isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in FULL)


class _ReserveLock:
    """Kernel lock on the store's format file (if it exists yet), held while the reserve is created or used."""

    def __init__(self, folder: str) -> None:
        self.path = folder + "/format"
        self.is_ours = True
        self._fd = -1

    def __enter__(self) -> _ReserveLock:
        try:
            self._fd = open_fd(self.path, O_RDONLY | O_CLOEXEC)
            flock(self._fd, LOCK_EX | LOCK_NB)
        except FileNotFoundError:
            pass  # the store is being made
        except BlockingIOError:
            self.is_ours = False
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            close(self._fd)


def _reclaim(folder: str) -> None:
    """Allocate the reserve again: all of it, or at least one part."""
    for size in (reserve_size(folder), RESERVE_STEP_BYTES):
        try:
            _grow(folder, size)
        except OSError:
            continue
        break


def _grow(folder: str, size: int) -> None:
    fd = open_fd(folder + NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
    try:
        before = fstat(fd).st_size
        try:
            if before < size:
                _allocate(fd, before, size)
        except OSError:
            ftruncate(fd, before)  # a partly allocated reserve would take space and be of no use
            raise
    finally:
        close(fd)


def _allocate(fd: int, before: int, size: int) -> None:
    try:
        if posix_fallocate is None:
            raise OSError(EOPNOTSUPP, "")
        posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (EINVAL, EOPNOTSUPP):
            raise
        lseek(fd, before, 0)
        write_all(fd, bytes(size - before))


def _remove(path: str) -> bool:
    """Remove a file; return whether it existed."""
    try:
        unlink(path)
    except FileNotFoundError:
        return False
    return True
