"""All queries of the task database, as functions that return records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from keepfast.runner.db.rows import MARKED
from keepfast.runner.db.tables import Tables
from keepfast.runner.domain.questions import REFUSED
from keepfast.runner.domain.records import Account, LoggedEvent, Notification, Prompt, Run, Secret, Task, TaskCheckpoint
from keepfast.runner.domain.task import FROZEN

WAITING = "status IN ('pending', 'presented')"
HELD = "(SELECT task FROM hold WHERE lifted_at IS NULL)"
FREE = "state IN ('queued', 'active') AND archived = 0"
NEWEST = "ORDER BY made_at DESC, version DESC"
HIGHEST = "ORDER BY version DESC, made_at DESC"

# Tasks


def find_task(tables: Tables, id: str) -> Task | None:
    rows = tables.tasks("id = ?", id)
    return rows[0] if rows else None


def current_tasks(tables: Tables) -> list[Task]:
    """Return tasks that are not archived."""
    return tables.tasks("archived = 0")


def unfinished_tasks(tables: Tables) -> list[Task]:
    """Return tasks that are queued or active, held ones too."""
    return tables.tasks(FREE)


def free_tasks(tables: Tables) -> list[Task]:
    """Return tasks that are queued or active and not held."""
    return tables.tasks(f"{FREE} AND id NOT IN {HELD}")


def tasks_since(tables: Tables, since: int) -> list[Task]:
    """Return tasks that changed since then, or are not finished."""
    return tables.tasks("updated_at >= ? OR state IN ('queued', 'active', 'review')", since)


def frozen_tasks(tables: Tables) -> list[Task]:
    return tables.tasks("wanted = ?", FROZEN)


def is_any_task(tables: Tables) -> bool:
    """Return whether there is any task, archived or not."""
    return tables.one("SELECT 1 AS one FROM task LIMIT 1") is not None


def titles(tables: Tables) -> dict[str, str]:
    """Return the titles of all tasks, by their ids."""
    return {row["id"]: row["title"] for row in tables.all("SELECT id, title FROM task")}


class Lane(NamedTuple):
    """The number of tasks in some states, and those of them that changed last."""

    total: int
    newest: list[Task]


def lane(tables: Tables, states: Sequence[str], is_held: bool | None, most: int) -> Lane:
    """Return the tasks in one of these states; with `is_held` True or False, only those that are held, or are not."""
    where = f"archived = 0 AND state IN ({', '.join(['?'] * len(states))})"
    if is_held is not None:
        where += f" AND id {'IN' if is_held else 'NOT IN'} {HELD}"
    row = tables.one(f"SELECT count(*) AS count FROM task WHERE {where}", *states)
    newest = tables.tasks(
        f"id IN (SELECT id FROM task WHERE {where} ORDER BY updated_at DESC LIMIT {int(most)})", *states
    )
    return Lane(row["count"] if row is not None else 0, sorted(newest, key=lambda task: -task.updated_at))


# Holds and runs


def backoffs_since(tables: Tables, task: str, since: int) -> int:
    """Return how often a task backed off since then."""
    row = tables.one(
        "SELECT COUNT(*) AS count FROM hold WHERE task = ? AND kind = 'backoff' AND since > ?", task, since
    )
    return row["count"] if row is not None else 0


def last_lifted_by_person(tables: Tables, task: str) -> int:
    """Return when a person last let a task continue; 0 if nobody has."""
    row = tables.one(
        "SELECT MAX(lifted_at) AS at FROM hold WHERE task = ? AND human = 1 AND lifted_by != 'timeout'", task
    )
    return (row["at"] if row is not None else None) or 0


def open_runs(tables: Tables) -> list[Run]:
    """Return runs that have not ended."""
    return tables.runs("state != 'ended'")


def find_run(tables: Tables, id: str) -> Run | None:
    rows = tables.runs("id = ?", id)
    return rows[0] if rows else None


def runs_of(tables: Tables, task: str) -> list[Run]:
    return tables.runs("task = ?", task)


def runs_before(tables: Tables, run: Run) -> list[Run]:
    return tables.runs("task = ? AND number < ?", run.task, run.number)


def runs_since(tables: Tables, task: str, since: int) -> list[Run]:
    return tables.runs("task = ? AND started_at >= ?", task, since)


def runs_of_session(tables: Tables, task: str, session: str) -> list[Run]:
    return tables.runs("task = ? AND session = ?", task, session)


def counted_runs(tables: Tables, task: Task, since: int) -> list[Run]:
    """Return runs of a task's phase that began since then; not those that a limit or a person ended."""
    return tables.runs(
        "task = ? AND phase = ? AND started_at > ? AND outcome NOT IN ('limited', 'paused')", task.id, task.phase, since
    )


