"""File contents at any moment, rebuilt from the reads, edits and writes that a transcript records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from keepfast.agents.working_file import Span, WorkingFile

# A session that touches more keeps the newest; 100 MB transcripts must not become 100 MB of lines in memory.
MAX_FILES = 400
MAX_FILE_LENGTH = 12_000_000
KEPT_CHANGES = 60
MAX_CHANGE_LENGTH = 8_000


@dataclass(slots=True)
class RecordedChange:
    """Text that one call replaced."""

    at: int
    path: str
    old: str
    new: str


@dataclass(slots=True)
class Files:
    """The files of a session, rebuilt call by call."""

    by_path: dict[str, WorkingFile] = field(default_factory=dict)
    changes: list[RecordedChange] = field(default_factory=list)

    def read(self, number: int, path: str, start: int, lines: list[str], total: int) -> None:
        """Record a read range. Known text around it stays if the number of lines allows it."""
        file = self._touch(path, number)
        start = max(start, 1)
        total = max(total, start - 1 + len(lines))
        if start == 1 and len(lines) >= total:
            file.lines = list(lines)
        else:
            file.lines = _placed(file.lines, start - 1, lines, total)
        file.reads.append(Span(number, start, len(lines)))

    def edit(
        self, number: int, path: str, original: str | None, pairs: list[tuple[str, str, bool]], patch: list[Any]
    ) -> None:
        """Record replaced text, in the recorded original if there is one, else in the known lines."""
        file = self._touch(path, number)
        hunks = _hunks(number, patch)
        if isinstance(original, str):
            text = original
            for old, new, everywhere in pairs:
                text = text.replace(old, new, -1 if everywhere else 1) if old else new + text
            file.lines = list(text.split("\n"))
        else:
            starts = [_replace(file.lines, old, new) for old, new, _ in pairs]
            if not hunks:
                hunks = [
                    Span(number, start + 1, new.count("\n") + 1)
                    for start, (_, new, _) in zip(starts, pairs, strict=True)
                    if start >= 0
                ]
        for index, hunk in enumerate(hunks):
            grown = _grown(patch, index)
            _shift(file.hunks, hunk.start, grown)
            _shift(file.reads, hunk.start, grown)
            file.hunks.append(hunk)
        if not hunks:
            file.hunks.append(Span(number, 1, 0))
        for old, new, _ in pairs:
            self._remember(RecordedChange(number, path, old[:MAX_CHANGE_LENGTH], new[:MAX_CHANGE_LENGTH]))

    def write(self, number: int, path: str, content: str, patch: list[Any]) -> None:
        """Record that the whole file was written."""
        file = self._touch(path, number)
        file.lines = list(content[:MAX_FILE_LENGTH].split("\n"))
        hunks = _hunks(number, patch)
        if not hunks:
            file.hunks = []
            hunks = [Span(number, 1, len(file.lines))]
        file.hunks += hunks
        self._remember(RecordedChange(number, path, "", content[:MAX_CHANGE_LENGTH]))

    def touch(self, number: int, path: str, edited: bool = False) -> None:
        """Record that a call named the file, without its text."""
        file = self._touch(path, number)
        if edited:
            file.hunks.append(Span(number, 1, 0))

    def drop(self, path: str) -> None:
        self.by_path.pop(path, None)

    def rename(self, number: int, old: str, new: str) -> None:
        file = self.by_path.pop(old, None)
        if file is not None:
            file.path = new
            self.by_path[new] = file
        self._touch(new, number)

    def newest_first(self) -> list[WorkingFile]:
        return sorted(self.by_path.values(), key=lambda file: (-file.touched, file.path))

    def _touch(self, path: str, number: int) -> WorkingFile:
        file = self.by_path.get(path)
        if file is None:
            if len(self.by_path) >= MAX_FILES:
                oldest = min(self.by_path.values(), key=lambda file: (file.touched, file.path))
                del self.by_path[oldest.path]
            file = self.by_path[path] = WorkingFile(path)
        file.touched = max(file.touched, number)
        return file

    def _remember(self, change: RecordedChange) -> None:
        self.changes.append(change)
        if len(self.changes) > KEPT_CHANGES * 2:
            del self.changes[:-KEPT_CHANGES]


def _placed(old_lines: list[str | None], at: int, lines: list[str], total: int) -> list[str | None]:
    """Return a file of `total` lines with `lines` at `at`; known lines before and after stay, aligned to the file's ends."""
    end = at + len(lines)
    before = old_lines[:at] + [None] * max(0, at - len(old_lines))
    after = total - end
    rest: list[str | None]
    if not old_lines or after <= 0:
        rest = [None] * max(after, 0)
    elif len(old_lines) <= total:
        rest = old_lines[end:] + [None] * max(0, after - len(old_lines[end:]))
        # A file that has grown keeps its tail at the end.
        if len(old_lines) < total and None not in old_lines:
            rest = [*[None] * max(0, after - len(old_lines)), *old_lines[-after:]]
    else:
        rest = old_lines[-after:]
    return [*before, *lines, *rest][: max(total, end)]


def _replace(lines: list[str | None], old: str, new: str) -> int:
    """Change the first place where `old` is known; return its line, or -1."""
    old_lines: list[str | None] = list(old.split("\n"))
    for start in range(len(lines) - len(old_lines) + 1):
        window = lines[start : start + len(old_lines)]
        if None in window:
            continue
        text = "\n".join([line or "" for line in window])
        if old in text:
            lines[start : start + len(old_lines)] = text.replace(old, new, 1).split("\n")
            return start
    return -1


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and 0 <= value < 10_000_000 else default


def _hunks(number: int, patch: list[Any]) -> list[Span]:
    """Return the lines that a recorded patch changed, without the unchanged lines around them."""
    spans = []
    for hunk in patch:
        if not isinstance(hunk, dict):
            continue
        start, count = _number(hunk.get("newStart"), 1), _number(hunk.get("newLines"), 0)
        lines = hunk.get("lines")
        if isinstance(lines, list) and lines and all(isinstance(line, str) for line in lines):
            body = [line for line in lines if not line.startswith("\\")]
            lead = _context(body)
            tail = _context(body[::-1])
            if lead + tail < len(body):
                start, count = start + lead, max(count - lead - tail, 0)
        spans.append(Span(number, start, count))
    return spans


def _context(lines: list[str]) -> int:
    count = 0
    for line in lines:
        if not line.startswith(" "):
            break
        count += 1
    return count


def _grown(patch: list[Any], index: int) -> int:
    hunks = [hunk for hunk in patch if isinstance(hunk, dict)]
    if index >= len(hunks):
        return 0
    return _number(hunks[index].get("newLines"), 0) - _number(hunks[index].get("oldLines"), 0)


def _shift(spans: list[Span], at: int, by: int) -> None:
    """Move spans below line `at` by so many lines, and extend those that contain it."""
    if not by:
        return
    for span in spans:
        if span.start > at:
            span.start = max(1, span.start + by)
        elif span.end >= at:
            span.count = max(0, span.count + by)
