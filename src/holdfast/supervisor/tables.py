"""The truth about unattended runs: tables in a database of their own, each change one short durable transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any

from holdfast.core.errors import Conflict, NotFound
from holdfast.core.steps import step
from holdfast.supervisor.database import Claim, Row, connect
from holdfast.supervisor.task import State, move

SCHEMA = 1

_TABLES = """
CREATE TABLE task (
  id TEXT PRIMARY KEY, title TEXT NOT NULL, type TEXT NOT NULL, brief TEXT NOT NULL, workspace TEXT NOT NULL,
  workspace_id TEXT NOT NULL DEFAULT '', agent TEXT NOT NULL, phases TEXT NOT NULL, budget TEXT NOT NULL,
  priority TEXT NOT NULL, after TEXT NOT NULL, needs TEXT NOT NULL,
  state TEXT NOT NULL, phase INTEGER NOT NULL DEFAULT 1, attempt INTEGER NOT NULL DEFAULT 0, epoch INTEGER NOT NULL DEFAULT 0,
  reworks INTEGER NOT NULL DEFAULT 0, crashes TEXT NOT NULL DEFAULT '[]', idle INTEGER NOT NULL DEFAULT 0,
  windows INTEGER NOT NULL DEFAULT 0, restores INTEGER NOT NULL DEFAULT 0, wanted TEXT NOT NULL DEFAULT '',
  session TEXT NOT NULL DEFAULT '', tree TEXT NOT NULL DEFAULT '', step TEXT NOT NULL DEFAULT '',
  fraction REAL NOT NULL DEFAULT 0, next_prompt TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '',
  tokens INTEGER NOT NULL DEFAULT 0, money REAL NOT NULL DEFAULT 0, seconds REAL NOT NULL DEFAULT 0,
  told REAL NOT NULL DEFAULT 0, account TEXT NOT NULL DEFAULT '', fork_of TEXT NOT NULL DEFAULT '',
  archived INTEGER NOT NULL DEFAULT 0, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  started_at INTEGER NOT NULL DEFAULT 0, ended_at INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX task_state ON task (state, archived);
CREATE TABLE hold (
  id INTEGER PRIMARY KEY AUTOINCREMENT, task TEXT NOT NULL REFERENCES task, kind TEXT NOT NULL, since INTEGER NOT NULL,
  due_at INTEGER, due_boot INTEGER, boot TEXT NOT NULL DEFAULT '', account TEXT NOT NULL DEFAULT '',
  prompt TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '', human INTEGER NOT NULL DEFAULT 0,
  lifted_at INTEGER, lifted_by TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX hold_open ON hold (task) WHERE lifted_at IS NULL;
CREATE TABLE run (
  id TEXT PRIMARY KEY, task TEXT NOT NULL REFERENCES task, number INTEGER NOT NULL, phase INTEGER NOT NULL,
  epoch INTEGER NOT NULL, state TEXT NOT NULL, session TEXT NOT NULL, resume INTEGER NOT NULL, prompt TEXT NOT NULL,
  folder TEXT NOT NULL, token TEXT NOT NULL, boot TEXT NOT NULL, host TEXT NOT NULL, account TEXT NOT NULL DEFAULT '',
  wanted TEXT NOT NULL DEFAULT '', pid INTEGER NOT NULL DEFAULT 0, "offset" INTEGER NOT NULL DEFAULT 0,
  tokens INTEGER NOT NULL DEFAULT 0, money REAL NOT NULL DEFAULT 0, started_at INTEGER NOT NULL,
  live_at INTEGER NOT NULL DEFAULT 0, ended_at INTEGER NOT NULL DEFAULT 0, exit_code INTEGER, outcome TEXT NOT NULL DEFAULT '',
  reason TEXT NOT NULL DEFAULT '', "left" TEXT NOT NULL DEFAULT '[]', said TEXT NOT NULL DEFAULT ''
);
CREATE INDEX run_task ON run (task, number);
CREATE INDEX run_open ON run (state) WHERE state != 'ended';
CREATE TABLE prompt (
  id TEXT PRIMARY KEY, task TEXT NOT NULL REFERENCES task, run TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
  text TEXT NOT NULL, category TEXT NOT NULL DEFAULT '', options TEXT NOT NULL DEFAULT '[]', standard TEXT NOT NULL DEFAULT '',
  required INTEGER NOT NULL DEFAULT 1, status TEXT NOT NULL, answer TEXT, answered_by TEXT NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL, answered_at INTEGER NOT NULL DEFAULT 0, expires_at INTEGER NOT NULL DEFAULT 0,
  tries INTEGER NOT NULL DEFAULT 0, delivered TEXT NOT NULL DEFAULT '', phase INTEGER NOT NULL DEFAULT 0,
  tree TEXT NOT NULL DEFAULT '', flagged INTEGER NOT NULL DEFAULT 0, output TEXT NOT NULL DEFAULT ''
);
CREATE INDEX prompt_task ON prompt (task, status);
CREATE TABLE checkpoint (
  key TEXT PRIMARY KEY, task TEXT NOT NULL, run TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL,
  reason TEXT NOT NULL, phase INTEGER NOT NULL, tree TEXT NOT NULL, file TEXT NOT NULL, made_at INTEGER NOT NULL
);
CREATE INDEX checkpoint_task ON checkpoint (task, made_at);
CREATE TABLE secret (
  task TEXT NOT NULL, name TEXT NOT NULL, sealed TEXT NOT NULL, type TEXT NOT NULL DEFAULT 'env_variable',
  given_at INTEGER NOT NULL, PRIMARY KEY (task, name)
);
CREATE TABLE account (
  key TEXT PRIMARY KEY, due_at INTEGER NOT NULL, human INTEGER NOT NULL, reason TEXT NOT NULL, since INTEGER NOT NULL
);
CREATE TABLE event (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, task TEXT NOT NULL, run TEXT NOT NULL, at INTEGER NOT NULL,
  type TEXT NOT NULL, facts TEXT NOT NULL
);
CREATE INDEX event_task ON event (task, sequence);
CREATE TABLE notice (
  id TEXT PRIMARY KEY, task TEXT NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL,
  prompt TEXT NOT NULL DEFAULT '', sent_at INTEGER NOT NULL DEFAULT 0, tries INTEGER NOT NULL DEFAULT 0
);
"""


@dataclass(frozen=True)
class Task:
    """A row of `task`; what is JSON in the table is a value here."""

    id: str
    title: str
    type: str
    brief: str
    workspace: str
    workspace_id: str
    agent: dict[str, Any]
    phases: list[dict[str, Any]]
    budget: dict[str, Any]
    priority: str
    after: list[str]
    needs: list[str]
    state: str
    phase: int
    attempt: int
    epoch: int
    reworks: int
    crashes: list[int]
    idle: int
    windows: int
    restores: int
    wanted: str
    session: str
    tree: str
    step: str
    fraction: float
    next_prompt: str
    reason: str
    tokens: int
    money: float
    seconds: float
    told: float
    account: str
    fork_of: str
    archived: int
    created_at: int
    updated_at: int
    started_at: int
    ended_at: int


@dataclass(frozen=True)
class Hold:
    """A row of `hold`."""

    id: int
    task: str
    kind: str
    since: int
    due_at: int | None
    due_boot: int | None
    boot: str
    account: str
    prompt: str
    reason: str
    human: int
    lifted_at: int | None
    lifted_by: str


@dataclass(frozen=True)
class Run:
    """A row of `run`."""

    id: str
    task: str
    number: int
    phase: int
    epoch: int
    state: str
    session: str
    resume: int
    prompt: str
    folder: str
    token: str
    boot: str
    host: str
    account: str
    wanted: str
    pid: int
    offset: int
    tokens: int
    money: float
    started_at: int
    live_at: int
    ended_at: int
    exit_code: int | None
    outcome: str
    reason: str
    left: list[str]
    said: str


@dataclass(frozen=True)
class Prompt:
    """A row of `prompt`: a question, a secret that is needed, or an approval."""

    id: str
    task: str
    run: str
    kind: str
    key: str
    text: str
    category: str
    options: list[str]
    standard: str
    required: int
    status: str
    answer: str | None
    answered_by: str
    created_at: int
    answered_at: int
    expires_at: int
    tries: int
    delivered: str
    phase: int
    tree: str
    flagged: int
    output: str


JSON = frozenset(("agent", "phases", "budget", "after", "needs", "crashes", "options", "left"))


class Overtaken(Conflict):
    """The task went on without this run: what it wanted to write no longer counts."""

    kind = "overtaken"


class Tables:
    """The database, opened. One connection for all threads of a process, one writer at a time."""

    def __init__(self, address: str) -> None:
        self._lock = RLock()
        self._db = connect(address, SCHEMA, _TABLES)
        self._depth = 0

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def is_same_file(self) -> bool:
        """Is the file that we hold open still the one at its path?"""
        return self._db.is_same()

    def claim(self) -> Claim:
        """Be the only supervisor of this database. Raises `Busy` if there is one."""
        return self._db.claim()

    @contextmanager
    def write(self) -> Iterator[Tables]:
        """One transaction; all of it or nothing. A transaction inside another is a part of it."""
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
        found = self.all(sql, *values)
        return found[0] if found else None

    def do(self, sql: str, *values: Any) -> int:
        """Change rows, inside `write`; return how many."""
        assert self._depth, "changes belong into a transaction"
        return self._db.change(sql, values)

    # Rows

    def task(self, id: str) -> Task:
        row = self.one("SELECT * FROM task WHERE id = ?", id)
        if row is None:
            raise NotFound(f"There is no task {id!r}.", "`task list` shows what there is.")
        return Task(**_values(row))

    def tasks(self, where: str = "TRUE", *values: Any) -> list[Task]:
        rows = self.all(f"SELECT * FROM task WHERE {where} ORDER BY created_at, id", *values)
        return [Task(**_values(row)) for row in rows]

    def hold(self, task: str) -> Hold | None:
        row = self.one("SELECT * FROM hold WHERE task = ? AND lifted_at IS NULL", task)
        return None if row is None else Hold(**_values(row))

    def holds(self) -> list[Hold]:
        return [Hold(**_values(row)) for row in self.all("SELECT * FROM hold WHERE lifted_at IS NULL ORDER BY id")]

    def state(self, task: Task) -> State:
        hold = self.hold(task.id)
        return State(task.state, hold.kind if hold else "")

    def run(self, id: str) -> Run:
        row = self.one("SELECT * FROM run WHERE id = ?", id)
        if row is None:
            raise NotFound(f"There is no run {id!r}.")
        return Run(**_values(row))

    def runs(self, where: str = "TRUE", *values: Any) -> list[Run]:
        rows = self.all(f"SELECT * FROM run WHERE {where} ORDER BY task, number", *values)
        return [Run(**_values(row)) for row in rows]

    def open_run(self, task: str) -> Run | None:
        found = self.runs("task = ? AND state != 'ended'", task)
        return found[-1] if found else None

    def last_run(self, task: str) -> Run | None:
        row = self.one("SELECT * FROM run WHERE task = ? ORDER BY number DESC LIMIT 1", task)
        return None if row is None else Run(**_values(row))

    def prompts(self, where: str = "TRUE", *values: Any) -> list[Prompt]:
        rows = self.all(f"SELECT * FROM prompt WHERE {where} ORDER BY created_at, id", *values)
        return [Prompt(**_values(row)) for row in rows]

    # Changes, inside `write`

    def insert(self, table: str, **columns: Any) -> None:
        names = ", ".join([f'"{name}"' for name in columns])
        marks = ", ".join("?" * len(columns))
        self.do(f"INSERT INTO {table} ({names}) VALUES ({marks})", *[_stored(value) for value in columns.values()])

    def change(self, task: str, now: int, **columns: Any) -> None:
        columns["updated_at"] = now
        names = ", ".join([f'"{name}" = ?' for name in columns])
        self.do(f"UPDATE task SET {names} WHERE id = ?", *[_stored(value) for value in columns.values()], task)

    def change_run(self, run: str, **columns: Any) -> None:
        names = ", ".join([f'"{name}" = ?' for name in columns])
        self.do(f"UPDATE run SET {names} WHERE id = ?", *[_stored(value) for value in columns.values()], run)

    def check_epoch(self, run: Run) -> Task:
        """Return the task of a run that still speaks for it. Raises `Overtaken`."""
        task = self.task(run.task)
        if task.epoch != run.epoch:
            raise Overtaken(f"Run {run.id} was overtaken.")
        return task

    def move(
        self, task: str, action: str, now: int, *, trigger: str, hold: str = "", run: str = "", **columns: Any
    ) -> State:
        """Let the state machine decide, write what it says, and log it. `columns` change the task as well.

        With a hold, `due_at`, `due_boot`, `boot`, `account`, `prompt`, `why` and `human` go to the hold's row.
        """
        row = self.task(task)
        before = self.state(row)
        after = move(before, action, hold)
        held = {
            name: columns.pop(name)
            for name in ("due_at", "due_boot", "boot", "account", "prompt", "human")
            if name in columns
        }
        why = columns.pop("why", "")
        if before.hold != after.hold or (action == "hold" and held):
            self.do(
                "UPDATE hold SET lifted_at = ?, lifted_by = ? WHERE task = ? AND lifted_at IS NULL", now, trigger, task
            )
            if after.hold:
                self.insert("hold", task=task, kind=after.hold, since=now, reason=why, **held)
        if after.state in ("done", "failed", "cancelled") and before.state != after.state:
            columns["ended_at"] = now
            self.do(
                "UPDATE prompt SET status = 'withdrawn' WHERE task = ? AND status IN ('pending', 'presented')", task
            )
        if why and "reason" not in columns:
            columns["reason"] = why
        self.change(task, now, state=after.state, **columns)
        if before != after:
            facts = {
                "from": before.state,
                "to": after.state,
                "trigger": trigger,
                "metadata": {"hold": after.hold, "reason": why},
            }
            if before.hold:
                facts["metadata"]["lifted"] = before.hold  # type: ignore[index]
            self.log(task, now, "state_transition", facts, run)
        return after

    def keep_secret(self, task: str, name: str, sealed: str, type: str, now: int) -> None:
        """Keep a sealed value; a new one replaces the old."""
        self.do(
            "INSERT INTO secret VALUES (?, ?, ?, ?, ?) ON CONFLICT (task, name) DO UPDATE SET sealed = excluded.sealed, "
            "type = excluded.type, given_at = excluded.given_at",
            task, name, sealed, type, now,
        )  # fmt: skip

    def log(self, task: str, now: int, type: str, facts: dict[str, Any], run: str = "") -> None:
        self.insert("event", task=task, run=run, at=now, type=type, facts=facts)

    def notify(self, task: str, now: int, kind: str, text: str, prompt: str = "", again: int = 0) -> None:
        """Let people know; once for the same thing at the same moment. `again` counts how often before."""
        id = f"{task}:{kind}:{prompt or now}" + (f":{again}" if again else "")
        self.do(
            "INSERT INTO notice (id, task, at, kind, text, prompt) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            id, task, now, kind, text, prompt,
        )  # fmt: skip


def _values(row: Row) -> dict[str, Any]:
    return {name: json.loads(value) if name in JSON else value for name, value in row.items()}


def _stored(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
