"""Checkpoints of tasks: through the engine like all others, once for each cause, and never in the way of an agent."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from keepfast.app.inspect import pending
from keepfast.app.worker import MAX_SUMMARY_CHARS, event_of
from keepfast.model.errors import KeepfastError
from keepfast.model.event import CREATED, Event
from keepfast.model.steps import step
from keepfast.runner.actions import descriptions, documents, folders
from keepfast.runner.actions.seals import struck_out, warn_of_keys
from keepfast.runner.actions.vault import agent_of, values
from keepfast.runner.db import changes, queries
from keepfast.runner.domain.records import Run, Task, TaskCheckpoint
from keepfast.runner.process.drivers import driver
from keepfast.secrets.cuts import head
from keepfast.state.pending_events import PendingEvent
from keepfast.store.conversations import Conversation, conversation_from_json
from keepfast.store.rows import Query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepfast.app.checkpoint import Engine
    from keepfast.runner.actions.environment import Ground
    from keepfast.runner.process.output import Output
    from keepfast.store.repository import Repository
    from keepfast.store.rows import CheckpointRow

KEPT = frozenset(("phase_complete", "final"))
WAITING = "documents"
"""The folder beside the task database where documents lie until their transaction is over."""
DAY = 86_400 * 1_000_000_000


class Taken(NamedTuple):
    """A checkpoint of a task."""

    id: str
    version: int
    tree: str


class Kept(NamedTuple):
    """A checkpoint that lies in the store, with all that its row and its document tell of it; neither is written yet."""

    taken: Taken
    task: str
    run: str
    """Whose cause it is; empty if no run's."""
    agent: str
    """The run that the document tells of; empty if there was none yet."""
    reason: str
    key: str
    phase: int
    at: int
    milliseconds: int
    conversation: Conversation | None
    seen: descriptions.Seen


class Noted(NamedTuple):
    """A document that waits in the data folder to be put into its workspace."""

    id: str
    task: str
    workspace: str
    name: str
    text: bytes


def take(
    ground: Ground, task: Task, run: Run | None, reason: str, key: str, output: Output | None = None
) -> Taken | None:
    """Make a checkpoint that changes no state, or find the one that was made; None if there is nothing to keep or it failed.

    A failure is logged and told of; the next interval tries again.
    """
    found = queries.checkpoint_of_key(ground.tables, key)
    if found is not None:
        return _taken(found)
    kept = keep(ground, task, run, reason, key, output)
    if kept is None:
        return None
    with ground.tables.write():
        noted = note(ground, kept)
    publish(ground, noted)
    return kept.taken


def keep(
    ground: Ground, task: Task, run: Run | None, reason: str, key: str, output: Output | None = None
) -> Kept | None:
    """Save, and look at what the document will tell; `note` and `publish` follow. None if it failed, or nothing is kept."""
    started = monotonic()
    try:
        made, conversation = _save(ground, task, run, reason, key)
    except (KeepfastError, OSError) as error:
        with ground.tables.write() as tables:
            now = ground.now()
            tables.log(
                task.id, now, "checkpoint_failed", {"reason": reason, "error": str(error)}, run.id if run else ""
            )
        return None
    if made is None:
        return None
    warn_of_keys(ground, task)
    milliseconds = int((monotonic() - started) * 1000)
    step("checkpoint:saved")
    agent = run or ground.tables.last_run(task.id)
    return Kept(
        Taken(made.id, made.version, made.tree), task.id, run.id if run else "", agent.id if agent else "", reason, key,
        task.phase, made.created_at, milliseconds, conversation, descriptions.look(ground, task, agent, output),
    )  # fmt: skip


def note(ground: Ground, kept: Kept) -> Noted:
    """Write the row and the event of a checkpoint, and its document into the data folder. Inside a transaction.

    The document tells the rows as they are by then. It is put in its place by `publish`, after the transaction: it never
    tells what did not come about, and whoever is cut off in between finds it again with `publish_rest`.
    """
    tables, taken = ground.tables, kept.taken
    task, run = tables.task(kept.task), tables.run(kept.agent) if kept.agent else None
    head = descriptions.Head(taken.id, kept.reason, kept.at)
    text = documents.signed(ground, descriptions.describe(ground, task, run, kept.seen, head, kept.conversation))
    name = _name(ground, task, kept) if _stage(ground, taken.id, text) else ""
    row = TaskCheckpoint(
        kept.key, task.id, kept.run, taken.id, taken.version, kept.reason, kept.phase, taken.tree, name, kept.at,
    )  # fmt: skip
    changes.keep_checkpoint(tables, row)
    facts = {
        "checkpointId": taken.id,
        "reason": kept.reason,
        "size": len(text) if name else 0,
        "duration_ms": kept.milliseconds,
    }
    tables.log(task.id, ground.now(), "checkpoint_created", facts, kept.run)
    return Noted(taken.id, task.id, task.workspace, name, text)


