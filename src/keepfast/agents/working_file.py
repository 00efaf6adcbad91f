"""A file as the session knows it: its lines, and which of them were read or changed when."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Span:
    """Lines `start` to `start + count - 1`, counted from 1, met at the session's tool call number `at`."""

    at: int
    start: int
    count: int

    @property
    def end(self) -> int:
        """The last line; a deletion (count 0) ends where it starts."""
        return self.start + max(self.count, 1) - 1

    @property
    def is_placed(self) -> bool:
        """A change without a place says only that the file was changed."""
        return bool(self.count) or self.start > 1


@dataclass(slots=True)
class WorkingFile:
    """One file: `lines` holds None where the session never saw the text."""

    path: str
    lines: list[str | None] = field(default_factory=list)
    touched: int = 0
    hunks: list[Span] = field(default_factory=list)
    reads: list[Span] = field(default_factory=list)
    changed: bool = False  # the disk differs from what the session knew
    is_missing: bool = False  # from the disk
    sealed: bool = False  # a checkpoint seals it: it is named, and its text is not shown
    remark: str = ""  # the remark next to its name, in place of "changed"
    unshown: str = ""  # why nothing of it can be shown: it is a link, binary, …

    @property
    def edited(self) -> bool:
        return bool(self.hunks)

    def known(self) -> int:
        """Return how many lines' text is known."""
        return sum(line is not None for line in self.lines)
