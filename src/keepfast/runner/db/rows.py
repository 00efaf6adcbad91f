"""The schema of the task database, and the conversion between rows and values."""

from __future__ import annotations

import json
from typing import Any

from keepfast.runner.db.database import Row

SCHEMA = 1
MARKED = "marked"
"""The type of a row of `secret` that is not an environment variable: a mark in a text stands for its value."""

TABLES = """
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


JSON = frozenset(("agent", "phases", "budget", "after", "needs", "crashes", "options", "left"))


COLUMNS = {"request": "wanted", "budget_mark": "told", "last_message": "said"}
"""Columns whose names differ from the fields of their records."""
FIELDS = {column: field for field, column in COLUMNS.items()}


def read(row: Row) -> dict[str, Any]:
    """Return the fields of a record from a row; columns with JSON are parsed."""
    return {FIELDS.get(name, name): json.loads(value) if name in JSON else value for name, value in row.items()}


def renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a record by the names of their columns."""
    return {COLUMNS.get(name, name): value for name, value in fields.items()}


def stored(value: Any) -> Any:
    """Return a value as its column stores it: lists and objects as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