def publish(ground: Ground, noted: Noted) -> None:
    """Put a document into its workspace. A failure is not fatal: it is tried again when the supervisor starts."""
    if not noted.name:
        return
    newest = queries.newest_document(ground.tables, noted.workspace)
    if documents.put(noted.workspace, noted.name, noted.text, newest in ("", noted.name)):
        with suppress(OSError):
            os.unlink(f"{ground.folder}/{WAITING}/{noted.id}")
    step("checkpoint:written")

    documents.prune(noted.workspace, queries.documents_of(ground.tables, noted.task))


def publish_rest(ground: Ground) -> None:
    """Put documents in their places whose writers were cut off; what was staged for rows that never came is dropped."""
    folder = f"{ground.folder}/{WAITING}"
    for id in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if id.endswith(".new"):
            _sweep(f"{folder}/{id}")
            continue
        row = queries.documented_checkpoint(ground.tables, id)
        with suppress(OSError):
            if row is not None:
                with open(f"{folder}/{id}", "rb") as file:
                    publish(ground, Noted(id, row.task, ground.tables.task(row.task).workspace, row.file, file.read()))
            elif ground.now() - os.stat(f"{folder}/{id}").st_mtime_ns > DAY:
                os.unlink(f"{folder}/{id}")


def _sweep(path: str) -> None:
    """Remove a document that its writer did not finish, if that process is gone; its name tells which one it was."""
    writer = path.rpartition(".new")[0].rpartition(".")[2].partition("-")[0]
    try:
        os.kill(int(writer), 0)
    except (ValueError, ProcessLookupError):
        os.unlink(path)
    except PermissionError:
        pass  # it lives, and is somebody else's


def _stage(ground: Ground, id: str, text: bytes) -> bool:
    folder = f"{ground.folder}/{WAITING}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        folders.replace(f"{folder}/{id}", text)
    except OSError:
        return False
    return True


def _name(ground: Ground, task: Task, kept: Kept) -> str:
    """A name that no other document has; empty if there is no place for one."""
    if folders.own_folder(task.workspace, folders.CHECKPOINTS) is None:
        return ""
    number = 1
    while True:
        name = documents.name(kept.reason, kept.phase, kept.at, number)
        taken = queries.is_document_of_another(ground.tables, name, kept.key)
        if not taken and not documents.is_there(task.workspace, name):
            return name
        number += 1


def _save(
    ground: Ground, task: Task, run: Run | None, reason: str, key: str
) -> tuple[CheckpointRow | None, Conversation | None]:
    """Make the checkpoint; return it and where its conversation lies."""
    with ground.engine() as engine:
        root = os.fsencode(task.workspace)
        located = engine.locate(root)
        if located is None:
            engine.init(root)
            located = engine.locate(root)
        assert located is not None
        engine.repository().workspace(located[1])  # takes over what a killed process had already made durable
        # Saved already, and we were cut off before our own row: the tag tells.
        before = engine.repository().find(Query(workspace=located[1], task=task.id, tag=key, limit=1))
        if before:
            return before[0], _conversation(engine, before[0])
        event = _event(ground, engine, located, task, run.session if run else task.session, reason)
        event.tags = (key,)
        outcome = engine.handle(event)
        made = outcome.checkpoint if outcome.status == CREATED else None
        return (made, _conversation(engine, made)) if made is not None else (None, None)


def _conversation(engine: Engine, row: CheckpointRow) -> Conversation | None:
    return conversation_from_json(engine.repository().document(row)[0].conversation)


