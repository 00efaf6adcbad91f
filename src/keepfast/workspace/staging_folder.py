"""The staging folder of a restore: new entries before they are put in place, old ones until they can be removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fcntl import F_RDLCK, fcntl
from os import (
    O_CLOEXEC,
    O_DIRECTORY,
    O_NOFOLLOW,
    O_NONBLOCK,
    O_RDONLY,
    close,
    listdir,
    mkdir,
    read,
    readlink,
    rename,
    rmdir,
    stat,
    unlink,
    urandom,
)
from os import open as open_fd
from signal import SIGURG
from stat import S_ISDIR, S_ISLNK, S_ISREG
from sys import getfilesystemencodeerrors, getfilesystemencoding
from time import sleep

from keepfast.model.entry import FILE, LINK, SEALED, Entry

try:
    from fcntl import F_GETLEASE, F_SETLEASE, F_SETSIG
except ImportError:  # no leases on this system: the comparison has to do
    F_GETLEASE = F_SETLEASE = F_SETSIG = -1  # type: ignore[misc]

Ids = Callable[[Callable[[int], bytes], bool], Sequence[bytes]]
"""`ids(read, sealed)`: the content ids of a stream; those of its sealed form only if asked for."""

ENCODING, ERRORS = getfilesystemencoding(), getfilesystemencodeerrors()
MARKER, PREFIX, ASIDE = b".keepfast", b"restore-", b"aside"
OWN_PREFIX = b"n"
"""Prefix of files that the restore wrote, perhaps incompletely: never used for anything from the tree."""
REMOVED, CHANGED, BUSY = "removed", "changed", "busy"
LEASE_ATTEMPTS = 20
"""Attempts to get a lease, with growing pauses: 0.2 s in all."""


class Staging:
    """`.keepfast/restore-<random>`: not captured, on the workspace's own file system, unknown to other processes."""

    def __init__(self, root: int, ids: Ids) -> None:
        self.root, self.ids = root, ids
        self.name = PREFIX + urandom(4).hex().encode()
        self.fd = self.marker = -1
        self.count = 0

    def open(self) -> None:
        self.marker = _folder(self.root, MARKER)
        self.fd = _folder(self.marker, self.name)

    def close(self, is_saved: Callable[[bytes], bool], is_saved_link: Callable[[bytes], bool]) -> list[bytes]:
        """Empty and remove the folder; return the new paths of files that no checkpoint has."""
        try:
            return self._sweep(self.name, is_saved, is_saved_link) if self.fd >= 0 else []
        finally:
            for fd in (self.fd, self.marker):
                if fd >= 0:
                    close(fd)
            self.fd = self.marker = -1

    def new(self) -> bytes:
        """Return a new name for an entry from the tree."""
        self.count += 1
        return b"%x" % self.count

    def own(self) -> bytes:
        """Return a new name for a file that the restore writes."""
        self.count += 1
        return OWN_PREFIX + b"%x" % self.count

    def lend(self, name: bytes) -> bytes:
        """Rename a file that we wrote, because an exchange will put an entry from the tree under its name."""
        if not name.startswith(OWN_PREFIX):
            return name
        lent = self.new()
        rename(name, lent, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        return lent

    def discard(self, name: bytes) -> None:
        """Remove a file that we wrote and could not place, unless it was renamed by `lend`."""
        try:
            unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            pass

    # What was taken away

    def settle(self, name: bytes, entry: Entry | None) -> str:
        """Remove the entry if it equals `entry` and no process can be writing to it; return the verdict."""
        seen = stat(name, dir_fd=self.fd, follow_symlinks=False)
        if entry is None or entry.kind not in (FILE, LINK):
            return CHANGED
        if entry.kind == LINK:
            if not S_ISLNK(seen.st_mode) or readlink(name, dir_fd=self.fd) != entry.content:
                return CHANGED
            unlink(name, dir_fd=self.fd)
            return REMOVED
        if not S_ISREG(seen.st_mode):
            return CHANGED
        fd = open_fd(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=self.fd)
        try:
            # Another hard link remains, so a process that writes to the file loses nothing.
            lease = None if seen.st_nlink > 1 else _lease(fd)
            if entry.content not in self.ids(lambda most: read(fd, most), bool(entry.flags & SEALED)):
                return CHANGED
            if lease is False or _was_broken(fd, lease):
                return BUSY
            unlink(name, dir_fd=self.fd)
            return REMOVED
        finally:
            close(fd)

    def content(self, name: bytes, sealed: bool) -> Sequence[bytes]:
        """Return the content ids of a staged file."""
        fd = open_fd(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=self.fd)
        try:
            return self.ids(lambda most: read(fd, most), sealed)
        finally:
            close(fd)

    def put_aside(self, path: bytes, name: bytes) -> bytes:
        """Move an entry to `.keepfast/aside`, where people can find it; return its new path."""
        return self._put_aside(self.fd, path, name)

    def _put_aside(self, folder: int, path: bytes, name: bytes) -> bytes:
        aside = _folder(self.marker, ASIDE)
        try:
            target = urandom(4).hex().encode() + b"-" + path.rpartition(b"/")[2][:200]
            rename(name, target, src_dir_fd=folder, dst_dir_fd=aside)
        finally:
            close(aside)
        return MARKER + b"/" + ASIDE + b"/" + target

    # What an interrupted restore left behind

    def sweep_old(self, is_saved: Callable[[bytes], bool], is_saved_link: Callable[[bytes], bool]) -> list[bytes]:
        """Clear the folders of interrupted restores; return the new paths of files that no checkpoint has."""
        rescued: list[bytes] = []
        for text in listdir(self.marker):
            name = text.encode(ENCODING, ERRORS)
            if name.startswith(PREFIX) and name != self.name:
                rescued += self._sweep(name, is_saved, is_saved_link)
        return rescued

    def _sweep(
        self, name: bytes, is_saved: Callable[[bytes], bool], is_saved_link: Callable[[bytes], bool]
    ) -> list[bytes]:
        try:
            fd = open_fd(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=self.marker)
        except OSError:
            return []  # already removed, or not a staging folder
        rescued = []
        try:
            for text in listdir(fd):
                entry = text.encode(ENCODING, ERRORS)
                if entry.startswith(OWN_PREFIX):
                    _remove(fd, entry)
                elif not self._remove_if_saved(fd, entry, is_saved, is_saved_link):
                    rescued.append(self._put_aside(fd, b"rescued", entry))
        finally:
            close(fd)
        try:
            rmdir(name, dir_fd=self.marker)
        except FileNotFoundError:
            pass
        return rescued

    def _remove_if_saved(
        self, folder: int, name: bytes, is_saved: Callable[[bytes], bool], is_saved_link: Callable[[bytes], bool]
    ) -> bool:
        seen = stat(name, dir_fd=folder, follow_symlinks=False)
        if S_ISLNK(seen.st_mode):
            if not is_saved_link(readlink(name, dir_fd=folder)):
                return False
        elif not S_ISREG(seen.st_mode):
            return False
        elif seen.st_nlink == 1:
            try:
                fd = open_fd(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=folder)
            except PermissionError:
                return False
            try:
                lease = _lease(fd)
                ids = self.ids(lambda most: read(fd, most), True)
                if not any(map(is_saved, ids)) or lease is False or _was_broken(fd, lease):
                    return False
            finally:
                close(fd)
        unlink(name, dir_fd=folder)
        return True


def _remove(folder: int, name: bytes) -> None:
    """Remove a file or folder that we wrote. Inner folders are moved up first, so that none is too deep."""
    if _is_unlinked(folder, name):
        return
    waiting = [name]
    while waiting:
        name = waiting.pop()
        fd = open_fd(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=folder)
        try:
            for text in listdir(fd):
                entry = text.encode(ENCODING, ERRORS)
                if not _is_unlinked(fd, entry):
                    waiting.append(OWN_PREFIX + urandom(8).hex().encode())
                    rename(entry, waiting[-1], src_dir_fd=fd, dst_dir_fd=folder)
        finally:
            close(fd)
        rmdir(name, dir_fd=folder)


def _is_unlinked(folder: int, name: bytes) -> bool:
    """Remove the entry unless it is a folder; return whether it was removed."""
    try:
        unlink(name, dir_fd=folder)
    except OSError:
        if S_ISDIR(stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return False
        raise
    return True


def _lease(fd: int) -> bool | None:
    """Take a read lease. True: no open descriptor or mapping can write to the file. False: one can. None: no leases here."""
    try:
        fcntl(fd, F_SETSIG, SIGURG)  # the default signal of a broken lease would kill us; this one is ignored
        for attempt in range(LEASE_ATTEMPTS):
            try:
                fcntl(fd, F_SETLEASE, F_RDLCK)
                return True
            except BlockingIOError:
                sleep(0.001 * (attempt + 1))
    except OSError:
        return None  # another owner, another kind of file system
    return False


def _was_broken(fd: int, lease: bool | None) -> bool:
    """Return whether a process has tried to open the file for writing since the lease was granted. It waits until we release it."""
    return lease is True and fcntl(fd, F_GETLEASE) != F_RDLCK


def _folder(parent: int, name: bytes) -> int:
    try:
        mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        pass
    return open_fd(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=parent)
