"""Patches as every front end shows them: what changed in a file, in a form that `git apply` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepfast.app.inspect import Change
from keepfast.model.entry import FILE, LINK
from keepfast.present.json_forms import changed_line
from keepfast.workspace.diff import FileDiff, compare, unified

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 16 << 20
"""Larger contents are not compared line by line."""
LINK_MODE = 0o120000
REMARK = "remark"
WORDS = {"A": "new folder", "D": "deleted folder", "M": "changed folder", "T": "changed type", "-": "not compared"}


def has_content(change: Change) -> bool:
    """Is there a file or a link on one side, and nothing else on the other?"""
    return all(entry is None or entry.kind in (FILE, LINK) for entry in (change.old, change.new))


def file_diff(change: Change) -> FileDiff:
    if max(change.old.size if change.old else 0, change.new.size if change.new else 0) > LARGEST:
        return FileDiff(change.kind != "mode", 0, 0, [])
    if change.kind == "mode":
        return FileDiff(False, 0, 0, [])
    return compare(change.old_content(), change.new_content())


def counted(change: Change) -> FileDiff | None:
    """Lines that came and went; None where there is no content."""
    return file_diff(change) if has_content(change) else None


def patch(change: Change) -> Iterator[tuple[str, bytes]]:
    """Lines of the patch, each with its kind; folders and what was left out are remarks, which a patch passes over."""
    if not has_content(change):
        letter, text = changed_line(change)
        yield REMARK, f"# {WORDS[letter]}: {text}".encode()
        return
    old, new = change.old, change.new
    if old is not None and new is not None and old.kind != new.kind:
        # A file that became a link, or the other way round, is two patches: git wants it so.
        yield from patch(Change(old, None, change._load_old, change._load_new))
        yield from patch(Change(None, new, change._load_old, change._load_new))
        return
    modes = [None if entry is None else entry.mode | (LINK_MODE if entry.kind == LINK else 0) for entry in (old, new)]
    yield from unified(change.path if old else None, change.path if new else None, file_diff(change), *modes)


def without_implied(changes: list[Change]) -> list[Change]:
    """Leave out folders that come or go with something in them: the paths below say it."""
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
