"""Restores of tasks: find what is missing, restore a lost conversation from its checkpoint, record success and failure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from keepfast.agents.registry import sessions
from keepfast.app.checkpoint import Engine
from keepfast.app.inspect import pairs_between
from keepfast.model.entry import FILE, LINK
from keepfast.model.errors import KeepfastError
from keepfast.runner.actions import checkpoints, documents, rollback
from keepfast.runner.actions.rollback import RestoredTask
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.runner.db.tables import Tables
from keepfast.runner.domain.records import Run, Task, TaskCheckpoint
from keepfast.runner.domain.task import CRASHED
from keepfast.store.conversations import SavedConversation, conversation_from_json, read_ends
from keepfast.store.rows import CheckpointRow

RESTARTING = "Task could not be restored from checkpoint. Restarting from beginning."
HELD = "Task could not be restored from checkpoint for the second time. It is waiting for you."
INVALID = "Workspace validation failed: none of the files that the task created exist any more"
LOST_SESSION = ("No conversation found", "already in use", "no_conversation")
CUT_OFF = frozenset(("crashed", "limited", "paused", "retry", "budget", "full", "host_restart", "host_lost"))
"""Outcomes of runs that did not end by themselves: the next run resumes from a checkpoint."""
MAX_CHECKPOINTS_SEARCHED = 50
"""Number of newest checkpoints that are searched for a conversation."""
NEWEST = 1 << 20
"""Bytes at the end of a conversation that are searched for its last message."""


class MissingFiles(NamedTuple):
    """Files that a task had created or changed by its newest checkpoint and that are missing now."""

    paths: Sequence[bytes] = ()
    is_all: bool = False
    """Whether everything that it created is missing."""
    unknown: str = ""
    """Why this cannot be checked now; empty if it was."""


def find_missing_files(runtime: Runtime, task: Task) -> MissingFiles:
    """Compare the disk with what the task created according to its checkpoints.

    The checkpoint of a crash may already lack files: then the one before it is compared as well.
    """
    task_checkpoints = checkpoints.lineage_rows(runtime, task.id)
    if len(task_checkpoints) < 2:
        return MissingFiles()
    newest = task_checkpoints[0]
    is_crash = newest.reason == "crash" and newest.run == f"{task.id}:{task.attempt}"
    try:
        with runtime.engine() as engine:
            root, row = engine.workspaces.root(os.fsencode(task.workspace))
            rows = checkpoints.available_rows(runtime, engine.repository(), row.id, task.id)
            if len(rows) < 2:
                return MissingFiles()
            compared = rows[:2] if is_crash and rows[0].id == newest.id else rows[:1]
            pairs = [pair for one in compared for pair in pairs_between(engine.repository(), row.id, rows[-1], one)]
            created = {new.path for _, new in pairs if new is not None and new.kind in (FILE, LINK)}
    except (KeepfastError, OSError) as error:
        is_there = _is_documented_work_there(
            runtime, task, task_checkpoints[: 2 if is_crash else 1], task_checkpoints[-1]
        )
        return MissingFiles() if is_there else MissingFiles(unknown=str(error))
    missing = sorted(path for path in created if not os.path.lexists(root + b"/" + path))
    return MissingFiles(missing, bool(missing) and len(missing) == len(created))


def _is_documented_work_there(
    runtime: Runtime, task: Task, newest: Sequence[TaskCheckpoint], first: TaskCheckpoint
) -> bool:
    """Return, without the store, whether all files in these checkpoints' documents exist, or nothing was created at all."""
    if first.tree and all(one.tree == first.tree for one in newest):
        return True
    try:
        contents = [documents.read(runtime, task.workspace, one.file) for one in newest if one.file]
        names = [str(name) for document in contents for name in document["workspace"]["deliverables"]]
    except (KeepfastError, OSError, KeyError, TypeError):
        return False
    return bool(names) and all(os.path.lexists(f"{task.workspace}/{name}") for name in names)


def is_refused(run: Run | None) -> bool:
    """Return whether the client reported that it does not have the conversation that the run was to resume."""
    return run is not None and bool(run.resume) and any(word in run.reason for word in LOST_SESSION)


def is_cut_short(runtime: Runtime, task: Task, path: str) -> bool:
    """Return whether the client's transcript lacks the end of the conversation in the task's newest checkpoint.

    It is cut short if it is smaller, or lacks the last message; one that cannot be compared counts as whole.
    """
    try:
        with runtime.engine() as engine:
            _, row = engine.workspaces.root(os.fsencode(task.workspace))
            target = _row_with_conversation(runtime, engine, row.id, task)
            if target is None:
                return False
            conversation = conversation_from_json(engine.repository().document(target)[0].conversation)
            assert conversation is not None
            # A session that was restored from a checkpoint has other paths in it, and so another length.
            if conversation.session == task.session and os.path.getsize(path) < conversation.transcript.size:
                return True
            last = _last_message(engine, conversation)
        return bool(last) and not _holds(path, last)
    except (KeepfastError, OSError):
        return False


