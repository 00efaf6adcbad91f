"""File contents at any moment, rebuilt from the reads, edits and writes that a transcript records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from keepfast.agents.working_file import Span, WorkingFile

# A session that touches more keeps the newest; 100 MB transcripts must not become 100 MB of lines in memory.
MOST_FILES = 400
LONGEST_FILE = 12_000_000
KEPT_CHANGES = 60
LONGEST_CHANGE = 8_000


@dataclass(slots=True)
class Change:
    """Text that one call replaced."""

    at: int
    path: str
    old: str
    new: str


@dataclass(slots=True)
class Files:
    """What a session knows about files, in the order of its calls."""

    known: dict[str, WorkingFile] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def read(self, number: int, path: str, start: int, lines: list[str], total: int) -> None:
        """A range was shown. Text already known around it stays where the count of lines allows it."""
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
        """Text was replaced. The recorded original is the truth; without one the known lines are changed."""
        file = self._touch(path, number)
        hunks = _hunks(number, patch)
        if isinstance(original, str):
            text = original
            for old, new, everywhere in pairs:
                text = text.replace(old, new, -1 if everywhere else 1) if old else new + text
            file.lines = list(text.split("\n"))
        else:
            found = [_replace(file.lines, old, new) for old, new, _ in pairs]
            if not hunks:
                hunks = [
                    Span(number, start + 1, new.count("\n") + 1)
                    for start, (_, new, _) in zip(found, pairs, strict=True)
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
            self._remember(Change(number, path, old[:LONGEST_CHANGE], new[:LONGEST_CHANGE]))

    def write(self, number: int, path: str, content: str, patch: list[Any]) -> None:
        """The whole file was written."""
        file = self._touch(path, number)
        file.lines = list(content[:LONGEST_FILE].split("\n"))
        hunks = _hunks(number, patch)
        if not hunks:
            file.hunks = []
            hunks = [Span(number, 1, len(file.lines))]
        file.hunks += hunks
        self._remember(Change(number, path, "", content[:LONGEST_CHANGE]))

    def touch(self, number: int, path: str, edited: bool = False) -> None:
        """The file was named by a call whose text is not recorded."""
        file = self._touch(path, number)
        if edited:
            file.hunks.append(Span(number, 1, 0))

    def drop(self, path: str) -> None:
        self.known.pop(path, None)

    def rename(self, number: int, old: str, new: str) -> None:
        file = self.known.pop(old, None)
        if file is not None:
            file.path = new
            self.known[new] = file
        self._touch(new, number)

    def newest_first(self) -> list[WorkingFile]:
        return sorted(self.known.values(), key=lambda file: (-file.touched, file.path))

    def _touch(self, path: str, number: int) -> WorkingFile:
        file = self.known.get(path)
        if file is None:
            if len(self.known) >= MOST_FILES:
                oldest = min(self.known.values(), key=lambda file: (file.touched, file.path))
                del self.known[oldest.path]
            file = self.known[path] = WorkingFile(path)
        file.touched = max(file.touched, number)
        return file

    def _remember(self, change: Change) -> None:
        self.changes.append(change)
        if len(self.changes) > KEPT_CHANGES * 2:
            del self.changes[:-KEPT_CHANGES]


def _placed(known: list[str | None], at: int, lines: list[str], total: int) -> list[str | None]:
    """`lines` at their place in a file of `total` lines; what is known before and after stays, aligned to its own end."""
    end = at + len(lines)
    before = known[:at] + [None] * max(0, at - len(known))
    after = total - end
    rest: list[str | None]
    if not known or after <= 0:
        rest = [None] * max(after, 0)
    elif len(known) <= total:
        rest = known[end:] + [None] * max(0, after - len(known[end:]))
        # A file that has grown keeps its tail at the end.
        if len(known) < total and None not in known:
            rest = [*[None] * max(0, after - len(known)), *known[-after:]]
    else:
        rest = known[-after:]
    return [*before, *lines, *rest][: max(total, end)]


def _replace(lines: list[str | None], old: str, new: str) -> int:
    """Change the first place where `old` is known; return its line, or -1."""
    wanted: list[str | None] = list(old.split("\n"))
    for start in range(len(lines) - len(wanted) + 1):
        window = lines[start : start + len(wanted)]
        if None in window:
            continue
        text = "\n".join([line or "" for line in window])
        if old in text:
            lines[start : start + len(wanted)] = text.replace(old, new, 1).split("\n")
            return start
    return -1


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and 0 <= value < 10_000_000 else default


def _hunks(number: int, patch: list[Any]) -> list[Span]:
    """The lines that a recorded patch really changed: a hunk's unchanged first and last lines are left out."""
    spans = []
    for hunk in patch:
        if not isinstance(hunk, dict):
            continue
        start, count = _number(hunk.get("newStart"), 1), _number(hunk.get("newLines"), 0)
        lines = hunk.get("lines")
        if isinstance(lines, list) and lines and all(isinstance(line, str) for line in lines):
            shown = [line for line in lines if not line.startswith("\\")]
            lead = _context(shown)
            tail = _context(shown[::-1])
            if lead + tail < len(shown):
                start, count = start + lead, max(count - lead - tail, 0)
        spans.append(Span(number, start, count))
    return spans


def _context(lines: list[str]) -> int:
    kept = 0
    for line in lines:
        if not line.startswith(" "):
            break
        kept += 1
    return kept


def _grown(patch: list[Any], index: int) -> int:
    hunks = [hunk for hunk in patch if isinstance(hunk, dict)]
    if index >= len(hunks):
        return 0
    return _number(hunks[index].get("newLines"), 0) - _number(hunks[index].get("oldLines"), 0)


def _shift(spans: list[Span], at: int, by: int) -> None:
    """Move what lies below line `at`, and stretch what holds it."""
    if not by:
        return
    for span in spans:
        if span.start > at:
            span.start = max(1, span.start + by)
        elif span.end >= at:
            span.count = max(0, span.count + by)
