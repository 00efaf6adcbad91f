"""Where a `.git` file or link points: files of a workspace must not become the configuration of a repository."""

from __future__ import annotations

from collections.abc import Callable
from os import stat
from posixpath import dirname, exists, isabs, join, normpath, realpath

from keepfast.model.entry import FILE, LINK
from keepfast.model.restore_plan import GIT

SIGN = b"gitdir:"
MAX_POINTER_BYTES = 8 << 10
"""Maximum bytes of a pointer; more than any path has."""
POINTS_IN = "would point git at files of this folder, or is not a valid git pointer file"
PROCESSES = b"/proc/"
"""A path through these folders means something else for git than for us, as `/proc/self/cwd` does."""


def targets(kind: str, content: bytes) -> list[bytes]:
    """Return the paths that a `.git` of this kind and content may point to; empty if it is no valid pointer.

    Git takes all blanks but one as part of the path; others do not.
    """
    if kind == LINK:
        return [content] if content else []
    line = content.rstrip(b"\r\n")
    if kind != FILE or len(content) > MAX_POINTER_BYTES or not line.startswith(SIGN) or b"\0" in line or b"\n" in line:
        return []
    target = line.removeprefix(SIGN)
    paths = {target.removeprefix(b" "), target.strip()}
    return sorted(paths) if all(paths) else []


def leads_out(path: bytes, target: bytes) -> bool:
    """Return whether the text of the pointer at `path` leads out of the tree."""
    destination = normpath(join(dirname(path), target))
    return isabs(target) or destination == b".." or destination.startswith(b"../")


def leads_in(root: bytes, path: bytes, target: bytes, kind: Callable[[bytes], str]) -> bool:
    """Return whether the pointer at `path`, below `root`, leads to what a checkpoint may have put there, or to a folder above.

    Below a folder named `.git` there is nothing of a checkpoint. `kind(path)` is what a path will be once the pointer is
    there: a way to such a folder goes through no link, as that could lead anywhere. Asked by the words of the pointer,
    and by where they lead on disk now.
    """
    root = realpath(root)
    at = b"/" if isabs(target) else dirname(join(root, path))
    inside = below_git = False
    for name in target.split(b"/"):
        if name in (b"", b"."):
            continue
        if name == b"..":
            if inside:
                return True  # the path before `..` may be a link
            at = dirname(at)
            continue
        at = join(at, name)
        if not _lies_below(at, root):
            at = _resolved(at, root)
            if not at:
                return True
        if _lies_below(at, root):
            inside = True
            below = at[len(root.rstrip(b"/")) + 1 :]
            if not below_git and kind(below) in (FILE, LINK):
                return True
            below_git = below_git or GIT in below.split(b"/")
    if inside and not below_git:
        return True
    real = realpath(at)
    if _lies_below(real, root):
        return GIT not in real[len(root.rstrip(b"/")) + 1 :].split(b"/")
    if GIT not in real.split(b"/") and not exists(join(real, b"HEAD")):
        return True  # nothing exists there yet, but a later restore may create it
    return real == root or _lies_below(root, real)


def _lies_below(path: bytes, folder: bytes) -> bool:
    return path != folder and path.startswith(folder.rstrip(b"/") + b"/")


def _resolved(path: bytes, root: bytes) -> bytes:
    """Return where a path outside of the root leads, by the root's own name if that is it; empty if that depends on who asks."""
    real = realpath(path)
    if (path + b"/").startswith(PROCESSES) or (real + b"/").startswith(PROCESSES):
        return b""
    try:
        seen, own = stat(real), stat(root)
    except OSError:
        return real
    return root if (seen.st_dev, seen.st_ino) == (own.st_dev, own.st_ino) else real
