"""Which workspace a folder belongs to, and which folders are never one."""

from __future__ import annotations

from posix import O_CLOEXEC, O_NOFOLLOW, O_RDONLY, close, read
from posix import open as open_fd
from posix import stat as stat_path

from holdfast.core.errors import Damaged, Refused
from holdfast.core.light_json import loads

MARKER = b".holdfast"
HEX = frozenset("0123456789abcdef")


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
    """Return the id in the folder's marker, None if it has none. Raises `Damaged` if the marker is not readable."""
    # Only the id is believed: a marker that came with a cloned repository must not choose where our store is.
    try:
        fd = open_fd(folder + b"/.holdfast/workspace.json", O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
    except OSError:
        return None
    try:
        text = read(fd, 65536)
    finally:
        close(fd)
    try:
        workspace = loads(text)["id"]
    except (ValueError, TypeError, KeyError):
        workspace = None
    if not isinstance(workspace, str) or len(workspace) != 32 or not HEX.issuperset(workspace):
        raise Damaged(
            f"{show(folder)}/.holdfast/workspace.json does not name a workspace.",
            "Remove that file and run `holdfast init`: the folder is found again by its path.",
        )
    return workspace


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
    name = None
    if root == b"/":
        name = "the whole file system"
    elif home:
        if root == home:
            name = "your home folder"
        elif home.startswith(root.rstrip(b"/") + b"/"):
            name = "a folder above your home folder"
        elif root.rpartition(b"/")[0] == home and root.rpartition(b"/")[2] in (b"Desktop", b"Documents", b"Downloads"):
            name = f"your {show(root.rpartition(b'/')[2])} folder"
    if name:
        raise Refused(
            f"{show(root)} is {name}; holdfast protects projects, not everything at once.",
            "Run `holdfast init` in the folder of one project.",
        )


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