def outcomes(tables: Tables, task: str) -> list[str]:
    """Return how the last runs of a task ended, the newest first."""
    rows = tables.all("SELECT outcome FROM run WHERE task = ? AND state = 'ended' ORDER BY number DESC LIMIT 40", task)
    return [row["outcome"] for row in rows]


# Prompts


def find_prompt(tables: Tables, id: str) -> Prompt | None:
    rows = tables.prompts("id = ?", id)
    return rows[0] if rows else None


def find_waiting_prompt(tables: Tables, id: str) -> Prompt | None:
    rows = tables.prompts(f"id = ? AND {WAITING}", id)
    return rows[0] if rows else None


def prompts_of(tables: Tables, task: str, kind: str = "") -> list[Prompt]:
    """Return the prompts of a task, of one kind or of all."""
    return tables.prompts("task = ? AND kind = ?", task, kind) if kind else tables.prompts("task = ?", task)


def waiting_prompts(tables: Tables) -> list[Prompt]:
    """Return all prompts that wait for a person."""
    return tables.prompts(WAITING)


def waiting_prompts_of(tables: Tables, task: str, *kinds: str) -> list[Prompt]:
    """Return the prompts of a task that wait for a person, of some kinds or of all."""
    some = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
    return tables.prompts(f"task = ?{some} AND {WAITING}", task, *kinds)


def waiting_prompts_with_key(tables: Tables, task: str, kind: str, key: str) -> list[Prompt]:
    return tables.prompts(f"task = ? AND kind = ? AND key = ? AND {WAITING}", task, kind, key)


def waiting_reviews(tables: Tables) -> list[Prompt]:
    return tables.prompts(f"kind = 'approval' AND {WAITING}")


def waiting_choices(tables: Tables) -> list[Prompt]:
    """Return questions with options that nobody has answered."""
    return tables.prompts(f"kind = 'question' AND options != '[]' AND {WAITING}")


def late_prompts(tables: Tables, now: int) -> list[Prompt]:
    """Return questions and optional needs whose time is over."""
    return tables.prompts(
        f"(kind = 'question' OR kind = 'secret' AND required = 0 AND expires_at > 0) AND {WAITING} AND expires_at <= ?",
        now,
    )


def prompts_ahead(tables: Tables, moment: int) -> list[Prompt]:
    """Return waiting prompts that were created after this moment."""
    return tables.prompts(f"{WAITING} AND created_at > ?", moment)


def settled_prompts(tables: Tables, task: str) -> list[Prompt]:
    """Return questions and needs of a task that were answered, or whose time was over."""
    return tables.prompts("task = ? AND status IN ('answered', 'expired') AND kind != 'approval'", task)


def needs_of(tables: Tables, task: str, name: str) -> list[Prompt]:
    """Return the needs of a task with this name."""
    return tables.prompts("task = ? AND kind = 'secret' AND key = ?", task, name)


def met_needs(tables: Tables, task: str) -> list[Prompt]:
    return tables.prompts("task = ? AND kind = 'secret' AND status = 'answered' AND answer != ?", task, REFUSED)


# Checkpoints


def _checkpoints(tables: Tables, rest: str, *values: object) -> list[TaskCheckpoint]:
    return [TaskCheckpoint(**row) for row in tables.all(f"SELECT * FROM checkpoint WHERE {rest}", *values)]


def _checkpoint(tables: Tables, rest: str, *values: object) -> TaskCheckpoint | None:
    rows = _checkpoints(tables, f"{rest} LIMIT 1", *values)
    return rows[0] if rows else None


