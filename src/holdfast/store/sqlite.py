"""The embedded ledger: SQLite, one short durable transaction at a time, writers queued on a kernel lock."""

from __future__ import annotations

from posix import O_CLOEXEC, O_CREAT, O_RDWR, close, stat
from posix import open as open_fd

from holdfast.core.entry import Entry
from holdfast.core.errors import Busy, Damaged, DiskFull, Failed, HoldfastError, NewerFormat, Unreachable
from holdfast.core.light_json import loads
from holdfast.store.light_sqlite import sqlite3
from holdfast.store.local import FULL, Lock
from holdfast.store.rows import CheckpointRow, Location, PackRow, WorkspaceRow
from holdfast.store.writing import CHECKPOINT, NODE, SCHEMA, WORKSPACE, SqliteTransaction, marks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from holdfast.store.rows import Query

VERSION = 1
MANY_PATHS = 50
PAGE = 5000
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
WANTED = frozenset([(int, bytes, str, bytes)])
TAGS = frozenset([(str, int)])
META = frozenset([(str,)])
TEXTS = frozenset([(str, str)])


make: Any = tuple.__new__
"""From a row whose types are known, in its class: of many rows, calling the class takes longer than reading them."""


def _are_of(rows: list[Any], types: frozenset[Any]) -> bool:
    """Has every row one of these combinations of types?"""
    if len(rows) > 1:  # column by column: where all rows are alike, there is one combination
        columns = [set(map(type, column)) for column in zip(*rows, strict=True)]
        if all(len(column) == 1 for column in columns):
            return tuple([column.pop() for column in columns]) in types
    return {tuple(map(type, row)) for row in rows} <= types


