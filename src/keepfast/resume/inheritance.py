"""The work that a session inherits from the checkpoint it was resumed from, until its own conversation names newer things."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from keepfast.agents.working_file import Span, WorkingFile
from keepfast.resume.notes import FileNote, Notes
from keepfast.secrets.cuts import head

MAX_CHARACTERS, MAX_PATH_LENGTH = 300, 400
MAX_CHANGED_SPANS, MAX_READ_SPANS, MAX_NUMBER = 12, 6, 10_000_000
"""How many changed and read places of a file are inherited, and the largest number in them."""
MAX_STEPS, MAX_DECISIONS, MAX_BLOCKERS, MAX_FILES = 8, 8, 5, 40
TEST_FAILS, WAITING = "The last test fails: ", "Waiting for an answer: "
"""Beginnings of blockers that the next test or the next prompt resolves."""


@dataclass(frozen=True, slots=True)
class InheritedFile:
    """A file of the work: what was changed and read in it. Times are tool calls before the session: 0 or negative."""

    path: str
    edited: bool = True
    lines: int = 0  # that it had, 0 if that is not known
    touched: int = 0
    changed: tuple[Span, ...] = ()
    read: tuple[Span, ...] = ()

    def to_json(self) -> dict[str, Any]:
        spans = {"changed": _kept(self.changed), "read": _kept(self.read)}
        return {"path": self.path, "lines": self.lines, "age": -self.touched, **spans}

    @classmethod
    def from_json(cls, value: object, edited: frozenset[str]) -> InheritedFile | None:
        """Read back what `to_json` wrote; None if the form is invalid."""
        fields = value if isinstance(value, dict) else {}
        path = fields.get("path")
        if not isinstance(path, str) or not 0 < len(path) <= MAX_PATH_LENGTH:
            return None
        changed, read = _spans(fields.get("changed"), MAX_CHANGED_SPANS), _spans(fields.get("read"), MAX_READ_SPANS)
        return cls(path, path in edited, _number(fields.get("lines")), -_number(fields.get("age")), changed, read)

    def as_note(self) -> FileNote:
        changed, read = (
            [(span.start, span.end) for span in self.changed],
            [(span.start, span.end) for span in self.read],
        )
        return FileNote(self.path, self.edited, self.lines, changed, read, is_inherited=True)

    def as_file(self) -> WorkingFile:
        return WorkingFile(self.path, touched=self.touched, hunks=list(self.changed), reads=list(self.read))

    def after_changes_of(self, file: WorkingFile) -> InheritedFile:
        """Return the file with its places moved by the session's own changes of it."""
        placed = [span.start for span in file.hunks if span.is_placed]
        grown = len(file.lines) - self.lines if self.lines and file.lines else 0
        if not placed or not grown:
            return self
        return replace(
            self, changed=_moved(self.changed, min(placed), grown), read=_moved(self.read, min(placed), grown)
        )


@dataclass(frozen=True, slots=True)
class Inheritance:
    """The work of a checkpoint, short enough to be stored with every checkpoint that continues it."""

    checkpoint: str = ""  # its id
    task: str = ""
    next_steps: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    files: tuple[InheritedFile, ...] = ()  # the newest first

    def to_json(self) -> dict[str, Any]:
        return {
            "checkpoint": self.checkpoint,
            "task": self.task,
            "next_steps": list(self.next_steps),
            "decisions": list(self.decisions),
            "blockers": list(self.blockers),
            "files": [file.path for file in self.files if file.edited],
            "places": [file.to_json() for file in self.files],
        }

    @classmethod
    def from_json(cls, value: object) -> Inheritance | None:
        """Read back what `to_json` wrote; None if it is empty or the form is invalid."""
        if not isinstance(value, dict):
            return None
        inheritance = cls(
            _line(value.get("checkpoint")),
            _line(value.get("task")),
            _lines(value.get("next_steps"), MAX_STEPS),
            _lines(value.get("decisions"), MAX_DECISIONS),
            _lines(value.get("blockers"), MAX_BLOCKERS),
            _files(value.get("files"), value.get("places")),
        )
        return inheritance if inheritance != cls(inheritance.checkpoint) else None


def of(notes: Notes, files: list[WorkingFile], checkpoint: str) -> Inheritance | None:
    """Return what the next session inherits from these notes and files; None if nothing."""
    files_by_path = {file.path: file for file in files}
    now = notes.signals.now
    left = [_left(note, files_by_path.get(note.path), now) for note in notes.files]
    return Inheritance.from_json(
        {
            "checkpoint": checkpoint,
            "task": notes.current_task,
            "next_steps": notes.next_steps,
            "decisions": notes.decisions,
            "blockers": notes.blockers,
            "files": [file.path for file in left if file.edited],
            "places": [file.to_json() for file in left],
        }
    )


