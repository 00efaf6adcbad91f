"""Final checkpoints: a task is done once its last state is saved; until then saving is retried, or a person accepts it."""

from __future__ import annotations

from typing import Any, NamedTuple

from keepfast.runner.actions import checkpoints, metadata
from keepfast.runner.actions.checkpoints import SavedCheckpoint
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.runner.db.tables import Tables
from keepfast.runner.domain.moments import moment
from keepfast.runner.domain.records import Run, Task
from keepfast.runner.domain.task import UNSAVED
from keepfast.runner.process.output import Output

SECOND = 1_000_000_000


def save(
    runtime: Runtime, task: Task, run: Run | None = None, output: Output | None = None, epoch: int = 0
) -> SavedCheckpoint | None:
    """Save the state in which a task ends, once for each epoch; None if that failed."""
    return checkpoints.save(runtime, task, run, "final", _key(task, epoch or task.epoch), output)


def ensure_saved(runtime: Runtime, task: Task) -> None:
    """Save the state of a task that is done, unless that was done before."""
    checkpoints.take(runtime, task, None, "final", _key(task, task.epoch))


def _key(task: Task, epoch: int) -> str:
    return f"{task.id}:final:{epoch}"


def finish(
    runtime: Runtime, task: Task, saved: SavedCheckpoint | None, trigger: str, run: str = "", **columns: Any
) -> None:
    """Finish a task whose work is complete: it is done if its last state was saved, else held. Inside a transaction."""
    tables, now = runtime.tables, runtime.now()
    if saved is not None:
        tables.move(task.id, "finish", now, trigger=trigger, run=run, **{"reason": columns.get("why", ""), **columns})
        return
    columns["why"] = why = f"The work is complete, but its last state could not be saved: {_error(tables, task.id)}"
    tables.move(task.id, "unsaved", now, trigger=trigger, run=run, human=1, **columns, **_next(runtime))
    tables.notify(task.id, now, "unsaved", f"{task.title}: {why}")


def notify_done(tables: Tables, task: Task, now: int) -> None:
    """Notify people that a task is done."""
    tables.notify(task.id, now, "done", f"{task.title} is done.")


def retry(runtime: Runtime, id: str) -> bool:
    """Save the last state of a task that is held because this failed; return whether the task is done now."""
    tables = runtime.tables
    task = tables.task(id)
    saved, staged = save(runtime, task), None
    with tables.write():
        hold = tables.hold(id)
        if hold is None or hold.kind != UNSAVED or tables.task(id).epoch != task.epoch:
            return tables.task(id).state == "done"  # a person acted first
        if saved is not None:
            finish(runtime, task, saved, "saved", reason="")
            staged = checkpoints.record(runtime, saved)
            notify_done(tables, task, runtime.now())
        else:
            tables.change_hold(hold.id, **_next(runtime))
    if staged is not None:
        checkpoints.publish(runtime, staged)
    metadata.project(runtime, id)
    return saved is not None


class FailedFinalSave(NamedTuple):
    """The last attempt to save a task, which failed; its fields are keys in JSON."""

    reason: str
    error: str
    since: str


def last_failure(tables: Tables, id: str) -> FailedFinalSave | None:
    """Return the last attempt to save a task if it failed; None if it succeeded, or there was none."""
    events = queries.newest_events(tables, id, 1, "checkpoint_created", "checkpoint_failed")
    if not events or events[0].type != "checkpoint_failed":
        return None
    facts = events[0].read()
    return FailedFinalSave(facts["reason"], facts["error"], moment(events[0].at))


def _error(tables: Tables, id: str) -> str:
    failure = last_failure(tables, id)
    return failure.error if failure is not None else "no checkpoint was made"


def _next(runtime: Runtime) -> dict[str, Any]:
    """Return the columns of a hold for the next attempt: after one interval, by the calendar and by the kernel's clock."""
    wait = int(runtime.options.checkpoint_interval * SECOND)
    return {"due_at": runtime.now() + wait, "due_boot": runtime.since_boot() + wait, "boot": runtime.boot}
