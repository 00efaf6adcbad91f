"""The marker of a workspace's folder, and which folders are never a workspace."""

from __future__ import annotations

from os import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, close, fstat, geteuid, read
from os import open as open_fd
from os import stat as stat_path

from keepfast.model.errors import Refused
from keepfast.model.frozen import FORMER_MARKER
from keepfast.model.strict_json import loads

Marker = tuple[str, str, str]
"""The workspace's id, and path and id of its store; these two are empty if the marker lacks them."""

MARKER = b".keepfast"
HEX = frozenset("0123456789abcdef")
MAX_MARKER_SIZE = 65536
KIND, REGULAR, FOLDER = 0o170000, 0o100000, 0o040000
LIVES = (b"Desktop", b"Documents", b"Downloads")
MAX_PARENTS = 40


def marker(folder: bytes) -> Marker | None:
    """Return the content of the folder's marker; None if it has no readable one.

    Do not trust it by itself: a marker can come with a cloned repository, or with a copy of another folder.
    """
    # An invalid marker counts as none: the folder is identified by its path, and its marker written again.
    try:
        fd = _open(folder)
    except OSError:
        return None
    try:
        seen = fstat(fd)
        # In a shared folder, another user must not decide what is captured on our behalf.
        if seen.st_mode & KIND != REGULAR or (seen.st_uid not in (geteuid(), 0) and geteuid() != 0):
            return None
        return parse_marker(read(fd, MAX_MARKER_SIZE))
    except OSError:
        return None
    finally:
        close(fd)


def parse_marker(text: bytes) -> Marker | None:
    """Return the content of a marker from its text; None if it is not valid."""
    try:
        fields = loads(text)
        workspace = fields["id"]
    except (ValueError, TypeError, KeyError):
        return None
    if not _is_id(workspace):
        return None
    store, store_id = fields.get("store"), fields.get("store_id")
    if not isinstance(store, str) or not store.startswith("/"):
        return workspace, "", ""
    return workspace, store, store_id if _is_id(store_id) else ""


def identity(folder: bytes) -> str | None:
    """Return the id in the folder's marker; None if it has no readable one."""
    content = marker(folder)
    return None if content is None else content[0]


def open_marker(folder: bytes) -> int:
    """Return a descriptor of the folder's `.keepfast`. Raises `OSError`, also where a link leads elsewhere."""
    return open_fd(folder + b"/" + MARKER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)


def _open(folder: bytes) -> int:
    try:
        place = open_marker(folder)
    except FileNotFoundError:
        place = open_fd(folder + b"/" + FORMER_MARKER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
    try:
        # O_NONBLOCK: a pipe of that name must not block us.
        return open_fd(b"workspace.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=place)
    finally:
        close(place)


def obstacle(folder: bytes) -> bytes:
    """Return the path of what occupies the place of the folder's marker; empty if the marker can be written.

    That is a link or a file in the place of `.keepfast`, or a folder in the place of a file in it.
    """
    top = folder + b"/" + MARKER
    if _kind(top) not in (0, FOLDER):
        return top
    return next((path for path in (top + b"/workspace.json", top + b"/.gitignore") if _kind(path) == FOLDER), b"")


def _kind(path: bytes) -> int:
    """Return the file type at the path, without following links; 0 for nothing."""
    try:
        return stat_path(path, follow_symlinks=False).st_mode & KIND
    except OSError:
        return 0


def is_same_folder(one: bytes, other: bytes) -> bool:
    """Return whether two paths lead to the same folder, for example through a bind mount."""
    place = _place(one)
    return place is not None and place == _place(other)


def _is_id(text: object) -> bool:
    return isinstance(text, str) and len(text) == 32 and HEX.issuperset(text)


def git_root(start: bytes) -> bytes | None:
    """Return the nearest folder at or above `start` that contains a `.git`; None if there is none."""
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
    """Raise `Refused` for a folder that is no single project: the root, a home folder, and the like."""
    name = "the whole file system" if root == b"/" else _of_home(root, home) if home else ""
    if name:
        raise Refused(
            f"{show(root)} is {name}; keepfast protects projects, not everything at once.",
            "Run `keepfast init` in the folder of one project.",
        )


def is_refused(root: bytes, home: bytes | None) -> bool:
    """Return whether `refuse` would raise."""
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
    for _ in range(MAX_PARENTS):
        above += b"/.."
        if here == _place(above):
            return "a folder above your home folder"
        if _place(above) == _place(b"/"):
            break
    return ""


def _place(path: bytes) -> tuple[int, int] | None:
    try:
        status = stat_path(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def show(path: bytes) -> str:
    """Return a path for display: invalid bytes and control characters are escaped, so that it is one printable line."""
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
