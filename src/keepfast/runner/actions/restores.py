"""Restores of tasks: a lost conversation from its sealed checkpoint, the event of each restore, and what follows a failed one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from keepfast.agents.registry import sessions
from keepfast.app.inspect import pairs_between
from keepfast.model.entry import FILE, LINK
from keepfast.model.errors import KeepfastError
from keepfast.runner.actions import checkpoints, documents, rollback
from keepfast.runner.db import queries
from keepfast.runner.domain.task import CRASHED
from keepfast.store.conversations import Conversation, conversation_from_json, read_ends

if TYPE_CHECKING:
    from keepfast.app.checkpoint import Engine
    from keepfast.runner.actions.rollback import Restored
    from keepfast.runner.actions.runtime import Runtime
    from keepfast.runner.db.tables import Tables
    from keepfast.runner.domain.records import Run, Task, TaskCheckpoint
    from keepfast.store.rows import CheckpointRow

RESTARTING = "Task could not be restored from checkpoint. Restarting from beginning."
HELD = "Task could not be restored from checkpoint for the second time. It is waiting for you."
INVALID = "Workspace validation failed: none of the files that the task created exist any more"
LOST_SESSION = ("No conversation found", "already in use", "no_conversation")
CUT_OFF = frozenset(("crashed", "limited", "paused", "retry", "budget", "full", "host_restart", "host_lost"))
"""Outcomes of runs that did not come to their end by themselves: the run after one of them goes on from its checkpoint."""
MOST = 50
"""Checkpoints that are looked at for a conversation, the newest first."""
NEWEST = 1 << 20
"""Bytes at the end of a conversation in which its last message is looked for."""


class MissingFiles(NamedTuple):
    """What a task had made or changed by its newest checkpoint, and is not on the disk now."""

    paths: Sequence[bytes] = ()
    is_all: bool = False
    """Is nothing left of what it made?"""
    unknown: str = ""
    """Why nobody can tell now; empty if it is known."""


def find_missing_files(runtime: Runtime, task: Task) -> MissingFiles:
    """Compare the disk with what the task's checkpoints say that it made.

    The checkpoint of a crash is taken of what the crash has left: with it, the one before it counts as well.
    """
    task_checkpoints = checkpoints.lineage_rows(runtime, task.id)
    if len(task_checkpoints) < 2:
        return MissingFiles()
    newest = task_checkpoints[0]
    is_crash = newest.reason == "crash" and newest.run == f"{task.id}:{task.attempt}"
    try:
        with runtime.engine() as engine:
            root, row = engine.root(os.fsencode(task.workspace))
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
    """Is, without the store, everything there that the documents of these checkpoints list, or was nothing made at all?"""
    if first.tree and all(one.tree == first.tree for one in newest):
        return True
    try:
        contents = [documents.read(runtime, task.workspace, one.file) for one in newest if one.file]
        names = [str(name) for document in contents for name in document["workspace"]["deliverables"]]
    except (KeepfastError, OSError, KeyError, TypeError):
        return False
    return bool(names) and all(os.path.lexists(f"{task.workspace}/{name}") for name in names)


def is_refused(run: Run | None) -> bool:
    """Did the client say that it does not have the conversation with which the run was to go on?"""
    return run is not None and bool(run.resume) and any(word in run.reason for word in LOST_SESSION)


def is_cut_short(runtime: Runtime, task: Task, path: str) -> bool:
    """Does the client's transcript end before the conversation that the task's newest checkpoint holds?

    It has fewer bytes, or not the last message. One that has grown is whole; so is one that cannot be compared.
    """
    try:
        with runtime.engine() as engine:
            _, row = engine.root(os.fsencode(task.workspace))
            target = _row_with_conversation(runtime, engine, row.id, task)
            if target is None:
                return False
            conversation = conversation_from_json(engine.repository().document(target)[0].conversation)
            assert conversation is not None
            # A session that was made of a checkpoint has other paths in it, and so another length.
            if conversation.session == task.session and os.path.getsize(path) < conversation.transcript.size:
                return True
            last = _last_message(engine, conversation)
        return bool(last) and not _holds(path, last)
    except (KeepfastError, OSError):
        return False


def _last_message(engine: Engine, conversation: Conversation) -> str:
    client = sessions(conversation.agent)
    return (
        client.last_message(read_ends(engine.repository(), conversation.transcript, 0, NEWEST)[1])
        if client is not None
        else ""
    )


def _holds(path: str, id: str) -> bool:
    """Is there a message with this id in a transcript? One that only follows it is not enough."""
    marks = (f'"uuid":"{id}"'.encode(), f'"uuid": "{id}"'.encode())
    with open(path, "rb") as file:
        return any(mark in line for line in file for mark in marks)


def restore_conversation(runtime: Runtime, task: Task) -> Restored | None:
    """Write the conversation of the task's session, as its newest checkpoint holds it, as a new session of the client.

    None if no checkpoint holds it. Raises `KeepfastError` or `OSError` if one does and it cannot be read or written.
    """
    with runtime.engine() as engine:
        root, row = engine.root(os.fsencode(task.workspace))
        target = _row_with_conversation(runtime, engine, row.id, task)
        if target is None:
            return None
        conversation = rollback.read_conversation(runtime, engine, task, target, root)
        return None if conversation is None else rollback.Restored(target, *rollback.write_session(conversation))


def _row_with_conversation(runtime: Runtime, engine: Engine, workspace: str, task: Task) -> CheckpointRow | None:
    """The newest checkpoint with the conversation of the task's session."""
    repository = engine.repository()
    for number, reference in enumerate(checkpoints.lineage(runtime, task.id)[:MOST]):
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
    """Was the task's session made of its newest checkpoint, and has it not begun since?"""
    row = queries.newest_checkpoint(runtime.tables, task.id)
    restored = row is not None and row.reason == "restored"
    return restored and not queries.runs_of_session(runtime.tables, task.id, task.session)


def origin(tables: Tables, task: str, last: Run | None) -> str:
    """The checkpoint from which a task goes on after a run that was cut off; empty if that is no restore.

    A turn that came to its end is followed by another, which restores nothing; what a person restored was told then.
    """
    row = queries.newest_checkpoint(tables, task) if last is not None and last.outcome in CUT_OFF else None
    return row.id if row is not None and row.reason != "restored" else ""


def log(
    tables: Tables, task: str, now: int, checkpoint: str | None, *, success: bool, milliseconds: int, messages: int = 0,
    run: str = "",
) -> None:  # fmt: skip
    """The event of a restore, as the source has it. Inside a transaction."""
    secrets = len(queries.variables_of(tables, task)) if success else 0
    facts: dict[str, Any] = {
        "checkpointId": checkpoint, "success": success, "duration_ms": milliseconds, "messages_restored": messages,
        "environment_variables": secrets,
    }  # fmt: skip
    tables.log(task, now, "checkpoint_restored", facts, run)


def record_failure(tables: Tables, task: Task, now: int, milliseconds: int, reason: str) -> bool:
    """A conversation cannot be restored: a fresh session begins, and people are warned; the second time one of them decides.

    Whoever mends what stood in the way and resumes the task gets it back: it stays the task's session until then.
    Inside a transaction; returns whether the task may go on.
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