def checkpoint_of_key(tables: Tables, key: str) -> TaskCheckpoint | None:
    return _checkpoint(tables, "key = ?", key)


def checkpoint_of_id(tables: Tables, task: str, id: str) -> TaskCheckpoint | None:
    return _checkpoint(tables, "task = ? AND id = ?", task, id)


def highest_checkpoint(tables: Tables, task: str) -> TaskCheckpoint | None:
    """Return the checkpoint of a task with the highest version."""
    return _checkpoint(tables, f"task = ? {HIGHEST}", task)


def newest_checkpoint(tables: Tables, task: str) -> TaskCheckpoint | None:
    """Return the checkpoint of a task's current state: the one made last, or the one that it was restored to."""
    return _checkpoint(tables, f"task = ? {NEWEST}", task)


def start_checkpoint(tables: Tables, task: str) -> TaskCheckpoint | None:
    return _checkpoint(tables, "task = ? AND reason = 'start' ORDER BY made_at", task)


def checkpoints_since(tables: Tables, task: str, since: int) -> list[TaskCheckpoint]:
    return _checkpoints(tables, "task = ? AND made_at >= ? ORDER BY made_at, version", task, since)


def newest_checkpoints(tables: Tables, task: str, most: int) -> list[TaskCheckpoint]:
    return _checkpoints(tables, f"task = ? {NEWEST} LIMIT ?", task, most)


def phase_ends(tables: Tables, task: Task) -> list[TaskCheckpoint]:
    """Return the ends of phases before a task's current one, and restores, the newest first."""
    return _checkpoints(
        tables,
        f"task = ? AND (reason = 'restored' OR (reason = 'phase_complete' AND phase < ?)) {NEWEST}",
        task.id, task.phase,
    )  # fmt: skip


def last_saved(tables: Tables, run: str) -> int:
    """Return when a run was saved last; 0 if it was not."""
    row = tables.one("SELECT MAX(made_at) AS at FROM checkpoint WHERE run = ?", run)
    return (row["at"] if row is not None else None) or 0


def documented_checkpoints(tables: Tables, task: str, most: int) -> list[TaskCheckpoint]:
    """Return checkpoints that have a document, the highest versions first."""
    return _checkpoints(tables, f"task = ? AND file != '' {HIGHEST} LIMIT ?", task, most)


def documented_before(tables: Tables, task: str, before: int) -> list[TaskCheckpoint]:
    """Return checkpoints from before this moment that have a document, the newest first."""
    return _checkpoints(tables, f"task = ? AND file != '' AND made_at < ? {NEWEST} LIMIT 10", task, before)


def newest_document(tables: Tables, workspace: str) -> str:
    """Return the name of the newest document in a workspace; empty if there is none."""
    row = _checkpoint(tables, f"file != '' AND task IN (SELECT id FROM task WHERE workspace = ?) {HIGHEST}", workspace)
    return row.file if row is not None else ""


def all_checkpoints(tables: Tables, task: str) -> list[TaskCheckpoint]:
    """Return all checkpoints of a task, the newest first."""
    return _checkpoints(tables, f"task = ? {NEWEST}", task)


def documents_of(tables: Tables, task: str) -> list[str]:
    """Return the names of a task's documents, from old to new; empty for a checkpoint that has none."""
    return [row.file for row in _checkpoints(tables, "task = ? ORDER BY version, made_at", task)]


def documented_checkpoint(tables: Tables, id: str) -> TaskCheckpoint | None:
    """Return the checkpoint with this id, if it has a document."""
    return _checkpoint(tables, "id = ? AND file != '' AND task IN (SELECT id FROM task)", id)


def is_document_of_another(tables: Tables, name: str, key: str) -> bool:
    """Return whether the document of another checkpoint has this name."""
    return _checkpoint(tables, "file = ? AND key != ?", name, key) is not None


# Events


def _events(tables: Tables, rest: str, *values: object) -> list[LoggedEvent]:
    return [LoggedEvent(**row) for row in tables.all(f"SELECT * FROM event WHERE {rest}", *values)]


def last_sequence(tables: Tables) -> int:
    """Return the number of the newest event; 0 without any."""
    row = tables.one("SELECT MAX(sequence) AS last FROM event")
    return int((row["last"] if row is not None else None) or 0)


