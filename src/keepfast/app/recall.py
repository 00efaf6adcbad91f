"""Recall: the exact text of a file, of what defines a name, or around some words, from the disk and from a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, NamedTuple

from keepfast.app.inspect import disk_now
from keepfast.model.entry import FILE, FOLDER, LEFT_OUT, REASONS, SEALED, Entry
from keepfast.model.errors import Damaged, KeepfastError, NotFound, Usage
from keepfast.resume.passages import (
    MOST_LINE,
    STRUCK_AROUND,
    Passage,
    around_words,
    definitions,
    is_name,
    told,
    with_range,
)
from keepfast.resume.quotation import escaped
from keepfast.secrets.marks import is_secret_by_name
from keepfast.store.rows import Query
from keepfast.workspace.capture import NEVER_ENTERED
from keepfast.workspace.diff import is_binary
from keepfast.workspace.marker import show
from keepfast.workspace.secret_check import is_secret
from keepfast.workspace.system_calls import System

if TYPE_CHECKING:
    from keepfast.app.checkpoint import Engine
    from keepfast.store.repository import Repository
    from keepfast.store.rows import CheckpointRow, WorkspaceRow

DISK, CHECKPOINT = "disk", "checkpoint"
SAME, CHANGED, GONE = "same", "changed", "gone"
PATH, SYMBOL, WORDS = "path", "symbol", "words"
LARGEST, SEARCHED = 8 << 20, 1 << 20
"""Largest file that is shown, and that is searched."""
SECONDS = 4
MOST_MATCHES, MOST_PATHS, RECENT = 8, 5, 30
MOST_CHARACTERS = 24_000
ALTERED = "not exact: long lines are cut, hidden characters are escaped, secrets are redacted"
SECRET = "secret by its name, so its text is not shown"
COPY = "a copy of a secret file, so its text is not shown"
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Match(NamedTuple):
    """Exact lines of a file. `on_disk` compares the disk with the checkpoint."""

    path: str
    first: int
    last: int
    of: int
    source: str
    on_disk: str
    text: str
    note: str = ""


class Recalled(NamedTuple):
    """What was found, by which reading of the question, and what was not shown or not searched."""

    kind: str
    matches: list[Match]
    left_out: list[str]


def recall(
    engine: Engine,
    root: bytes,
    row: WorkspaceRow,
    checkpoint: CheckpointRow,
    what: str,
    most: int = MOST_CHARACTERS,
) -> Recalled:
    """Find `what`: a path (`src/a.py`, `a.py:10-40`), a name that is defined somewhere, or words.

    At most `most` characters of text come back; what did not fit is named. Raises `NotFound`, or `Usage` for nothing.
    """
    if not what.strip():
        raise Usage("Nothing to recall: the query is empty.", "Give a path, a symbol or words.")
    asked = _Asked(engine, root, row, checkpoint, most)
    plain, first, last = with_range(what.strip())
    paths = asked.paths(plain)
    if paths and last < first:
        raise Usage(f"Invalid line range {first} to {last}.", "Give the smaller line number first.")
    if paths:
        return asked.files(paths, first, last)
    if is_name(what.strip()):
        found = asked.search(lambda lines: definitions(lines, what.strip()), [what.strip()], SYMBOL)
        if found.matches:
            return found
    found = asked.search(None, what.lower().split()[:12], WORDS)
    if not found.matches:
        raise NotFound(
            f"No file or symbol named {what!r} exists in this workspace, and no file contains these words.",
            " ".join(found.left_out) or "Try another spelling, or fewer words.",
        )
    return found


class _Asked:
    """One question: what differs on disk, and how much may still be said."""

    def __init__(self, engine: Engine, root: bytes, row: WorkspaceRow, checkpoint: CheckpointRow, most: int) -> None:
        self.engine, self.root, self.row, self.checkpoint, self.room = engine, root, row, checkpoint, most
        self.repository: Repository = engine.repository()
        self.newest = checkpoint.version == row.version and checkpoint.workspace == row.id
        self.system = System()
        self.changed = disk_now(engine, root, row)
        self.left_out: list[str] = []

    # Paths

    def paths(self, text: str) -> list[bytes]:
        """The path itself, or those that end with it; none if it is not meant as a path."""
        path = self._relative(os.fsencode(text))
        if path is None:
            return []
        if self._stored(path) is not None or self._there(path):
            return [path]
        known = self.repository.paths(self.row.id, path, 200)
        known += [new for new, now in self.changed.items() if now is not None and new not in known]
        ending = [one for one in known if one.endswith(b"/" + path)]
        here = [one for one in ending if self._stored(one) is not None or self._there(one)]
        return sorted(here, key=lambda one: (one.count(b"/"), one))[:MOST_PATHS]

    def files(self, paths: Sequence[bytes], first: int, last: int) -> Recalled:
        matches: list[Match] = []
        for path in paths:
            stored = self._stored(path)
            if is_secret_by_name(path):
                self.left_out.append(f"{show(path)}: {SECRET}.")
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
                self.left_out.append(f"{show(path)}: {COPY}.")
                continue
            if new is not None:
                matches += self._lines_of(path, new, first, last, DISK, state)
            if old is not None and state != SAME:
                matches += self._lines_of(path, old, first, last, CHECKPOINT, state)
        return Recalled(PATH, matches, self.left_out)

    def _is_copy(self, path: bytes, stored: Entry | None, texts: list[bytes]) -> bool:
        """Is the file sealed as a copy of another one? Then its own text does not tell what of it is secret."""
        rows = stored, self.changed.get(path)
        if not any(row is not None and row.flags & SEALED for row in rows):
            return False
        return not any(is_secret(path, text) for text in texts)

    def _is_folder(self, path: bytes, stored: Entry | None) -> bool:
        if self._there(path):
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
        """Look through all texts, recently changed ones first; without `find`, for the words."""
        until = self.engine.clock() + SECONDS * 1_000_000_000
        needles = [words[-1].rpartition(".")[2].rpartition(":")[2].rpartition("#")[2]] if find else words
        found: list[tuple[int, int, bytes, Passage]] = []
        looked = 0
        for order, path in enumerate(self._all_paths()):
            if self.engine.clock() > until:
                self.left_out.append(f"After {looked:,} files the search stopped; give a path for complete results.")
                break
            data = self._text(path) if not is_secret_by_name(path) else None
            if data is None or len(data) > SEARCHED:
                continue
            looked += 1
            held = _holds(data, needles, exact=find is not None)
            if not held or is_binary(data) or self._is_copy(path, self._stored(path), [data]):
                continue
            lines = data.decode("utf-8", "surrogateescape").split("\n")
            passages = find(lines) if find else around_words(lines, words)
            # A file that has all the words, if not in one line, is worth more than one that has a few.
            found += [(passage.weight + (held if find is None else 0), -order, path, passage) for passage in passages]
        found.sort(key=lambda one: (-one[0], -one[1]))
        if len(found) > MOST_MATCHES:
            self.left_out.append(f"{len(found) - MOST_MATCHES:,} more matches.")
        return Recalled(
            kind, [self._found(path, passage) for _, _, path, passage in found[:MOST_MATCHES]], self.left_out
        )

    def _found(self, path: bytes, passage: Passage) -> Match:
        data = self._text(path) or b""
        lines = data.decode("utf-8", "surrogateescape").split("\n")
        source = CHECKPOINT if not self.newest or not self._there(path) else DISK
        count = len(lines) - (lines[-1] == "")
        passage = passage._replace(last=min(passage.last, count))
        return self._match(path, lines, count, passage, source, self._state(path))

    def _all_paths(self) -> Iterator[bytes]:
        """Files of the checkpoint and new ones on disk: those that changed in the last versions come first."""
        repository = self.repository
        here = {entry.path: entry for entry in repository.state(self.row.id, self.checkpoint.version)}
        new = [path for path, now in self.changed.items() if now is not None] if self.newest else []
        recent = dict.fromkeys(new)
        query = Query(workspace=self.row.id, before=self.checkpoint.version + 1, limit=RECENT)
        for row in repository.find(query):
            try:
                header, entries = self.repository.document(row)
            except Damaged:
                continue
            if not header.keyframe:
                recent.update(dict.fromkeys([entry.path for entry in entries if entry.kind == FILE]))
        yield from recent
        for path, entry in here.items():
            if entry.kind == FILE and entry.size <= SEARCHED and path not in recent:
                yield path

    def _text(self, path: bytes) -> bytes | None:
        """The text that a search looks at: the disk's where it belongs to this checkpoint, else the stored one."""
        if self.newest:
            data = self._disk_text(path)
            if data is not None:
                return data
        stored = self._stored(path)
        return self._stored_text(stored) if stored is not None and stored.kind == FILE else None

    # Parts

    def _match(self, path: bytes, lines: list[str], count: int, passage: Passage, source: str, state: str) -> Match:
        exact = [escaped(line) for line in lines[passage.first - 1 : passage.last]]
        enough = exact[: _enough(exact, self.room)]
        taken: list[str] = []
        # Of a file that is sealed for what it holds, all is looked at to know what of it is secret.
        around = len(lines) if is_secret(path, "\n".join(lines).encode("utf-8", "replace")) else STRUCK_AROUND
        for shown in told(lines, passage.first, passage.first + len(enough) - 1, around):
            if len(shown) + 1 > self.room:
                break
            self.room -= len(shown) + 1
            taken.append(shown)
        last = passage.first + len(taken) - 1
        if last < passage.last:
            self.left_out.append(f"{show(path)}:{last + 1}-{passage.last} ({source}) did not fit.")
        odd = "" if taken == exact[: len(taken)] else ALTERED
        return Match(
            show(path), passage.first if taken else 0, last if taken else 0, count, source, state, "\n".join(taken), odd
        )

    def _state(self, path: bytes) -> str:
        if not self._there(path):
            return GONE
        if self.newest:
            return CHANGED if path in self.changed else SAME
        stored, now = self._stored(path), self._disk_text(path)
        return SAME if stored is not None and stored.kind == FILE and self._stored_text(stored) == now else CHANGED

    def _stored(self, path: bytes) -> Entry | None:
        return self.repository.at(self.row.id, self.checkpoint.version, path)

    def _stored_text(self, entry: Entry) -> bytes | None:
        if entry.size > LARGEST:
            self.left_out.append(f"{show(entry.path)} has {entry.size:,} bytes; Run `keepfast cat` to print it.")
            return None
        try:
            return self.repository.contents.load(entry.content)
        except KeepfastError as error:
            self.left_out.append(f"{show(entry.path)}: {error}")
            return None

    def _disk_text(self, path: bytes) -> bytes | None:
        """What the file holds now; None if there is none. No part of the path may be a link: it could lead anywhere."""
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
                return file.read(LARGEST) if S_ISREG(os.fstat(fd).st_mode) else None
        except OSError:
            return None

    def _there(self, path: bytes) -> bool:
        return os.path.lexists(os.path.join(self.root, path))

    def _relative(self, path: bytes) -> bytes | None:
        """The path below the root; None if it leads elsewhere, or into what is never captured."""
        path = os.path.normpath(os.path.join(self.root, path))
        below = path[len(self.root.rstrip(b"/")) + 1 :]
        if not path.startswith(self.root.rstrip(b"/") + b"/") or not below:
            return None
        return None if NEVER_ENTERED.intersection(below.split(b"/")) else below


def _enough(lines: list[str], room: int) -> int:
    """How many lines can fit at all: nothing behind them need be looked at."""
    for count, line in enumerate(lines):
        if room < 0:
            return count
        room -= min(len(line), MOST_LINE)
    return len(lines)


def _holds(data: bytes, words: list[str], exact: bool) -> int:
    text = data if exact else data.lower()
    return sum(word.encode() in text for word in words)
