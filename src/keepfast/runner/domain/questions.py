"""Questions of agents: which comes first, what counts as an answer, and what happens when nobody answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from unicodedata import normalize

BATCH = 3
TIMEOUT = 30 * 60 * 1_000_000_000
MAX_TRIES = 3
SIMILAR = 0.7
TASK_WEIGHT = {"critical": 100, "high": 50, "normal": 0, "low": -50}
CATEGORY_WEIGHT = {"business": 30, "clarification": 20, "choice": 10, "confirmation": 0}
MINUTE = 60 * 1_000_000_000
YES, NO = ("yes", "y", "true", "ok", "okay", "confirm", "approve"), ("no", "n", "false", "cancel", "reject")

PROVIDED, REFUSED = "provided", "refused"
"""What is written for a need that was met by a value, and for one that is not met."""
REFUSALS = (REFUSED, "refuse", "skip", *NO)

PENDING, PRESENTED, ANSWERED, EXPIRED, WITHDRAWN = "pending", "presented", "answered", "expired", "withdrawn"


class Checked(NamedTuple):
    """What became of an answer: taken as `value`, perhaps with a warning, or refused with a reason and a suggestion."""

    value: str | None
    warning: str = ""
    why: str = ""
    suggestion: str = ""
    similarity: float = 0.0


def priority(task: str, category: str, waiting: int) -> int:
    """How urgent a question is; grows by one with every minute of waiting."""
    return TASK_WEIGHT.get(task, 0) + CATEGORY_WEIGHT.get(category, 0) + max(waiting, 0) // MINUTE


def check(answer: str, options: Sequence[str], exactly: bool = False) -> Checked:
    """Compare an answer with the options: exact, then without regard to case; what is nearly one of them is asked about.

    Anything else is an answer in words of one's own. `exactly`: so is whatever is no option to the letter.
    """
    text = normalize("NFC", answer).strip()
    if not text:
        return Checked(None, why="The answer is empty.")
    if not options or text in options:
        return Checked(text)
    # What was typed is not said again: it may be a secret, and it is about to be sealed.
    own = Checked(text, warning="The answer is none of the options; it was taken as it is.")
    if exactly:
        return own
    by_fold = {_fold(option): option for option in options}
    if _fold(text) in by_fold:
        found = by_fold[_fold(text)]
        return Checked(found, warning=f"{text!r} was taken as {found!r}.")
    if text.isdigit() and 1 <= int(text) <= len(options):
        found = options[int(text) - 1]
        return Checked(found, warning=f"{text} was taken as the option {found!r}.")
    near = max(options, key=lambda option: similarity(_fold(text), _fold(option)))
    alike = similarity(_fold(text), _fold(near))
    if alike < SIMILAR:
        return own._replace(similarity=alike)
    return Checked(
        None, why=f"The answer is none of the options. Did you mean {near!r}?", suggestion=near, similarity=alike
    )


def similarity(one: str, other: str) -> float:
    """1 less the edit distance in relation to the longer text."""
    longest = max(len(one), len(other))
    if longest == 0:
        return 1.0
    if longest > 500:  # nobody mistypes an option of that length
        return 1.0 if one == other else 0.0
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        before, row[0] = row[0], number
        for place, against in enumerate(other, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (letter != against))
    return 1.0 - row[-1] / longest


class Late(NamedTuple):
    """What to do with a question that nobody answered in time."""

    status: str
    answer: str | None


def expire(required: bool, default: str) -> Late:
    """A required question keeps waiting; another one is answered by its default, or skipped."""
    return Late(PENDING, None) if required else Late(EXPIRED, default or "skip")


def key(text: str) -> str:
    """Questions with the same key are the same question."""
    return _fold(text).rstrip("?.! ")


def _fold(text: str) -> str:
    return " ".join(normalize("NFKC", text).casefold().split())
