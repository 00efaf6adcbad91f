"""Checkpoints of tasks: one for each cause, saved through the engine like all others; a failure never stops an agent."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from keepfast.app.checkpoint import Engine
from keepfast.app.inspect import pending
from keepfast.app.worker import MAX_SUMMARY_CHARS, event_of
from keepfast.model.errors import KeepfastError, NoWorkspace
from keepfast.model.event import CREATED, Event
from keepfast.model.steps import step
from keepfast.runner.actions import descriptions, documents, folders
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.seals import redact_spellings, warn_of_keys
from keepfast.runner.actions.vault import agent_of, secret_values
from keepfast.runner.db import changes, queries
from keepfast.runner.domain.records import Run, Task, TaskCheckpoint
from keepfast.runner.process.drivers import driver
from keepfast.runner.process.output import Output
from keepfast.secrets.cuts import head
from keepfast.state.pending_events import PendingEvent
from keepfast.store.conversations import SavedConversation, conversation_from_json
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, Query

PINNED = frozenset(("phase_complete", "final"))
STAGING = "documents"
"""The folder beside the task database where documents are staged until their transaction is committed."""
DAY = 86_400 * 1_000_000_000


class CheckpointRef(NamedTuple):
    """Identifies a checkpoint of a task: its id, version and tree."""

    id: str
    version: int
    tree: str


class SavedCheckpoint(NamedTuple):
    """A checkpoint in the store, with the contents of its row and its document, which are not written yet."""

    reference: CheckpointRef
    task: str
    run: str
    """The run that caused it; empty if none did."""
    agent: str
    """The run that the document describes; empty if there was none yet."""
    reason: str
    key: str
    phase: int
    at: int
    milliseconds: int
    conversation: SavedConversation | None
    work: descriptions.WorkState


class StagedDocument(NamedTuple):
    """A document in the data folder that `publish` puts into its workspace."""

    id: str
    task: str
    workspace: str
    name: str
    text: bytes


def take(
    runtime: Runtime, task: Task, run: Run | None, reason: str, key: str, output: Output | None = None
) -> CheckpointRef | None:
    """Return the checkpoint of this cause, made now if there is none yet; None if nothing changed, or it failed.

    It changes no state of the task. A failure is logged; the next interval tries again.
    """
    row = queries.checkpoint_of_key(runtime.tables, key)
    if row is not None:
        return _reference(row)
    saved = save(runtime, task, run, reason, key, output)
    if saved is None:
        return None
    with runtime.tables.write():
        staged = record(runtime, saved)
    publish(runtime, staged)
    return saved.reference


def save(
    runtime: Runtime, task: Task, run: Run | None, reason: str, key: str, output: Output | None = None
) -> SavedCheckpoint | None:
    """Save, and collect the contents of the document; `record` and `publish` follow. None if it failed, or nothing changed."""
    started = monotonic()
    try:
        row, conversation = _save(runtime, task, run, reason, key)
    except (KeepfastError, OSError) as error:
        with runtime.tables.write() as tables:
            now = runtime.now()
            tables.log(
                task.id, now, "checkpoint_failed", {"reason": reason, "error": str(error)}, run.id if run else ""
            )
        return None
    if row is None:
        return None
    warn_of_keys(runtime, task)
    milliseconds = int((monotonic() - started) * 1000)
    step("checkpoint:saved")
    agent = run or runtime.tables.last_run(task.id)
    return SavedCheckpoint(
        CheckpointRef(row.id, row.version, row.tree), task.id, run.id if run else "", agent.id if agent else "", reason, key,
        task.phase, row.created_at, milliseconds, conversation, descriptions.observe(runtime, task, agent, output),
    )  # fmt: skip


def record(runtime: Runtime, saved: SavedCheckpoint) -> StagedDocument:
    """Write the row and the event of a checkpoint, and its document into the data folder. Inside a transaction.

    The document describes the rows as they are now. `publish` puts it in place after the transaction, so that it never
    describes what was rolled back; after an interruption in between, `publish_staged` finds it.
    """
    tables, reference = runtime.tables, saved.reference
    task, run = tables.task(saved.task), tables.run(saved.agent) if saved.agent else None
    head = descriptions.Head(reference.id, saved.reason, saved.at)
    text = documents.signed(runtime, descriptions.describe(runtime, task, run, saved.work, head, saved.conversation))
    name = _name(runtime, task, saved) if _stage(runtime, reference.id, text) else ""
    row = TaskCheckpoint(
        saved.key, task.id, saved.run, reference.id, reference.version, saved.reason, saved.phase, reference.tree, name, saved.at,
    )  # fmt: skip
    changes.keep_checkpoint(tables, row)
    facts = {
        "checkpointId": reference.id,
        "reason": saved.reason,
        "size": len(text) if name else 0,
        "duration_ms": saved.milliseconds,
    }
    tables.log(task.id, runtime.now(), "checkpoint_created", facts, saved.run)
    return StagedDocument(reference.id, task.id, task.workspace, name, text)


def publish(runtime: Runtime, staged: StagedDocument) -> None:
    """Put a document into its workspace. A failure is not fatal: the next start of the supervisor tries again."""
    if not staged.name:
        return
    newest = queries.newest_document(runtime.tables, staged.workspace)
    if documents.put(staged.workspace, staged.name, staged.text, newest in ("", staged.name)):
        with suppress(OSError):
            os.unlink(f"{runtime.folder}/{STAGING}/{staged.id}")
    step("checkpoint:written")

    prune_documents(runtime, runtime.tables.task(staged.task))


def publish_staged(runtime: Runtime) -> None:
    """Publish documents whose writers were interrupted; remove those whose row was never committed."""
    folder = f"{runtime.folder}/{STAGING}"
    for id in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if id.endswith(".new"):
            _remove_unfinished(f"{folder}/{id}")
            continue
        row = queries.documented_checkpoint(runtime.tables, id)
        with suppress(OSError):
            if row is not None:
                with open(f"{folder}/{id}", "rb") as file:
                    publish(
                        runtime,
                        StagedDocument(id, row.task, runtime.tables.task(row.task).workspace, row.file, file.read()),
                    )
            elif runtime.now() - os.stat(f"{folder}/{id}").st_mtime_ns > DAY:
                os.unlink(f"{folder}/{id}")


def _remove_unfinished(path: str) -> None:
    """Remove a document that its writer did not finish, if that process, which its name contains, has ended."""
    writer = path.rpartition(".new")[0].rpartition(".")[2].partition("-")[0]
    try:
        os.kill(int(writer), 0)
    except (ValueError, ProcessLookupError):
        os.unlink(path)
    except PermissionError:
        pass  # the process is alive and belongs to another user


def _stage(runtime: Runtime, id: str, text: bytes) -> bool:
    folder = f"{runtime.folder}/{STAGING}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        folders.replace(f"{folder}/{id}", text)
    except OSError:
        return False
    return True


def _name(runtime: Runtime, task: Task, saved: SavedCheckpoint) -> str:
    """Return a name that no other document has; empty if the workspace cannot have documents."""
    if folders.own_folder(task.workspace, folders.CHECKPOINTS) is None:
        return ""
    number = 1
    while True:
        name = documents.name(saved.reason, saved.phase, saved.at, number)
        is_taken = queries.is_document_of_another(runtime.tables, name, saved.key)
        if not is_taken and not documents.is_there(task.workspace, name):
            return name
        number += 1


def _save(
    runtime: Runtime, task: Task, run: Run | None, reason: str, key: str
) -> tuple[CheckpointRow | None, SavedConversation | None]:
    """Make the checkpoint; return its row and its conversation."""
    with runtime.engine() as engine:
        root = os.fsencode(task.workspace)
        located = engine.workspaces.locate(root)
        if located is None:
            engine.workspaces.init(root)
            located = engine.workspaces.locate(root)
        assert located is not None
        engine.repository().workspace(located[1])  # adopts what a killed process had already made durable
        # An interruption before our own row leaves a checkpoint with this tag.
        earlier = engine.repository().find(Query(workspace=located[1], task=task.id, tag=key, limit=1))
        if earlier:
            return earlier[0], _conversation(engine, earlier[0])
        event = _event(runtime, engine, located, task, run.session if run else task.session, reason)
        event.tags = (key,)
        outcome = engine.handle(event)
        row = outcome.checkpoint if outcome.status == CREATED else None
        return (row, _conversation(engine, row)) if row is not None else (None, None)


def _conversation(engine: Engine, row: CheckpointRow) -> SavedConversation | None:
    return conversation_from_json(engine.repository().document(row)[0].conversation)


def _event(
    runtime: Runtime, engine: Engine, located: tuple[bytes, str], task: Task, session: str, reason: str
) -> Event:
    """Return the event that a hook would send, with conversation, notes and tokens; the task's secrets are redacted."""
    root, workspace = located
    how = driver(agent_of(runtime, task), runtime.options)
    transcript = how.transcript(session, runtime.variables)
    seen = PendingEvent(reason, runtime.now(), session, how.client, os.fsdecode(root), transcript)
    event = event_of(engine, root, engine.place.folder(workspace), seen)
    event.message = head(f"{task.title}: {reason.replace('_', ' ')}", 200)
    event.task, event.created_by, event.pinned = task.id, descriptions.BY.get(reason, "system"), reason in PINNED
    # The agent ended its turn, or a person decided something: the document has to be written even if no file changed.
    event.moved_on = reason in ("turn", "user_pause", "cancel")
    if event.notes is not None:
        event.summary = head(task.title.split("\n")[0], MAX_SUMMARY_CHARS)
        event.notes = json.loads(redact_spellings(json.dumps(event.notes), secret_values(runtime, task)))
    return event


