"""Recall the exact text of a file, of a definition, or around some words, from the disk and from a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from stat import S_ISDIR, S_ISREG
from typing import NamedTuple

from keepfast.app.checkpoint import Engine
from keepfast.app.inspect import disk_now
from keepfast.model.entry import FILE, FOLDER, LEFT_OUT, REASONS, SEALED, Entry
from keepfast.model.errors import Damaged, KeepfastError, NotFound, Usage
from keepfast.resume.passages import (
    LINES_AROUND,
    MAX_LINE,
    Passage,
    around_words,
    definitions,
    is_name,
    quotable_lines,
    with_range,
)
from keepfast.resume.quotation import escaped
from keepfast.secrets.marks import is_secret_by_name
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, Query, WorkspaceRow
from keepfast.workspace.capture import NEVER_ENTERED
from keepfast.workspace.diff import is_binary
from keepfast.workspace.marker import show
from keepfast.workspace.secret_check import is_secret
from keepfast.workspace.system_calls import System

DISK, CHECKPOINT = "disk", "checkpoint"
SAME, CHANGED, GONE = "same", "changed", "gone"
PATH, SYMBOL, WORDS = "path", "symbol", "words"
MAX_SHOWN_BYTES, MAX_SEARCHED_BYTES = 8 << 20, 1 << 20
"""Larger files are not shown, and not searched."""
MAX_SECONDS = 4
MAX_MATCHES, MAX_PATHS, RECENT_VERSIONS = 8, 5, 30
MAX_CHARACTERS = 24_000
ALTERED_NOTE = "not exact: long lines are cut, hidden characters are escaped, secrets are redacted"
SECRET_REASON = "secret by its name, so its text is not shown"
COPY_REASON = "a copy of a secret file, so its text is not shown"
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Match(NamedTuple):
    """Exact lines of a file. `on_disk`: how the disk compares with the checkpoint."""

    path: str
    first: int
    last: int
    of: int
    source: str
    on_disk: str
    text: str
    note: str = ""


class Recalled(NamedTuple):
    """The matches, how the query was read (path, symbol or words), and what was not shown or not searched."""

    kind: str
    matches: list[Match]
    left_out: list[str]


def recall(
    engine: Engine,
    root: bytes,
    row: WorkspaceRow,
    checkpoint: CheckpointRow,
    what: str,
    most: int = MAX_CHARACTERS,
) -> Recalled:
    """Find a path (`src/a.py`, `a.py:10-40`), the definition of a name, or words.

    Returns at most `most` characters of text and names what did not fit. Raises `NotFound`, or `Usage` for an empty query.
    """
    if not what.strip():
        raise Usage("Nothing to recall: the query is empty.", "Give a path, a symbol or words.")
    query = _Query(engine, root, row, checkpoint, most)
    plain, first, last = with_range(what.strip())
    paths = query.paths(plain)
    if paths and last < first:
        raise Usage(f"Invalid line range {first} to {last}.", "Give the smaller line number first.")
    if paths:
        return query.files(paths, first, last)
    if is_name(what.strip()):
        result = query.search(lambda lines: definitions(lines, what.strip()), [what.strip()], SYMBOL)
        if result.matches:
            return result
    result = query.search(None, what.lower().split()[:12], WORDS)
    if not result.matches:
        raise NotFound(
            f"No file or symbol named {what!r} exists in this workspace, and no file contains these words.",
            " ".join(result.left_out) or "Try another spelling, or fewer words.",
        )
    return result


class _Query:
    """One query: what differs on disk, and how many characters may still be returned."""

    def __init__(self, engine: Engine, root: bytes, row: WorkspaceRow, checkpoint: CheckpointRow, most: int) -> None:
        self.engine, self.root, self.row, self.checkpoint, self.room = engine, root, row, checkpoint, most
        self.repository: Repository = engine.repository()
        self.newest = checkpoint.version == row.version and checkpoint.workspace == row.id
        self.system = System()
        self.changed = disk_now(engine, root, row)
        self.left_out: list[str] = []

    # Paths

    def paths(self, text: str) -> list[bytes]:
        """Return the path itself, or those that end with it; empty if the text is no path."""
        path = self._relative(os.fsencode(text))
        if path is None:
            return []
        if self._stored(path) is not None or self._exists(path):
            return [path]
        paths = self.repository.paths(self.row.id, path, 200)
        paths += [new for new, now in self.changed.items() if now is not None and new not in paths]
        matching = [candidate for candidate in paths if candidate.endswith(b"/" + path)]
        existing = [path for path in matching if self._stored(path) is not None or self._exists(path)]
        return sorted(existing, key=lambda path: (path.count(b"/"), path))[:MAX_PATHS]

    def files(self, paths: Sequence[bytes], first: int, last: int) -> Recalled:
        matches: list[Match] = []
        for path in paths:
            stored = self._stored(path)
            if is_secret_by_name(path):
                self.left_out.append(f"{show(path)}: {SECRET_REASON}.")
                continue
            if stored is not None and stored.kind in LEFT_OUT:
                self.left_out.append(f"{show(path)}: {REASONS[stored.kind]}.")
            if self._is_folder(path, stored):
                self.left_out.append(f"{show(path)}: a folder; give a file inside it.")
                continue
            old = self._stored_text(stored) if stored is not None and stored.kind == FILE else None
            new = self._disk_text(path)
            state = GONE if new is None else SAME if new == old else CHANGED
            if self._is_copy(path, stored, [text for text in (old, new) if text is not None]):
                self.left_out.append(f"{show(path)}: {COPY_REASON}.")
                continue
            if new is not None:
                matches += self._lines_of(path, new, first, last, DISK, state)
            if old is not None and state != SAME:
                matches += self._lines_of(path, old, first, last, CHECKPOINT, state)
        return Recalled(PATH, matches, self.left_out)

    def _is_copy(self, path: bytes, stored: Entry | None, texts: list[bytes]) -> bool:
        """Return whether the file is sealed as a copy of another: then its own text does not show which parts are secret."""
        rows = stored, self.changed.get(path)
        if not any(row is not None and row.flags & SEALED for row in rows):
            return False
        return not any(is_secret(path, text) for text in texts)

    def _is_folder(self, path: bytes, stored: Entry | None) -> bool:
        if self._exists(path):
            return S_ISDIR(os.lstat(os.path.join(self.root, path)).st_mode)
        return stored is not None and stored.kind == FOLDER

    def _lines_of(self, path: bytes, data: bytes, first: int, last: int, source: str, state: str) -> list[Match]:
        if is_binary(data):
            return [Match(show(path), 0, 0, 0, source, state, "", f"binary, {len(data):,} bytes")]
        lines = data.decode("utf-8", "surrogateescape").split("\n")
        count = len(lines) - (lines[-1] == "")
        if first > count:
            return [Match(show(path), 0, 0, count, source, state, "", f"it has only {count:,} lines")]
        return [self._match(path, lines, count, Passage(first or 1, min(last or count, count), 0), source, state)]

    # Searching

    def search(self, find: Callable[[list[str]], list[Passage]] | None, words: list[str], kind: str) -> Recalled:
        """Search all texts, recently changed files first, with `find` or else for the words."""
        until = self.engine.clock() + MAX_SECONDS * 1_000_000_000
        needles = [words[-1].rpartition(".")[2].rpartition(":")[2].rpartition("#")[2]] if find else words
        matches: list[tuple[int, int, bytes, Passage]] = []
        files_searched = 0
        for order, path in enumerate(self._all_paths()):
            if self.engine.clock() > until:
                self.left_out.append(
                    f"After {files_searched:,} files the search stopped; give a path for complete results."
                )
                break
            data = self._text(path) if not is_secret_by_name(path) else None
            if data is None or len(data) > MAX_SEARCHED_BYTES:
                continue
            files_searched += 1
            word_count = _count_words(data, needles, exact=find is not None)
            if not word_count or is_binary(data) or self._is_copy(path, self._stored(path), [data]):
                continue
            lines = data.decode("utf-8", "surrogateescape").split("\n")
            passages = find(lines) if find else around_words(lines, words)
            # A file with all the words, on whatever lines, ranks above one with a few of them.
            matches += [
                (passage.weight + (word_count if find is None else 0), -order, path, passage) for passage in passages
            ]
        matches.sort(key=lambda match: (-match[0], -match[1]))
        if len(matches) > MAX_MATCHES:
            self.left_out.append(f"{len(matches) - MAX_MATCHES:,} more matches.")
        return Recalled(
            kind, [self._match_of(path, passage) for _, _, path, passage in matches[:MAX_MATCHES]], self.left_out
        )

    def _match_of(self, path: bytes, passage: Passage) -> Match:
        data = self._text(path) or b""
        lines = data.decode("utf-8", "surrogateescape").split("\n")
        source = CHECKPOINT if not self.newest or not self._exists(path) else DISK
        count = len(lines) - (lines[-1] == "")
        passage = passage._replace(last=min(passage.last, count))
        return self._match(path, lines, count, passage, source, self._state(path))

    def _all_paths(self) -> Iterator[bytes]:
        """Yield files of the checkpoint and new ones on disk, those that changed in recent versions first."""
        repository = self.repository
        here = {entry.path: entry for entry in repository.state(self.row.id, self.checkpoint.version)}
        new = [path for path, now in self.changed.items() if now is not None] if self.newest else []
        recent = dict.fromkeys(new)
        query = Query(workspace=self.row.id, before=self.checkpoint.version + 1, limit=RECENT_VERSIONS)
        for row in repository.find(query):
            try:
                header, entries = self.repository.document(row)
            except Damaged:
                continue
            if not header.keyframe:
                recent.update(dict.fromkeys([entry.path for entry in entries if entry.kind == FILE]))
        yield from recent
        for path, entry in here.items():
            if entry.kind == FILE and entry.size <= MAX_SEARCHED_BYTES and path not in recent:
                yield path

    def _text(self, path: bytes) -> bytes | None:
        """Return the text to search: the disk's if this is the newest checkpoint, else the stored one."""
        if self.newest:
            data = self._disk_text(path)
            if data is not None:
                return data
        stored = self._stored(path)
        return self._stored_text(stored) if stored is not None and stored.kind == FILE else None

    # Parts

    def _match(self, path: bytes, lines: list[str], count: int, passage: Passage, source: str, state: str) -> Match:
        exact = [escaped(line) for line in lines[passage.first - 1 : passage.last]]
        fitting = exact[: _lines_that_fit(exact, self.room)]
        lines_shown: list[str] = []
        # In a file sealed for its content, all of it is searched to know which parts are secret.
        around = len(lines) if is_secret(path, "\n".join(lines).encode("utf-8", "replace")) else LINES_AROUND
        for line in quotable_lines(lines, passage.first, passage.first + len(fitting) - 1, around):
            if len(line) + 1 > self.room:
                break
            self.room -= len(line) + 1
            lines_shown.append(line)
        last = passage.first + len(lines_shown) - 1
        if last < passage.last:
            self.left_out.append(f"{show(path)}:{last + 1}-{passage.last} ({source}) did not fit.")
        note = "" if lines_shown == exact[: len(lines_shown)] else ALTERED_NOTE
        return Match(
            show(path),
            passage.first if lines_shown else 0,
            last if lines_shown else 0,
            count,
            source,
            state,
            "\n".join(lines_shown),
            note,
        )

    def _state(self, path: bytes) -> str:
        if not self._exists(path):
            return GONE
        if self.newest:
            return CHANGED if path in self.changed else SAME
        stored, now = self._stored(path), self._disk_text(path)
        return SAME if stored is not None and stored.kind == FILE and self._stored_text(stored) == now else CHANGED

    def _stored(self, path: bytes) -> Entry | None:
        return self.repository.at(self.row.id, self.checkpoint.version, path)

    def _stored_text(self, entry: Entry) -> bytes | None:
        if entry.size > MAX_SHOWN_BYTES:
            self.left_out.append(f"{show(entry.path)} has {entry.size:,} bytes; Run `keepfast cat` to print it.")
            return None
        try:
            return self.repository.contents.load(entry.content)
        except KeepfastError as error:
            self.left_out.append(f"{show(entry.path)}: {error}")
            return None

    def _disk_text(self, path: bytes) -> bytes | None:
        """Return the file's content on disk; None if there is none. No part of the path may be a link: it could lead anywhere."""
        folder, _, name = path.rpartition(b"/")
        try:
            top = os.open(self.root, OPEN_FOLDER)
            try:
                parent = self.system.open_folder(top, folder)
            finally:
                os.close(top)
            try:
                fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            finally:
                os.close(parent)
            with open(fd, "rb") as file:
                return file.read(MAX_SHOWN_BYTES) if S_ISREG(os.fstat(fd).st_mode) else None
        except OSError:
            return None

    def _exists(self, path: bytes) -> bool:
        return os.path.lexists(os.path.join(self.root, path))

    def _relative(self, path: bytes) -> bytes | None:
        """Return the path below the root; None if it leads elsewhere, or to what is never saved."""
        path = os.path.normpath(os.path.join(self.root, path))
        below = path[len(self.root.rstrip(b"/")) + 1 :]
        if not path.startswith(self.root.rstrip(b"/") + b"/") or not below:
            return None
        return None if NEVER_ENTERED.intersection(below.split(b"/")) else below


def _lines_that_fit(lines: list[str], room: int) -> int:
    """Return how many lines can fit at all, so that no more are redacted."""
    for count, line in enumerate(lines):
        if room < 0:
            return count
        room -= min(len(line), MAX_LINE)
    return len(lines)


def _count_words(data: bytes, words: list[str], exact: bool) -> int:
    text = data if exact else data.lower()
    return sum(word.encode() in text for word in words)
