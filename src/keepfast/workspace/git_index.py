"""Tell from the raw bytes of git's index whether git may track something in a folder, without parsing it."""

from __future__ import annotations

from os import O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_RDONLY, close, fstat, listdir, read
from os import open as open_fd

MAX_INDEX_BYTES = 256 << 20
"""A larger index is not searched: it has some two million entries."""
PIECE = 1 << 20
WHOLE_NAMES = (b"DIRC\x00\x00\x00\x02", b"DIRC\x00\x00\x00\x03")
"""Beginning of an index with full paths; from version 4 on, a path holds only its difference from the previous one."""
SHARED = b"sharedindex."
"""Beginning of a split index's shared file, which has most of the entries."""
TYPE, FILE = 0o170000, 0o100000


def may_name(git_dir: bytes, folder: bytes) -> bool:
    """Return whether the index of this repository may have entries below a folder of its work tree. False only if certain."""
    try:
        fd = open_fd(git_dir + b"/index", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    except FileNotFoundError:
        return False  # nothing was added yet
    except OSError:
        return True
    try:
        seen = fstat(fd)
        if (
            seen.st_mode & TYPE != FILE
            or seen.st_size > MAX_INDEX_BYTES
            or read(fd, len(WHOLE_NAMES[0])) not in WHOLE_NAMES
        ):
            return True
        return _holds(fd, folder) or any(name.startswith(SHARED) for name in listdir(git_dir))
    except OSError:
        return True
    finally:
        close(fd)


def _holds(fd: int, folder: bytes) -> bool:
    """Return whether the remaining bytes contain a path in this folder, or the folder itself as a submodule."""
    names = (folder + b"/", folder + b"\x00")
    rest, keep = b"", max(map(len, names)) - 1
    while piece := read(fd, PIECE):
        piece = rest + piece
        if any(name in piece for name in names):
            return True
        rest = piece[-keep:]
    return False