def _left(note: FileNote, file: WorkingFile | None, now: int) -> InheritedFile:
    if file is None:
        return InheritedFile(note.path, note.edited, touched=-now)
    changed = [Span(span.at - now, span.start, span.count) for span in file.hunks]
    read = [Span(span.at - now, span.start, span.count) for span in file.reads]
    spans = tuple(changed[-MAX_CHANGED_SPANS:]), tuple(read[-MAX_READ_SPANS:])
    return InheritedFile(note.path, note.edited, len(file.lines), min(0, file.touched - now), *spans)


def join(notes: Notes, before: Inheritance | None) -> Notes:
    """Add the inherited work to the notes, except for the task: prompts decide whether it is still the same."""
    if before is None:
        return notes
    if not notes.next_steps and not notes.tasks:
        notes.next_steps = list(before.next_steps)
    notes.decisions = list(dict.fromkeys([*notes.decisions, *before.decisions]))[:MAX_DECISIONS]
    if not notes.blockers:
        is_tested = notes.last_run is not None and notes.last_run.is_known
        ended = (TEST_FAILS if is_tested else "", WAITING if notes.prompts else "")
        over = tuple([beginning for beginning in ended if beginning])
        notes.blockers = [one for one in before.blockers if not one.startswith(over)]
    return with_files(notes, before)


def with_files(notes: Notes, before: Inheritance | None) -> Notes:
    """Append the inherited files to the notes' own."""
    own_paths = {file.path for file in notes.files}
    inherited = before.files if before is not None else ()
    notes.files += [file.as_note() for file in inherited if file.path not in own_paths]
    return notes


def with_places(notes: Notes, files: list[WorkingFile], before: Inheritance | None) -> list[WorkingFile]:
    """Return the session's files with the inherited places, followed by inherited files that it did not touch.

    The places are added to the notes of its own files too.
    """
    inherited = {file.path: file for file in before.files} if before is not None else {}
    noted = {note.path: note for note in notes.files if not note.is_inherited}
    for file in files:
        older = inherited.pop(file.path, None)
        if older is None:
            continue
        older = older.after_changes_of(file)
        file.hunks, file.reads = [*older.changed, *file.hunks], [*older.read, *file.reads]
        note, older_note = noted.get(file.path), older.as_note()
        if note is not None:
            note.edited = note.edited or older.edited
            note.changed, note.read = [*older_note.changed, *note.changed], [*older_note.read, *note.read]
    return [*files, *[file.as_file() for file in inherited.values()]]


def _line(value: object) -> str:
    line = " ".join(value.split()) if isinstance(value, str) else ""
    return line if len(line) <= MAX_CHARACTERS else head(line, MAX_CHARACTERS - 1).rstrip() + "…"


def _lines(value: object, most: int) -> tuple[str, ...]:
    lines = [_line(one) for one in value] if isinstance(value, list) else []
    return tuple([line for line in lines if line][:most])


def _files(paths: object, places: object) -> tuple[InheritedFile, ...]:
    """Return the files as inherited. `paths` are those of changed files; the others were only read."""
    edited = [one for one in paths if isinstance(one, str)] if isinstance(paths, list) else []
    listed = places if isinstance(places, list) else []
    inherited = [InheritedFile.from_json(one, frozenset(edited)) for one in listed]
    files = {file.path: file for file in inherited if file is not None}
    files |= {path: InheritedFile(path) for path in edited if path not in files and 0 < len(path) <= MAX_PATH_LENGTH}
    return tuple(files.values())[:MAX_FILES]


def _kept(spans: tuple[Span, ...]) -> list[list[int]]:
    """Return line, number of lines, and how many tool calls ago, for each span."""
    return [[span.start, span.count, -span.at] for span in spans]


def _spans(value: object, most: int) -> tuple[Span, ...]:
    listed = value[:most] if isinstance(value, list) else []
    numbers = [[_number(number) for number in one] for one in listed if isinstance(one, list) and len(one) == 3]
    return tuple([Span(-age, max(1, start), count) for start, count, age in numbers])


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value <= MAX_NUMBER else 0


def _moved(spans: Iterable[Span], start: int, by: int) -> tuple[Span, ...]:
    return tuple([Span(span.at, max(1, span.start + by), span.count) if span.start > start else span for span in spans])
