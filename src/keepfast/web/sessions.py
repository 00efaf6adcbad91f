"""The page's database: sessions, tickets, the audit trail and the numbered events."""

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

from keepfast.model.errors import Failed
from keepfast.secrets.redaction import redact

VIEWER, APPROVER, OPERATOR = "viewer", "approver", "operator"
ROLES = (VIEWER, APPROVER, OPERATOR)
SECOND = 1_000_000_000
DAY, TICKET_LIFE = 86_400 * SECOND, 15 * 60 * SECOND
MAX_EVENTS, MAX_AUDITED, MAX_AUDITED_WITHOUT_SESSION = 10_000, 10_000, 1_000
OPENED = "OPEN"
"""The action of the audit trail for opened sealed contents."""
SEEN_EVERY = 60 * SECOND
"""How often the last use of a session is written at most."""

TABLES = (
    "CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS ticket(hash TEXT PRIMARY KEY, role TEXT NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS session(hash TEXT PRIMARY KEY, role TEXT NOT NULL, who TEXT NOT NULL,"
    " created_at INTEGER NOT NULL, seen_at INTEGER NOT NULL, user INTEGER) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS audit(id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, who TEXT NOT NULL,"
    " role TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL, outcome TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS event(sequence INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL,"
    " type TEXT NOT NULL, workspace TEXT NOT NULL, task TEXT NOT NULL, data TEXT NOT NULL)",
)


class Visitor(NamedTuple):
    """The holder of a session."""

    role: str
    who: str
    hash: str
    user: int | None = None
    """The local user who signed in, where known."""

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


class StreamEvent(NamedTuple):
    """A recorded event."""

    sequence: int
    at: int
    type: str
    workspace: str
    task: str
    data: dict[str, Any]


class AuditRow(NamedTuple):
    """A row of the audit trail."""

    at: int
    who: str
    role: str
    action: str
    target: str
    outcome: str


