"""Search checkpoints by message, name, tag or path, with a disposable full-text index beside the ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from os import O_CLOEXEC, O_CREAT, O_RDWR, close, stat, unlink
from os import open as open_fd
from typing import Any, NamedTuple
from unicodedata import normalize

from keepfast.model.entry import CAPTURED
from keepfast.model.errors import Damaged
from keepfast.store.records import Chain
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, Query, WorkspaceRow

VERSION = 2
ROWS_PER_PAGE = 500
TRIGRAM = 3
"""The full-text index has all substrings of three characters; a table beside it has those of two."""
ROWS_PER_SLOW_PAGE = 50
"""Versions per query for searches that compare each text: users seldom read more results."""
PATHS, COLUMNS = "path", ("message", "name", "tags")

SCHEMA = (
    "CREATE TABLE workspace(key INTEGER PRIMARY KEY, id TEXT UNIQUE, version INT, log_size INT, log_head BLOB)",
    "CREATE VIRTUAL TABLE texts USING fts5(message, name, tags, tokenize='trigram')",
    "CREATE TABLE pair(pair TEXT, number INT, PRIMARY KEY(pair, number)) WITHOUT ROWID",
    "CREATE TABLE store(id TEXT)",
    f"PRAGMA user_version={VERSION}",
)


class Hit(NamedTuple):
    """A matching checkpoint, which of its texts matched, and that text; for a path, the newest version that has it."""

    checkpoint: CheckpointRow
    where: str
    text: str
    path: bytes


def search(repository: Repository, folder: str, workspace: str, text: str, limit: int) -> list[Hit]:
    """Return checkpoints whose texts contain `text` in either case, newest first, then paths that do.

    `folder` is the store's. There are no wildcards. Without FTS5, or if the index cannot be written, rows are read one
    by one with the same result.
    """
    needle = normalize("NFC", text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")).replace("\0", "")
    if not needle.strip():
        return []
    hits: list[Hit] = []
    for row in _checkpoints(repository, folder, workspace, needle):
        if len(hits) == limit:
            return hits
        where = next((column for column in COLUMNS if _contains(getattr(row, column), needle)), COLUMNS[0])
        hits.append(Hit(row, where.rstrip("s"), getattr(row, where), b""))
    return hits + _paths(repository, workspace, needle, limit - len(hits))


def is_damaged(repository: Repository, folder: str) -> bool:
    """Return whether the index contradicts the ledger. False for one that cannot be opened, as the next search replaces it."""
    path = folder + "/search.db"
    try:
        stat(path)
        index = _Index(path, repository.id)
    except (OSError, sqlite3.Error, UnicodeError):
        return False
    try:
        return not index.agrees(repository)
    except sqlite3.OperationalError as error:
        return "locked" not in str(error) and "busy" not in str(error)  # another process is writing it
    except (sqlite3.Error, UnicodeError):
        return True
    finally:
        index.close()


def remove(folder: str) -> None:
    """Remove the index; the next search recreates it."""
    _remove(folder + "/search.db")


def _checkpoints(repository: Repository, folder: str, workspace: str, text: str) -> Iterator[CheckpointRow]:
    row = repository.workspace(workspace)
    if row is None:
        return
    seen: set[int] = set()
    for version in _versions(repository, folder, row, text):
        if version in seen:
            continue  # the index failed half-way, and the search began again
        seen.add(version)
        checkpoint = repository.ledger.checkpoint(workspace, version)
        if checkpoint is not None and not checkpoint.forgotten:
            yield checkpoint


def _versions(repository: Repository, folder: str, row: WorkspaceRow, text: str) -> Iterator[int]:
    """Yield matching versions, newest first; some twice if the index fails half-way."""
    path = folder + "/search.db"
    for _ in range(2):
        try:
            index = _Index(path, repository.id)
        except sqlite3.Error:
            _remove(path)
            continue
        try:
            yield from index.find(index.update(repository, row), text)
            return
        except sqlite3.OperationalError as error:
            if "malformed" not in str(error) and "corrupt" not in str(error):
                break  # busy, disk full or read-only: the index is good but cannot be used now
            _remove(path)
        except sqlite3.Error:
            _remove(path)  # damaged: the second round recreates it from the ledger
        finally:
            index.close()
    yield from _versions_without_index(repository, row, text)


def _versions_without_index(repository: Repository, row: WorkspaceRow, text: str) -> Iterator[int]:
    for page in _pages(repository, row.id, 0):
        for checkpoint in page:
            if any(_contains(getattr(checkpoint, column), text) for column in COLUMNS):
                yield checkpoint.version


def _paths(repository: Repository, workspace: str, text: str, limit: int) -> list[Hit]:
    if limit <= 0:
        return []
    paths: dict[bytes, None] = {}
    for form in dict.fromkeys((text, normalize("NFD", text))):  # macOS decomposes names
        paths.update(dict.fromkeys(repository.ledger.paths(workspace, form.encode("utf-8"), limit)))
    hits = []
    newest = repository.ledger.find(Query(workspace=workspace, limit=1))
    for path in paths:
        # Most paths are in the newest version; the history is read only for others.
        entry = repository.ledger.at(workspace, newest[0].version, path) if newest else None
        if entry is not None and entry.kind in CAPTURED:
            row: CheckpointRow | None = newest[0]
        else:
            row = repository.holder(workspace, path) or _newest_with(repository, workspace, path)
        if row is not None:
            hits.append(Hit(row, PATHS, "", path))
    hits.sort(key=lambda hit: -hit.checkpoint.version)
    return hits[:limit]


def _newest_with(repository: Repository, workspace: str, path: bytes) -> CheckpointRow | None:
    """Return the newest version that is not forgotten and has the path, held or excluded."""
    for since, until, _ in reversed(repository.ledger.history(workspace, path)):
        rows = repository.ledger.find(Query(workspace=workspace, before=until or 0, limit=1))
        if rows and rows[0].version >= since:
            return rows[0]
    return None


def _pages(repository: Repository, workspace: str, after: int) -> Iterator[list[CheckpointRow]]:
    """Yield pages of checkpoints with a version above `after`, newest first, forgotten ones too."""
    before = 0
    while True:
        page = repository.ledger.find(Query(workspace=workspace, before=before, limit=ROWS_PER_PAGE, forgotten=True))
        rows = [row for row in page if row.version > after]
        if rows:
            yield rows
        if len(rows) < ROWS_PER_PAGE:
            return
        before = rows[-1].version


def _contains(text: str, part: str) -> bool:
    return part.casefold() in normalize("NFC", text).casefold()


def _pairs(text: str) -> set[str]:
    """Return all substrings of two characters, case-folded: matches are compared again."""
    folded = text.casefold()
    return {folded[place : place + 2] for place in range(len(folded) - 1)}


def _remove(path: str) -> None:
    for leftover in (path, path + "-journal"):
        try:
            unlink(leftover)
        except OSError:
            pass  # missing, or no permission: then every search reads row by row


class _Index:
    """The index `search.db`: texts of every checkpoint under the number (workspace << 32 | version)."""

    def __init__(self, path: str, store: str) -> None:
        try:
            close(open_fd(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600))
        except OSError:
            pass  # an index that cannot be written can still be good
        self.db = sqlite3.connect(path, timeout=5, isolation_level=None)
        try:
            if self._version() == 0:
                self._make(store)
            if self._version() != VERSION:
                raise sqlite3.DatabaseError("another version")
            if self.db.execute("SELECT id FROM store").fetchone() != (store,):
                raise sqlite3.DatabaseError("of another store")
        except BaseException:
            self.db.close()
            raise

    def _make(self, store: str) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        if self._version() == 0:  # else another process was faster
            for statement in SCHEMA:
                self.db.execute(statement)
            self.db.execute("INSERT INTO store VALUES(?)", (store,))
        self.db.execute("COMMIT")

    def _version(self) -> int:
        return int(self.db.execute("PRAGMA user_version").fetchone()[0])

    def close(self) -> None:
        self.db.close()

    def update(self, repository: Repository, row: WorkspaceRow) -> int:
        """Index new checkpoints of the workspace; return the workspace's number in the index."""
        progress = self._progress_of(row.id)
        if progress is not None and progress[2:] == (row.log_size, row.log_head):
            return progress[0]
        self.db.execute("BEGIN IMMEDIATE")
        try:
            key = self._update(repository, row)
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise
        return key

    def agrees(self, repository: Repository) -> bool:
        """Return whether pages, words and texts of the index are right, as far as it has followed the ledger."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            if self.db.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
                return False
            self.db.execute("INSERT INTO texts(texts, rank) VALUES('integrity-check', 1)")
            workspaces = self.db.execute("SELECT key, id, version, log_size, log_head FROM workspace").fetchall()
            return all(self._says(repository, *row) for row in workspaces)
        finally:
            self.db.execute("ROLLBACK")

    def _says(
        self, repository: Repository, key: int, workspace: str, version: int, log_size: int, log_head: bytes
    ) -> bool:
        """Return whether the index has the right texts of a workspace's checkpoints. Forgotten ones are not checked."""
        row = repository.ledger.workspace(workspace)
        is_fresh = row is not None and (row.log_size, row.log_head) == (log_size, log_head)
        for page in _pages(repository, workspace, 0):
            for checkpoint in [
                checkpoint for checkpoint in page if checkpoint.version <= version and not checkpoint.forgotten
            ]:
                true = tuple([normalize("NFC", getattr(checkpoint, column)) for column in COLUMNS])
                indexed_texts = self.db.execute(
                    f"SELECT {', '.join(COLUMNS)} FROM texts WHERE rowid = ?", (key << 32 | checkpoint.version,)
                ).fetchone()
                # A name may have been given since.
                if indexed_texts is None or indexed_texts[0::2] != true[0::2] or (is_fresh and indexed_texts != true):
                    return False
                if not self._has_pairs(key << 32 | checkpoint.version, indexed_texts):
                    return False
        return True

    def find(self, key: int, text: str) -> Iterator[int]:
        """Yield versions of the workspace with this number, newest first."""
        source, number, page, pairs = "texts", "rowid", ROWS_PER_PAGE, sorted(_pairs(text))
        pattern, where = '"' + text.replace('"', '""') + '"', "texts MATCH :pattern"
        if len(text) < TRIGRAM:
            pattern = "%" + text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
            where = "(" + " OR ".join([f"{column} LIKE :pattern ESCAPE '\\'" for column in COLUMNS]) + ")"
            page = ROWS_PER_SLOW_PAGE
            if pairs:  # CROSS: from the pair to the texts, never the other way
                source, number = "pair CROSS JOIN texts ON texts.rowid = pair.number", "pair.number"
                where = "pair = :pair AND " + where
        low, high = key << 32, key + 1 << 32
        while True:
            rows = self.db.execute(
                f"SELECT {number} FROM {source} WHERE {where} AND {number} > :low AND {number} < :high"
                f" ORDER BY {number} DESC LIMIT {page}",
                {"low": low, "high": high, "pattern": pattern, "pair": pairs[0] if pairs else ""},
            ).fetchall()
            for (rowid,) in rows:
                yield rowid & 0xFFFFFFFF
            if len(rows) < page:
                return
            high = rows[-1][0]

    def _progress_of(self, workspace: str) -> tuple[int, int, int, bytes] | None:
        rows = self.db.execute("SELECT key, version, log_size, log_head FROM workspace WHERE id = ?", (workspace,))
        progress: tuple[int, int, int, bytes] | None = rows.fetchone()
        return progress

    def _update(self, repository: Repository, row: WorkspaceRow) -> int:
        key, version, log_size, head = self._progress_of(row.id) or self._add_workspace(row.id)
        # Checkpoints may be named later: such records follow in the log after what the index has read.
        records = Chain(repository.records.read(row.id)[log_size : row.log_size], head, log_size)
        if records.size != row.log_size or row.version < version:
            self.db.execute("DELETE FROM texts WHERE rowid > ? AND rowid < ?", (key << 32, key + 1 << 32))
            self.db.execute("DELETE FROM pair WHERE number > ? AND number < ?", (key << 32, key + 1 << 32))
            version, records = 0, Chain(b"")
        for record in records.records:
            if record.get("r") == "name" and record["v"] <= version:
                name, number = normalize("NFC", record["name"] or ""), key << 32 | record["v"]
                self.db.execute("UPDATE texts SET name = ? WHERE rowid = ?", (name, number))
                self._add_pairs([(number, name)])  # pairs of the old name stay: matches are compared with the text
        for page in _pages(repository, row.id, version):
            rows = [
                (key << 32 | checkpoint.version, *[normalize("NFC", getattr(checkpoint, column)) for column in COLUMNS])
                for checkpoint in reversed(page)
            ]
            self.db.executemany("INSERT OR REPLACE INTO texts(rowid, message, name, tags) VALUES(?, ?, ?, ?)", rows)
            self._add_pairs(rows)
        self.db.execute(
            "UPDATE workspace SET version = ?, log_size = ?, log_head = ? WHERE key = ?",
            (row.version, row.log_size, row.log_head, key),
        )
        return key

    def _add_pairs(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add the pairs of characters in the texts of each number."""
        pairs = {(pair, number) for number, *texts in rows for text in texts for pair in _pairs(text)}
        self.db.executemany("INSERT OR IGNORE INTO pair VALUES(?, ?)", sorted(pairs))

    def _has_pairs(self, number: int, texts: Iterable[str]) -> bool:
        statement = "SELECT 1 FROM pair WHERE pair = ? AND number = ?"
        return all(self.db.execute(statement, (pair, number)).fetchone() for text in texts for pair in _pairs(text))

    def _add_workspace(self, workspace: str) -> tuple[int, int, int, bytes]:
        self.db.execute(
            "INSERT INTO workspace(id, version, log_size, log_head) VALUES(?, 0, 0, ?)", (workspace, bytes(32))
        )
        progress = self._progress_of(workspace)
        if progress is None:
            raise Damaged("The search index did not store a workspace.")
        return progress