def changed_since(runtime: Runtime, task: Task, tree: str) -> bool:
    """Return whether the workspace differs from the checkpoint with this tree."""
    with runtime.engine() as engine:
        root, row = engine.workspaces.root(os.fsencode(task.workspace))
        newest = engine.repository().find(Query(workspace=row.id, limit=1))
        if not newest or newest[0].tree != tree:
            return True
        return bool(pending(engine, root, row)[0])


def lineage(runtime: Runtime, task: str) -> list[CheckpointRef]:
    """Return the checkpoints that led to a task's current state, newest first, without those that a restore undid."""
    return [_reference(row) for row in lineage_rows(runtime, task)]


def lineage_rows(runtime: Runtime, task: str) -> list[TaskCheckpoint]:
    """Return the task database's rows of `lineage`."""
    return list(_current_line(queries.newest_checkpoints(runtime.tables, task, 500)))


def _current_line(rows: list[TaskCheckpoint]) -> Iterator[TaskCheckpoint]:
    most = None
    for row in rows:
        if most is None or row.version <= most:
            yield row
            most = row.version if row.reason == "restored" else most


def _reference(row: TaskCheckpoint) -> CheckpointRef:
    return CheckpointRef(row.id, row.version, row.tree)


class PhaseBase(NamedTuple):
    """The checkpoint that a phase is compared with."""

    row: CheckpointRow | None
    """None: an empty folder."""
    is_exact: bool
    """Whether it is the state that the phase began with, and not an older one in its place."""


