"""Reviews: the remarks that become the agent's next prompt, and reminders if nobody answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from keepfast.model.errors import Usage
from keepfast.runner.domain.prompts import aside

HOUR = 3600 * 1_000_000_000
REMINDERS = (24 * HOUR, 48 * HOUR, 72 * HOUR)
"""When reminders of a review are sent, counted from its beginning; the last one says that it is overdue."""
MAX_REVIEW_CHARACTERS = 100_000
"""Maximum length of a review in characters; a longer one is refused, never cut."""


class Remark(NamedTuple):
    """A reviewer's comment on a file, or on a line of it.

    Line 0 means the whole file; a negative number means a removed line, by the number that it had.
    """

    path: str
    line: int
    text: str


def remark(where: str, text: str) -> Remark:
    """Parse `path` or `path:line` and return the remark. Raises `Usage`."""
    path, colon, number = where.rpartition(":")
    if not colon or not number.isdigit():
        path, number = where, "0"
    if not path or "\n" in path or not text.strip():
        raise Usage(f"{where!r} is not a path or a line.", "Give a path, or path:line, and the comment.")
    return Remark(path, int(number), text.strip())


def rejected(comments: str, remarks: Sequence[Remark] = ()) -> str:
    """Return the prompt for a review that asks for changes. Raises `Usage` if it is longer than `MAX_REVIEW_CHARACTERS`."""
    ordered = sorted(remarks, key=lambda each: (each.path, abs(each.line), each.line))
    listed = [f"- {each.path}{_line(each.line)}: " + each.text.replace("\n", "\n  ") for each in ordered]
    remarks_text = "\n\n".join([part for part in (comments.strip(), "\n".join(listed)) if part])
    if len(remarks_text) > MAX_REVIEW_CHARACTERS:
        raise Usage(
            f"The comments are too long: {len(remarks_text):,} characters, limit {MAX_REVIEW_CHARACTERS:,}.",
            "Ask for fewer changes at once.",
        )
    return "\n\n".join(
        [aside("The review asks for changes:"), remarks_text, aside("Make them and complete the phase again.")]
    )


def _line(number: int) -> str:
    if number < 0:
        return f", removed line {-number}"
    return f", line {number}" if number else ""


class LateReview(NamedTuple):
    """What is due for a waiting review: the number of reminders so far, whether it is overdue, whether it passes."""

    reminders: int
    overdue: bool
    passes: bool

    @property
    def hours(self) -> int:
        """Return after how many hours the last reminder was due."""
        return REMINDERS[self.reminders - 1] // HOUR if self.reminders else 0


def late(waited: int, reminded: int, flagged: bool, passes_after: int) -> LateReview | None:
    """Return what is due now; None if nothing is. With `passes_after` 0 a review never passes by itself.

    A review whose verification still fails (`flagged`) never does.
    """
    if passes_after and waited >= passes_after and not flagged:
        return LateReview(reminded, False, True)
    count = sum(waited >= mark for mark in REMINDERS)
    return LateReview(count, count == len(REMINDERS), False) if count > reminded else None
