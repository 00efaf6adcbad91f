"""The SQLite file of the ledger: connect, query, create, and turn SQLite's errors into ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from os import O_CLOEXEC, O_CREAT, O_RDONLY, O_RDWR, close, read, stat
from os import open as open_fd
from typing import Any

from keepfast.fsutil.durable import FULL, READ_ONLY, TRY_AGAIN, Lock, holder_of
from keepfast.fsutil.lock_wait import WAITING
from keepfast.model.errors import Busy, Damaged, DiskFull, Failed, KeepfastError, NewerFormat, OutOfMemory, Unreachable
from keepfast.store.ledger.transaction import SCHEMA, SEALED_INDEX

VERSION = 1
ANY_ROW = 32 << 20
"""More bytes than any valid row has."""
PART = 1 << 20
PRIMARY = 0xFF
"""Mask for the primary result code in SQLite's extended ones."""
BACKGROUND_WAIT_SECONDS = 120.0
"""Seconds that work in the background waits for a transaction of another process."""
CHECK_DISK = "Check the disk. If it is sound, run `keepfast rebuild` to rebuild the ledger from packs and logs."


CACHE, SMALL_CACHE = 32 << 10, 4 << 10
"""Kilobytes of pages cached in memory; the small value is for a second connection beside an open one."""


