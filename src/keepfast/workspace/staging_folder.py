"""The folder in which a restore prepares what it will put in place, and where it judges what it took away."""

from __future__ import annotations

from _signal import SIGURG  # type: ignore[import-not-found]  # `signal` itself loads enum for names
from fcntl import F_RDLCK, fcntl
from posix import (
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
from posix import open as open_fd
from stat import S_ISDIR, S_ISLNK, S_ISREG
from sys import getfilesystemencodeerrors, getfilesystemencoding
from time import sleep

from keepfast.model.entry import FILE, LINK, SEALED, Entry

try:
    from fcntl import F_GETLEASE, F_SETLEASE, F_SETSIG
except ImportError:  # no leases on this system: the comparison has to do
    F_GETLEASE = F_SETLEASE = F_SETSIG = -1  # type: ignore[misc]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Ids = Callable[[Callable[[int], bytes], bool], Sequence[bytes]]
    """`ids(read, sealed)`: the ids that a stream has as a content, those that it has when it is sealed only if wanted."""

ENCODING, ERRORS = getfilesystemencoding(), getfilesystemencodeerrors()
MARKER, PREFIX, ASIDE = b".keepfast", b"restore-", b"aside"
OURS = b"n"
"""What begins so was written by us, perhaps not to its end: nobody else's bytes are ever under such a name."""
REMOVED, CHANGED, BUSY = "removed", "changed", "busy"
PATIENCE = 20
"""Times that we ask whether somebody still writes, a little less often each time: 0.2 s in all."""


class Staging:
    """`.keepfast/restore-<random>`: outside of capture, on the workspace's own file system, unknown to anybody else."""

    def __init__(self, root: int, ids: Ids) -> None:
        self.root, self.ids = root, ids
        self.name = PREFIX + urandom(4).hex().encode()
        self.fd = self.marker = -1
        self.count = 0

    def open(self) -> None:
        self.marker = _folder(self.root, MARKER)
        self.fd = _folder(self.marker, self.name)

    def close(self, known: Callable[[bytes], bool], known_link: Callable[[bytes], bool]) -> list[bytes]:
        """Empty it and remove it; return where that was put which the store does not have."""
        try:
            return self._sweep(self.name, known, known_link) if self.fd >= 0 else []
        finally:
            for fd in (self.fd, self.marker):
                if fd >= 0:
                    close(fd)
            self.fd = self.marker = -1

    def new(self) -> bytes:
        """A name under which anything may come to lie."""
        self.count += 1
        return b"%x" % self.count

    def own(self) -> bytes:
        """A name for what we write."""
        self.count += 1
        return OURS + b"%x" % self.count

    def lend(self, name: bytes) -> bytes:
        """Give what we wrote a name under which somebody else's bytes may come to lie."""
        if not name.startswith(OURS):
            return name
        lent = self.new()
        rename(name, lent, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        return lent

    def discard(self, name: bytes) -> None:
        """Remove what we wrote and cannot put anywhere, unless it was lent."""
        try:
            unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            pass

    # What was taken away

    def settle(self, name: bytes, entry: Entry | None) -> str:
        """Remove what lies here if it is what `entry` says and nobody can be writing to it; else say why not."""
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
            # Another name of the file stays behind: whoever writes to it loses nothing.
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
        """The ids that the content of a file here has."""
        fd = open_fd(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=self.fd)
        try:
            return self.ids(lambda most: read(fd, most), sealed)
        finally:
            close(fd)

    def put_aside(self, path: bytes, name: bytes) -> bytes:
        """Move something to where its owner can find it, outside of capture; return where."""
        return self._put_aside(self.fd, path, name)

    def _put_aside(self, folder: int, path: bytes, name: bytes) -> bytes:
        aside = _folder(self.marker, ASIDE)
        try:
            target = urandom(4).hex().encode() + b"-" + path.rpartition(b"/")[2][:200]
            rename(name, target, src_dir_fd=folder, dst_dir_fd=aside)
        finally:
            close(aside)
        return MARKER + b"/" + ASIDE + b"/" + target

    # What a restore that was cut off has left

    def sweep_old(self, known: Callable[[bytes], bool], known_link: Callable[[bytes], bool]) -> list[bytes]:
        """Clear what earlier restores left; return where that was put which the store does not have."""
        found: list[bytes] = []
        for text in listdir(self.marker):
            name = text.encode(ENCODING, ERRORS)
            if name.startswith(PREFIX) and name != self.name:
                found += self._sweep(name, known, known_link)
        return found

    def _sweep(self, name: bytes, known: Callable[[bytes], bool], known_link: Callable[[bytes], bool]) -> list[bytes]:
        try:
            fd = open_fd(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=self.marker)
        except OSError:
            return []  # somebody else has removed it, or it is none of ours
        found = []
        try:
            for text in listdir(fd):
                entry = text.encode(ENCODING, ERRORS)
                if entry.startswith(OURS):
                    _remove(fd, entry)
                elif not self._remove_if_known(fd, entry, known, known_link):
                    found.append(self._put_aside(fd, b"rescued", entry))
        finally:
            close(fd)
        try:
            rmdir(name, dir_fd=self.marker)
        except FileNotFoundError:
            pass
        return found

    def _remove_if_known(
        self, folder: int, name: bytes, known: Callable[[bytes], bool], known_link: Callable[[bytes], bool]
    ) -> bool:
        seen = stat(name, dir_fd=folder, follow_symlinks=False)
        if S_ISLNK(seen.st_mode):
            if not known_link(readlink(name, dir_fd=folder)):
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
                if not any(map(known, ids)) or lease is False or _was_broken(fd, lease):
                    return False
            finally:
                close(fd)
        unlink(name, dir_fd=folder)
        return True


def _remove(folder: int, name: bytes) -> None:
    """Remove a file that we wrote, or a folder that we built: folders in it are moved beside it, so none is too deep."""
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
                    waiting.append(OURS + urandom(8).hex().encode())
                    rename(entry, waiting[-1], src_dir_fd=fd, dst_dir_fd=folder)
        finally:
            close(fd)
        rmdir(name, dir_fd=folder)


def _is_unlinked(folder: int, name: bytes) -> bool:
    """Remove what is no folder; False if it is one."""
    try:
        unlink(name, dir_fd=folder)
    except OSError:
        if S_ISDIR(stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return False
        raise
    return True


def _lease(fd: int) -> bool | None:
    """True: no descriptor or mapping anywhere may write to the file. False: one may. None: there are no leases here."""
    try:
        fcntl(fd, F_SETSIG, SIGURG)  # the usual signal of a broken lease would end us; this one is ignored
        for attempt in range(PATIENCE):
            try:
                fcntl(fd, F_SETLEASE, F_RDLCK)
                return True
            except BlockingIOError:
                sleep(0.001 * (attempt + 1))
    except OSError:
        return None  # another owner, another kind of file system
    return False


def _was_broken(fd: int, lease: bool | None) -> bool:
    """Has somebody opened the file for writing since the lease was granted? He waits until we let go."""
    return lease is True and fcntl(fd, F_GETLEASE) != F_RDLCK


def _folder(parent: int, name: bytes) -> int:
    try:
        mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        pass
    return open_fd(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=parent)
