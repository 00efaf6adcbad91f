"""Restores, undo, redo and forks for pages and API. A restore carries out the plan that was previewed, or nothing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keepfast.app.fork import Forker
from keepfast.app.preview import Missing, Preview
from keepfast.app.restore import Restored, Restorer, conflict
from keepfast.model.errors import Conflict, NotFound, Usage
from keepfast.present.json_forms import of_missing, of_path, of_restored
from keepfast.store.rows import WorkspaceRow
from keepfast.web.contents import MAX_CHANGES
from keepfast.web.views import ForkView, RestorePreview, RestoreStep, path_fields
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from keepfast.web.queries import Backend


class Restores:
    """Previews and runs restores and forks for one request."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def preview(self, workspace: str, reference: str, paths: Sequence[bytes]) -> RestorePreview:
        """Return what a restore would do. A restore that is given its `digest` does exactly that, or nothing."""
        row, target = self.backend.row(workspace), self.backend.resolve(workspace, reference)
        restorer = self._restorer(row)
        restorer.planner.refuse_unknown(target, paths)
        plan = _preview(restorer.planner.preview(target, list(paths)))
        plan.target = f"v{target.version}"
        plan.missing = of_missing(restorer.planner.missing(target, paths)[:MAX_CHANGES])
        return plan

    def restore(
        self, workspace: str, reference: str, paths: Sequence[bytes], conflicts: str, agreed: str
    ) -> dict[str, Any]:
        row, target = self.backend.row(workspace), self.backend.resolve(workspace, reference)
        restorer = self._restorer(row)
        restorer.planner.refuse_unknown(target, paths)
        done = restorer.restore(target, list(paths), conflicts=conflicts, ask=_confirmation(agreed, conflicts))
        return _restored(done) if done is not None else _nothing(restorer.planner.missing(target, paths))

    def undo(self, workspace: str, agreed: str, conflicts: str, again: bool = False) -> dict[str, Any]:
        restorer = self._restorer(self.backend.row(workspace))
        step = restorer.redo if again else restorer.undo
        return _restored(step(conflicts=conflicts, ask=_confirmation(agreed, conflicts)))

    def preview_undo(self, workspace: str, again: bool = False) -> RestorePreview:
        restorer, seen = self._restorer(self.backend.row(workspace)), list[RestorePreview]()

        def look(preview: Preview) -> bool:
            seen.append(_preview(preview))
            return False

        (restorer.redo if again else restorer.undo)(conflicts="ask", ask=look)
        if seen:
            return seen[0]
        return RestorePreview(digest=_digest([]))

    def ways_back(self, workspace: str) -> dict[str, bool]:
        """Return whether there is a restore to undo, and an undo to redo."""
        row = self.backend.row(workspace)
        undo, redo = Restorer(self.backend.engine, row.path, row).ways_back()
        return {"undo": undo, "redo": redo}

    def finish(self, workspace: str, abort: bool) -> dict[str, Any]:
        """Continue or abort an interrupted restore."""
        restorer = self._restorer(self.backend.row(workspace))
        return _restored(restorer.abort() if abort else restorer.resume())

    def fork(self, workspace: str, reference: str, folder: str) -> ForkView:
        if not folder.startswith("/"):
            raise Usage(f"{folder!r} is not an absolute path.", "Give a folder such as /home/you/other.")
        row, checkpoint = self.backend.row(workspace), self.backend.resolve(workspace, reference)
        forked = Forker(self.backend.engine, row.path, row, checkpoint).fork(os.fsencode(folder))
        return ForkView(workspace=forked.workspace, folder=folder, version=f"v{forked.checkpoint.version}")

    def _restorer(self, row: WorkspaceRow) -> Restorer:
        if not os.path.isdir(row.path):
            raise NotFound(f"{show(row.path)} does not exist.", "Fork the checkpoint into another folder instead.")
        self.backend.refuse_another(row)
        return Restorer(self.backend.engine, row.path, row)


def _confirmation(agreed: str, conflicts: str) -> Callable[[Preview], bool]:
    """Return the check that allows a restore: it raises `Conflict` on another plan than the one shown, or on unsaved work."""

    def ask(preview: Preview) -> bool:
        if preview.conflicts and conflicts == "ask":
            raise conflict(preview.conflicts)
        if agreed and _preview(preview, conflicts).digest != agreed:
            raise Conflict("The folder changed after the preview; nothing was restored.", "Check the new preview.")
        return True

    return ask


def _preview(preview: Preview, conflicts: str = "") -> RestorePreview:
    steps = [
        RestoreStep(
            **path_fields(step.path), action="create" if step.old is None and step.action == "write" else step.action
        )
        for step in preview.plan.steps
    ]
    left_alone = set(map(show, preview.conflicts)) if conflicts == "mine" else set()
    return RestorePreview(
        steps=steps[:MAX_CHANGES],
        count=len(steps),
        untouched=[{**of_path(path), "why": why} for path, why in preview.plan.untouched[:MAX_CHANGES]],
        conflicts=[of_path(path) for path in preview.conflicts],
        digest=_digest([step for step in steps if step.path not in left_alone]),
    )


def _digest(steps: Sequence[RestoreStep]) -> str:
    total = hashlib.sha256()
    for step in steps:
        total.update(repr((step.path, step.path_base64, step.action)).encode("utf-8", "surrogatepass"))
    return total.hexdigest()


def _nothing(missing: Sequence[Missing]) -> dict[str, Any]:
    return {"restored": False, "reason": "nothing to do", "missing": of_missing(missing[:MAX_CHANGES])}


def _restored(done: Restored | None) -> dict[str, Any]:
    if done is None:
        return _nothing([])
    moved = [{**of_path(path), "to": show(where)} for path, where in done.applied.aside]
    return {**of_restored(done), "moved": moved}
