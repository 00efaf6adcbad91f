"""Which workspace a folder belongs to, and which folders are never one."""

from __future__ import annotations

from posix import O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, close, fstat, geteuid, read
from posix import open as open_fd
from posix import stat as stat_path

from holdfast.core.errors import Refused
from holdfast.core.light_json import loads

MARKER = b".holdfast"
HEX = frozenset("0123456789abcdef")
MOST_MARKER = 65536
LIVES = (b"Desktop", b"Documents", b"Downloads")
MOST_ABOVE = 40


def find(start: bytes) -> tuple[bytes, str] | None:
    """Return root and id of the workspace that `start` (absolute, resolved) lies in, or None."""
    folder = start
    while True:
        workspace = identity(folder)
        if workspace is not None:
            return folder, workspace
        if folder in (b"/", b""):
            return None
        folder = folder.rpartition(b"/")[0] or b"/"


def identity(folder: bytes) -> str | None:
    """Return the id in the folder's marker, None if it has none that can be believed."""
    # Only the id is believed: a marker that came with a cloned repository must not choose where our store is. One that
    # says nothing is as good as none: the folder is found again by its path, and its marker written anew.
    try:
        # O_NONBLOCK: a pipe of that name must not stop us.
        fd = open_fd(folder + b"/.holdfast/workspace.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
    except OSError:
        return None
    try:
        # Nor may another user, in a folder that we share with them, decide what is captured in our name.
        if fstat(fd).st_uid not in (geteuid(), 0) and geteuid() != 0:
            return None
        workspace = loads(read(fd, MOST_MARKER))["id"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    finally:
        close(fd)
    if isinstance(workspace, str) and len(workspace) == 32 and HEX.issuperset(workspace):
        return workspace
    return None


def git_root(start: bytes) -> bytes | None:
    """Return the nearest folder above `start` that holds a `.git`, or None."""
    folder = start
    while True:
        try:
            stat_path(folder + b"/.git", follow_symlinks=False)
            return folder
        except OSError:
            pass
        if folder in (b"/", b""):
            return None
        folder = folder.rpartition(b"/")[0] or b"/"


def refuse(root: bytes, home: bytes | None) -> None:
    """Raise `Refused` for the folders that hold a whole life rather than a project."""
    name = "the whole file system" if root == b"/" else _of_home(root, home) if home else ""
    if name:
        raise Refused(
            f"{show(root)} is {name}; holdfast protects projects, not everything at once.",
            "Run `holdfast init` in the folder of one project.",
        )


def is_refused(root: bytes, home: bytes | None) -> bool:
    """The same as an answer."""
    try:
        refuse(root, home)
    except Refused:
        return True
    return False


def _of_home(root: bytes, home: bytes) -> str:
    """Say what the folder is to the user's home, nothing if it is an ordinary one.

    Folders are compared by device and inode: a home is often reached by a link, and on some disks in any case.
    """
    here = _place(root)
    if here is None:
        return ""
    if here == _place(home):
        return "your home folder"
    for name in LIVES:
        if here == _place(home + b"/" + name):
            return f"your {name.decode()} folder"
    above = home
    for _ in range(MOST_ABOVE):
        above += b"/.."
        if here == _place(above):
            return "a folder above your home folder"
        if _place(above) == _place(b"/"):
            break
    return ""


def _place(path: bytes) -> tuple[int, int] | None:
    try:
        found = stat_path(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def show(path: bytes) -> str:
    """A path for people: odd bytes and control characters as escapes, so that it is always one printable line."""
    text = path.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return text
    return "".join(
        [
            char
            if char.isprintable()
            else f"\\x{ord(char) - 0xDC00:02x}"
            if "\udc80" <= char <= "\udcff"
            else char.encode("unicode_escape").decode()
            for char in text
        ]
    )
