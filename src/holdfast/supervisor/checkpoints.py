"""Checkpoints of tasks: through the engine like all others, once for each cause, and never in the way of an agent."""

from __future__ import annotations

import json
import os
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.errors import HoldfastError
from holdfast.core.model import CREATED, Event
from holdfast.core.steps import step
from holdfast.finishing import SUMMARY, event_of
from holdfast.looking import pending
from holdfast.store.conversations import checked
from holdfast.store.rows import Query
from holdfast.supervisor import documents
from holdfast.supervisor.drivers import driver
from holdfast.supervisor.sealing import opened, struck_out
from holdfast.supervisor.tables import Run, Task

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.store.rows import CheckpointRow
    from holdfast.supervisor.ground import Ground
    from holdfast.supervisor.reading import Output

BY = {"interval": "auto", "user_pause": "user", "cancel": "user"}
KEPT = frozenset(("phase_complete", "final"))


class Taken(NamedTuple):
    """A checkpoint of a task."""

    id: str
    version: int
    tree: str


def take(
    ground: Ground, task: Task, run: Run | None, reason: str, key: str, output: Output | None = None
) -> Taken | None:
    """Make a checkpoint for this cause, or find the one that was made; None if there is nothing to keep or it failed.

    A failure is logged and told of; the next interval tries again.
    """
    found = ground.tables.one("SELECT id, version, tree FROM checkpoint WHERE key = ?", key)
    if found is not None:
        return Taken(found["id"], found["version"], found["tree"])
    started = monotonic()
    try:
        taken, kept = _save(ground, task, run, reason, key)
    except (HoldfastError, OSError) as error:
        with ground.tables.write() as tables:
            now = ground.now()
            tables.log(
                task.id, now, "checkpoint_failed", {"reason": reason, "error": str(error)}, run.id if run else ""
            )
        return None
    if taken is None:
        return None
    step("checkpoint:saved")
    now, milliseconds = ground.now(), int((monotonic() - started) * 1000)
    name, size = documents.write(ground, task, run, reason, taken.id, output, kept)
    step("checkpoint:written")
    with ground.tables.write() as tables:
        tables.do(
            "INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            key, task.id, run.id if run else "", taken.id, taken.version, reason, task.phase, taken.tree, name, now,
        )  # fmt: skip
        facts = {"checkpointId": taken.id, "reason": reason, "size": size, "duration_ms": milliseconds}
        tables.log(task.id, now, "checkpoint_created", facts, run.id if run else "")
    order = ground.tables.all("SELECT file FROM checkpoint WHERE task = ? ORDER BY version, made_at", task.id)
    documents.prune(task.workspace, [row["file"] for row in order])
    return taken


def _save(
    ground: Ground, task: Task, run: Run | None, reason: str, key: str
) -> tuple[Taken | None, dict[str, Any] | None]:
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
        before = engine.repository().ledger.find(Query(workspace=located[1], task=task.id, tag=key, limit=1))
        if before:
            return _taken(engine, before[0])
        event = _event(ground, engine, located, task, run.session if run else task.session, reason)
        event.tags = (key,)
        outcome = engine.handle(event)
        return _taken(engine, outcome.checkpoint) if outcome.status == CREATED else (None, None)


def _taken(engine: Engine, row: CheckpointRow) -> tuple[Taken, dict[str, Any] | None]:
    kept = checked(engine.repository().document(row)[0].get("conversation"))
    return Taken(row.id, row.version, row.tree), kept


def _event(ground: Ground, engine: Engine, located: tuple[bytes, str], task: Task, session: str, reason: str) -> Event:
    """The event as a hook would tell it: conversation, notes and tokens with it, the task's secrets struck out."""
    root, workspace = located
    how = driver(task.agent, ground.options)
    told = {
        "session": session, "transcript": how.transcript(session, ground.variables), "model": "", "trigger": reason,
        "agent": how.client, "cwd": os.fsdecode(root), "at": ground.now(),
    }  # fmt: skip
    event = event_of(engine, root, engine.place.folder(workspace), told)
    event.message = f"{task.title}: {reason.replace('_', ' ')}"[:200]
    event.task, event.created_by, event.pinned = task.id, BY.get(reason, "system"), reason in KEPT
    if event.notes is not None:
        event.summary = task.title.split("\n")[0][:SUMMARY]
        event.notes = json.loads(struck_out(json.dumps(event.notes), opened(ground, task).values()))
    return event


def changed_since(ground: Ground, task: Task, tree: str) -> bool:
    """Is the workspace another one than the checkpoint with this tree?"""
    with ground.engine() as engine:
        root, row = engine.root(os.fsencode(task.workspace))
        newest = engine.repository().ledger.find(Query(workspace=row.id, limit=1))
        if not newest or newest[0].tree != tree:
            return True
        return bool(pending(engine, root, row)[0])


def lineage(ground: Ground, task: str) -> list[Taken]:
    """The checkpoints that led to where a task stands, newest first: none that a restore has gone back behind."""
    rows = ground.tables.all(
        "SELECT id, version, tree, reason FROM checkpoint WHERE task = ? ORDER BY made_at DESC, version DESC LIMIT 500",
        task,
    )
    found, most = [], None
    for row in rows:
        if most is None or row["version"] <= most:
            found.append(Taken(row["id"], row["version"], row["tree"]))
            most = row["version"] if row["reason"] == "restored" else most
    return found


def latest(ground: Ground, task: str) -> Taken | None:
    row = ground.tables.one(
        "SELECT id, version, tree FROM checkpoint WHERE task = ? ORDER BY version DESC, made_at DESC LIMIT 1", task
    )
    return None if row is None else Taken(row["id"], row["version"], row["tree"])