class SqliteFile:
    """One SQLite file. `lock` is the store's lock file; writers queue there, not in SQLite."""

    def __init__(self, path: str, lock: str, *, durable: bool = True, create: bool = False, cache: int = CACHE) -> None:
        self.path = path
        self.cache = cache
        self.lock = lock
        self.durable = durable
        self.inode = -1
        self.connection: sqlite3.Connection | None = None
        if create:
            self.create_tables()

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def vacuum(self) -> None:
        """Return free pages to the disk if there are many. The caller holds no transaction."""
        with Lock(self.lock):
            self.fetch(SEALED_INDEX)
        free, total = self.fetch("PRAGMA freelist_count")[0][0], self.fetch("PRAGMA page_count")[0][0]
        if free > 256 and free * 4 > total:
            with Lock(self.lock):
                self.fetch("VACUUM")

    def integrity(self) -> str:
        """Run SQLite's integrity check; return "ok", or what is wrong with the pages."""
        return str(self.fetch("PRAGMA integrity_check(1)")[0][0])

    def shape(self) -> tuple[bytes, list[Any]]:
        """Return what is the same in every valid ledger: parts of the file's header, and the definitions of its tables."""
        with open(self.path, "rb") as file:
            head = file.read(100)
        # In order of names, because VACUUM may change their order. Ledgers of older releases lack the index of sealed rows.
        tables = self.fetch(
            "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name <> 'node_sealed' ORDER BY type, name"
        )
        return head[:24] + head[44:48] + head[56:92], tables

    def copy(self, path: str) -> None:
        """Write all of it, page by page, into a new file."""
        try:
            target = sqlite3.connect(path)
            try:
                (self.connection or self._connect()).backup(target)
            finally:
                target.close()
        except (sqlite3.Error, UnicodeError, MemoryError) as error:
            raise self.explain(error) from None

    def fetch(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run one statement and return all its rows.

        What cannot be read is read once more, with a connection of its own: SQLite calls a read error of the disk damage.
        """
        is_writing = self._is_writing()
        try:
            return (self.connection or self._connect()).execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeError, OverflowError, MemoryError) as error:
            if is_writing or not _is_misread(error):
                raise self.explain(error) from None
        self.close()
        try:
            return self._connect().execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeError, OverflowError, MemoryError) as error:
            raise self.explain(error) from None

    def fetch_typed(self, types: frozenset[Any], statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Fetch rows; raise `Damaged` unless each has one of these combinations of types."""
        rows = self.fetch(statement, values)
        if rows and not _are_of(rows, types):
            raise self.explain(sqlite3.DatabaseError("a row has a value of the wrong kind"))
        return rows

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement once for each row of values."""
        try:
            (self.connection or self._connect()).executemany(statement, rows)
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise self.explain(error) from None

    def _writer(self) -> str:
        try:
            fd = open_fd(self.lock, O_RDONLY | O_CLOEXEC)
        except OSError:
            return "another process"
        try:
            return holder_of(fd)
        finally:
            close(fd)

    def _connect(self) -> sqlite3.Connection:
        self.inode = self.current_inode()
        if self.inode < 0:
            raise Damaged(
                f"The ledger {self.path} is missing.", "Run `keepfast rebuild` to rebuild it from packs and logs."
            )
        db = sqlite3.connect(self.path, timeout=_patience(), isolation_level=None, check_same_thread=False)
        try:
            # WAL would die with SIGBUS on a full disk, and NORMAL loses acknowledged rows at power loss.
            mode = db.execute("PRAGMA journal_mode=TRUNCATE").fetchone()[0]
            db.execute(f"PRAGMA synchronous={'FULL' if self.durable else 'OFF'}")
            db.execute(f"PRAGMA cache_size=-{self.cache}")
            version = db.execute("PRAGMA user_version").fetchone()[0]
        except (sqlite3.Error, UnicodeError):
            db.close()
            raise
        if version > VERSION:
            db.close()
            raise NewerFormat(f"The ledger {self.path} has version {version}; this keepfast supports only {VERSION}.")
        if version != VERSION or mode != "truncate":
            db.close()
            raise Damaged(f"{self.path} is not a ledger of keepfast.", "Run `keepfast rebuild`.")
        self.connection = db
        return db

    def create_tables(self) -> None:
        try:
            # SQLite would create it with the default mode, and its journal with the same.
            close(open_fd(self.path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600))
        except OSError as error:
            if error.errno in FULL:
                raise DiskFull(f"The disk is full; the ledger {self.path} was not created.") from None
            # SQLite reports any other error below.
        try:
            db = sqlite3.connect(self.path, timeout=_patience(), isolation_level=None)
            try:
                db.execute("PRAGMA journal_mode=TRUNCATE")
                db.execute(f"PRAGMA synchronous={'FULL' if self.durable else 'OFF'}")
                db.execute("BEGIN IMMEDIATE")
                # A process that was killed here left a file without tables; the next one creates them.
                if not db.execute("PRAGMA user_version").fetchone()[0]:
                    for statement in [*SCHEMA.split(";"), SEALED_INDEX]:
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version={VERSION}")
                db.execute("COMMIT")
            finally:
                db.close()
        except sqlite3.Error as error:
            raise self.explain(error) from None

    def current_inode(self) -> int:
        try:
            return stat(self.path).st_ino
        except FileNotFoundError:
            return -1

    def explain(self, error: Exception) -> KeepfastError:
        text = str(error)
        if isinstance(error, MemoryError) and not _is_memory_left():
            return OutOfMemory(f"There is not enough memory to read the ledger {self.path}.")
        if isinstance(error, UnicodeEncodeError):
            return Failed(f"Invalid Unicode (lone surrogate \\u{ord(error.object[error.start]):04x}).")
        if "locked" in text or "busy" in text:
            return Busy(f"The ledger {self.path} is locked by {self._writer()}.", TRY_AGAIN)
        if "full" in text:
            return DiskFull(f"The disk is full; nothing was changed in the ledger {self.path}.")
        if "readonly" in text or "read-only" in text:
            return Unreachable(f"The ledger {self.path} cannot be written: {text}.", READ_ONLY)
        if "unable to open" in text:
            return Unreachable(f"The ledger {self.path} cannot be opened: {text}.", "Check its permissions.")
        if "I/O error" in text:
            return Failed(f"The ledger {self.path} could not be read or written: {text}.", CHECK_DISK)
        is_read_error = self._is_sound() if self._is_writing() else _is_unreadable(self.path)
        if is_read_error and _is_misread(error):
            return Failed(f"The disk reports a read error in the ledger {self.path}.", CHECK_DISK)
        return Damaged(
            f"The ledger {self.path} is damaged: {text}.",
            "Run `keepfast rebuild` to rebuild it from packs and logs.",
        )

    def _is_sound(self) -> bool:
        """Return whether SQLite can now read the whole file, in the open transaction."""
        assert self.connection is not None
        try:
            return str(self.connection.execute("PRAGMA quick_check(1)").fetchone()[0]) == "ok"
        except sqlite3.Error:
            return False

    def _is_writing(self) -> bool:
        """Return whether a transaction is open: opening and closing the file ourselves would release SQLite's locks on it."""
        return self.connection is not None and self.connection.in_transaction


def _is_misread(error: Exception) -> bool:
    """Return whether SQLite reports corrupt data, no database, or an I/O error."""
    return getattr(error, "sqlite_errorcode", 0) & PRIMARY in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_IOERR,
    )


def _is_unreadable(path: str) -> bool:
    """Return whether reading the file fails somewhere."""
    try:
        fd = open_fd(path, O_RDONLY | O_CLOEXEC)
    except OSError:
        return False  # SQLite's own error says more
    try:
        while read(fd, PART):
            pass
    except OSError:
        return True
    finally:
        close(fd)
    return False


def _is_memory_left() -> bool:
    """Return whether memory can be allocated: if so, a damaged row asked for an impossible amount."""
    try:
        bytearray(ANY_ROW)
    except MemoryError:
        return False
    return True


def _are_of(rows: list[Any], types: frozenset[Any]) -> bool:
    """Return whether every row has one of these combinations of types."""
    if len(rows) > 1:  # column by column: if all rows are alike, there is one combination
        columns = [set(map(type, column)) for column in zip(*rows, strict=True)]
        if all(len(column) == 1 for column in columns):
            return tuple([column.pop() for column in columns]) in types
    return {tuple(map(type, row)) for row in rows} <= types


def _patience() -> float:
    return BACKGROUND_WAIT_SECONDS if WAITING.seconds is None else WAITING.seconds
