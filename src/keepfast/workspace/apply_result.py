"""The result of executing a plan: what was done, what was left untouched and why, and what was moved aside."""

from __future__ import annotations

from errno import EACCES, EBUSY, ELOOP, ENOENT, ENOTDIR, EPERM, ETXTBSY, EXDEV

MOVED_AWAY = (ENOENT, ENOTDIR, ELOOP)
"""Errors that mean that a path is no longer where it was."""
SINGLE_PATH_ERRORS = (EACCES, EPERM, EBUSY, EXDEV, ETXTBSY, *MOVED_AWAY)
"""Errors about a single path: it is left untouched, and reported. All others end the restore."""


class ApplyResult:
    """Counts of what was done, and the paths that were left because they changed meanwhile or must not be touched."""

    def __init__(self) -> None:
        self.written = self.deleted = self.modes = 0
        self.untouched: list[tuple[bytes, str]] = []
        """Paths that are not as planned, with the reason."""
        self.filled: list[bytes] = []
        """Folders that stay because they contain something that is not captured."""
        self.aside: list[tuple[bytes, bytes]] = []
        """What was moved out of the way: (old path, new path)."""

    def leave(self, path: bytes, why: str) -> None:
        self.untouched.append((path, why))


def reason(error: OSError) -> str:
    if error.errno in MOVED_AWAY:
        return "its folder no longer exists or was replaced"
    if error.errno == EXDEV:
        return "it is on another file system"
    return error.strerror or str(error)
