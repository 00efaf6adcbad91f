"""Checkpoints of tasks: through the engine like all others, once for each cause, and never in the way of an agent."""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.errors import HoldfastError
from holdfast.core.model import CREATED, Event
from holdfast.core.steps import step
from holdfast.looking import pending
from holdfast.store.rows import Query
from holdfast.supervisor import documents
from holdfast.supervisor.tables import Run, Task

if TYPE_CHECKING:
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
        taken = _save(ground, task, run, reason, key, output)
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
    name, size = documents.write(ground, task, run, reason, taken.id, output)
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


def _save(ground: Ground, task: Task, run: Run | None, reason: str, key: str, output: Output | None) -> Taken | None:
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
            return Taken(before[0].id, before[0].version, before[0].tree)
        event = Event(
            root,
            ground.now(),
            trigger=reason,
            message=f"{task.title}: {reason.replace('_', ' ')}"[:200],
            session=run.session if run else "",
            task=task.id,
            tags=(key,),
            created_by=BY.get(reason, "system"),
            pinned=reason in KEPT,
        )
        outcome = engine.handle(event)
        if outcome.status != CREATED:
            return None
        row = outcome.checkpoint
        return Taken(row.id, row.version, row.tree)


def changed_since(ground: Ground, task: Task, tree: str) -> bool:
    """Is the workspace another one than the checkpoint with this tree?"""
    with ground.engine() as engine:
        root, row = engine.root(os.fsencode(task.workspace))
        newest = engine.repository().ledger.find(Query(workspace=row.id, limit=1))
        if not newest or newest[0].tree != tree:
            return True
        return bool(pending(engine, root, row)[0])


def latest(ground: Ground, task: str) -> Taken | None:
    row = ground.tables.one(
        "SELECT id, version, tree FROM checkpoint WHERE task = ? ORDER BY version DESC, made_at DESC LIMIT 1", task
    )
    return None if row is None else Taken(row["id"], row["version"], row["tree"])
