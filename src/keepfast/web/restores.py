"""Restores, undo, redo and forks as pages and API ask for them: what was shown is done, and nothing else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keepfast.model.errors import Conflict, NotFound, Usage
from keepfast.present.json_forms import of_missing, of_path, of_restored
from keepfast.store.rows import WorkspaceRow
from keepfast.web.contents import MOST_CHANGES
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from keepfast.app.preview import Missing, Preview
    from keepfast.app.restore import Restored, Restorer
    from keepfast.web.queries import Desk


class Bringing:
    """One visitor's request to bring something back."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def preview(self, workspace: str, reference: str, paths: Sequence[bytes]) -> dict[str, Any]:
        """What a restore would do. `digest` names exactly this; a restore that says it does nothing else."""
        row, target = self.desk.row(workspace), self.desk.resolve(workspace, reference)
        restorer = self._restorer(row)
        restorer.planner.refuse_unknown(target, paths)
        found = _preview(restorer.planner.preview(target, list(paths)))
        missing = restorer.planner.missing(target, paths)[:MOST_CHANGES]
        return {"target": f"v{target.version}", **found, "missing": of_missing(missing)}

    def restore(
        self, workspace: str, reference: str, paths: Sequence[bytes], conflicts: str, agreed: str
    ) -> dict[str, Any]:
        row, target = self.desk.row(workspace), self.desk.resolve(workspace, reference)
        restorer = self._restorer(row)
        restorer.planner.refuse_unknown(target, paths)
        done = restorer.restore(target, list(paths), conflicts=conflicts, ask=_agree(agreed, conflicts))
        return _restored(done) if done is not None else _nothing(restorer.planner.missing(target, paths))

    def undo(self, workspace: str, agreed: str, conflicts: str, again: bool = False) -> dict[str, Any]:
        restorer = self._restorer(self.desk.row(workspace))
        step = restorer.redo if again else restorer.undo
        return _restored(step(conflicts=conflicts, ask=_agree(agreed, conflicts)))

    def preview_undo(self, workspace: str, again: bool = False) -> dict[str, Any]:
        restorer, seen = self._restorer(self.desk.row(workspace)), list[dict[str, Any]]()

        def look(preview: Preview) -> bool:
            seen.append(_preview(preview))
            return False

        (restorer.redo if again else restorer.undo)(conflicts="ask", ask=look)
        if seen:
            return seen[0]
        return {"steps": [], "untouched": [], "conflicts": [], "count": 0, "digest": _digest([]), "missing": []}

    def ways_back(self, workspace: str) -> dict[str, bool]:
        """Whether there is a restore to undo, and an undo to take back."""
        from keepfast.app.restore import Restorer

        row = self.desk.row(workspace)
        undo, redo = Restorer(self.desk.engine, row.path, row).ways_back()
        return {"undo": undo, "redo": redo}

    def finish(self, workspace: str, abort: bool) -> dict[str, Any]:
        """Go on with a restore that was cut off, or take it back."""
        restorer = self._restorer(self.desk.row(workspace))
        return _restored(restorer.abort() if abort else restorer.resume())

    def fork(self, workspace: str, reference: str, folder: str) -> dict[str, Any]:
        from keepfast.app.fork import Forker

        if not folder.startswith("/"):
            raise Usage(f"{folder!r} is not an absolute path.", "Give a folder such as /home/you/other.")
        row, checkpoint = self.desk.row(workspace), self.desk.resolve(workspace, reference)
        made = Forker(self.desk.engine, row.path, row, checkpoint).fork(os.fsencode(folder))
        return {"workspace": made.workspace, "folder": folder, "version": f"v{made.checkpoint.version}"}

    def _restorer(self, row: WorkspaceRow) -> Restorer:
        from keepfast.app.restore import Restorer

        if not os.path.isdir(row.path):
            raise NotFound(f"{show(row.path)} does not exist.", "Fork the checkpoint into another folder instead.")
        self.desk.refuse_another(row)
        return Restorer(self.desk.engine, row.path, row)


def _agree(agreed: str, conflicts: str) -> Callable[[Preview], bool]:
    """Go ahead only with what was shown: another plan, or work that would be overwritten unasked, stops it."""

    def ask(preview: Preview) -> bool:
        if preview.conflicts and conflicts == "ask":
            from keepfast.app.restore import conflict

            raise conflict(preview.conflicts)
        if agreed and _preview(preview, conflicts)["digest"] != agreed:
            raise Conflict("The folder changed after the preview; nothing was restored.", "Check the new preview.")
        return True

    return ask


def _preview(preview: Preview, conflicts: str = "") -> dict[str, Any]:
    steps = [
        {**of_path(step.path), "action": "create" if step.old is None and step.action == "write" else step.action}
        for step in preview.plan.steps
    ]
    kept = [step for step in steps if conflicts != "mine" or step["path"] not in map(show, preview.conflicts)]
    return {
        "steps": steps[:MOST_CHANGES],
        "count": len(steps),
        "untouched": [{**of_path(path), "why": why} for path, why in preview.plan.untouched[:MOST_CHANGES]],
        "conflicts": [of_path(path) for path in preview.conflicts],
        "digest": _digest(kept),
        "missing": [],
    }


def _digest(steps: Sequence[dict[str, Any]]) -> str:
    total = hashlib.sha256()
    for step in steps:
        total.update(repr((step["path"], step.get("path_base64"), step["action"])).encode("utf-8", "surrogatepass"))
    return total.hexdigest()


def _nothing(missing: Sequence[Missing]) -> dict[str, Any]:
    return {"restored": False, "reason": "nothing to do", "missing": of_missing(missing[:MOST_CHANGES])}


def _restored(done: Restored | None) -> dict[str, Any]:
    if done is None:
        return _nothing([])
    moved = [{**of_path(path), "to": show(where)} for path, where in done.applied.aside]
    return {**of_restored(done), "moved": moved}
