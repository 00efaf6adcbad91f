"""The task database, the authority on unattended tasks; each change is one short durable transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

from keepfast.model.errors import Conflict, NotFound
from keepfast.model.steps import step
from keepfast.runner.db.connection import connect
from keepfast.runner.db.database import Claim, Row
from keepfast.runner.db.rows import SCHEMA, TABLES, read, renamed, stored
from keepfast.runner.domain.moments import moment
from keepfast.runner.domain.records import Hold, Prompt, Run, Task
from keepfast.runner.domain.task import FROZEN, USER_PAUSE, State, move
from keepfast.runner.process.redaction import clean

WORDS = {
    "task": frozenset(("title", "brief", "agent", "phases", "needs", "step", "next_prompt", "reason")),
    "run": frozenset(("prompt", "reason", "left", "said")),
    "prompt": frozenset(("text", "options", "standard", "answer", "output")),
    "hold": frozenset(("reason",)),
    "event": frozenset(("facts",)),
    "notice": frozenset(("text",)),
    "account": frozenset(("reason",)),
}
"""Columns with texts of people, agents and programs: secrets in them are redacted."""
FROZEN_BY = "frozen by a person"
MAX_EVENT_NUMBER = 1 << 52
"""Maximum number from which events are continued, whatever a folder says: numbers must fit JSON and not run out."""


class Overtaken(Conflict):
    """The task continued without this run, which may no longer write."""

    kind = "overtaken"


class Tables:
    """The open database. One connection for all threads of a process, one writer at a time."""

    def __init__(self, address: str) -> None:
        self._lock = RLock()
        self._db = connect(address, SCHEMA, TABLES)
        self._depth = 0

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def is_same_file(self) -> bool:
        """Return whether the open file is still the one at its path."""
        return self._db.is_same()

    def claim(self) -> Claim:
        """Claim the database for one supervisor. Raises `Busy` if there is another."""
        return self._db.claim()

    @contextmanager
    def write(self) -> Iterator[Tables]:
        """Run a transaction. A transaction inside another is a part of it."""
        with self._lock:
            if self._depth:
                self._depth += 1
                try:
                    yield self
                finally:
                    self._depth -= 1
                return
            self._db.begin()
            self._depth = 1
            try:
                yield self
                step("tables:commit")
                self._db.commit()
                step("tables:committed")
            except BaseException:
                self._db.rollback()
                raise
            finally:
                self._depth = 0

    def all(self, sql: str, *values: Any) -> list[Row]:
        with self._lock:
            return self._db.rows(sql, values)

    def one(self, sql: str, *values: Any) -> Row | None:
        rows = self.all(sql, *values)
        return rows[0] if rows else None

    def do(self, sql: str, *values: Any) -> int:
        """Change rows, inside `write`; return how many."""
        assert self._depth, "changes belong into a transaction"
        return self._db.change(sql, values)

    # Rows

    def task(self, id: str) -> Task:
        row = self.one("SELECT * FROM task WHERE id = ?", id)
        if row is None:
            raise NotFound(f"There is no task {id!r}.", "Run `keepfast task list` to see all tasks.")
        return Task(**read(row))

    def tasks(self, where: str = "TRUE", *values: Any) -> list[Task]:
        rows = self.all(f"SELECT * FROM task WHERE {where} ORDER BY created_at, id", *values)
        return [Task(**read(row)) for row in rows]

    def hold(self, task: str) -> Hold | None:
        row = self.one("SELECT * FROM hold WHERE task = ? AND lifted_at IS NULL", task)
        return None if row is None else Hold(**read(row))

    def holds(self) -> list[Hold]:
        return [Hold(**read(row)) for row in self.all("SELECT * FROM hold WHERE lifted_at IS NULL ORDER BY id")]

    def all_holds(self, task: Task) -> list[Hold]:
        """Return all past and present holds of a task, oldest first, freezes included."""
        rows = [Hold(**read(row)) for row in self.all("SELECT * FROM hold WHERE task = ? ORDER BY since, id", task.id)]
        current = self.shown_hold(task)
        return rows if current is None or current in rows else [*rows, current]

    def state(self, task: Task) -> State:
        hold = self.hold(task.id)
        return State(task.state, hold.kind if hold else "")

    def shown_hold(self, task: Task) -> Hold | None:
        """Return the hold that people see: a frozen task counts as paused by a person, although its run has not ended."""
        hold = self.hold(task.id)
        if hold is not None or task.request != FROZEN:
            return hold
        row = self.one("SELECT MAX(at) AS at FROM event WHERE task = ? AND type = 'wanted'", task.id)
        since = (row["at"] if row is not None else None) or task.updated_at
        return Hold(
            id=0, task=task.id, kind=USER_PAUSE, since=since, due_at=None, due_boot=None, boot="", account="", prompt="",
            reason=FROZEN_BY, human=1, lifted_at=None, lifted_by="",
        )  # fmt: skip

    def shown_state(self, task: Task) -> State:
        hold = self.shown_hold(task)
        return State(task.state, hold.kind if hold else "")

    def run(self, id: str) -> Run:
        row = self.one("SELECT * FROM run WHERE id = ?", id)
        if row is None:
            raise NotFound(f"There is no run {id!r}.")
        return Run(**read(row))

    def runs(self, where: str = "TRUE", *values: Any) -> list[Run]:
        rows = self.all(f"SELECT * FROM run WHERE {where} ORDER BY task, number", *values)
        return [Run(**read(row)) for row in rows]

    def open_run(self, task: str) -> Run | None:
        rows = self.runs("task = ? AND state != 'ended'", task)
        return rows[-1] if rows else None

    def last_run(self, task: str) -> Run | None:
        row = self.one("SELECT * FROM run WHERE task = ? ORDER BY number DESC LIMIT 1", task)
        return None if row is None else Run(**read(row))

    def first_step(self, run: Run) -> str:
        """Return the task's step when a run began; empty if unknown."""
        row = self.one("SELECT facts FROM event WHERE task = ? AND run = ? AND type = 'run_begun'", run.task, run.id)
        return str(json.loads(row["facts"]).get("step") or "") if row is not None else ""

    def prompts(self, where: str = "TRUE", *values: Any) -> list[Prompt]:
        rows = self.all(f"SELECT * FROM prompt WHERE {where} ORDER BY created_at, id", *values)
        return [Prompt(**read(row)) for row in rows]

    # Changes, inside `write`

    def insert(self, table: str, once: bool = False, **columns: Any) -> None:
        """Insert a row; with `once`, only if it does not exist yet."""
        columns = renamed(columns)
        names = ", ".join([f'"{name}"' for name in columns])
        marks = ", ".join("?" * len(columns))
        tail = " ON CONFLICT DO NOTHING" if once else ""
        self.do(f"INSERT INTO {table} ({names}) VALUES ({marks}){tail}", *_written(table, columns))

    def change(self, task: str, now: int, **columns: Any) -> None:
        self._change("task", task, {**columns, "updated_at": now})

    def change_run(self, run: str, **columns: Any) -> None:
        self._change("run", run, columns)

    def change_prompt(self, prompt: str, *, only_waiting: bool = False, **columns: Any) -> int:
        """Change a prompt, with `only_waiting` only if it waits; return how many were changed."""
        where = "status IN ('pending', 'presented')" if only_waiting else "TRUE"
        return self._change("prompt", prompt, columns, where)

    def change_hold(self, hold: int, **columns: Any) -> None:
        self._change("hold", hold, columns)

    def _change(self, table: str, id: str | int, columns: dict[str, Any], where: str = "TRUE") -> int:
        columns = renamed(columns)
        names = ", ".join([f'"{name}" = ?' for name in columns])
        return self.do(f"UPDATE {table} SET {names} WHERE id = ? AND {where}", *_written(table, columns), id)

    def check_epoch(self, run: Run) -> Task:
        """Return the task of a run. Raises `Overtaken` if the task continued without the run."""
        task = self.task(run.task)
        if task.epoch != run.epoch:
            raise Overtaken(f"Run {run.id} was superseded by a newer run.")
        return task

    def move(
        self, task: str, action: str, now: int, *, trigger: str, hold: str = "", run: str = "", **columns: Any
    ) -> State:
        """Carry out an action of the state machine: write the new state and log it. `columns` change the task as well.

        With a hold, `due_at`, `due_boot`, `boot`, `account`, `prompt`, `why` and `human` go to the hold's row.
        """
        row = self.task(task)
        before = self.state(row)
        after = move(before, action, hold)
        hold_columns = {
            name: columns.pop(name)
            for name in ("due_at", "due_boot", "boot", "account", "prompt", "human")
            if name in columns
        }
        why = columns.pop("why", "")
        if before.hold != after.hold or (action == "hold" and hold_columns):
            self.do(
                "UPDATE hold SET lifted_at = ?, lifted_by = ? WHERE task = ? AND lifted_at IS NULL", now, trigger, task
            )
            if after.hold:
                self.insert("hold", task=task, kind=after.hold, since=now, reason=why, **hold_columns)
        if after.state in ("done", "failed", "cancelled") and before.state != after.state:
            columns["ended_at"] = now
            self.do(
                "UPDATE prompt SET status = 'withdrawn' WHERE task = ? AND status IN ('pending', 'presented')", task
            )
        if why and "reason" not in columns:
            columns["reason"] = why
        self.change(task, now, state=after.state, **columns)
        self._log_move(task, now, before, after, trigger, why, hold_columns.get("due_at") or 0, run)
        return after

    def request(self, task: str, what: str, now: int, trigger: str, run: str = "") -> None:
        """Write a person's request to a live run; an empty `what` withdraws it.

        A frozen run holds its task, as in `shown_hold`: that begins and ends like any other hold.
        """
        row = self.task(task)
        before, hold = self.shown_state(row), self.shown_hold(row)
        self.change(task, now, request=what)
        after = self.shown_state(self.task(task))
        if before.hold and not after.hold and hold is not None:
            self.insert(
                "hold", task=task, kind=hold.kind, since=hold.since, reason=hold.reason, human=hold.human, lifted_at=now,
                lifted_by=trigger,
            )  # fmt: skip
        self._log_move(task, now, before, after, trigger, FROZEN_BY if after.hold else "", run=run)

    def _log_move(
        self, task: str, now: int, before: State, after: State, trigger: str, why: str, due_at: int = 0, run: str = ""
    ) -> None:
        if before == after:
            return
        about = {"hold": after.hold, "reason": why}
        if before.hold:
            about["lifted"] = before.hold
        if due_at and after.hold:
            about["until"] = moment(due_at)
        facts = {"from": before.state, "to": after.state, "trigger": trigger, "metadata": about}
        self.log(task, now, "state_transition", facts, run)

    def keep_secret(self, task: str, name: str, sealed: str, type: str, now: int) -> None:
        """Store a sealed value, in place of an earlier one with this name."""
        self.do(
            "INSERT INTO secret VALUES (?, ?, ?, ?, ?) ON CONFLICT (task, name) DO UPDATE SET sealed = excluded.sealed, "
            "type = excluded.type, given_at = excluded.given_at",
            task, name, sealed, type, now,
        )  # fmt: skip

    def log(self, task: str, now: int, type: str, facts: dict[str, Any], run: str = "") -> None:
        self.insert("event", task=task, run=run, at=now, type=type, facts=facts)

    def count_events_on(self, number: int) -> None:
        """Number new events above this: above those that a lost database wrote into a task's folder."""
        if number > 0:
            self._db.count_on("event", "sequence", min(number, MAX_EVENT_NUMBER))

    def warn(self, task: str, now: int, text: str) -> None:
        """Log a warning and notify people of it."""
        self.log(task, now, "warning", {"message": text})
        self.notify(task, now, "warning", text)

    def notify(self, task: str, now: int, kind: str, text: str, prompt: str = "", again: int = 0) -> None:
        """Create a notice; once for the same kind and prompt or moment. `again` numbers reminders."""
        id = f"{task}:{kind}:{prompt or now}" + (f":{again}" if again else "")
        self.insert("notice", once=True, id=id, task=task, at=now, kind=kind, text=text, prompt=prompt)


def _written(table: str, columns: dict[str, Any]) -> list[Any]:
    """Return the values of a row as they are stored, texts redacted."""
    words = WORDS.get(table, frozenset())
    return [stored(clean(value) if name in words else value) for name, value in columns.items()]