def phase_base(runtime: Runtime, repository: Repository, task: Task) -> PhaseBase | None:
    """Return what a task's phase is compared with: the end of the previous phase, or the task's start; None before it began.

    If that checkpoint was forgotten, an older version takes its place, or finally an empty folder: a review then shows
    more than the phase changed, never less.
    """
    began = _end_before(runtime, task) or queries.start_checkpoint(runtime.tables, task.id)
    if not task.workspace_id or (began is None and not task.started_at):
        return None
    row = row_of(repository, task.workspace_id, _reference(began)) if began is not None else None
    if row is not None and not row.forgotten:
        return PhaseBase(row, True)
    version = row.version if row is not None else began.version if began is not None else 0
    # Without a checkpoint of the start, the newest one older than the task takes its place.
    older = Query(workspace=task.workspace_id, before=version, created_until=0 if version else task.started_at, limit=1)
    return PhaseBase(next(iter(repository.find(older)), None), False)


def _end_before(runtime: Runtime, task: Task) -> TaskCheckpoint | None:
    """Return the checkpoint of the previous phase's completion, in the lineage of the task's current state."""
    rows = queries.phase_ends(runtime.tables, task)
    return next((row for row in _current_line(rows) if row.reason == "phase_complete"), None)


def row_of(repository: Repository, workspace: str, reference: CheckpointRef) -> CheckpointRow | None:
    """Return the store's row of a task's checkpoint; one that was rebuilt from a document may have an id only.

    After a purge, another checkpoint may have the version.
    """
    if reference.version:
        row = repository.checkpoint(workspace, reference.version)
        return row if row is not None and row.id == reference.id else None
    rows = repository.find(Query(workspace=workspace, id_prefix=reference.id, limit=1))
    return rows[0] if rows else None


