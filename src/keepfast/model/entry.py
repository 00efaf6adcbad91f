"""An entry: one path in the state of a version, and the letters and bits that describe it."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A path and its state: `content` is a digest, a link target, or empty."""

    path: bytes
    kind: str
    mode: int
    flags: int
    size: int
    mtime: int
    group: int
    content: bytes
    extra: bytes


FILE, LINK, FOLDER = "f", "l", "d"
EXCLUDED, OVERSIZE, IGNORED, UNREADABLE, SPECIAL = "x", "o", "i", "u", "s"
GONE = "-"

CAPTURED = "fld"
LEFT_OUT = "xoius"
REASONS = {
    EXCLUDED: "matching an exclusion rule",
    OVERSIZE: "over capture.max_file_size",
    IGNORED: "ignored by git (capture.ignored)",
    UNREADABLE: "unreadable",
    SPECIAL: "socket, pipe or device",
}

SPARSE, UNSTEADY, ATTRIBUTES, SEALED = 1, 2, 4, 8
BY_NAME, BY_IGNORE, BY_MARKER, BY_GIT = 16, 32, 48, 64
WHY_EXCLUDED = BY_MARKER | BY_GIT
"""Bits of `flags` that say why a folder was excluded."""
EXCLUDED_WHY = {
    BY_NAME: "matching capture.exclude",
    BY_IGNORE: "ignored by git and recreated by a tool, or excluded by capture.ignored",
    BY_MARKER: "marked as a cache",
    BY_GIT: "git's own folder, never saved",
}


def same(one: Entry, other: Entry) -> bool:
    """Return whether both rows are the same content. Times, sizes, groups and attributes alone do not count as a change."""
    if one.kind != other.kind:
        return False
    if one.kind in LEFT_OUT:
        return True
    return one.mode == other.mode and one.content == other.content


def why(entry: Entry) -> str:
    """Return in words why something was left out."""
    if entry.kind == UNREADABLE and entry.flags & SEALED:
        return "sealed, and excluded from a bundle"
    if entry.kind == UNREADABLE and entry.flags & UNSTEADY:
        return "deleted while it was being saved"
    if entry.kind == EXCLUDED:
        return EXCLUDED_WHY.get(entry.flags & WHY_EXCLUDED, REASONS[EXCLUDED])
    return REASONS[entry.kind]


def vanished(path: bytes, mode: int = 0) -> Entry:
    """Return the row of a file that disappeared while it was being saved: neither saved nor absent."""
    return Entry(path, UNREADABLE, mode, UNSTEADY, 0, 0, 0, b"", b"")


def gone(path: bytes) -> Entry:
    return Entry(path, GONE, 0, 0, 0, 0, 0, b"", b"")


def checked_path(path: bytes) -> bytes:
    """Return the path; raises `ValueError` unless it is relative and stays below the root."""
    if not path or path[:1] == b"/" or b"\0" in path:
        raise ValueError("a path is empty, absolute or has a NUL")
    for part in path.split(b"/"):
        if part in (b"", b".", b".."):
            raise ValueError("a path has an empty, `.` or `..` part")
    return path
