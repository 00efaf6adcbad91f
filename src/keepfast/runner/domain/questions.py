"""Questions of agents: their priority, which answers are valid, and what happens if nobody answers in time. Pure."""

from __future__ import annotations

import re
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
NUMBER = re.compile(r"-?[0-9]{1,9}")
YES, NO = ("yes", "y", "true", "ok", "okay", "confirm", "approve"), ("no", "n", "false", "cancel", "reject")

PROVIDED, REFUSED = "provided", "refused"
"""The answers stored for a need that was met with a value, and for one that was refused."""
REFUSALS = (REFUSED, "refuse", "skip", *NO)

PENDING, PRESENTED, ANSWERED, EXPIRED, WITHDRAWN = "pending", "presented", "answered", "expired", "withdrawn"


class Checked(NamedTuple):
    """A checked answer: accepted as `value`, perhaps with a warning; or refused (None) with a reason and a suggestion."""

    value: str | None
    warning: str = ""
    why: str = ""
    suggestion: str = ""
    similarity: float = 0.0


def priority(task: str, category: str, waiting: int) -> int:
    """Return how urgent a question is; it grows by one with every minute of waiting."""
    return TASK_WEIGHT.get(task, 0) + CATEGORY_WEIGHT.get(category, 0) + max(waiting, 0) // MINUTE


def check(answer: str, options: Sequence[str], exactly: bool = False) -> Checked:
    """Compare an answer with the options: exactly, then ignoring case; one that is nearly an option is refused with a suggestion.

    A number is that of an option. Any other text is accepted as a free answer. With `exactly`, so is everything that is not
    literally an option.
    """
    text = normalize("NFC", answer).strip()
    if not text:
        return Checked(None, why="The answer is empty.")
    if not options or text in options:
        return Checked(text)
    # The warning does not repeat the answer: it may be a secret, and it is about to be sealed.
    own = Checked(text, warning="The answer is not one of the options; it was accepted as it is.")
    if exactly:
        return own
    by_fold = {_fold(option): option for option in options}
    if _fold(text) in by_fold:
        option = by_fold[_fold(text)]
        return Checked(option, warning=f"{text!r} was taken as {option!r}.")
    if NUMBER.fullmatch(text):
        number = int(text)
        if not 1 <= number <= len(options):
            numbered = ", ".join([f"{place} {option!r}" for place, option in enumerate(options, 1)])
            return Checked(None, why=f"There is no option {number}. The options are {numbered}.")
        option = options[number - 1]
        return Checked(option, warning=f"{text} was taken as the option {option!r}.")
    nearest = max(options, key=lambda option: similarity(_fold(text), _fold(option)))
    closeness = similarity(_fold(text), _fold(nearest))
    if closeness < SIMILAR:
        return own._replace(similarity=closeness)
    return Checked(
        None,
        why=f"The answer is not one of the options. Did you mean {nearest!r}?",
        suggestion=nearest,
        similarity=closeness,
    )


def similarity(text: str, other: str) -> float:
    """Return 1 minus the edit distance divided by the length of the longer text."""
    longest = max(len(text), len(other))
    if longest == 0:
        return 1.0
    if longest > 500:  # nobody mistypes an option of that length
        return 1.0 if text == other else 0.0
    row = list(range(len(other) + 1))
    for number, letter in enumerate(text, 1):
        before, row[0] = row[0], number
        for place, other_letter in enumerate(other, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (letter != other_letter))
    return 1.0 - row[-1] / longest


class LateQuestion(NamedTuple):
    """The status and answer of a question that nobody answered in time."""

    status: str
    answer: str | None


def expire(required: bool, default: str) -> LateQuestion:
    """Return what becomes of a late question: a required one keeps waiting, any other gets its default, or is skipped."""
    return LateQuestion(PENDING, None) if required else LateQuestion(EXPIRED, default or "skip")


def key(text: str) -> str:
    """Return the key of a question; questions with the same key are the same question."""
    return _fold(text).rstrip("?.! ")


def _fold(text: str) -> str:
    return " ".join(normalize("NFKC", text).casefold().split())
