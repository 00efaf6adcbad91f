"""Reviews: remarks on lines that become the next prompt, and what happens when nobody answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from keepfast.model.errors import Usage
from keepfast.runner.domain.prompts import aside

HOUR = 3600 * 1_000_000_000
REMINDERS = (24 * HOUR, 48 * HOUR, 72 * HOUR)
"""So long after a review began somebody is told again; the last time it is said to be overdue."""
MOST = 100_000
"""Letters that an agent can be told of a review; more is refused, never cut."""


class Remark(NamedTuple):
    """What somebody says about a file, or about a line of it.

    Line 0 is the whole file; a line below 0 is one that was taken away, by the number that it had.
    """

    path: str
    line: int
    text: str


def remark(where: str, text: str) -> Remark:
    """Read `path` or `path:line` and what is said there. Raises `Usage`."""
    path, colon, number = where.rpartition(":")
    if not colon or not number.isdigit():
        path, number = where, "0"
    if not path or "\n" in path or not text.strip():
        raise Usage(f"{where!r} is no place for a comment.", "Give a path, or path:line, and the comment.")
    return Remark(path, int(number), text.strip())


def rejected(comments: str, remarks: Sequence[Remark] = ()) -> str:
    """The prompt of a review that asks for changes. Raises `Usage` if it is more than an agent is told at once."""
    ordered = sorted(remarks, key=lambda one: (one.path, abs(one.line), one.line))
    listed = [f"- {one.path}{_line(one.line)}: " + one.text.replace("\n", "\n  ") for one in ordered]
    said = "\n\n".join([part for part in (comments.strip(), "\n".join(listed)) if part])
    if len(said) > MOST:
        raise Usage(f"The comments have {len(said):,} letters, more than {MOST:,}.", "Ask for fewer changes at once.")
    return "\n\n".join([aside("The review asks for changes:"), said, aside("Make them and complete the phase again.")])


def _line(number: int) -> str:
    if number < 0:
        return f", removed line {-number}"
    return f", line {number}" if number else ""


class Late(NamedTuple):
    """What is due of a review that waits: the number of reminders so far, whether it is overdue, whether it passes."""

    reminders: int
    overdue: bool
    passes: bool

    @property
    def hours(self) -> int:
        """The hours of the last reminder."""
        return REMINDERS[self.reminders - 1] // HOUR if self.reminders else 0


def late(waited: int, reminded: int, flagged: bool, passes_after: int) -> Late | None:
    """What is to be done now; None if nothing is. `passes_after` 0: a review never passes by itself.

    One whose verification still fails never does.
    """
    if passes_after and waited >= passes_after and not flagged:
        return Late(reminded, False, True)
    count = sum(waited >= mark for mark in REMINDERS)
    return Late(count, count == len(REMINDERS), False) if count > reminded else None