class WebDatabase:
    """The file `book.db`. Sessions and tickets are stored as hashes only."""

    def __init__(self, folder: str, clock: Callable[[], int], session_days: int = 30) -> None:
        self.clock, self.folder, self.session_days, self._lock = clock, folder, session_days, threading.Lock()
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if os.lstat(folder).st_uid != os.geteuid() or os.path.islink(folder):
                raise Failed(f"{folder} belongs to another user.", "Move it away; keepfast creates a new one.")
            os.chmod(folder, 0o700)
            path = folder + "/book.db"
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self._sql = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
            self._sql.execute("PRAGMA journal_mode=TRUNCATE")
            self._sql.execute("PRAGMA synchronous=FULL")
            for statement in TABLES:
                self._sql.execute(statement)
            if "user" not in [column[1] for column in self._sql.execute("PRAGMA table_info(session)")]:
                self._sql.execute("ALTER TABLE session ADD COLUMN user INTEGER")
        except (OSError, sqlite3.Error) as error:
            raise Failed(
                f"{folder} cannot be used for the page's sessions: {error}.", "Check its permissions."
            ) from None
        self.secret = self.get_or_create("secret", lambda: secrets.token_hex(32))

    def close(self) -> None:
        with self._lock:  # closing a connection that another thread uses crashes the process
            self._sql.close()

    def get_or_create(self, key: str, make: Callable[[], str]) -> str:
        """Return the value of a key; create it the first time."""
        with self._lock:
            self._sql.execute("INSERT OR IGNORE INTO meta VALUES(?, ?)", (key, make()))
            return str(self._sql.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()[0])

    def set_value(self, key: str, value: str) -> None:
        with self._lock:
            self._sql.execute(
                "INSERT INTO meta VALUES(?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (key, value)
            )

    # Sessions and tickets

    def create_ticket(self, role: str) -> str:
        """Return a new ticket, which can be exchanged once for a session."""
        value = secrets.token_urlsafe(24)
        with self._lock:
            self._sql.execute("DELETE FROM ticket WHERE until < ?", (self.clock(),))
            self._sql.execute("INSERT INTO ticket VALUES(?, ?, ?)", (_hash(value), role, self.clock() + TICKET_LIFE))
        return value

    def has_ticket(self, ticket: str) -> bool:
        """Return whether a ticket is valid; it is not used up."""
        with self._lock:
            row = self._sql.execute(
                "SELECT 1 FROM ticket WHERE hash = ? AND until > ?", (_hash(ticket), self.clock())
            ).fetchone()
        return row is not None

    def exchange_ticket(self, ticket: str, who: str, user: int | None = None) -> str | None:
        """Use up a ticket and return a new session; None if the ticket is invalid."""
        with self._lock:
            row = self._sql.execute(
                "DELETE FROM ticket WHERE hash = ? AND until >= ? RETURNING role", (_hash(ticket), self.clock())
            ).fetchone()
        return self.create_session(row[0], who, user) if row is not None else None

    def create_session(self, role: str, who: str, user: int | None = None) -> str:
        """Return a new session: two random halves joined by a dot (docs/web.md). With `user`, only that local user may use it."""
        value, now = f"{secrets.token_hex(16)}.{secrets.token_urlsafe(32)}", self.clock()
        with self._lock:
            self._sql.execute("DELETE FROM session WHERE seen_at < ?", (now - self.session_days * DAY,))
            self._sql.execute(
                "INSERT INTO session(hash, role, who, created_at, seen_at, user) VALUES(?, ?, ?, ?, ?, ?)",
                (_hash(value), role, who[:80], now, now, user),
            )
        return value

    def visitor(self, session: str) -> Visitor | None:
        now, key = self.clock(), _hash(session)
        with self._lock:
            row = self._sql.execute("SELECT role, who, seen_at, user FROM session WHERE hash = ?", (key,)).fetchone()
            if row is None or row[2] < now - self.session_days * DAY:
                return None
            if row[2] < now - SEEN_EVERY:
                self._sql.execute("UPDATE session SET seen_at = ? WHERE hash = ?", (now, key))
        return Visitor(row[0], row[1], key, row[3])

    def is_current(self, visitor: Visitor) -> bool:
        """Return whether a session is still valid with the same role; this does not count as a use."""
        with self._lock:
            row = self._sql.execute("SELECT role, seen_at FROM session WHERE hash = ?", (visitor.hash,)).fetchone()
        return row is not None and row[0] == visitor.role and row[1] >= self.clock() - self.session_days * DAY

    def end_session(self, visitor: Visitor) -> None:
        with self._lock:
            self._sql.execute("DELETE FROM session WHERE hash = ?", (visitor.hash,))

    def form_token(self, visitor: Visitor) -> str:
        """Return the token of the page's own forms, which other sites cannot know."""
        return hmac.new(self.secret.encode(), visitor.hash.encode(), hashlib.sha256).hexdigest()

    # Audit trail and events

    def audit(self, visitor: Visitor | None, action: str, target: str, outcome: str) -> None:
        """Write a row. Each role, and opened sealed contents, have a share of the trail: none can displace the others' rows."""
        who, role = (visitor.who, visitor.role) if visitor is not None else ("?", "")
        with self._lock:
            self._sql.execute(
                "INSERT INTO audit(at, who, role, action, target, outcome) VALUES(?, ?, ?, ?, ?, ?)",
                (self.clock(), who, role, action, redact(target)[:500], redact(outcome)[:500]),
            )
            share = "role = ? AND (action = ?) = ?"
            self._sql.execute(
                f"DELETE FROM audit WHERE {share} AND id <="
                f" (SELECT id FROM audit WHERE {share} ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (*(role, OPENED, action == OPENED) * 2, MAX_AUDITED if role else MAX_AUDITED_WITHOUT_SESSION),
            )

    def audit_rows(self, limit: int) -> list[AuditRow]:
        with self._lock:
            rows = self._sql.execute(
                "SELECT at, who, role, action, target, outcome FROM audit ORDER BY id DESC LIMIT ?", (limit,)
            ).fetchall()
        return [AuditRow(*row) for row in rows]

    def record_event(self, type: str, workspace: str, task: str, data: dict[str, Any]) -> StreamEvent:
        now, text = self.clock(), json.dumps(data, ensure_ascii=False)
        with self._lock:
            number = self._sql.execute(
                "INSERT INTO event(at, type, workspace, task, data) VALUES(?, ?, ?, ?, ?) RETURNING sequence",
                (now, type, workspace, task, text),
            ).fetchone()[0]
            if number % 500 == 0:
                self._sql.execute("DELETE FROM event WHERE sequence <= ?", (number - MAX_EVENTS,))
        return StreamEvent(number, now, type, workspace, task, data)

    def events_since(self, sequence: int, limit: int = 1_000) -> list[StreamEvent]:
        with self._lock:
            rows = self._sql.execute(
                "SELECT sequence, at, type, workspace, task, data FROM event WHERE sequence > ? ORDER BY sequence LIMIT ?",
                (sequence, limit),
            ).fetchall()
        return [StreamEvent(row[0], row[1], row[2], row[3], row[4], json.loads(row[5])) for row in rows]

    def last_sequence(self) -> int:
        with self._lock:
            row = self._sql.execute("SELECT seq FROM sqlite_sequence WHERE name = 'event'").fetchone()
        return int(row[0]) if row is not None else 0


def split_session(session: str) -> tuple[str, str]:
    """Return the folder of the session's addresses and the value of its cookie."""
    folder, _, cookie = session.partition(".")
    return f"/~{folder}", cookie


def join_session(folder: str, cookie: str) -> str:
    """Return the session of these halves; empty if one is missing."""
    return f"{folder[2:]}.{cookie}" if folder and cookie else ""


def _hash(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