def _last_message(engine: Engine, conversation: SavedConversation) -> str:
    client = sessions(conversation.agent)
    return (
        client.last_message(read_ends(engine.repository(), conversation.transcript, 0, NEWEST)[1])
        if client is not None
        else ""
    )


def _holds(path: str, id: str) -> bool:
    """Return whether a transcript has the message with this id; one that only names it as its parent does not count."""
    marks = (f'"uuid":"{id}"'.encode(), f'"uuid": "{id}"'.encode())
    with open(path, "rb") as file:
        return any(mark in line for line in file for mark in marks)


def restore_conversation(runtime: Runtime, task: Task) -> RestoredTask | None:
    """Write the conversation of the task's session, from its newest checkpoint, as a new session of the client.

    Return None if no checkpoint has it. Raises `KeepfastError` or `OSError` if it cannot be read or written.
    """
    with runtime.engine() as engine:
        root, row = engine.workspaces.root(os.fsencode(task.workspace))
        target = _row_with_conversation(runtime, engine, row.id, task)
        if target is None:
            return None
        conversation = rollback.read_conversation(runtime, engine, task, target, root)
        return None if conversation is None else rollback.RestoredTask(target, *rollback.write_session(conversation))


def _row_with_conversation(runtime: Runtime, engine: Engine, workspace: str, task: Task) -> CheckpointRow | None:
    """Return the newest checkpoint with the conversation of the task's session."""
    repository = engine.repository()
    for number, reference in enumerate(checkpoints.lineage(runtime, task.id)[:MAX_CHECKPOINTS_SEARCHED]):
        row = checkpoints.row_of(repository, workspace, reference)
        if row is None or row.forgotten:
            continue
        conversation = conversation_from_json(repository.document(row)[0].conversation)
        if conversation is None:
            continue
        if conversation.session == task.session or (number == 0 and _was_restored(runtime, task)):
            return row
    return None


def _was_restored(runtime: Runtime, task: Task) -> bool:
    """Return whether the task's session was restored from its newest checkpoint and has not run since."""
    row = queries.newest_checkpoint(runtime.tables, task.id)
    restored = row is not None and row.reason == "restored"
    return restored and not queries.runs_of_session(runtime.tables, task.id, task.session)


def origin(tables: Tables, task: Task, last: Run | None) -> str:
    """Return the id of the checkpoint from which a task resumes; empty if it resumes from none.

    It does after a run that was cut off, after a pause, and after a rebuild, which restores no runs. After a completed
    turn nothing is restored; a restore by a person was logged when it was made.
    """
    row = queries.newest_checkpoint(tables, task.id)
    if row is None or row.reason == "restored":
        return ""
    if last is None:
        return row.id if task.attempt else ""
    was_paused = row.reason == "user_pause" and row.made_at >= last.ended_at
    return row.id if last.outcome in CUT_OFF or was_paused else ""


def log(
    tables: Tables, task: str, now: int, checkpoint: str | None, *, success: bool, milliseconds: int, messages: int = 0,
    run: str = "",
) -> None:  # fmt: skip
    """Log the event of a restore. Inside a transaction."""
    secrets = len(queries.variables_of(tables, task)) if success else 0
    facts: dict[str, Any] = {
        "checkpointId": checkpoint, "success": success, "duration_ms": milliseconds, "messages_restored": messages,
        "environment_variables": secrets,
    }  # fmt: skip
    tables.log(task, now, "checkpoint_restored", facts, run)


def record_failure(tables: Tables, task: Task, now: int, milliseconds: int, reason: str) -> bool:
    """Record that a conversation cannot be restored: a fresh session begins with a warning; the second time a person decides.

    The session stays the task's: after a person has fixed the cause, `task resume` restores it.
    Inside a transaction; returns whether the task may continue.
    """
    restores = task.restores + 1
    tables.change(task.id, now, session="" if restores == 1 else task.session, restores=restores)
    log(tables, task.id, now, None, success=False, milliseconds=milliseconds)
    tables.warn(task.id, now, RESTARTING if restores == 1 else HELD)
    if restores == 1:
        return True
    why = f"The session could not be restored for the second time: {reason}"
    tables.move(task.id, "hold", now, trigger="restore", hold=CRASHED, why=why, human=1)
    return False
