"""What the page must remember over a restart: sessions, tickets, the audit trail and the numbered events."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.core.errors import Failed

VIEWER, APPROVER, OPERATOR = "viewer", "approver", "operator"
ROLES = (VIEWER, APPROVER, OPERATOR)
SECOND = 1_000_000_000
DAY, TICKET_LIFE = 86_400 * SECOND, 15 * 60 * SECOND
MOST_EVENTS, MOST_AUDITED = 10_000, 10_000
SEEN_EVERY = 60 * SECOND
"""A session's last use is written this often at most."""

TABLES = (
    "CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS ticket(hash TEXT PRIMARY KEY, role TEXT NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS session(hash TEXT PRIMARY KEY, role TEXT NOT NULL, who TEXT NOT NULL,"
    " created_at INTEGER NOT NULL, seen_at INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS audit(id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, who TEXT NOT NULL,"
    " role TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL, outcome TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS event(sequence INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL,"
    " type TEXT NOT NULL, workspace TEXT NOT NULL, task TEXT NOT NULL, data TEXT NOT NULL)",
)


class Visitor(NamedTuple):
    """Whoever holds a session."""

    role: str
    who: str
    hash: str

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


class Happening(NamedTuple):
    """One event as it was recorded."""

    sequence: int
    at: int
    type: str
    workspace: str
    task: str
    data: dict[str, Any]


class Book:
    """The file `book.db`. Values that let somebody in are kept as hashes only."""

    def __init__(self, folder: str, clock: Callable[[], int], session_days: int = 30) -> None:
        self.clock, self.folder, self.session_days, self._lock = clock, folder, session_days, threading.Lock()
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if os.lstat(folder).st_uid != os.geteuid() or os.path.islink(folder):
                raise Failed(f"{folder} belongs to somebody else.", "Move it away; the page makes a new one.")
            os.chmod(folder, 0o700)
            path = folder + "/book.db"
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self._sql = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
            self._sql.execute("PRAGMA journal_mode=TRUNCATE")
            self._sql.execute("PRAGMA synchronous=FULL")
            for statement in TABLES:
                self._sql.execute(statement)
        except (OSError, sqlite3.Error) as error:
            raise Failed(
                f"{folder} cannot hold the page's own records: {error}.", "Check who may write there."
            ) from None
        self.secret = self.keep("secret", lambda: secrets.token_hex(32))

    def close(self) -> None:
        with self._lock:  # a connection that is closed while another thread uses it takes the process with it
            self._sql.close()

    def keep(self, key: str, make: Callable[[], str]) -> str:
        """The value of that name, made the first time."""
        with self._lock:
            self._sql.execute("INSERT OR IGNORE INTO meta VALUES(?, ?)", (key, make()))
            return str(self._sql.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()[0])

    def put(self, key: str, value: str) -> None:
        with self._lock:
            self._sql.execute(
                "INSERT INTO meta VALUES(?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (key, value)
            )

    # Who may

    def ticket(self, role: str) -> str:
        """A value that can be exchanged once for a session."""
        value = secrets.token_urlsafe(24)
        with self._lock:
            self._sql.execute("DELETE FROM ticket WHERE until < ?", (self.clock(),))
            self._sql.execute("INSERT INTO ticket VALUES(?, ?, ?)", (_hash(value), role, self.clock() + TICKET_LIFE))
        return value

    def exchange(self, ticket: str, who: str) -> str | None:
        """A new session for a ticket, which is used up by that; None if it is none of ours."""
        with self._lock:
            found = self._sql.execute(
                "DELETE FROM ticket WHERE hash = ? AND until >= ? RETURNING role", (_hash(ticket), self.clock())
            ).fetchone()
        return self.enter(found[0], who) if found is not None else None

    def enter(self, role: str, who: str) -> str:
        value, now = secrets.token_urlsafe(32), self.clock()
        with self._lock:
            self._sql.execute("DELETE FROM session WHERE seen_at < ?", (now - self.session_days * DAY,))
            self._sql.execute("INSERT INTO session VALUES(?, ?, ?, ?, ?)", (_hash(value), role, who[:80], now, now))
        return value

    def visitor(self, session: str) -> Visitor | None:
        now, key = self.clock(), _hash(session)
        with self._lock:
            row = self._sql.execute("SELECT role, who, seen_at FROM session WHERE hash = ?", (key,)).fetchone()
            if row is None or row[2] < now - self.session_days * DAY:
                return None
            if row[2] < now - SEEN_EVERY:
                self._sql.execute("UPDATE session SET seen_at = ? WHERE hash = ?", (now, key))
        return Visitor(row[0], row[1], key)

    def leave(self, visitor: Visitor) -> None:
        with self._lock:
            self._sql.execute("DELETE FROM session WHERE hash = ?", (visitor.hash,))

    def token(self, visitor: Visitor) -> str:
        """What the page's own forms carry, so that no other page can send them."""
        return hmac.new(self.secret.encode(), visitor.hash.encode(), hashlib.sha256).hexdigest()

    # What happened

    def audit(self, visitor: Visitor | None, action: str, target: str, outcome: str) -> None:
        who, role = (visitor.who, visitor.role) if visitor is not None else ("?", "")
        with self._lock:
            self._sql.execute(
                "INSERT INTO audit(at, who, role, action, target, outcome) VALUES(?, ?, ?, ?, ?, ?)",
                (self.clock(), who, role, action, target[:500], outcome[:500]),
            )
            self._sql.execute("DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?", (MOST_AUDITED,))

    def audited(self, limit: int) -> list[dict[str, Any]]:
        with self._lock:
            rows = self._sql.execute(
                "SELECT at, who, role, action, target, outcome FROM audit ORDER BY id DESC LIMIT ?", (limit,)
            ).fetchall()
        return [dict(zip(("at", "who", "role", "action", "target", "outcome"), row, strict=True)) for row in rows]

    def record(self, type: str, workspace: str, task: str, data: dict[str, Any]) -> Happening:
        now, text = self.clock(), json.dumps(data, ensure_ascii=False)
        with self._lock:
            number = self._sql.execute(
                "INSERT INTO event(at, type, workspace, task, data) VALUES(?, ?, ?, ?, ?) RETURNING sequence",
                (now, type, workspace, task, text),
            ).fetchone()[0]
            if number % 500 == 0:
                self._sql.execute("DELETE FROM event WHERE sequence <= ?", (number - MOST_EVENTS,))
        return Happening(number, now, type, workspace, task, data)

    def since(self, sequence: int, limit: int = 1_000) -> list[Happening]:
        with self._lock:
            rows = self._sql.execute(
                "SELECT sequence, at, type, workspace, task, data FROM event WHERE sequence > ? ORDER BY sequence LIMIT ?",
                (sequence, limit),
            ).fetchall()
        return [Happening(row[0], row[1], row[2], row[3], row[4], json.loads(row[5])) for row in rows]

    def last(self) -> int:
        with self._lock:
            row = self._sql.execute("SELECT seq FROM sqlite_sequence WHERE name = 'event'").fetchone()
        return int(row[0]) if row is not None else 0


def _hash(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