def events_after(tables: Tables, sequence: int, most: int) -> list[LoggedEvent]:
    """Return events of all tasks in order."""
    return _events(tables, "sequence > ? ORDER BY sequence LIMIT ?", sequence, most)


def events_of(tables: Tables, task: str, after: int, most: int, only: Sequence[str] = ()) -> list[LoggedEvent]:
    """Return events of a task in order, of some types or of all."""
    some = f" AND type IN ({', '.join('?' * len(only))})" if only else ""
    return _events(tables, f"task = ? AND sequence > ?{some} ORDER BY sequence LIMIT ?", task, after, *only, most)


def newest_events(tables: Tables, task: str, most: int, *only: str) -> list[LoggedEvent]:
    """Return the newest events of a task, of some types or of all, newest first."""
    some = f" AND type IN ({', '.join('?' * len(only))})" if only else ""
    return _events(tables, f"task = ?{some} ORDER BY sequence DESC LIMIT ?", task, *only, most)


def events_of_type(tables: Tables, task: str, type: str, since: int = 0) -> list[LoggedEvent]:
    return _events(tables, "task = ? AND type = ? AND at >= ? ORDER BY sequence", task, type, since)


def events_of_run(tables: Tables, run: Run, type: str) -> list[LoggedEvent]:
    return _events(tables, "task = ? AND run = ? AND type = ? ORDER BY sequence", run.task, run.id, type)


def last_event_of_run(tables: Tables, run: Run, type: str) -> LoggedEvent | None:
    rows = _events(tables, "task = ? AND run = ? AND type = ? ORDER BY sequence DESC LIMIT 1", run.task, run.id, type)
    return rows[0] if rows else None


def count_events_of_run(tables: Tables, run: Run, type: str) -> int:
    row = tables.one(
        "SELECT COUNT(*) AS count FROM event WHERE task = ? AND run = ? AND type = ?", run.task, run.id, type
    )
    return row["count"] if row is not None else 0


class Fresh(NamedTuple):
    """A task with new events: the number of the last one, and whether any of them counts."""

    task: str
    last: int
    counts: bool


def fresh_events(tables: Tables, since: int, uncounted: Sequence[str]) -> list[Fresh]:
    """Return the tasks with new events; events of the `uncounted` types do not count."""
    marks = ", ".join("?" * len(uncounted))
    rows = tables.all(
        f"SELECT task, MAX(sequence) AS last, SUM(CASE WHEN type IN ({marks}) THEN 0 ELSE 1 END) AS counting "
        "FROM event WHERE sequence > ? GROUP BY task",
        *uncounted, since,
    )  # fmt: skip
    return [Fresh(row["task"], row["last"], bool(row["counting"])) for row in rows]


# Notices, secrets, accounts


def unsent_notices(tables: Tables, tries: int, most: int) -> list[Notification]:
    """Return notices that are not sent yet, after at most this many failed tries."""
    rows = tables.all("SELECT * FROM notice WHERE sent_at = 0 AND tries <= ? ORDER BY at, id LIMIT ?", tries, most)
    return [Notification(**row) for row in rows]


def secrets_of(tables: Tables, task: str) -> list[Secret]:
    """Return all sealed values of a task."""
    return [Secret(**row) for row in tables.all("SELECT * FROM secret WHERE task = ?", task)]


def variables_of(tables: Tables, task: str) -> list[Secret]:
    """Return the sealed values of a task that its agent gets as environment variables, by name."""
    rows = tables.all("SELECT * FROM secret WHERE task = ? AND type != ? ORDER BY name", task, MARKED)
    return [Secret(**row) for row in rows]


def has_secret(tables: Tables, task: str, name: str) -> bool:
    return tables.one("SELECT 1 AS one FROM secret WHERE task = ? AND name = ?", task, name) is not None


def accounts(tables: Tables) -> list[Account]:
    """Return limits of accounts, ended ones too."""
    return [Account(**row) for row in tables.all("SELECT * FROM account ORDER BY key")]


def account(tables: Tables, key: str) -> Account | None:
    return next((row for row in accounts(tables) if row.key == key), None)