def available_rows(runtime: Runtime, repository: Repository, workspace: str, task: str) -> list[CheckpointRow]:
    """Return the store's rows of `lineage` that are not forgotten, newest first."""
    rows = [row_of(repository, workspace, reference) for reference in lineage(runtime, task)]
    return [row for row in rows if row is not None and not row.forgotten]


def stored_rows(runtime: Runtime, task: Task) -> list[TaskCheckpoint]:
    """Return a task's checkpoints that are not forgotten, newest first; all of them if the store cannot be read."""
    rows = queries.all_checkpoints(runtime.tables, task.id)
    forgotten = _forgotten(runtime, task, rows)
    return [row for row in rows if row.id not in forgotten]


def _forgotten(runtime: Runtime, task: Task, rows: Sequence[TaskCheckpoint]) -> frozenset[str]:
    """Return the ids of the checkpoints among these that are no longer stored; none if the store cannot be read."""
    if not rows or not task.workspace_id:
        return frozenset()
    try:
        with runtime.engine() as engine:
            repository = engine.repository()
            found = {row.id: row_of(repository, task.workspace_id, _reference(row)) for row in rows}
    except NoWorkspace:
        return frozenset([row.id for row in rows])
    except (KeepfastError, OSError):
        return frozenset()
    return frozenset(id for id, row in found.items() if row is None or row.forgotten)


def prune_documents(runtime: Runtime, task: Task) -> None:
    """Remove documents that no longer count: old ones of intervals, and those of forgotten checkpoints."""
    rows = queries.all_checkpoints(runtime.tables, task.id)
    forgotten = _forgotten(runtime, task, rows)
    names = [row.file for row in rows if row.id in forgotten and row.file]
    documents.prune(task.workspace, queries.documents_of(runtime.tables, task.id), forgotten=names)


def is_any_left(runtime: Runtime, task: Task) -> bool:
    """Return whether there is a checkpoint to resume from; True if the store cannot be read."""
    if latest(runtime, task.id) is None:
        return False
    try:
        with runtime.engine() as engine:
            _, row = engine.workspaces.root(os.fsencode(task.workspace))
            return bool(available_rows(runtime, engine.repository(), row.id, task.id))
    except NoWorkspace:
        return False  # the history was purged: documents without it cannot be resumed from
    except (KeepfastError, OSError):
        return True


def latest(runtime: Runtime, task: str) -> CheckpointRef | None:
    row = queries.highest_checkpoint(runtime.tables, task)
    return None if row is None else _reference(row)
