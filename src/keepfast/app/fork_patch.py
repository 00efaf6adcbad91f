"""What was done in a fork, as a patch for the folder it came from."""

from __future__ import annotations

from collections.abc import Iterator

from keepfast.app.checkpoint import Engine
from keepfast.app.fork import fork_point
from keepfast.app.inspect import Change, compare
from keepfast.model.entry import FILE, FOLDER, LINK
from keepfast.model.restore_plan import GIT, parents
from keepfast.store.rows import WorkspaceRow
from keepfast.workspace.diff import compare as compare_lines
from keepfast.workspace.diff import unified

MAX_COMPARED_BYTES = 16 << 20
"""Larger contents are not compared line by line."""
LINK_MODE = 0o120000


class ForkPatch:
    """Lines of a patch that `git apply` takes, and what a patch cannot carry: path and why."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.files = 0
        self.omitted: list[tuple[bytes, str]] = []


def patch_of_fork(engine: Engine, parent: WorkspaceRow, folder: bytes) -> ForkPatch:
    """Compare the fork in `folder` as it is now with the state it began with. Nothing is written.

    Raises `Usage` if the folder is no fork of `parent`.
    """
    row, first = fork_point(engine, parent, folder)
    result = ForkPatch()
    folders: list[bytes] = []
    implied: set[bytes] = set()
    for change in compare(engine, folder, row, first, None):
        if change.path.rpartition(b"/")[2] == GIT:
            result.omitted.append((change.path, "belongs to git, which accepts no patch of it"))
            continue
        if all(entry is None or entry.kind in (FILE, LINK) for entry in (change.old, change.new)):
            _add(result, change)
            implied |= parents([change.path])
        elif all(entry is None or entry.kind == FOLDER for entry in (change.old, change.new)):
            folders.append(change.path)
        else:
            result.omitted.append((change.path, "has another type now, or is excluded"))
    result.omitted += [(path, "is a folder") for path in folders if path not in implied]
    return result


def _add(result: ForkPatch, change: Change) -> None:
    parts = [list(_lines(part)) for part in _parts(change)]
    if not all(parts):
        result.omitted.append((change.path, _why(change)))
        return
    result.lines += [line for lines in parts for line in lines]
    result.files += 1


def _parts(change: Change) -> list[Change]:
    """Return the change; a file that became a link, or the reverse, as two, because git wants two patches for it."""
    old, new = change.old, change.new
    if old is None or new is None or old.kind == new.kind:
        return [change]
    loads = change._load_old, change._load_new
    return [Change(old, None, *loads), Change(None, new, *loads)]


def _lines(change: Change) -> Iterator[bytes]:
    old, new = change.old, change.new
    if max(old.size if old else 0, new.size if new else 0) > MAX_COMPARED_BYTES and change.kind != "mode":
        return
    line_diff = compare_lines(change.old_content(), change.new_content())
    if line_diff.binary:
        return
    modes = [None if entry is None else entry.mode | (LINK_MODE if entry.kind == LINK else 0) for entry in (old, new)]
    for _, line in unified(change.path if old else None, change.path if new else None, line_diff, *modes):
        yield line


def _why(change: Change) -> str:
    sizes = [entry.size for entry in (change.old, change.new) if entry is not None]
    return "is too large for a patch" if max(sizes) > MAX_COMPARED_BYTES else "is binary"
