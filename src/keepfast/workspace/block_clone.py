"""Clone files by sharing their blocks (FICLONE): copies that take no space, on file systems that support it."""

from __future__ import annotations

from fcntl import ioctl
from os import O_NONBLOCK, O_RDONLY, close, fstat, ftruncate, lseek, read
from os import open as open_fd
from stat import S_ISREG

from keepfast.fsutil.descriptors import open_below
from keepfast.model.entry import SEALED, Entry
from keepfast.workspace.staging_folder import Ids

FICLONE = 0x40049409


class Cloning:
    """Clones contents from files below `root` that still have them; `ids` computes the content ids of a stream."""

    def __init__(self, root: bytes, ids: Ids) -> None:
        self.root, self.ids = root, ids
        self.possible = True
        """False once cloning has turned out not to be supported."""

    def clone(self, entry: Entry, fd: int) -> bool:
        """Fill the new file `fd` from the one at the entry's path. Return False if it stays empty and must be written."""
        if not self.possible or not entry.size:
            return False
        try:
            top = open_fd(self.root, O_RDONLY)
            try:
                source = open_below(top, entry.path, O_RDONLY | O_NONBLOCK)
            finally:
                close(top)
        except OSError:
            return False  # it no longer exists
        try:
            seen = fstat(source)
            if not S_ISREG(seen.st_mode) or seen.st_size != entry.size:
                return False
            try:
                ioctl(fd, FICLONE, source)
            except OSError:
                self.possible = False  # not supported here, or on another file system
                return False
        finally:
            close(source)
        # Verify the clone and not its source, which may change at any moment.
        if entry.content in self.ids(lambda most: read(fd, most), bool(entry.flags & SEALED)):
            return True
        ftruncate(fd, 0)
        lseek(fd, 0, 0)
        return False
