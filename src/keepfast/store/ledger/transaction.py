"""Write to the ledger: its tables, and one transaction under the store's lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterable, Sequence
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING

from keepfast.fsutil.durable import Lock
from keepfast.model.entry import Entry
from keepfast.model.errors import Damaged, KeepfastError
from keepfast.model.steps import step
from keepfast.store.rows import CheckpointRow, Location, WorkspaceRow

if TYPE_CHECKING:
    from keepfast.store.ledger.sqlite import SqliteLedger

SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE workspace(
  key INTEGER PRIMARY KEY, id TEXT UNIQUE, path BLOB, created_at INT, parent TEXT, version INT, document BLOB,
  log_size INT, log_head BLOB, keyframe INT, tree TEXT, counts TEXT);
CREATE TABLE checkpoint(
  ws INT, version INT, id TEXT, document BLOB, seq INT, created_at INT, trigger TEXT, created_by TEXT, message TEXT,
  name TEXT, tags TEXT, session TEXT, task TEXT, pinned INT, forgotten INT, changed INT, files INT, bytes INT,
  added INT, tree TEXT, PRIMARY KEY(ws, version)) WITHOUT ROWID;
CREATE UNIQUE INDEX checkpoint_id ON checkpoint(id);
CREATE INDEX checkpoint_session ON checkpoint(ws, session, version) WHERE session <> '';
CREATE INDEX checkpoint_task ON checkpoint(ws, task, version) WHERE task <> '';
CREATE INDEX checkpoint_trigger ON checkpoint(ws, trigger, version);
CREATE INDEX checkpoint_name ON checkpoint(ws, name, version) WHERE name <> '';
CREATE TABLE tag(ws INT, tag TEXT, version INT, PRIMARY KEY(ws, tag, version)) WITHOUT ROWID;
CREATE TABLE node(
  ws INT, path BLOB, since INT, until INT, kind TEXT, mode INT, flags INT, size INT, mtime INT, grp INT, content BLOB,
  extra BLOB, PRIMARY KEY(ws, path, since)) WITHOUT ROWID;
CREATE INDEX node_until ON node(ws, until) WHERE until IS NOT NULL;
CREATE TABLE pack(key INTEGER PRIMARY KEY, name TEXT UNIQUE, size INT);
CREATE TABLE blob(
  digest BLOB PRIMARY KEY, pack INT, frame INT, stored INT, offset INT, length INT, kind INT) WITHOUT ROWID;
"""
SEALED_INDEX = "CREATE INDEX IF NOT EXISTS node_sealed ON node(ws, size) WHERE until IS NULL AND flags & 8"
"""Ledgers of older releases get this index at the next compaction. Without it, results are the same but slower."""

MANY_PATHS = 50
ROWS_PER_STATEMENT = 16
"""Rows per INSERT; more make it no faster."""
NODE = "path, kind, mode, flags, size, mtime, grp, content, extra"
WORKSPACE = "id, path, created_at, parent, version, document, log_size, log_head, keyframe, tree, counts"
CHECKPOINT = (
    "version, id, document, seq, created_at, trigger, created_by, message, name, tags, session, task, pinned, forgotten,"
    " changed, files, bytes, added, tree"
)


