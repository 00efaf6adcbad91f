"""SQLite as the task database."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from typing import Any

from keepfast.model.errors import Busy, Damaged, DiskFull, NewerFormat, Unreachable
from keepfast.runner.db.database import WAIT, Claim, Row, statements

REBUILD = "Move it away and run `keepfast rebuild`: workspaces contain copies of their tasks."


class Alone:
    """The claim on a file: the lock of its folder is enough."""

    def check(self) -> None:
        pass

    def close(self) -> None:
        pass


class Sqlite:
    """A database file: rollback journal, full syncs, one writer at a time."""

    def __init__(self, path: str, version: int, tables: str) -> None:
        self.path = path
        self._sql = _open(path, version, tables)
        self._inode = os.stat(path).st_ino

    def begin(self) -> None:
        self._execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._execute("COMMIT")

    def rollback(self) -> None:
        if self._sql.in_transaction:
            self._sql.execute("ROLLBACK")

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor = self._execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        return int(self._execute(sql, values).rowcount)

    def count_on(self, table: str, column: str, number: int) -> None:
        row = self._execute("SELECT MAX(seq) FROM sqlite_sequence WHERE name = ?", [table]).fetchone()
        if row[0] is None:
            self._execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", [table, number])
        elif row[0] < number:
            self._execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", [number, table])

    def is_same(self) -> bool:
        try:
            return os.stat(self.path).st_ino == self._inode
        except OSError:
            return False

    def claim(self) -> Claim:
        return Alone()

    def close(self) -> None:
        self._sql.close()

    def _execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        try:
            return self._sql.execute(sql, values)
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError):
            raise
        except sqlite3.Error as error:
            raise _named(error, "The task database") from None


def _open(path: str, version: int, tables: str) -> sqlite3.Connection:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    try:
        db = sqlite3.connect(path, timeout=WAIT, isolation_level=None, check_same_thread=False)
        for line in ("journal_mode=TRUNCATE", "synchronous=FULL", "foreign_keys=ON"):
            db.execute(f"PRAGMA {line}")
        os.chmod(path, 0o600)
        current = db.execute("PRAGMA user_version").fetchone()[0]
        if current == 0:
            db.execute("BEGIN IMMEDIATE")
            try:
                if db.execute("PRAGMA user_version").fetchone()[0] == 0:
                    for statement in statements(tables):
                        db.execute(statement.replace("\n)", "\n) STRICT"))
                    db.execute(f"PRAGMA user_version = {version}")
                db.execute("COMMIT")
            except BaseException:
                db.execute("ROLLBACK")
                raise
        elif current > version:
            raise NewerFormat(f"{path} was written by a newer keepfast.")
        return db
    except sqlite3.Error as error:
        raise _named(error, path) from None
    except OSError as error:
        raise Unreachable(f"{path} cannot be opened: {error.strerror}.") from None


def _named(error: sqlite3.Error, what: str) -> Exception:
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Busy(f"{what} is locked by another process.")
    if code.startswith("SQLITE_FULL"):
        return DiskFull(f"{what}: no space left.")
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return Damaged(f"{what} is damaged.", REBUILD)
    return Unreachable(f"{what} cannot be used: {error}.")