def _event(ground: Ground, engine: Engine, located: tuple[bytes, str], task: Task, session: str, reason: str) -> Event:
    """The event as a hook would tell it: conversation, notes and tokens with it, the task's secrets struck out."""
    root, workspace = located
    how = driver(agent_of(ground, task), ground.options)
    transcript = how.transcript(session, ground.variables)
    seen = PendingEvent(reason, ground.now(), session, how.client, os.fsdecode(root), transcript)
    event = event_of(engine, root, engine.place.folder(workspace), seen)
    event.message = head(f"{task.title}: {reason.replace('_', ' ')}", 200)
    event.task, event.created_by, event.pinned = task.id, descriptions.BY.get(reason, "system"), reason in KEPT
    # An agent that ended its turn has said something, a person has decided: the document tells where that leaves the task.
    event.moved_on = reason in ("turn", "user_pause", "cancel")
    if event.notes is not None:
        event.summary = head(task.title.split("\n")[0], MAX_SUMMARY_CHARS)
        event.notes = json.loads(struck_out(json.dumps(event.notes), values(ground, task)))
    return event


def changed_since(ground: Ground, task: Task, tree: str) -> bool:
    """Is the workspace another one than the checkpoint with this tree?"""
    with ground.engine() as engine:
        root, row = engine.root(os.fsencode(task.workspace))
        newest = engine.repository().find(Query(workspace=row.id, limit=1))
        if not newest or newest[0].tree != tree:
            return True
        return bool(pending(engine, root, row)[0])


def lineage(ground: Ground, task: str) -> list[Taken]:
    """The checkpoints that led to where a task stands, newest first: none that a restore has gone back behind."""
    return [_taken(row) for row in leading(ground, task)]


def leading(ground: Ground, task: str) -> list[TaskCheckpoint]:
    """The rows of these checkpoints."""
    return list(_leading(queries.newest_checkpoints(ground.tables, task, 500)))


def _leading(rows: list[TaskCheckpoint]) -> Iterator[TaskCheckpoint]:
    most = None
    for row in rows:
        if most is None or row.version <= most:
            yield row
            most = row.version if row.reason == "restored" else most


def _taken(row: TaskCheckpoint) -> Taken:
    return Taken(row.id, row.version, row.tree)


class Base(NamedTuple):
    """What a phase is compared with."""

    row: CheckpointRow | None
    """None: an empty folder."""
    is_exact: bool
    """Is it what the phase began with, and not something older that stands for it?"""


def phase_base(ground: Ground, repository: Repository, task: Task) -> Base | None:
    """What a task's phase is compared with: the end of the phase before, or the task's start; None if it has not begun.

    Where that checkpoint is no longer kept, an older version stands for it, at last an empty folder: a review then shows
    more than the phase changed, and never less.
    """
    began = _end_before(ground, task) or queries.start_checkpoint(ground.tables, task.id)
    if not task.workspace_id or (began is None and not task.started_at):
        return None
    row = row_of(repository, task.workspace_id, _taken(began)) if began is not None else None
    if row is not None and not row.forgotten:
        return Base(row, True)
    version = row.version if row is not None else began.version if began is not None else 0
    # A start that was never kept: whatever is older than the task stands for it.
    older = Query(workspace=task.workspace_id, before=version, created_until=0 if version else task.started_at, limit=1)
    return Base(next(iter(repository.find(older)), None), False)


def _end_before(ground: Ground, task: Task) -> TaskCheckpoint | None:
    """The last time that the phase before this one was complete, on the way to where the task stands."""
    rows = queries.phase_ends(ground.tables, task)
    return next((row for row in _leading(rows) if row.reason == "phase_complete"), None)


def row_of(repository: Repository, workspace: str, taken: Taken) -> CheckpointRow | None:
    """The row of a task's checkpoint; what was rebuilt from documents knows the id alone."""
    if taken.version:
        return repository.checkpoint(workspace, taken.version)
    found = repository.find(Query(workspace=workspace, id_prefix=taken.id, limit=1))
    return found[0] if found else None


def standing(ground: Ground, repository: Repository, workspace: str, task: str) -> list[CheckpointRow]:
    """The rows of these checkpoints that nobody has forgotten, newest first."""
    rows = [row_of(repository, workspace, taken) for taken in lineage(ground, task)]
    return [row for row in rows if row is not None and not row.forgotten]


def is_any_left(ground: Ground, task: Task) -> bool:
    """Is there a checkpoint from which the task could go on? A store that cannot be asked is believed to have one."""
    if latest(ground, task.id) is None:
        return False
    try:
        with ground.engine() as engine:
            _, row = engine.root(os.fsencode(task.workspace))
            return bool(standing(ground, engine.repository(), row.id, task.id))
    except (KeepfastError, OSError):
        return True


def latest(ground: Ground, task: str) -> Taken | None:
    row = queries.highest_checkpoint(ground.tables, task)
    return None if row is None else _taken(row)
