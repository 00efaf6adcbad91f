"""The backend of pages and API: workspaces, checkpoints and the store, without HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from keepfast.app.checkpoint import Engine
from keepfast.app.inspect import Change, as_compared, coverage, pending
from keepfast.app.restore import Restorer
from keepfast.app.worker import row_after_pending
from keepfast.model.errors import Conflict, KeepfastError, NotFound, NoWorkspace
from keepfast.model.event import Event
from keepfast.present.json_forms import (
    counted_from,
    of_change,
    of_checkpoint,
    of_coverage,
    of_notice,
    of_unfinished,
    of_worker,
)
from keepfast.present.terminal import rfc3339
from keepfast.runner.actions.runtime import Runtime
from keepfast.state.notices import read
from keepfast.state.workers import running_worker
from keepfast.store import labels
from keepfast.store.bases import previous_version
from keepfast.store.maintenance.last_verify import Finding, read_last_verify
from keepfast.store.maintenance.space import compact, forget, store_size
from keepfast.store.references import checked_name, resolve
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, Query, WorkspaceRow
from keepfast.store.search import search
from keepfast.web.contents import MAX_CHANGES, Contents
from keepfast.web.restores import Restores
from keepfast.web.views import (
    BriefView,
    CheckpointDetails,
    CheckpointView,
    ForgottenView,
    ListedCheckpoint,
    SearchHit,
    StatusView,
    StorageView,
    StoredWorkspaceView,
    WorkspaceView,
    checkpoint_view,
    path_fields,
)
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from keepfast.web.task_timeline import Mark
    from keepfast.web.tasks import WebTasks

RETENTION_KEYS = (
    "retention.keep_last",
    "retention.hourly_hours",
    "retention.max_size",
    "checkpoint.cleanup_after_days",
)
DAY = 86_400_000_000_000


class Verified(NamedTuple):
    """The last verify (`store/maintenance/last_verify.py`), its time as text."""

    at: str
    quick: bool
    problems: int
    checkpoints: int | None
    findings: list[Finding]


class Backend:
    """Answers one request with an engine of its own; tasks and contents are opened when first used."""

    def __init__(
        self,
        engine: Engine,
        now: Callable[[], int],
        make_runtime: Callable[[], Runtime] | None = None,
        config: str = "",
    ) -> None:
        self.engine, self.now, self._make_runtime, self.config = engine, now, make_runtime, config
        self._runtime: Runtime | None = None
        self.opens_sealed = False
        """Whether sealed contents may be shown: an operator asked for them."""
        self.shown_sealed: list[bytes] = []
        """Paths whose sealed contents are shown, for the audit trail."""

    @cached_property
    def repository(self) -> Repository:
        return self.engine.repository()

    @cached_property
    def tasks(self) -> WebTasks:
        """Unattended tasks."""
        from keepfast.web.tasks import WebTasks

        if self._make_runtime is None:
            raise NotFound("Tasks are not available.")
        self._runtime = self._make_runtime()
        return WebTasks(self._runtime, self)

    @cached_property
    def restores(self) -> Restores:
        return Restores(self)

    @cached_property
    def contents(self) -> Contents:
        return Contents(self)

    def close(self) -> None:
        if self._runtime is not None:
            self._runtime.close()
        self.engine.close()

    def refuse_another(self, row: WorkspaceRow) -> None:
        """Raise `Conflict` if the folder at the path no longer belongs to this workspace."""
        owner = self.engine.workspaces.find_workspace(row.path, adopting=True)
        if owner != (row.path, row.id):
            raise Conflict(
                f"{show(row.path)} is no longer the folder of this workspace.",
                "Check that the folder exists and was not replaced.",
            )

    # Workspaces

    def workspaces(self) -> list[WorkspaceView]:
        """List all workspaces, the one with the newest checkpoint first."""
        rows = [self._summary(row) for row in self._rows()]
        return sorted(rows, key=lambda row: row.last.created_at if row.last else "", reverse=True)

    def _rows(self) -> list[WorkspaceRow]:
        """Return the rows of all workspaces; none before there is a store."""
        try:
            return self.repository.workspaces()
        except NoWorkspace:
            return []

    def workspace(self, workspace: str) -> WorkspaceView:
        return self._summary(self.row(workspace))

    def row(self, workspace: str) -> WorkspaceRow:
        row = next((row for row in self.repository.workspaces() if row.id == workspace), None)
        if row is None:
            raise NotFound(f"There is no workspace {workspace[:40]}.", "The overview page lists them all.")
        return row_after_pending(self.engine, row)

    def _summary(self, row: WorkspaceRow) -> WorkspaceView:
        newest = self.repository.find(Query(workspace=row.id, limit=1))
        return WorkspaceView(
            id=row.id,
            root=show(row.path),
            name=show(row.path.rpartition(b"/")[2] or b"/"),
            created_at=rfc3339(row.created_at),
            parent=row.parent or None,
            exists=os.path.isdir(row.path),
            checkpoints=self.repository.count(row.id),
            last=checkpoint_view(newest[0]) if newest else None,
            coverage=of_coverage(coverage(row)),
        )

    def status(self, workspace: str) -> StatusView:
        """Return what changed since the newest checkpoint, and what went wrong."""
        row = self.row(workspace)
        changes: list[Change] = []
        remarks: list[str] = []
        try:
            self.refuse_another(row)
            changes, remarks = pending(self.engine, row.path, row)
        except KeepfastError as error:
            remarks = [f"Unsaved changes are unknown: {error}"]
        worker = running_worker(self.engine.place.folder(row.id))
        return StatusView(
            changes=[of_change(change) for change in changes[:MAX_CHANGES]],
            changed=len(changes),
            remarks=remarks,
            notices=self.notices(workspace),
            workers=[of_worker(worker)] if worker is not None else [],
            restore=self._unfinished_restore(row),
        )

    def notices(self, workspace: str) -> list[dict[str, Any]]:
        """List the notices of the last 7 days, newest first."""
        row, since = self.row(workspace), self.now() - 7 * DAY
        recent = [
            notice for notice in read(self.engine.workspaces.notice_folders(row.path, row.id)) if notice.at > since
        ]
        return [of_notice(notice) for notice in reversed(recent)]

    def _unfinished_restore(self, row: WorkspaceRow) -> dict[str, Any] | None:
        unfinished = Restorer(self.engine, row.path, row).unfinished()
        if unfinished is None:
            return None
        return {
            **of_unfinished(unfinished),
            **({"text": str(unfinished.error)} if unfinished.error is not None else {}),
        }

    # Checkpoints

    def checkpoints(
        self, workspace: str, *, limit: int = 50, before: int = 0, trigger: str = "", session: str = "", tag: str = ""
    ) -> list[ListedCheckpoint]:
        """List checkpoints, newest first; with `before`, those older than that version."""
        self.row(workspace)
        query = Query(
            workspace=workspace,
            limit=limit,
            before=before,
            trigger=trigger,
            session=session,
            tag=tag,
            light=bool(trigger),
        )
        return [
            ListedCheckpoint(**of_checkpoint(row), added=row.added)
            for row in as_compared(self.repository, self.repository.find(query))
        ]

    def marks(self, workspace: str) -> list[CheckpointRow]:
        """Return every checkpoint, oldest first."""
        return as_compared(self.repository, self.repository.find(Query(workspace=self.row(workspace).id)))[::-1]

    def checkpoint(self, workspace: str, reference: str) -> CheckpointDetails:
        row = self.resolve(workspace, reference)
        header = self.repository.document(row)[0]
        compared = previous_version(self.repository, row)
        (row,) = as_compared(self.repository, [row])
        changes = self.contents.changes(workspace, compared, row)
        after = counted_from(row, compared, len(changes))
        return CheckpointDetails(
            **of_checkpoint(row),
            added=row.added,
            previous=f"v{compared.version}" if compared is not None else None,
            made_after=f"v{after}" if after else None,
            before=self._version_before(row),
            after=self._version_after(row),
            summary=header.summary or None,
            command=header.command or None,
            agent=header.agent or None,
            tokens_used=header.tokens_used or None,
            token_budget=header.token_budget or None,
            git=header.members.get("git"),
            notes=header.members.get("notes"),
            notices=header.notices,
            changes=[of_change(change) for change in changes[:MAX_CHANGES]],
            differing=len(changes),
        )

    def brief(self, workspace: str, reference: str, tokens: int) -> BriefView:
        """Return the resume brief of a checkpoint."""
        from keepfast.app.resume import Resumer

        row = self.row(workspace)
        resumer = Resumer(self.engine, row.path, row.id)
        built = resumer.moment_brief(resumer.work_at(self.resolve(workspace, reference)), tokens=tokens).brief
        return BriefView(text=built.text, parts=built.parts, tokens=built.tokens, left_out=built.left_out)

    def resolve(self, workspace: str, reference: str) -> CheckpointRow:
        try:
            return resolve(self.repository, self.row(workspace).id, reference, self.now())
        except NotFound as error:
            if error.hint != NotFound.hint:
                raise
            raise NotFound(str(error), "The page of the workspace lists all checkpoints.") from None

    def _version_before(self, row: CheckpointRow) -> str | None:
        rows = self.repository.find(Query(workspace=row.workspace, before=row.version, limit=1))
        return f"v{rows[0].version}" if rows else None

    def _version_after(self, row: CheckpointRow) -> str | None:
        for version in range(row.version + 1, min(row.version + 50, self.row(row.workspace).version) + 1):
            row_after = self.repository.checkpoint(row.workspace, version)
            if row_after is not None and not row_after.forgotten:
                return f"v{version}"
        return None

    def save(self, workspace: str, message: str, name: str, tags: Sequence[str], pinned: bool) -> CheckpointView:
        row = self.row(workspace)
        event = Event(row.path, self.now(), message=message, name=checked_name(name) if name else "",
                      tags=tuple(tags), pinned=pinned, guarded=True)  # fmt: skip
        outcome = self.engine.handle(event)
        if outcome.checkpoint is None:
            raise Conflict(
                f"{show(row.path)} is no longer the folder of this workspace.",
                "Check that the folder exists and was not replaced.",
            )
        return checkpoint_view(outcome.checkpoint)

    def label(self, workspace: str, reference: str, pinned: bool | None, name: str | None) -> CheckpointView:
        row = self.resolve(workspace, reference)
        if name is not None:
            labels.name(self.repository, row, checked_name(name) if name else "")
        if pinned is not None:
            labels.pin(self.repository, row, pinned)
        return checkpoint_view(self.resolve(workspace, f"v{row.version}"))

    def forget(self, workspace: str, references: Sequence[str]) -> ForgottenView:
        """Forget checkpoints permanently. Raises `Conflict` if one of them is pinned."""
        rows = {row.version: row for row in [self.resolve(workspace, text) for text in references]}
        for row in rows.values():
            if row.pinned:
                raise Conflict(f"v{row.version} is pinned.", "Unpin it first.")
        folder = self.engine.place.path
        freed = forget(self.repository, workspace, sorted(rows), "asked", folder)
        try:
            done = compact(self.repository, folder)
            given_back = done.given_back
        except KeepfastError:  # they are forgotten all the same; a later compaction gives their space back
            given_back = 0
        return ForgottenView(forgotten=[f"v{version}" for version in sorted(rows)], rows=freed, given_back=given_back)

    # Elsewhere in the workspace

    def compactions(self, workspace: str, begin: int, end: int) -> list[Mark]:
        """List when clients compacted a conversation in this workspace, by the checkpoints made before it."""
        from keepfast.web.task_timeline import Mark

        rows = self.repository.find(Query(workspace=workspace, trigger="before_compact", created_until=end))
        text = "v{} compaction"
        return [Mark(row.created_at, "compaction", text.format(row.version)) for row in rows if row.created_at >= begin]

    def search(self, text: str, workspace: str = "", limit: int = 50) -> list[SearchHit]:
        rows = [self.row(workspace)] if workspace else self._rows()
        hits: list[SearchHit] = []
        for row in rows:
            for hit in search(self.repository, self.engine.place.path, row.id, text, limit - len(hits)):
                view = SearchHit(
                    **of_checkpoint(hit.checkpoint),
                    workspace=row.id,
                    root=show(row.path),
                    where=hit.where,
                    text=hit.text,
                )
                if hit.path:
                    path = path_fields(hit.path)
                    view.path, view.path_base64 = path["path"], path["path_base64"]
                hits.append(view)
            if len(hits) >= limit:
                break
        return hits

    # The store

    def verified(self) -> Verified | None:
        """Return the last verify; None if there is none on record."""
        verify = read_last_verify(self.engine.place.path)
        if verify is None:
            return None
        return Verified(rfc3339(verify.at), verify.quick, verify.problems, verify.checkpoints, verify.findings)

    def storage(self) -> StorageView:
        rows, path, settings = self._rows(), self.engine.place.path, self.engine.settings
        exists = os.path.isdir(path)
        free = os.statvfs(path if exists else _nearest(path))
        return StorageView(
            path=path,
            bytes=store_size(self.repository) if exists else 0,
            free=free.f_bavail * free.f_frsize,
            cap=settings["retention.max_size"],
            packs=len(self.repository.packs()) if exists else 0,
            retention={key: settings[key] for key in RETENTION_KEYS},
            workspaces=[
                StoredWorkspaceView(
                    id=row.id,
                    root=show(row.path),
                    checkpoints=self.repository.count(row.id),
                    coverage=of_coverage(coverage(row)),
                )
                for row in rows
            ],
        )


def _nearest(path: str) -> str:
    """Return the path, or its nearest parent that exists."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


@contextmanager
def opened(
    build: Callable[[], Engine],
    now: Callable[[], int],
    make_runtime: Callable[[], Runtime] | None = None,
    config: str = "",
) -> Iterator[Backend]:
    """Open a backend with an engine of its own; close it afterwards."""
    backend = Backend(build(), now, make_runtime, config)
    try:
        yield backend
    finally:
        backend.close()
