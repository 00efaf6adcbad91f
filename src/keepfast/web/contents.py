"""What is in the states of a workspace: what differs, files, folders and the history of a path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from keepfast.app.inspect import compare
from keepfast.model.entry import FILE, FOLDER, LINK, SEALED
from keepfast.model.errors import KeepfastError, NotFound
from keepfast.present.json_forms import KINDS, of_change, of_checkpoint, of_path
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from keepfast.model.entry import Entry
    from keepfast.web.queries import Backend
    from keepfast.workspace.diff import FileDiff

NOW = "now"
"""Names the disk where others name a version."""
MOST_CHANGES = 2_000
MOST_SHOWN = 2 << 20
"""Contents over this are not shown, only measured."""
MOST_COUNTED = 16 << 20
"""Bytes of both sides whose lines are counted for files that are only named; further ones have their names and links."""


class Contents:
    """One visitor's look into what was kept."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def diff(self, workspace: str, old: str, new: str, path: bytes | None = None) -> dict[str, Any]:
        """What leads from one state to another; `now` is the disk. The lines of one path if it is given."""
        before = self.backend.resolve(workspace, old) if old else None
        after = None if new == NOW else self.backend.resolve(workspace, new)
        changes = self.changes(workspace, before, after, (path,) if path else ())
        answer: dict[str, Any] = {
            "old": f"v{before.version}" if before is not None else None,
            "new": f"v{after.version}" if after is not None else NOW,
            "changes": [of_change(change) for change in changes[:MOST_CHANGES]],
            "changed": len(changes),
        }
        if path:
            change = next((change for change in changes if change.path == path), None)
            answer["file"] = self._lines(change) if change is not None else None
        return answer

    def changes(
        self, workspace: str, old: CheckpointRow | None, new: CheckpointRow | None, paths: Sequence[bytes] = ()
    ) -> list[Any]:
        row = self.backend.row(workspace)
        return compare(self.backend.engine, row.path, row, old, new, paths)

    def _lines(self, change: Any) -> dict[str, Any]:
        from keepfast.workspace import diff

        sizes = [entry.size if entry is not None else 0 for entry in (change.old, change.new)]
        file: dict[str, Any] = {
            **of_path(change.path),
            "sizes": sizes,
            "binary": False,
            "too_large": False,
            "sealed": not self._may_show(change.path, change.old, change.new),
            "hunks": [],
        }
        if file["sealed"]:
            return file
        if max(sizes) > MOST_SHOWN:
            return {**file, "too_large": True}
        difference: FileDiff = diff.compare(change.old_content(), change.new_content())
        hunks = [
            {
                "old_start": hunk.old_start,
                "new_start": hunk.new_start,
                "lines": [{"kind": kind, "text": line.decode("utf-8", "replace")} for kind, line in hunk.lines],
            }
            for hunk in difference.hunks
        ]
        return {
            **file,
            "binary": difference.binary,
            "added": difference.added,
            "removed": difference.removed,
            "hunks": hunks,
        }

    def patch(self, workspace: str, old: str, new: str, files: int, lines: int) -> dict[str, Any]:
        """The lines of everything that differs, for so many files and lines; all that is beyond is named in `rest`.

        A file that would fill more than what is left is `omitted`; smaller ones behind it are shown all the same.
        """
        before = self.backend.resolve(workspace, old) if old else None
        after = None if new == NOW else self.backend.resolve(workspace, new)
        changes, files_shown, left = self.changes(workspace, before, after), [], lines
        for change in changes[:files]:
            file = {**of_change(change), **self._lines(change), "omitted": False}
            count = sum(len(hunk["lines"]) for hunk in file["hunks"])
            if count > left:
                file |= {"hunks": [], "omitted": True}
            else:
                left -= count
            files_shown.append(file)
        rest, budget = [], MOST_COUNTED
        for change in changes[files:]:
            counts = self._counts(change, budget)
            budget -= counts.pop("read", 0)
            rest.append({**of_change(change), **counts})
        return {
            "old": f"v{before.version}" if before is not None else None,
            "new": new,
            "changed": len(changes),
            "files": files_shown,
            "rest": rest,
        }

    def _counts(self, change: Any, budget: int) -> dict[str, Any]:
        """How many lines came and went, and the bytes that were `read` for it; nothing where they are not counted."""
        from keepfast.workspace import diff

        states = [entry for entry in (change.old, change.new) if entry is not None]
        if any(entry.flags & SEALED for entry in states):
            return {"sealed": True}
        sizes = [entry.size for entry in states if entry.kind in FILE + LINK]
        size = sum(sizes)
        if not sizes or max(sizes) > MOST_SHOWN or size > budget:
            return {}
        try:
            difference = diff.compare(change.old_content(), change.new_content(), context=0)
        except KeepfastError:  # its own page says why
            return {}
        if difference.binary:
            return {"binary": True, "read": size}
        return {"added": difference.added, "removed": difference.removed, "read": size}

    def file(self, workspace: str, reference: str, path: bytes) -> tuple[dict[str, Any], bytes | None]:
        """Facts and content of one file as it was; no content if it is sealed and was not asked for as such.

        Raises `NotFound`, and `Damaged` if it no longer matches its digest.
        """
        row = self.backend.resolve(workspace, reference)
        entry = self.backend.repository.at(row.workspace, row.version, path)
        if entry is None or entry.kind not in FILE + LINK:
            raise NotFound(f"v{row.version} has no file {show(path)}.")
        facts = {**of_path(path), "version": f"v{row.version}", "kind": KINDS[entry.kind], "mode": f"{entry.mode:04o}",
                 "size": entry.size, "sealed": bool(entry.flags & SEALED)}  # fmt: skip
        if not self._may_show(path, entry):
            return facts, None
        return facts, entry.content if entry.kind == LINK else self.backend.repository.contents.load(entry.content)

    def _may_show(self, path: bytes, *states: Entry | None) -> bool:
        """May the contents of these states be shown to whoever asks now? What was sealed once is not, on either side."""
        if not any(state is not None and state.flags & SEALED for state in states):
            return True
        if self.backend.opens_sealed:
            self.backend.shown_sealed.append(path)
        return self.backend.opens_sealed

    def folder(self, workspace: str, reference: str, path: bytes) -> list[dict[str, Any]]:
        """What lay in a folder then, folders first."""
        row = self.backend.resolve(workspace, reference)
        start, names = path + b"/" if path else b"", dict[bytes, dict[str, Any]]()
        for entry in self.backend.repository.state(row.workspace, row.version, path):
            rest = entry.path[len(start) :] if entry.path.startswith(start) else b""
            if rest and b"/" not in rest:
                names[rest] = {**of_path(entry.path), "name": show(rest), "kind": KINDS[entry.kind], "size": entry.size}
        return sorted(names.values(), key=lambda entry: (entry["kind"] != KINDS[FOLDER], entry["name"]))

    def history(self, workspace: str, path: bytes) -> list[dict[str, Any]]:
        """Every state of one path, newest first: from which version to which."""
        self.backend.row(workspace)
        states = []
        for first, end, entry in self.backend.repository.history(workspace, path):
            checkpoint = next(iter(self._living(workspace, first, end)), None)
            if checkpoint is not None:
                states.append(
                    {
                        **of_checkpoint(checkpoint),
                        "kind": KINDS[entry.kind],
                        "size": entry.size,
                        "mode": f"{entry.mode:04o}",
                    }
                )
        return states[::-1]

    def _living(self, workspace: str, first: int, end: int | None) -> Iterator[CheckpointRow]:
        """Versions in which a row holds that are still there."""
        last = end - 1 if end is not None else self.backend.row(workspace).version
        for version in range(first, min(last, first + 1_000) + 1):
            row = self.backend.repository.checkpoint(workspace, version)
            if row is not None and not row.forgotten:
                yield row