class SqliteLedger:
    """The ledger port on one SQLite file. `lock` is the store's lock file; writers queue there, not in SQLite."""

    def __init__(self, path: str, lock: str, *, durable: bool = True, create: bool = False) -> None:
        self.path = path
        self.lock = lock
        self.durable = durable
        self.inode = -1
        self._db: sqlite3.Connection | None = None
        self._keys: dict[str, int] = {}
        if create:
            self._run_script()

    # Reading

    def workspace(self, workspace: str) -> WorkspaceRow | None:
        rows = self._rows(WORKSPACES, f"SELECT {WORKSPACE} FROM workspace WHERE id = ?", (workspace,))
        return self._workspace(rows[0]) if rows else None

    def workspaces(self) -> list[WorkspaceRow]:
        rows = self._rows(WORKSPACES, f"SELECT {WORKSPACE} FROM workspace ORDER BY key")
        return [self._workspace(row) for row in rows]

    def checkpoint(self, workspace: str, version: int) -> CheckpointRow | None:
        rows = self._rows(
            CHECKPOINTS,
            f"SELECT ?1, {CHECKPOINT} FROM checkpoint WHERE ws = ?2 AND version = ?3",
            (workspace, self._key(workspace), version),
        )
        return CheckpointRow(*rows[0]) if rows else None

    def find(self, query: Query) -> list[CheckpointRow]:
        where: list[str] = []
        values: list[str | int] = []
        source = "checkpoint c"
        columns = "c." + CHECKPOINT.replace(", ", ", c.")
        if query.workspace:
            where.append("c.ws = ?")
            values.append(self._key(query.workspace))
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
                values.append(self._key(query.workspace))
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
        order = ("t.version" if query.tag else "c.version") if query.workspace else "c.seq"
        rows = self._rows(
            CHECKPOINTS,
            f"SELECT (SELECT id FROM workspace WHERE key = c.ws), {columns} FROM {source}"
            f" WHERE {' AND '.join(where) or '1'} ORDER BY {order} DESC LIMIT ?",
            (*values, query.limit or -1),
        )
        return [CheckpointRow(*row) for row in rows]

    def current(self, workspace: str, paths: Sequence[bytes]) -> dict[bytes, Entry]:
        key = self._key(workspace)
        if len(paths) > MANY_PATHS:
            return self._current_many(key, paths)
        result = {}
        for path in paths:
            rows = self._nodes(
                INTERVALS,
                f"SELECT since, until, {NODE} FROM node WHERE ws = ? AND path = ? ORDER BY since DESC LIMIT 1",
                (key, path),
            )
            if rows and rows[0][1] is None:
                result[path] = Entry(*rows[0][2:])
        return result

    def _current_many(self, key: int, paths: Sequence[bytes]) -> dict[bytes, Entry]:
        """The same in few questions; each reads the whole history of its paths."""
        result = {}
        for start in range(0, len(paths), 500):
            part = paths[start : start + 500]
            rows = self._nodes(
                NODES,
                f"SELECT {NODE} FROM node WHERE ws = ? AND path IN ({marks(part)}) AND until IS NULL",
                (key, *part),
            )
            result.update({row[0]: make(Entry, row) for row in rows})
        return result

    def state(self, workspace: str, version: int, below: bytes = b"") -> Iterator[Entry]:
        key, after = self._key(workspace), b""
        limits, values = "", list[bytes]()
        if below:
            limits, values = " AND (path = ? OR (path >= ? AND path < ?))", [below, below + b"/", below + b"0"]
        while True:
            rows = self._nodes(
                NODES,
                f"SELECT {NODE} FROM node WHERE ws = ? AND path > ? AND since <= ? AND (until IS NULL OR until > ?)"
                f"{limits} ORDER BY path LIMIT {PAGE}",
                (key, after, version, version, *values),
            )
            for row in rows:
                yield make(Entry, row)
            if len(rows) < PAGE:
                return
            after = self._onward(after, rows[-1][0])

    def at(self, workspace: str, version: int, path: bytes) -> Entry | None:
        rows = self._nodes(
            INTERVALS,
            f"SELECT since, until, {NODE} FROM node WHERE ws = ? AND path = ? AND since <= ?"
            " ORDER BY since DESC LIMIT 1",
            (self._key(workspace), path, version),
        )
        if not rows or (rows[0][1] is not None and rows[0][1] <= version):
            return None
        return Entry(*rows[0][2:])

    def history(self, workspace: str, path: bytes) -> list[tuple[int, int | None, Entry]]:
        rows = self._nodes(
            INTERVALS,
            f"SELECT since, until, {NODE} FROM node WHERE ws = ? AND path = ? ORDER BY since",
            (self._key(workspace), path),
        )
        return [(row[0], row[1], Entry(*row[2:])) for row in rows]

    def intervals(self, workspace: str) -> Iterator[tuple[int, int | None, Entry]]:
        key, path, since = self._key(workspace), b"", 0
        while True:
            rows = self._nodes(
                INTERVALS,
                f"SELECT since, until, {NODE} FROM node WHERE ws = ? AND (path, since) > (?, ?)"
                f" ORDER BY path, since LIMIT {PAGE}",
                (key, path, since),
            )
            for row in rows:
                yield row[0], row[1], Entry(*row[2:])
            if len(rows) < PAGE:
                return
            path, since = self._onward((path, since), (rows[-1][2], rows[-1][0]))

    def paths(self, workspace: str, text: bytes, limit: int) -> list[bytes]:
        # Distinct paths by jumping from one to the next: the cost is the number of paths, not of intervals.
        rows = self._all(
            "WITH RECURSIVE each(path) AS ("
            " SELECT min(path) FROM node WHERE ws = ?1"
            " UNION ALL SELECT (SELECT min(path) FROM node WHERE ws = ?1 AND path > each.path) FROM each"
            " WHERE each.path IS NOT NULL)"
            " SELECT path FROM each WHERE path IS NOT NULL"
            # Compared as bytes: SQLite's lower() changes ASCII letters only, and leaves alone what is not UTF-8.
            " AND instr(CAST(lower(CAST(path AS TEXT)) AS BLOB), ?2) LIMIT ?3",
            (self._key(workspace), text.lower(), limit),
        )
        return [row[0] for row in rows]

    def locate(self, digests: Sequence[bytes]) -> dict[bytes, Location]:
        result = {}
        for start in range(0, len(digests), 500):
            part = digests[start : start + 500]
            for row in self._rows(
                PLACES,
                "SELECT b.digest, p.name, b.frame, b.stored, b.offset, b.length, b.kind FROM blob b"
                f" JOIN pack p ON p.key = b.pack WHERE b.digest IN ({','.join('?' * len(part))})",
                part,
            ):
                result[row[0]] = make(Location, row[1:])
        return result

    def locations(self) -> Iterator[tuple[bytes, Location]]:
        after = b""
        while True:
            rows = self._rows(
                PLACES,
                "SELECT b.digest, ifnull(p.name, ''), b.frame, b.stored, b.offset, b.length, b.kind FROM blob b"
                f" LEFT JOIN pack p ON p.key = b.pack WHERE b.digest > ? ORDER BY b.digest LIMIT {PAGE}",
                (after,),
            )
            for row in rows:
                yield row[0], Location(*row[1:])
            if len(rows) < PAGE:
                return
            after = self._onward(after, rows[-1][0])

    def packs(self) -> list[PackRow]:
        return [PackRow(*row) for row in self._rows(PACKS, "SELECT name, size FROM pack ORDER BY key")]

    def wanted(self) -> set[bytes]:
        result: set[bytes] = set()
        for workspace in self.workspaces():
            for ids in self.kept(workspace.id).values():
                result.update(ids)
            key, path, since = self._key(workspace.id), b"", 0
            while True:
                rows = self._rows(
                    WANTED,
                    "SELECT since, path, kind, content FROM node WHERE ws = ? AND (path, since) > (?, ?)"
                    f" ORDER BY path, since LIMIT {4 * PAGE}",
                    (key, path, since),
                )
                result.update([row[3] for row in rows if row[2] == "f"])
                if len(rows) < 4 * PAGE:
                    break
                path, since = self._onward((path, since), (rows[-1][1], rows[-1][0]))
        return result

    def kept(self, workspace: str) -> dict[int, list[bytes]]:
        beginning = f"kept {workspace} "
        rows = self._rows(TEXTS, "SELECT key, value FROM meta WHERE key > ? AND key < ?", (beginning, beginning + ":"))
        try:
            return {int(key[len(beginning) :]): list(map(bytes.fromhex, value.split())) for key, value in rows}
        except ValueError:
            raise self._explain(sqlite3.DatabaseError("what a version needs makes no sense")) from None

    def tags(self, workspace: str) -> list[tuple[str, int]]:
        """Every tag with each version that has it."""
        return self._rows(TAGS, "SELECT tag, version FROM tag WHERE ws = ?", (self._key(workspace),))

    def meta(self, key: str) -> str | None:
        rows = self._rows(META, "SELECT value FROM meta WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    # Writing

    def transaction(self) -> SqliteTransaction:
        return SqliteTransaction(self)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
            self._keys = {}

    def vacuum(self) -> None:
        """Give free pages back to the disk if there are many. The caller holds no transaction."""
        free, total = self._all("PRAGMA freelist_count")[0][0], self._all("PRAGMA page_count")[0][0]
        if free > 256 and free * 4 > total:
            with Lock(self.lock):
                self._all("VACUUM")

    def integrity(self) -> str:
        """SQLite's own opinion: "ok", or what is wrong with its pages."""
        return str(self._all("PRAGMA integrity_check(1)")[0][0])

    def shape(self) -> tuple[bytes, list[Any]]:
        """What is the same in every ledger of ours: the head of the file, and the definitions of its tables."""
        with open(self.path, "rb") as file:
            head = file.read(100)
        return head[:24] + head[44:48] + head[56:92], self._all("SELECT type, name, tbl_name, sql FROM sqlite_master")

    def copy(self, path: str) -> None:
        """Write all of it, page by page, into a new file."""
        try:
            target = sqlite3.connect(path)
            try:
                (self._db or self._connect()).backup(target)
            finally:
                target.close()
        except (sqlite3.Error, UnicodeError, MemoryError) as error:
            raise self._explain(error) from None

    # Private parts

    def _key(self, workspace: str) -> int:
        key = self._keys.get(workspace)
        if key is None:
            rows = self._all("SELECT key FROM workspace WHERE id = ?", (workspace,))
            key = rows[0][0] if rows else -1
            if rows:
                self._keys[workspace] = key
        return key

    def _all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return (self._db or self._connect()).execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeError, OverflowError, MemoryError) as error:
            raise self._explain(error) from None

    def _rows(self, types: frozenset[Any], statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """The same for rows that must have one of these combinations of types."""
        rows = self._all(statement, values)
        if rows and not _are_of(rows, types):
            raise self._explain(sqlite3.DatabaseError("a row has a value of the wrong kind"))
        return rows

    def _workspace(self, values: Sequence[Any]) -> WorkspaceRow:
        """The row, if its texts are what the next save can build on."""
        row = WorkspaceRow(*values)
        try:
            counts = loads(row.counts)
            if len(row.tree) not in (0, 64) or (row.tree and int(row.tree, 16) < 0) or not isinstance(counts, dict):
                raise ValueError
            if any(type(number) is not int for number in counts.values()):
                raise ValueError
        except ValueError:
            raise self._explain(sqlite3.DatabaseError("the numbers of a workspace make no sense")) from None
        return row

    def _nodes(self, types: frozenset[Any], statement: str, values: Sequence[Any]) -> list[Any]:
        """The same for rows of `node`, alone or after their interval."""
        rows, at = self._rows(types, statement, values), 1 if types is NODES else 3
        if not KINDS.issuperset([row[at] for row in rows]):
            raise self._explain(sqlite3.DatabaseError("a row is of an unknown kind"))
        return rows

    def _onward(self, before: Any, last: Any) -> Any:
        """Where the next page begins; a damaged index must not send us in circles."""
        if last <= before:
            raise self._explain(sqlite3.DatabaseError("its rows are not in order"))
        return last

    def _many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            (self._db or self._connect()).executemany(statement, rows)
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise self._explain(error) from None

    def _connect(self) -> sqlite3.Connection:
        self.inode = self._inode()
        if self.inode < 0:
            raise Damaged(
                f"The ledger {self.path} is missing.", "Run `holdfast rebuild`: it is made again from packs and logs."
            )
        db = sqlite3.connect(self.path, timeout=120, isolation_level=None, check_same_thread=False)
        try:
            # WAL would die with SIGBUS on a full disk, and NORMAL loses acknowledged rows at power loss.
            mode = db.execute("PRAGMA journal_mode=TRUNCATE").fetchone()[0]
            db.execute(f"PRAGMA synchronous={'FULL' if self.durable else 'OFF'}")
            db.execute("PRAGMA cache_size=-32768")
            version = db.execute("PRAGMA user_version").fetchone()[0]
        except (sqlite3.Error, UnicodeError):
            db.close()
            raise
        if version > VERSION:
            db.close()
            raise NewerFormat(f"The ledger {self.path} has version {version}; this holdfast knows {VERSION}.")
        if version != VERSION or mode != "truncate":
            db.close()
            raise Damaged(f"The ledger {self.path} is not one of ours.", "Run `holdfast rebuild`.")
        self._db = db
        return db

    def _run_script(self) -> None:
        try:
            # SQLite would give it the mode of any other file, and its journal the same.
            close(open_fd(self.path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600))
        except OSError as error:
            if error.errno in FULL:
                raise DiskFull(f"The disk is full; the ledger {self.path} was not made.") from None
            # SQLite says the rest better.
        try:
            db = sqlite3.connect(self.path, timeout=120, isolation_level=None)
            try:
                db.execute("PRAGMA journal_mode=TRUNCATE")
                db.execute(f"PRAGMA synchronous={'FULL' if self.durable else 'OFF'}")
                db.execute("BEGIN IMMEDIATE")
                # A process that was killed here leaves a file without tables; whoever comes next makes them.
                if not db.execute("PRAGMA user_version").fetchone()[0]:
                    for statement in SCHEMA.split(";"):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version={VERSION}")
                db.execute("COMMIT")
            finally:
                db.close()
        except sqlite3.Error as error:
            raise self._explain(error) from None

    def _inode(self) -> int:
        try:
            return stat(self.path).st_ino
        except FileNotFoundError:
            return -1

    def _explain(self, error: Exception) -> HoldfastError:
        text = str(error)
        if isinstance(error, UnicodeEncodeError):
            return Failed(f"A text has half a character in it (\\u{ord(error.object[error.start]):04x}).")
        if "locked" in text or "busy" in text:
            return Busy(f"The ledger {self.path} was busy for two minutes.")
        if "full" in text:
            return DiskFull(f"The disk is full; nothing was changed in the ledger {self.path}.")
        if "readonly" in text or "read-only" in text:
            return Unreachable(f"The ledger {self.path} cannot be written: {text}.")
        if "unable to open" in text:
            return Unreachable(f"The ledger {self.path} cannot be opened: {text}.", "Check its permissions.")
        if "I/O error" in text:
            return Failed(f"The ledger {self.path} could not be read or written: {text}.")
        return Damaged(
            f"The ledger {self.path} is damaged: {text}.",
            "Run `holdfast rebuild`: it is made again from packs and logs.",
        )
