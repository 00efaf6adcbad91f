"""System calls missing in Python: atomic exchange, opening paths without following links, sync of one file system."""

from __future__ import annotations

import ctypes
from errno import EAGAIN, EEXIST, EINVAL, ENOSYS, ENOTDIR, EPERM
from os import (
    O_CLOEXEC,
    O_DIRECTORY,
    O_NOFOLLOW,
    O_NONBLOCK,
    O_RDONLY,
    chmod,
    close,
    fstat,
    fsync,
    rename,
    stat,
    strerror,
    sync,
)
from os import open as open_fd
from stat import S_ISDIR, S_ISREG
from threading import Lock, Thread
from typing import Any

from keepfast.fsutil.descriptors import FOLDER, LONG
from keepfast.model.compiled import demand

try:
    from keepfast.workspace import _place as _native  # type: ignore[attr-defined]

    demand(_native)
except ImportError:  # not built here, or from other sources: the C library has the same calls
    _native = None


AHEAD, MAX_AHEAD = 24 << 20, 256 << 20
"""Bytes that are written before the first sync starts; doubled each time, up to the maximum.

Each sync writes all that the file system says of files, of which the next one writes much again, and holds up whoever writes.
"""
NOREPLACE, EXCHANGE = 1, 2
OPENAT2 = 437
BENEATH = 0x08 | 0x04 | 0x02
"""RESOLVE_BENEATH, NO_SYMLINKS, NO_MAGICLINKS."""


