"""The ledger in SQLite: one short durable transaction at a time, writers queued on a kernel lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from keepfast.model.entry import LEFT_OUT, Entry
from keepfast.model.strict_json import loads
from keepfast.store.ledger.sqlite_file import CACHE, SqliteFile
from keepfast.store.ledger.transaction import CHECKPOINT, MANY_PATHS, NODE, WORKSPACE, SqliteTransaction, placeholders
from keepfast.store.rows import LIGHT_TRIGGERS, SAFETY_TRIGGERS, CheckpointRow, Location, PackRow, Query, WorkspaceRow

DIGESTS_PER_QUERY = 500
"""Digests per query."""
ROWS_PER_PAGE = 5000
"""Long readers read this many rows at a time, so that no writer waits for them."""

N = type(None)
KINDS = frozenset("fldxoius")
# Which types a row may have: a flipped bit can turn a number into a text or into nothing.
NODE_TYPES = (bytes, str, int, int, int, int, int, bytes, bytes)
NODES = frozenset([NODE_TYPES])
INTERVALS = frozenset([(int, int, *NODE_TYPES), (int, N, *NODE_TYPES)])
WORKSPACES = frozenset([(str, bytes, int, str, int, bytes, int, bytes, int, str, str)])
CHECKPOINTS = frozenset([(str, int, str, bytes, int, int, *(str,) * 7, *(int,) * 6, str)])
PLACES = frozenset([(bytes, str, int, int, int, int, int)])
PACKS = frozenset([(str, int)])
NUMBERS = frozenset([(int,)])
KEYS = frozenset([(bytes,)])
WANTED = frozenset([(int, bytes, str, bytes)])
TAGS = frozenset([(str, int)])
META = frozenset([(str,)])
TEXTS = frozenset([(str, str)])


make: Any = tuple.__new__
"""Make a named tuple of a row whose types are checked. For many rows, calling the class takes longer than reading them."""


class SqliteLedger:
    """The ledger port on one SQLite file."""

    def __init__(self, path: str, lock: str, *, durable: bool = True, create: bool = False, cache: int = CACHE) -> None:
        self.file = SqliteFile(path, lock, durable=durable, create=create, cache=cache)
        self._keys: dict[str, int] = {}
        """Row keys of workspaces, by id: a cache."""

    def close(self) -> None:
        self.file.close()
        self.forget_keys()

    def vacuum(self) -> None:
        self.file.vacuum()

    # Reading

    def workspace(self, workspace: str) -> WorkspaceRow | None:
        rows = self.file.fetch_typed(WORKSPACES, f"SELECT {WORKSPACE} FROM workspace WHERE id = ?", (workspace,))
        return self._workspace(rows[0]) if rows else None

    def workspaces(self) -> list[WorkspaceRow]:
        rows = self.file.fetch_typed(WORKSPACES, f"SELECT {WORKSPACE} FROM workspace ORDER BY key")
        return [self._workspace(row) for row in rows]

    def checkpoint(self, workspace: str, version: int) -> CheckpointRow | None:
        rows = self.file.fetch_typed(
            CHECKPOINTS,
            f"SELECT ?1, {CHECKPOINT} FROM checkpoint WHERE ws = ?2 AND version = ?3",
            (workspace, self.key(workspace), version),
        )
        return CheckpointRow(*rows[0]) if rows else None

    def count(self, workspace: str) -> int:
        statement = "SELECT count(*) FROM checkpoint WHERE ws = ? AND forgotten = 0"
        return int(self.file.fetch_typed(NUMBERS, statement, (self.key(workspace),))[0][0])

    def find(self, query: Query) -> list[CheckpointRow]:
        where: list[str] = []
        values: list[str | int] = []
        source = "checkpoint c"
        columns = "c." + CHECKPOINT.replace(", ", ", c.")
        if query.workspace:
            where.append("c.ws = ?")
            values.append(self.key(query.workspace))
        for column, value in (("session", query.session), ("task", query.task), ("name", query.name)):
            if value:
                where.append(f"c.{column} = ? AND c.{column} <> ''")
                values.append(value)
        if query.trigger:
            where.append("c.trigger = ?")
            values.append(query.trigger)
        if query.tag:
            source = "tag t JOIN checkpoint c ON c.ws = t.ws AND c.version = t.version"
            where.append("t.tag = ?")
            values.append(query.tag)
            if query.workspace:
                where.append("t.ws = ?")
                values.append(self.key(query.workspace))
        if query.id_prefix:
            where.append("c.id >= ? AND c.id < ?")
            values += [query.id_prefix, query.id_prefix + "\U0010ffff"]
        if query.before:
            where.append("c.version < ?")
            values.append(query.before)
        if query.created_until:
            where.append("c.created_at <= ?")
            values.append(query.created_until)
        if not query.forgotten:
            where.append("c.forgotten = 0")
        if not query.safety:
            where.append(f"c.trigger NOT IN ({placeholders(SAFETY_TRIGGERS)})")
            values += SAFETY_TRIGGERS
        if not query.light:
            where.append(f"c.trigger NOT IN ({placeholders(LIGHT_TRIGGERS)})")
            values += LIGHT_TRIGGERS
        order = ("t.version" if query.tag else "c.version") if query.workspace else "c.seq"
        rows = self.file.fetch_typed(
            CHECKPOINTS,
            f"SELECT (SELECT id FROM workspace WHERE key = c.ws), {columns} FROM {source}"
            f" WHERE {' AND '.join(where) or '1'} ORDER BY {order} DESC LIMIT ?",
            (*values, query.limit or -1),
        )
        return [CheckpointRow(*row) for row in rows]

    def current(self, workspace: str, paths: Sequence[bytes]) -> dict[bytes, Entry]:
        key = self.key(workspace)
        if len(paths) > MANY_PATHS:
            return self._current_many(key, paths)
        result = {}
        for path in paths:
            rows = self._fetch_nodes(
                INTERVALS,
                f"SELECT since, until, {NODE} FROM node WHERE ws = ? AND path = ? ORDER BY since DESC LIMIT 1",
                (key, path),
            )
            if rows and rows[0][1] is None:
                result[path] = Entry(*rows[0][2:])
        return result

    def _current_many(self, key: int, paths: Sequence[bytes]) -> dict[bytes, Entry]:
        """Return the same as `current` in few queries; each reads the whole history of its paths."""
        result = {}
        for start in range(0, len(paths), 500):
            part = paths[start : start + 500]
            rows = self._fetch_nodes(
                NODES,
                f"SELECT {NODE} FROM node WHERE ws = ? AND path IN ({placeholders(part)}) AND until IS NULL",
                (key, *part),
            )
            result.update({row[0]: make(Entry, row) for row in rows})
        return result

    def state(self, workspace: str, version: int, below: bytes = b"") -> Iterator[Entry]:
        key, after = self.key(workspace), b""
        limits, values = "", list[bytes]()
        if below:
            limits, values = " AND (path = ? OR (path >= ? AND path < ?))", [below, below + b"/", below + b"0"]
        while True:
            rows = self._fetch_nodes(
                NODES,
                f"SELECT {NODE} FROM node WHERE ws = ? AND path > ? AND since <= ? AND (until IS NULL OR until > ?)"
                f"{limits} ORDER BY path LIMIT {ROWS_PER_PAGE}",
                (key, after, version, version, *values),
            )
            for row in rows:
                yield make(Entry, row)
            if len(rows) < ROWS_PER_PAGE:
                return
            after = self._next_page_start(after, rows[-1][0])

    def sealed(self, workspace: str, least: int) -> list[Entry]:
        # Written as in the index `node_sealed`, which older ledgers may lack.
        rows = self._fetch_nodes(
            NODES,
            f"SELECT {NODE} FROM node WHERE ws = ? AND until IS NULL AND flags & 8 AND size >= ?",
            (self.key(workspace), least),
        )
        return [make(Entry, row) for row in rows]

    def left_out(self, workspace: str, version: int, below: bytes = b"") -> list[Entry]:
        limits, values = "", list[bytes]()
        if below:
            limits, values = " AND (path = ? OR (path >= ? AND path < ?))", [below, below + b"/", below + b"0"]
        rows = self._fetch_nodes(
            NODES,
            f"SELECT {NODE} FROM node WHERE ws = ? AND since <= ? AND (until IS NULL OR until > ?)"
            f" AND kind IN ({placeholders(LEFT_OUT)}){limits} ORDER BY path",
            (self.key(workspace), version, version, *LEFT_OUT, *values),
        )
        return [make(Entry, row) for row in rows]

    def at(self, workspace: str, version: int, path: bytes) -> Entry | None:
        rows = self._fetch_nodes(
            INTERVALS,
            f"SELECT since, until, {NODE} FROM node WHERE ws = ? AND path = ? AND since <= ?"
            " ORDER BY since DESC LIMIT 1",
            (self.key(workspace), path, version),
        )
        if not rows or (rows[0][1] is not None and rows[0][1] <= version):
            return None
        return Entry(*rows[0][2:])

    def history(self, workspace: str, path: bytes) -> list[tuple[int, int | None, Entry]]:
        rows = self._fetch_nodes(
            INTERVALS,
            f"SELECT since, until, {NODE} FROM node WHERE ws = ? AND path = ? ORDER BY since",
            (self.key(workspace), path),
        )
        return [(row[0], row[1], Entry(*row[2:])) for row in rows]

    def intervals(self, workspace: str) -> Iterator[tuple[int, int | None, Entry]]:
        key, path, since = self.key(workspace), b"", 0
        while True:
            rows = self._fetch_nodes(
                INTERVALS,
                f"SELECT since, until, {NODE} FROM node WHERE ws = ? AND (path, since) > (?, ?)"
                f" ORDER BY path, since LIMIT {ROWS_PER_PAGE}",
                (key, path, since),
            )
            for row in rows:
                yield row[0], row[1], Entry(*row[2:])
            if len(rows) < ROWS_PER_PAGE:
                return
            path, since = self._next_page_start((path, since), (rows[-1][2], rows[-1][0]))

    def paths(self, workspace: str, text: bytes, limit: int) -> list[bytes]:
        # Distinct paths, each found from the one before: the cost is the number of paths, not of intervals.
        rows = self.file.fetch(
            "WITH RECURSIVE each(path) AS ("
            " SELECT min(path) FROM node WHERE ws = ?1"
            " UNION ALL SELECT (SELECT min(path) FROM node WHERE ws = ?1 AND path > each.path) FROM each"
            " WHERE each.path IS NOT NULL)"
            " SELECT path FROM each WHERE path IS NOT NULL"
            # Compared as bytes: SQLite's lower() changes ASCII letters only, and leaves invalid UTF-8 alone.
            " AND instr(CAST(lower(CAST(path AS TEXT)) AS BLOB), ?2) LIMIT ?3",
            (self.key(workspace), text.lower(), limit),
        )
        return [row[0] for row in rows]

    def locate(self, digests: Sequence[bytes]) -> dict[bytes, Location]:
        result = {}
        for start in range(0, len(digests), 500):
            part = digests[start : start + 500]
            for row in self.file.fetch_typed(
                PLACES,
                "SELECT b.digest, p.name, b.frame, b.stored, b.offset, b.length, b.kind FROM blob b"
                f" JOIN pack p ON p.key = b.pack WHERE b.digest IN ({','.join('?' * len(part))})",
                part,
            ):
                result[row[0]] = make(Location, row[1:])
        return result

    def existing_digests(self, digests: Sequence[bytes]) -> set[bytes]:
        rows: list[Any] = []
        for start in range(0, len(digests), DIGESTS_PER_QUERY):
            part = list(digests[start : start + DIGESTS_PER_QUERY])
            part += part[-1:] * (
                -len(part) % 100
            )  # few different lengths, so that SQLite's cached statements are reused
            rows += self.file.fetch_typed(
                KEYS,
                "SELECT b.digest FROM blob b JOIN pack p ON p.key = b.pack"
                f" WHERE b.digest IN ({','.join('?' * len(part))})",
                part,
            )
        return {row[0] for row in rows}

    def locations(self) -> Iterator[tuple[bytes, Location]]:
        after = b""
        while True:
            rows = self.file.fetch_typed(
                PLACES,
                "SELECT b.digest, ifnull(p.name, ''), b.frame, b.stored, b.offset, b.length, b.kind FROM blob b"
                f" LEFT JOIN pack p ON p.key = b.pack WHERE b.digest > ? ORDER BY b.digest LIMIT {ROWS_PER_PAGE}",
                (after,),
            )
            for row in rows:
                yield row[0], Location(*row[1:])
            if len(rows) < ROWS_PER_PAGE:
                return
            after = self._next_page_start(after, rows[-1][0])

    def packs(self) -> list[PackRow]:
        return [PackRow(*row) for row in self.file.fetch_typed(PACKS, "SELECT name, size FROM pack ORDER BY key")]

    def needed_contents(self) -> set[bytes]:
        result: set[bytes] = set()
        for workspace in self.workspaces():
            for ids in self.attachments(workspace.id).values():
                result.update(ids)
            key, path, since = self.key(workspace.id), b"", 0
            while True:
                rows = self.file.fetch_typed(
                    WANTED,
                    "SELECT since, path, kind, content FROM node WHERE ws = ? AND (path, since) > (?, ?)"
                    f" ORDER BY path, since LIMIT {4 * ROWS_PER_PAGE}",
                    (key, path, since),
                )
                result.update([row[3] for row in rows if row[2] == "f"])
                if len(rows) < 4 * ROWS_PER_PAGE:
                    break
                path, since = self._next_page_start((path, since), (rows[-1][1], rows[-1][0]))
        return result

    def attachments(self, workspace: str) -> dict[int, list[bytes]]:
        beginning = f"kept {workspace} "
        rows = self.file.fetch_typed(
            TEXTS, "SELECT key, value FROM meta WHERE key > ? AND key < ?", (beginning, beginning + ":")
        )
        try:
            return {int(key[len(beginning) :]): list(map(bytes.fromhex, value.split())) for key, value in rows}
        except ValueError:
            raise self.file.explain(sqlite3.DatabaseError("the list of what a version needs is invalid")) from None

    def tags(self, workspace: str) -> list[tuple[str, int]]:
        """Return every tag with each version that has it."""
        return self.file.fetch_typed(TAGS, "SELECT tag, version FROM tag WHERE ws = ?", (self.key(workspace),))

    def meta(self, key: str) -> str | None:
        rows = self.file.fetch_typed(META, "SELECT value FROM meta WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    # Writing

    def transaction(self) -> SqliteTransaction:
        return SqliteTransaction(self)

    def key(self, workspace: str) -> int:
        """Return the number that the tables have for a workspace; -1 if there is none."""
        key = self._keys.get(workspace)
        if key is None:
            rows = self.file.fetch("SELECT key FROM workspace WHERE id = ?", (workspace,))
            key = rows[0][0] if rows else -1
            if rows:
                self._keys[workspace] = key
        return key

    def forget_keys(self) -> None:
        """Forget the numbers of workspaces: after a rollback or a rebuild they may differ."""
        self._keys = {}

    # Checks of what was read

    def _workspace(self, values: Sequence[Any]) -> WorkspaceRow:
        """Return the row if the next save can build on its tree and counts. Raises `Damaged`."""
        row = WorkspaceRow(*values)
        try:
            counts = loads(row.counts)
            if len(row.tree) not in (0, 64) or (row.tree and int(row.tree, 16) < 0) or not isinstance(counts, dict):
                raise ValueError
            if any(type(number) is not int for number in counts.values()):
                raise ValueError
        except ValueError:
            raise self.file.explain(sqlite3.DatabaseError("the numbers of a workspace are invalid")) from None
        return row

    def _fetch_nodes(self, types: frozenset[Any], statement: str, values: Sequence[Any]) -> list[Any]:
        """Fetch rows of `node`, alone or after their interval, and check their kinds. Raises `Damaged`."""
        rows, at = self.file.fetch_typed(types, statement, values), 1 if types is NODES else 3
        if not KINDS.issuperset([row[at] for row in rows]):
            raise self.file.explain(sqlite3.DatabaseError("a row has an unknown kind"))
        return rows

    def _next_page_start(self, before: Any, last: Any) -> Any:
        """Return where the next page begins. Raises `Damaged` if rows are out of order, which could loop forever."""
        if last <= before:
            raise self.file.explain(sqlite3.DatabaseError("its rows are not in order"))
        return last