class SqliteTransaction:
    """The store's lock and one `BEGIN IMMEDIATE … COMMIT`."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self.ledger = ledger
        self.guard = Lock(ledger.file.lock)

    def __enter__(self) -> SqliteTransaction:
        ledger = self.ledger
        self.guard.__enter__()
        try:
            if ledger.file.connection is not None and ledger.file.current_inode() != ledger.file.inode:
                ledger.close()  # a rebuild has replaced the ledger file
            ledger.file.fetch("BEGIN IMMEDIATE")
        except BaseException:
            self.guard.__exit__(None, None, None)
            raise
        step("ledger:begun")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ledger = self.ledger
        try:
            if kind is None:
                try:
                    ledger.file.fetch("COMMIT")
                except KeepfastError:
                    self._roll_back()
                    raise
                step("ledger:committed")
            else:
                self._roll_back()
        finally:
            self.guard.__exit__(None, None, None)

    def _roll_back(self) -> None:
        ledger, connection = self.ledger, self.ledger.file.connection
        ledger.forget_keys()
        if connection is not None and connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error:
                ledger.close()  # closing rolls back as well

    def add_workspace(self, row: WorkspaceRow) -> None:
        self.ledger.file.fetch(f"INSERT INTO workspace({WORKSPACE}) VALUES({placeholders(row)})", row)

    def update_workspace(self, row: WorkspaceRow) -> None:
        columns = ", ".join(f"{name} = ?" for name in WORKSPACE.split(", "))
        self.ledger.file.fetch(f"UPDATE workspace SET {columns} WHERE id = ?", (*row, row.id))

    def add_pack(self, name: str, size: int, entries: Iterable[tuple[bytes, Location]]) -> None:
        ledger = self.ledger
        ledger.file.fetch("INSERT OR IGNORE INTO pack(name, size) VALUES(?, ?)", (name, size))
        pack_rows = ledger.file.fetch("SELECT key FROM pack WHERE name = ?", (name,))
        if not pack_rows:  # it was just added, so the table's index is damaged
            raise Damaged("The ledger does not find a row that was just added.", "Run `keepfast rebuild`.")
        key = pack_rows[0][0]
        rows = [(digest, *place[1:]) for digest, place in entries]
        rows.sort()  # in order of the primary key, so that SQLite fills page after page
        self._insert("INSERT OR IGNORE INTO blob", f"(?, {key}, ?, ?, ?, ?, ?)", rows)

    def drop_packs(self, names: Sequence[str], moved: Iterable[tuple[bytes, Location]]) -> None:
        ledger = self.ledger
        keys = {row[1]: row[0] for row in ledger.file.fetch("SELECT key, name FROM pack")}
        rows = [(keys[place.pack], *place[1:], digest) for digest, place in moved]
        ledger.file.execute_many(
            "UPDATE blob SET pack = ?, frame = ?, stored = ?, offset = ?, length = ?, kind = ? WHERE digest = ?", rows
        )
        pack_keys = [keys[name] for name in names if name in keys]
        marks = ",".join("?" * len(pack_keys))
        ledger.file.fetch(f"DELETE FROM blob WHERE pack IN ({marks})", pack_keys)
        ledger.file.fetch(f"DELETE FROM pack WHERE key IN ({marks})", pack_keys)

    def add_checkpoint(self, row: CheckpointRow) -> None:
        ledger, key = self.ledger, self.ledger.key(row.workspace)
        ledger.file.fetch(f"INSERT INTO checkpoint(ws, {CHECKPOINT}) VALUES({placeholders(row)})", (key, *row[1:]))
        self._set_tags(key, row)

    def update_checkpoint(self, row: CheckpointRow) -> None:
        ledger, key = self.ledger, self.ledger.key(row.workspace)
        before = ledger.checkpoint(row.workspace, row.version)
        columns = ", ".join(f"{name} = ?" for name in CHECKPOINT.split(", "))
        ledger.file.fetch(f"UPDATE checkpoint SET {columns} WHERE ws = ? AND version = ?", (*row[1:], key, row.version))
        if before is not None and before.tags != row.tags:
            for tag in before.tags.split("\n"):
                ledger.file.fetch("DELETE FROM tag WHERE ws = ? AND tag = ? AND version = ?", (key, tag, row.version))
            self._set_tags(key, row)

    def apply(
        self,
        workspace: str,
        version: int,
        rows: Iterable[Entry],
        whole: bool = False,
        existing_paths: Container[bytes] | None = None,
    ) -> None:
        ledger, key = self.ledger, self.ledger.key(workspace)
        rows = list(rows)
        if whole:
            ledger.file.fetch("UPDATE node SET until = ? WHERE ws = ? AND until IS NULL", (version, key))
        elif version > 1:
            self._end_intervals(
                key, version, [row.path for row in rows if existing_paths is None or row.path in existing_paths]
            )
        self._insert(
            f"INSERT INTO node(ws, since, {NODE})",
            f"({key}, {version}, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [row for row in rows if row.kind != "-"],
        )

    def _end_intervals(self, key: int, version: int, paths: Sequence[bytes]) -> None:
        """End the open intervals of these paths at this version."""
        ledger = self.ledger
        if len(paths) <= MANY_PATHS:
            ledger.file.execute_many(
                "UPDATE node SET until = ?1 WHERE ws = ?2 AND path = ?3 AND until IS NULL"
                " AND since = (SELECT max(since) FROM node WHERE ws = ?2 AND path = ?3)",
                [(version, key, path) for path in paths],
            )
            return
        # Few statements for many paths; each reads the whole history of its paths.
        for start in range(0, len(paths), 500):
            part = paths[start : start + 500]
            ledger.file.fetch(
                f"UPDATE node SET until = ? WHERE ws = ? AND path IN ({placeholders(part)}) AND until IS NULL",
                (version, key, *part),
            )

    def drop_intervals(self, workspace: str, after: int, upto: int) -> int:
        ledger, key = self.ledger, self.ledger.key(workspace)
        which = "ws = ? AND until IS NOT NULL AND until > ? AND until <= ? AND since > ?"
        values = (key, after, upto, after)
        # total() instead of sum(): a crafted size must not overflow it.
        size = ledger.file.fetch(f"SELECT total(size) FROM node WHERE kind = 'f' AND {which}", values)[0][0]
        ledger.file.fetch(f"DELETE FROM node WHERE {which}", values)
        return int(size)

    def drop_workspace(self, workspace: str) -> None:
        ledger = self.ledger
        key = ledger.key(workspace)
        for table in ("node", "tag", "checkpoint"):
            ledger.file.fetch(f"DELETE FROM {table} WHERE ws = ?", (key,))
        ledger.file.fetch("DELETE FROM workspace WHERE key = ?", (key,))
        beginning = f"kept {workspace} "
        ledger.file.fetch("DELETE FROM meta WHERE key > ? AND key < ?", (beginning, beginning + ":"))
        ledger.file.fetch("DELETE FROM meta WHERE key = ?", (f"base {workspace}",))
        ledger._keys.pop(workspace, None)

    def set_meta(self, key: str, value: str) -> None:
        self.ledger.file.fetch("INSERT OR REPLACE INTO meta VALUES(?, ?)", (key, value))

    def set_attachments(self, workspace: str, version: int, ids: Sequence[bytes]) -> None:
        key = f"kept {workspace} {version}"
        if ids:
            self.set_meta(key, " ".join([digest.hex() for digest in ids]))
        else:
            self.ledger.file.fetch("DELETE FROM meta WHERE key = ?", (key,))

    def _insert(self, into: str, values: str, rows: Sequence[Sequence[object]]) -> None:
        """Insert rows, several per statement: running a statement costs about as much as one row."""
        whole = len(rows) - len(rows) % ROWS_PER_STATEMENT
        if whole:
            groups = (
                tuple(chain.from_iterable(rows[at : at + ROWS_PER_STATEMENT]))
                for at in range(0, whole, ROWS_PER_STATEMENT)
            )
            self.ledger.file.execute_many(f"{into} VALUES {','.join([values] * ROWS_PER_STATEMENT)}", groups)
        self.ledger.file.execute_many(f"{into} VALUES {values}", rows[whole:])

    def _set_tags(self, key: int, row: CheckpointRow) -> None:
        for tag in row.tags.split("\n") if row.tags else ():
            self.ledger.file.fetch("INSERT OR IGNORE INTO tag VALUES(?, ?, ?)", (key, tag, row.version))


def placeholders(row: Sequence[object]) -> str:
    return ",".join("?" * len(row))