class System:
    """The system calls, looked up once. A missing call is replaced by several others.

    `accelerated`: by our own compiled module, if it was built; it loads faster than ctypes, and takes many files at once.
    """

    def __init__(self, accelerated: bool = True) -> None:
        self.native: Any = _native if accelerated else None
        self._calls: Any = self.native or Library()

    def rename(self, from_folder: int, old: bytes, to_folder: int, new: bytes, flags: int) -> None:
        """Rename with NOREPLACE or EXCHANGE. Raises `FileExistsError`, `FileNotFoundError` and other `OSError`s."""
        try:
            self._calls.rename(from_folder, old, to_folder, new, flags)
        except OSError as error:
            if error.errno not in (ENOSYS, EINVAL):
                raise
            self._rename_by_hand(from_folder, old, to_folder, new, flags)

    def _rename_by_hand(self, from_folder: int, old: bytes, to_folder: int, new: bytes, flags: int) -> None:
        if flags == NOREPLACE:
            try:
                stat(new, dir_fd=to_folder, follow_symlinks=False)
            except FileNotFoundError:
                rename(old, new, src_dir_fd=from_folder, dst_dir_fd=to_folder)
                return
            raise FileExistsError(EEXIST, strerror(EEXIST), new)
        spare = old + b".x"
        rename(new, spare, src_dir_fd=to_folder, dst_dir_fd=from_folder)
        rename(old, new, src_dir_fd=from_folder, dst_dir_fd=to_folder)
        rename(spare, old, src_dir_fd=from_folder, dst_dir_fd=from_folder)

    def open_folder(self, root: int, path: bytes) -> int:
        """Open a folder below `root` for use as `dir_fd`; no part of the path may be a link."""
        if len(path) < LONG:
            return self._open_at_once(root, path)
        # In the longest steps that the kernel accepts: part by part, a deep folder would cost one call per level.
        fd = -1
        while path:
            cut = len(path) if len(path) < LONG else path.rfind(b"/", 0, LONG)
            try:
                further = self._open_at_once(root if fd < 0 else fd, path[:cut])
            finally:
                if fd >= 0:
                    close(fd)
            fd, path = further, path[cut + 1 :]
        return fd

    def _open_at_once(self, root: int, path: bytes) -> int:
        if path:
            try:
                fd: int = self._calls.open_folder(root, path)
                return fd
            except OSError as error:
                if error.errno not in (ENOSYS, EPERM, EINVAL, EAGAIN):
                    raise
        return self._walk(root, path)

    def _walk(self, root: int, path: bytes) -> int:
        fd = open_fd(b".", FOLDER, dir_fd=root)
        for part in path.split(b"/") if path else ():
            try:
                further = open_fd(part, FOLDER, dir_fd=fd)
            finally:
                close(fd)
            fd = further
        return fd

    def sync(self, folder: int) -> None:
        """Make everything on the folder's file system durable. Raises `OSError` if something could not be written."""
        fd = open_fd(b".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, dir_fd=folder)
        try:
            try:
                self._calls.syncfs(fd)
                return
            except OSError as error:
                if error.errno != ENOSYS:
                    raise
            sync()
            fsync(fd)
        finally:
            close(fd)

    def sync_file(self, folder: int, name: bytes) -> None:
        """Make one file or folder durable. Without permission to open it, sync the whole file system."""
        try:
            fd = open_fd(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=folder)
        except PermissionError:
            self.sync(folder)
            return
        try:
            fsync(fd)
        finally:
            close(fd)


class SyncAhead:
    """Syncs in a thread while more is being written, so that the final sync is short."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._guard = Lock()
        self._written, self._sync_at = 0, AHEAD
        self._syncing = Lock()
        self._error: OSError | None = None

    def note_written(self, folder: int, size: int) -> None:
        """Record bytes written on the folder's file system; any thread may call this."""
        with self._guard:
            self._written += size
            if self._written < self._sync_at or not self._syncing.acquire(False):
                return
            self._written, self._sync_at = 0, min(2 * self._sync_at, MAX_AHEAD)
            try:
                Thread(target=self._sync, args=(folder,), daemon=True).start()
            except RuntimeError:  # no more threads: the final sync covers it
                self._syncing.release()

    def _sync(self, folder: int) -> None:
        try:
            self.system.sync(folder)
        except OSError as error:
            self._error = error
        finally:
            self._syncing.release()

    def wait(self) -> None:
        """Wait for a running sync. Raises `OSError` if one failed."""
        with self._syncing:
            pass
        if self._error is not None:
            error, self._error = self._error, None
            raise error


class Library:
    """The same calls through the C library, used if the C module was not built."""

    def __init__(self) -> None:
        self.library, self.errno = ctypes.CDLL(None, use_errno=True), ctypes.get_errno
        self.how = (ctypes.c_uint64 * 3)(FOLDER, 0, BENEATH)

    def rename(self, from_folder: int, old: bytes, to_folder: int, new: bytes, flags: int) -> None:
        self._call("renameat2", new, from_folder, old, to_folder, new, flags)

    def open_folder(self, root: int, path: bytes) -> int:
        return self._call("syscall", path, OPENAT2, root, path, self.how, 24)

    def syncfs(self, fd: int) -> None:
        self._call("syncfs", None, fd)

    def _call(self, name: str, path: bytes | None, *arguments: object) -> int:
        if not hasattr(self.library, name):
            raise OSError(ENOSYS, strerror(ENOSYS))
        done: int = getattr(self.library, name)(*arguments)
        if done < 0:
            raise OSError(self.errno(), strerror(self.errno()), path)
        return done


class Folders:
    """Opens the folders of paths, always again: a folder may have been moved, or replaced by a link."""

    def __init__(self, root: int, system: System) -> None:
        self.root, self.system = root, system
        self._fd = -1

    def parent(self, path: bytes) -> tuple[int, bytes]:
        """Return the folder of `path` and its last part; the descriptor holds until the next call."""
        folder, _, last = path.rpartition(b"/")
        return self.folder(folder), last

    def folder(self, path: bytes) -> int:
        self.close()
        if not path:
            return self.root
        self._fd = self.system.open_folder(self.root, path)
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            close(self._fd)
            self._fd = -1


def chmod_below(folder: int, name: bytes, mode: int, is_folder: bool) -> None:
    """Set the mode of an entry that cannot be opened; never through a link. Raises `OSError`."""
    # With a descriptor (O_PATH), the file cannot be replaced by a link between check and change.
    fd = open_fd(name, (FOLDER & ~O_DIRECTORY) | O_NOFOLLOW, dir_fd=folder)
    try:
        seen = fstat(fd)
        if not (S_ISDIR(seen.st_mode) if is_folder else S_ISREG(seen.st_mode)):
            raise NotADirectoryError(ENOTDIR, "another file took its place", name)
        chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        close(fd)
