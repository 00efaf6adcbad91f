"""What pages and API ask for: workspaces, checkpoints, the store. Plain values in and out, nothing about HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from keepfast.app.inspect import as_compared, coverage, pending
from keepfast.app.worker import row_after_pending
from keepfast.model.errors import Conflict, KeepfastError, NotFound, NoWorkspace
from keepfast.model.event import Event
from keepfast.present.json_forms import (
    counted_from,
    of_change,
    of_checkpoint,
    of_coverage,
    of_notice,
    of_path,
    of_unfinished,
    of_worker,
)
from keepfast.present.terminal import rfc3339
from keepfast.store.bases import previous_version
from keepfast.store.rows import CheckpointRow, Query, WorkspaceRow
from keepfast.web.contents import MOST_CHANGES, Contents
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from keepfast.app.checkpoint import Engine
    from keepfast.runner.actions.runtime import Runtime
    from keepfast.store.maintenance.last_verify import Finding
    from keepfast.store.repository import Repository
    from keepfast.web.restores import Bringing
    from keepfast.web.task_timeline import Mark
    from keepfast.web.tasks import Work

KEPT_BY = ("retention.keep_last", "retention.hourly_hours", "retention.max_size", "checkpoint.cleanup_after_days")
DAY = 86_400_000_000_000


class Verified(NamedTuple):
    """What the last verify found (`store/maintenance/last_verify.py`), its time as pages show it."""

    at: str
    quick: bool
    problems: int
    checkpoints: int | None
    findings: list[Finding]


class Desk:
    """One visitor's request. `engine` is this request's own."""

    def __init__(
        self, engine: Engine, now: Callable[[], int], ground: Callable[[], Runtime] | None = None, config: str = ""
    ) -> None:
        self.engine, self.now, self._make_ground, self.config = engine, now, ground, config
        self._ground: Runtime | None = None
        self.opens_sealed = False
        """May sealed contents be shown? Only to an operator who asked for exactly that."""
        self.shown_sealed: list[bytes] = []
        """Paths whose sealed contents were shown."""

    @cached_property
    def repository(self) -> Repository:
        return self.engine.repository()

    @cached_property
    def tasks(self) -> Work:
        """Unattended tasks, on tables that are opened when first asked for."""
        from keepfast.web.tasks import Work

        if self._make_ground is None:
            raise NotFound("Tasks are not available.")
        self._ground = self._make_ground()
        return Work(self._ground, self)

    @cached_property
    def bring(self) -> Bringing:
        from keepfast.web.restores import Bringing

        return Bringing(self)

    @cached_property
    def contents(self) -> Contents:
        return Contents(self)

    def close(self) -> None:
        if self._ground is not None:
            self._ground.close()
        self.engine.close()

    def refuse_another(self, row: WorkspaceRow) -> None:
        """Raise `Conflict` if another workspace's folder lies at the path by now: that is not for this history to touch."""
        found = self.engine.find_workspace(row.path, adopting=True)
        if found != (row.path, row.id):
            raise Conflict(
                f"{show(row.path)} is no longer the folder of this workspace.",
                "Check that the folder exists and was not replaced.",
            )

    # Workspaces

    def workspaces(self) -> list[dict[str, Any]]:
        """All workspaces, the one with the newest checkpoint first."""
        rows = [self._summary(row) for row in self._rows()]
        return sorted(rows, key=lambda row: row["last"]["created_at"] if row["last"] else "", reverse=True)

    def _rows(self) -> list[WorkspaceRow]:
        """None before anything was ever protected: then there is no store yet, which is no error to look at."""
        try:
            return self.repository.workspaces()
        except NoWorkspace:
            return []

    def workspace(self, workspace: str) -> dict[str, Any]:
        return self._summary(self.row(workspace))

    def row(self, workspace: str) -> WorkspaceRow:
        row = next((row for row in self.repository.workspaces() if row.id == workspace), None)
        if row is None:
            raise NotFound(f"There is no workspace {workspace[:40]}.", "The overview page lists them all.")
        return row_after_pending(self.engine, row)

    def _summary(self, row: WorkspaceRow) -> dict[str, Any]:
        newest = self.repository.find(Query(workspace=row.id, limit=1))
        return {
            "id": row.id,
            "root": show(row.path),
            "name": show(row.path.rpartition(b"/")[2] or b"/"),
            "created_at": rfc3339(row.created_at),
            "parent": row.parent or None,
            "there": os.path.isdir(row.path),
            "checkpoints": self.repository.count(row.id),
            "last": of_checkpoint(newest[0]) if newest else None,
            "coverage": of_coverage(coverage(row)),
        }

    def status(self, workspace: str) -> dict[str, Any]:
        """What changed since the newest checkpoint, and what went wrong."""
        from keepfast.state.workers import running_worker

        row = self.row(workspace)
        changes: list[Any] = []
        remarks: list[str] = []
        try:
            self.refuse_another(row)
            changes, remarks = pending(self.engine, row.path, row)
        except KeepfastError as error:
            remarks = [f"Unsaved changes are unknown: {error}"]
        worker = running_worker(self.engine.place.folder(row.id))
        return {
            "changes": [of_change(change) for change in changes[:MOST_CHANGES]],
            "changed": len(changes),
            "remarks": remarks,
            "notices": self.notices(workspace),
            "workers": [of_worker(worker)] if worker is not None else [],
            "restore": self._cut_off(row),
        }

    def notices(self, workspace: str) -> list[dict[str, Any]]:
        """What went wrong in the last week while nobody looked, newest first."""
        from keepfast.state.notices import read

        row, since = self.row(workspace), self.now() - 7 * DAY
        found = [notice for notice in read(self.engine.notice_folders(row.path, row.id)) if notice.at > since]
        return [of_notice(notice) for notice in reversed(found)]

    def _cut_off(self, row: WorkspaceRow) -> dict[str, Any] | None:
        from keepfast.app.restore import Restorer

        found = Restorer(self.engine, row.path, row).unfinished()
        if found is None:
            return None
        return {**of_unfinished(found), **({"text": str(found.error)} if found.error is not None else {})}

    # Checkpoints

    def checkpoints(
        self, workspace: str, *, limit: int = 50, before: int = 0, trigger: str = "", session: str = "", tag: str = ""
    ) -> list[dict[str, Any]]:
        """Newest first; `before` is a version to go on from."""
        self.row(workspace)
        query = Query(workspace=workspace, limit=limit, before=before, trigger=trigger, session=session, tag=tag)
        return [
            {**of_checkpoint(row), "added": row.added}
            for row in as_compared(self.repository, self.repository.find(query))
        ]

    def marks(self, workspace: str) -> list[CheckpointRow]:
        """Every checkpoint, oldest first."""
        return as_compared(self.repository, self.repository.find(Query(workspace=self.row(workspace).id)))[::-1]

    def checkpoint(self, workspace: str, reference: str) -> dict[str, Any]:
        row = self.resolve(workspace, reference)
        header = self.repository.document(row)[0]
        compared = previous_version(self.repository, row)
        (row,) = as_compared(self.repository, [row])
        changes = self.contents.changes(workspace, compared, row)
        after = counted_from(row, compared, len(changes))
        return {
            **of_checkpoint(row),
            "added": row.added,
            "previous": f"v{compared.version}" if compared is not None else None,
            "made_after": f"v{after}" if after else None,
            "before": f"v{self._before_version(row)}" if self._before_version(row) else None,
            "after": self._after(row),
            "summary": header.summary or None,
            "command": header.command or None,
            "agent": header.agent or None,
            "tokens_used": header.tokens_used or None,
            "token_budget": header.token_budget or None,
            "git": header.members.get("git"),
            "notes": header.members.get("notes"),
            "notices": header.notices,
            "changes": [of_change(change) for change in changes[:MOST_CHANGES]],
            "differing": len(changes),
        }

    def brief(self, workspace: str, reference: str, tokens: int) -> dict[str, Any]:
        """What an agent would be told if it went on from here."""
        from keepfast.app.resume import Resumer

        row = self.row(workspace)
        resumer = Resumer(self.engine, row.path, row.id)
        built = resumer.moment_brief(resumer.work_at(self.resolve(workspace, reference)), tokens=tokens).brief
        return {"text": built.text, "parts": built.parts, "tokens": built.tokens, "left_out": built.left_out}

    def resolve(self, workspace: str, reference: str) -> CheckpointRow:
        from keepfast.store.references import resolve

        try:
            return resolve(self.repository, self.row(workspace).id, reference, self.now())
        except NotFound as error:
            if error.hint != NotFound.hint:
                raise
            raise NotFound(str(error), "The page of the workspace lists all checkpoints.") from None

    def _before(self, row: CheckpointRow) -> CheckpointRow | None:
        found = self.repository.find(Query(workspace=row.workspace, before=row.version, limit=1))
        return found[0] if found else None

    def _before_version(self, row: CheckpointRow) -> int:
        before = self._before(row)
        return before.version if before is not None else 0

    def _after(self, row: CheckpointRow) -> str | None:
        for version in range(row.version + 1, min(row.version + 50, self.row(row.workspace).version) + 1):
            found = self.repository.checkpoint(row.workspace, version)
            if found is not None and not found.forgotten:
                return f"v{version}"
        return None

    def save(self, workspace: str, message: str, name: str, tags: Sequence[str], pinned: bool) -> dict[str, Any]:
        from keepfast.store.references import checked_name

        row = self.row(workspace)
        event = Event(row.path, self.now(), message=message, name=checked_name(name) if name else "",
                      tags=tuple(tags), pinned=pinned, guarded=True)  # fmt: skip
        outcome = self.engine.handle(event)
        if outcome.checkpoint is None:
            raise Conflict(
                f"{show(row.path)} is no longer the folder of this workspace.",
                "Check that the folder exists and was not replaced.",
            )
        return of_checkpoint(outcome.checkpoint)

    def label(self, workspace: str, reference: str, pinned: bool | None, name: str | None) -> dict[str, Any]:
        from keepfast.store import labels
        from keepfast.store.references import checked_name

        row = self.resolve(workspace, reference)
        if name is not None:
            labels.name(self.repository, row, checked_name(name) if name else "")
        if pinned is not None:
            labels.pin(self.repository, row, pinned)
        return of_checkpoint(self.resolve(workspace, f"v{row.version}"))

    def forget(self, workspace: str, references: Sequence[str]) -> dict[str, Any]:
        """Forget these for good. Raises `Conflict` if one of them is pinned."""
        from keepfast.store.maintenance.space import compact, forget

        rows = {row.version: row for row in [self.resolve(workspace, text) for text in references]}
        for row in rows.values():
            if row.pinned:
                raise Conflict(f"v{row.version} is pinned.", "Unpin it first.")
        folder = self.engine.place.path
        freed = forget(self.repository, workspace, sorted(rows), "asked", folder)
        try:
            done = compact(self.repository, folder)
            given_back = done.given_back
        except KeepfastError:  # they are forgotten, whatever became of their space; a later compaction gives it back
            given_back = 0
        return {"forgotten": [f"v{version}" for version in sorted(rows)], "rows": freed, "given_back": given_back}

    # Elsewhere in the workspace

    def compactions(self, workspace: str, begin: int, end: int) -> list[Mark]:
        """When a client compacted its conversation here: a checkpoint was made just before."""
        from keepfast.web.task_timeline import Mark

        rows = self.repository.find(Query(workspace=workspace, trigger="before_compact", created_until=end))
        text = "v{} compaction"
        return [Mark(row.created_at, "compaction", text.format(row.version)) for row in rows if row.created_at >= begin]

    def search(self, text: str, workspace: str = "", limit: int = 50) -> list[dict[str, Any]]:
        from keepfast.store.search import search

        rows = [self.row(workspace)] if workspace else self._rows()
        hits: list[dict[str, Any]] = []
        for row in rows:
            for hit in search(self.repository, self.engine.place.path, row.id, text, limit - len(hits)):
                found = {"workspace": row.id, "root": show(row.path), "where": hit.where, "text": hit.text}
                hits.append({**found, **of_checkpoint(hit.checkpoint), **(of_path(hit.path) if hit.path else {})})
            if len(hits) >= limit:
                break
        return hits

    # The store

    def verified(self) -> Verified | None:
        """When everything was last read and compared, and what came of it."""
        from keepfast.store.maintenance.last_verify import read_last_verify

        found = read_last_verify(self.engine.place.path)
        if found is None:
            return None
        return Verified(rfc3339(found.at), found.quick, found.problems, found.checkpoints, found.findings)

    def storage(self) -> dict[str, Any]:
        from keepfast.store.maintenance.space import store_size

        rows, path, settings = self._rows(), self.engine.place.path, self.engine.settings
        there = os.path.isdir(path)
        free = os.statvfs(path if there else _nearest(path))
        return {
            "path": path,
            "bytes": store_size(self.repository) if there else 0,
            "free": free.f_bavail * free.f_frsize,
            "cap": settings["retention.max_size"],
            "packs": len(self.repository.packs()) if there else 0,
            "retention": {key: settings[key] for key in KEPT_BY},
            "workspaces": [
                {
                    "id": row.id,
                    "root": show(row.path),
                    "checkpoints": self.repository.count(row.id),
                    "coverage": of_coverage(coverage(row)),
                }
                for row in rows
            ],
        }


def _nearest(path: str) -> str:
    """The folder that is there already and in which the path would be made."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


@contextmanager
def opened(
    build: Callable[[], Engine], now: Callable[[], int], ground: Callable[[], Runtime] | None = None, config: str = ""
) -> Iterator[Desk]:
    """A desk with an engine of its own, closed in the end."""
    desk = Desk(build(), now, ground, config)
    try:
        yield desk
    finally:
        desk.close()
