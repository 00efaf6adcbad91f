"""What became of a plan: what was done, what was left as it is and why, and what was put aside for its owner."""

from __future__ import annotations

from errno import EACCES, EBUSY, ELOOP, ENOENT, ENOTDIR, EPERM, ETXTBSY, EXDEV

GONE = (ENOENT, ENOTDIR, ELOOP)
"""Errors of a path that is no longer where it was."""
REFUSED = (EACCES, EPERM, EBUSY, EXDEV, ETXTBSY, *GONE)
"""Errors that speak of one path only: it is left as it is, and named. All others end the restore."""


class Applied:
    """What was done, and what was left because somebody else was faster or nobody may touch it."""

    def __init__(self) -> None:
        self.written = self.deleted = self.modes = 0
        self.kept: list[tuple[bytes, str]] = []
        """Paths that are not as planned, and why."""
        self.filled: list[bytes] = []
        """Folders that stay because they hold something that is not captured."""
        self.aside: list[tuple[bytes, bytes]] = []
        """What was moved out of the way: from where, to where."""

    def keep(self, path: bytes, why: str) -> None:
        self.kept.append((path, why))


def reason(error: OSError) -> str:
    if error.errno in GONE:
        return "its folder no longer exists or was replaced"
    if error.errno == EXDEV:
        return "it is on another file system"
    return error.strerror or str(error)
