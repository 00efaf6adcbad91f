"""Patches of changed files, in the form that `git apply` accepts."""

from __future__ import annotations

from collections.abc import Iterator

from keepfast.app.inspect import Change
from keepfast.model.entry import FILE, LINK
from keepfast.present.json_forms import changed_line
from keepfast.workspace.diff import FileDiff, compare, unified

MAX_COMPARED_BYTES = 16 << 20
"""Larger contents are not compared line by line."""
LINK_MODE = 0o120000
REMARK = "remark"
REMARKS = {"A": "new folder", "D": "deleted folder", "M": "changed folder", "T": "changed type", "-": "not compared"}


def has_content(change: Change) -> bool:
    """Return whether both sides are files, links or absent."""
    return all(entry is None or entry.kind in (FILE, LINK) for entry in (change.old, change.new))


def file_diff(change: Change) -> FileDiff:
    if max(change.old.size if change.old else 0, change.new.size if change.new else 0) > MAX_COMPARED_BYTES:
        return FileDiff(change.kind != "mode", 0, 0, [])
    if change.kind == "mode":
        return FileDiff(False, 0, 0, [])
    return compare(change.old_content(), change.new_content())


def count_lines(change: Change) -> FileDiff | None:
    """Return the diff with the numbers of added and removed lines; None if a side has no content, as a folder."""
    return file_diff(change) if has_content(change) else None


def patch(change: Change) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of a patch, each with its kind; folders and excluded paths are comments, which git ignores."""
    if not has_content(change):
        letter, text = changed_line(change)
        yield REMARK, f"# {REMARKS[letter]}: {text}".encode()
        return
    old, new = change.old, change.new
    if old is not None and new is not None and old.kind != new.kind:
        # Git represents a change between file and link as two patches.
        yield from patch(Change(old, None, change._load_old, change._load_new))
        yield from patch(Change(None, new, change._load_old, change._load_new))
        return
    modes = [None if entry is None else entry.mode | (LINK_MODE if entry.kind == LINK else 0) for entry in (old, new)]
    yield from unified(change.path if old else None, change.path if new else None, file_diff(change), *modes)


def without_implied(changes: list[Change]) -> list[Change]:
    """Drop added and deleted folders whose contents are listed too."""
    parents: set[tuple[str, bytes]] = set()
    for change in changes:
        folder = change.path.rpartition(b"/")[0]
        while folder and (change.kind, folder) not in parents:
            parents.add((change.kind, folder))
            folder = folder.rpartition(b"/")[0]
    return [
        change
        for change in changes
        if change.kind not in ("added", "deleted") or (change.kind, change.path) not in parents
    ]
