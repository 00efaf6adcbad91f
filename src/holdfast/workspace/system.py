"""Calls that Python does not have: an atomic exchange, a walk that follows no link, a sync of one file system."""

from __future__ import annotations

import ctypes
from errno import EAGAIN, EEXIST, EINVAL, ENOSYS, ENOTDIR, EPERM
from posix import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_RDONLY, chmod, close, fstat, fsync, rename, stat, strerror, sync
from posix import open as open_fd
from stat import S_ISDIR, S_ISREG

from holdfast.workspace.below import FOLDER, LONG

NOREPLACE, EXCHANGE = 1, 2
OPENAT2 = 437
BENEATH = 0x08 | 0x04 | 0x02
"""RESOLVE_BENEATH, NO_SYMLINKS, NO_MAGICLINKS."""


class System:
    """The C library, asked once. Where a call is missing, the same is done in more than one."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(None, use_errno=True)
        self.exchanges = hasattr(self.library, "renameat2")
        self.opens = hasattr(self.library, "syscall")
        self.syncs = hasattr(self.library, "syncfs")

    def rename(self, from_folder: int, old: bytes, to_folder: int, new: bytes, flags: int) -> None:
        """Rename with NOREPLACE or EXCHANGE. Raises `FileExistsError`, `FileNotFoundError` and other `OSError`s."""
        if self.exchanges:
            if self.library.renameat2(from_folder, old, to_folder, new, flags) == 0:
                return
            number = ctypes.get_errno()
            if number not in (ENOSYS, EINVAL):
                raise OSError(number, strerror(number), new)
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
        if self.opens and 0 < len(path) < LONG:
            how = (ctypes.c_uint64 * 3)(FOLDER, 0, BENEATH)
            fd: int = self.library.syscall(OPENAT2, root, path, how, 24)
            if fd >= 0:
                return fd
            number = ctypes.get_errno()
            if number not in (ENOSYS, EPERM, EINVAL, EAGAIN):
                raise OSError(number, strerror(number), path)
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
            if self.syncs:
                if self.library.syncfs(fd) == 0:
                    return
                number = ctypes.get_errno()
                if number != ENOSYS:
                    raise OSError(number, strerror(number))
            sync()
            fsync(fd)
        finally:
            close(fd)


class Folders:
    """Descriptors of the folders that hold paths, each opened anew: a folder may be moved away, or be a link by now."""

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
    """Set the mode of something that we may not open; never through a link. Raises `OSError`."""
    # A descriptor that only names the file (O_PATH) cannot be replaced by a link between the look and the change.
    fd = open_fd(name, (FOLDER & ~O_DIRECTORY) | O_NOFOLLOW, dir_fd=folder)
    try:
        seen = fstat(fd)
        if not (S_ISDIR(seen.st_mode) if is_folder else S_ISREG(seen.st_mode)):
            raise NotADirectoryError(ENOTDIR, "something else is in its place", name)
        chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        close(fd)
