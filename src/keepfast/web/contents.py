"""Contents of checkpoints: comparisons, files, folders and the history of a path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from keepfast.app.inspect import Change, compare
from keepfast.model.entry import FILE, FOLDER, LINK, SEALED, Entry
from keepfast.model.errors import KeepfastError, NotFound
from keepfast.present.json_forms import KINDS, of_change, of_checkpoint
from keepfast.store.rows import CheckpointRow
from keepfast.web.views import (
    Comparison,
    FileFacts,
    FileLines,
    FileState,
    FolderEntry,
    HunkView,
    LineView,
    Patch,
    PatchFile,
    PathComparison,
    path_fields,
)
from keepfast.workspace import diff
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from keepfast.web.queries import Backend

NOW = "now"
"""Names the disk in place of a version."""
MAX_CHANGES = 2_000
MAX_SHOWN = 2 << 20
"""Larger contents are not shown, only their size."""
MAX_COUNTED = 16 << 20
"""Bytes of both sides whose lines are counted for files that are only named; further ones have their names and links."""


class Ends(TypedDict):
    """The two states of a comparison."""

    old: str | None
    new: str


class Contents:
    """Reads the contents of checkpoints for one request."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def diff(self, workspace: str, old: str, new: str) -> Comparison:
        """Compare two states, named by references; `now` is the disk, an empty `old` an empty folder."""
        before, after, changes = self._compare(workspace, old, new)
        return Comparison(**_ends(before, after), changes=_first(changes), changed=len(changes))

    def diff_path(self, workspace: str, old: str, new: str, path: bytes) -> PathComparison:
        """Compare one path in two states, line by line."""
        before, after, changes = self._compare(workspace, old, new, (path,))
        change = next((change for change in changes if change.path == path), None)
        return PathComparison(
            **_ends(before, after),
            changes=_first(changes),
            changed=len(changes),
            file=self._lines(change) if change is not None else None,
        )

    def _compare(
        self, workspace: str, old: str, new: str, paths: Sequence[bytes] = ()
    ) -> tuple[CheckpointRow | None, CheckpointRow | None, list[Change]]:
        before = self.backend.resolve(workspace, old) if old else None
        after = None if new == NOW else self.backend.resolve(workspace, new)
        return before, after, self.changes(workspace, before, after, paths)

    def changes(
        self, workspace: str, old: CheckpointRow | None, new: CheckpointRow | None, paths: Sequence[bytes] = ()
    ) -> list[Change]:
        row = self.backend.row(workspace)
        return compare(self.backend.engine, row.path, row, old, new, paths)

    def _lines(self, change: Change) -> FileLines:
        sizes = [entry.size if entry is not None else 0 for entry in (change.old, change.new)]
        file = FileLines(
            **path_fields(change.path), sizes=sizes, sealed=not self._may_show(change.path, change.old, change.new)
        )
        if file.sealed:
            return file
        if max(sizes) > MAX_SHOWN:
            file.too_large = True
            return file
        difference = diff.compare(change.old_content(), change.new_content())
        file.binary, file.added, file.removed = difference.binary, difference.added, difference.removed
        file.hunks = [
            HunkView(
                old_start=hunk.old_start,
                new_start=hunk.new_start,
                lines=[LineView(kind=kind, text=line.decode("utf-8", "replace")) for kind, line in hunk.lines],
            )
            for hunk in difference.hunks
        ]
        return file

    def patch(self, workspace: str, old: str, new: str, files: int, lines: int) -> Patch:
        """Return the lines of everything that differs, for so many files and lines; further changes are named in `rest`.

        A file that would fill more than what is left is `omitted`; smaller ones behind it are shown all the same.
        """
        before, _, changes = self._compare(workspace, old, new)
        shown_files, left = list[PatchFile](), lines
        for change in changes[:files]:
            file = PatchFile(change=of_change(change), lines=self._lines(change), omitted=False)
            count = sum(len(hunk.lines) for hunk in file.lines.hunks)
            if count > left:
                file.lines.hunks, file.omitted = [], True
            else:
                left -= count
            shown_files.append(file)
        rest, budget = [], MAX_COUNTED
        for change in changes[files:]:
            counts = self._counts(change, budget)
            budget -= counts.pop("read", 0)
            rest.append({**of_change(change), **counts})
        return Patch(
            old=f"v{before.version}" if before is not None else None,
            new=new,
            changed=len(changes),
            files=shown_files,
            rest=rest,
        )

    def _counts(self, change: Change, budget: int) -> dict[str, Any]:
        """Return how many lines were added and removed, and the bytes `read` to count them; nothing where they are not counted."""
        states = [entry for entry in (change.old, change.new) if entry is not None]
        if any(entry.flags & SEALED for entry in states):
            return {"sealed": True}
        sizes = [entry.size for entry in states if entry.kind in FILE + LINK]
        size = sum(sizes)
        if not sizes or max(sizes) > MAX_SHOWN or size > budget:
            return {}
        try:
            difference = diff.compare(change.old_content(), change.new_content(), context=0)
        except KeepfastError:  # its own page says why
            return {}
        if difference.binary:
            return {"binary": True, "read": size}
        return {"added": difference.added, "removed": difference.removed, "read": size}

    def file(self, workspace: str, reference: str, path: bytes) -> tuple[FileFacts, bytes | None]:
        """Return facts and content of one file of a checkpoint; no content if it is sealed and was not explicitly requested.

        Raises `NotFound`, and `Damaged` if it no longer matches its digest.
        """
        row = self.backend.resolve(workspace, reference)
        entry = self.backend.repository.at(row.workspace, row.version, path)
        if entry is None or entry.kind not in FILE + LINK:
            raise NotFound(f"v{row.version} has no file {show(path)}.")
        facts = FileFacts(
            **path_fields(path),
            version=f"v{row.version}",
            kind=KINDS[entry.kind],
            mode=f"{entry.mode:04o}",
            size=entry.size,
            sealed=bool(entry.flags & SEALED),
        )
        if not self._may_show(path, entry):
            return facts, None
        return facts, entry.content if entry.kind == LINK else self.backend.repository.contents.load(entry.content)

    def _may_show(self, path: bytes, *states: Entry | None) -> bool:
        """Return whether these states may be shown. If one of them is sealed, the visitor must have asked for sealed contents."""
        if not any(state is not None and state.flags & SEALED for state in states):
            return True
        if self.backend.opens_sealed:
            self.backend.shown_sealed.append(path)
        return self.backend.opens_sealed

    def folder(self, workspace: str, reference: str, path: bytes) -> list[FolderEntry]:
        """List a folder of a checkpoint, folders first."""
        row = self.backend.resolve(workspace, reference)
        start, names = path + b"/" if path else b"", dict[bytes, FolderEntry]()
        for entry in self.backend.repository.state(row.workspace, row.version, path):
            rest = entry.path[len(start) :] if entry.path.startswith(start) else b""
            if rest and b"/" not in rest:
                names[rest] = FolderEntry(
                    **path_fields(entry.path), name=show(rest), kind=KINDS[entry.kind], size=entry.size
                )
        return sorted(names.values(), key=lambda entry: (entry.kind != KINDS[FOLDER], entry.name))

    def history(self, workspace: str, path: bytes) -> list[FileState]:
        """List every state of one path, newest first."""
        self.backend.row(workspace)
        states = []
        for first, end, entry in self.backend.repository.history(workspace, path):
            checkpoint = next(iter(self._living(workspace, first, end)), None)
            if checkpoint is not None:
                states.append(
                    FileState(
                        **of_checkpoint(checkpoint),
                        kind=KINDS[entry.kind],
                        size=entry.size,
                        mode=f"{entry.mode:04o}",
                    )
                )
        return states[::-1]

    def _living(self, workspace: str, first: int, end: int | None) -> Iterator[CheckpointRow]:
        """Yield the checkpoints from `first` to `end` that were not forgotten."""
        last = end - 1 if end is not None else self.backend.row(workspace).version
        for version in range(first, min(last, first + 1_000) + 1):
            row = self.backend.repository.checkpoint(workspace, version)
            if row is not None and not row.forgotten:
                yield row


def _ends(before: CheckpointRow | None, after: CheckpointRow | None) -> Ends:
    return {
        "old": f"v{before.version}" if before is not None else None,
        "new": f"v{after.version}" if after is not None else NOW,
    }


def _first(changes: Sequence[Change]) -> list[dict[str, Any]]:
    return [of_change(change) for change in changes[:MAX_CHANGES]]
