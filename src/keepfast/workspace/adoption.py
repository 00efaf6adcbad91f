"""Choose the folder to protect for a session in a folder without a workspace, and refuse system folders."""

from __future__ import annotations

from collections.abc import Iterable
from os import access, scandir, stat
from os.path import realpath
from time import monotonic

from keepfast.model.errors import Refused
from keepfast.workspace.capture import NEVER_ENTERED
from keepfast.workspace.marker import git_root, is_refused, refuse, show

WRITABLE = 2
AT_ONCE = 1_000
"""Entries that can be counted in time even on a busy machine."""
ANY, GIT = "any", "git"
WHOLE, VERSIONED, ITSELF = "whole", "versioned", "itself"
"""What of a folder belongs to the system: all below it; that too, but for git repositories; or only the folder itself."""
SYSTEM = {
    **dict.fromkeys(
        (
            b"/bin", b"/boot", b"/dev", b"/gnu", b"/lib", b"/lib32", b"/lib64", b"/libx32", b"/lost+found", b"/nix",
            b"/proc", b"/run", b"/sbin", b"/snap", b"/sys", b"/usr", b"/usr/local/bin", b"/usr/local/etc",
            b"/usr/local/include", b"/usr/local/lib", b"/usr/local/sbin", b"/usr/local/share", b"/var/backups", b"/var/cache",
            b"/var/crash", b"/var/lib", b"/var/log", b"/var/mail", b"/var/spool",
            b"/Applications", b"/Library", b"/System", b"/cores",
        ),
        WHOLE,
    ),
    **dict.fromkeys((b"/etc", b"/private/etc"), VERSIONED),
    **dict.fromkeys(
        (
            b"/", b"/dev/shm", b"/home", b"/media", b"/mnt", b"/opt", b"/root", b"/run/media", b"/run/user", b"/srv", b"/tmp",
            b"/usr/local", b"/usr/local/src", b"/usr/src", b"/var", b"/var/tmp", b"/var/www",
            b"/Users", b"/Volumes", b"/private", b"/private/tmp", b"/private/var",
        ),
        ITSELF,
    ),
}  # fmt: skip
"""Folders of the system. The nearest one at or above a folder decides."""


def root_for(cwd: bytes, project: bytes, mode: str, home: bytes) -> bytes | None:
    """Return the folder to protect for a session in `cwd`; None where `mode`, the setting `adopt`, asks for none.

    `project` is where the client says that the session began. Raises `Refused` for a folder that is more than a project.
    """
    if mode not in (ANY, GIT) or not _is_folder(cwd):
        return None
    repository = git_root(cwd)
    if repository is not None and not is_refused(repository, home) and not _is_systems(repository, home):
        return _writable(repository)
    if mode == GIT:
        if repository is not None:
            refuse_whole(repository, home)
        return None
    # A home folder under git does not keep the projects in it from being protected.
    began = bool(project) and (cwd == project or cwd.startswith(project.rstrip(b"/") + b"/")) and _is_folder(project)
    root = project.rstrip(b"/") or b"/" if began else cwd
    refuse_whole(root, home)
    return _writable(root)


def is_large(root: bytes, skipped: Iterable[str], most: int, seconds: float) -> bool | None:
    """Return whether the folder holds more than so many entries. None if it took too long to find out.

    Folders of the `skipped` patterns that are plain names do not count. Only names are read, and no more of them than it
    takes to answer.
    """
    end = monotonic() + seconds
    names = {pattern.rstrip("/").encode("utf-8", "surrogateescape") for pattern in skipped}
    names |= NEVER_ENTERED
    todo, left = [root], most
    while todo:
        if most - left > AT_ONCE and monotonic() >= end:
            return None
        try:
            with scandir(todo.pop()) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return True
                    if entry.is_dir(follow_symlinks=False) and entry.name not in names:
                        todo.append(entry.path)
        except OSError:
            continue  # without permission to list it, it is not counted
    return False


def refuse_whole(root: bytes, home: bytes) -> None:
    """Raise `Refused` for a folder that is never a project: a home, or one of the system's."""
    refuse(root, home)
    if _is_systems(root, home):
        raise Refused(
            f"{show(root)} belongs to the system; keepfast protects projects.",
            "Start the session, or run `keepfast init`, in the folder of one project.",
        )


def _is_systems(root: bytes, home: bytes) -> bool:
    """Return whether the folder belongs to the system. What lies in the user's home does not, wherever that is."""
    folder, own = realpath(root), realpath(home) if home else b"/"
    return not (own != b"/" and folder.startswith(own + b"/")) and belongs(folder, git_root(folder) == folder)


def belongs(folder: bytes, is_repository: bool) -> bool:
    """Return whether the table says that this folder, given without symbolic links, belongs to the system."""
    top = folder
    while top not in SYSTEM:
        top = top.rpartition(b"/")[0] or b"/"
    rule = SYSTEM[top]
    return top == folder or rule == WHOLE or (rule == VERSIONED and not is_repository)


def _writable(root: bytes) -> bytes:
    if not access(root, WRITABLE):
        raise Refused(f"{show(root)} cannot be written.", "Check the write permissions.")
    return root


def _is_folder(path: bytes) -> bool:
    try:
        return stat(path).st_mode & 0o170000 == 0o040000
    except OSError:
        return False
