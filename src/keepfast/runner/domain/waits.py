"""Waiting times and budgets: back-off after crashes, staggered resumes, used budget, quiet hours. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from keepfast.model.age import amount
from keepfast.runner.domain.records import Limits

SECOND = 1_000_000_000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
FIRST_BACKOFF, MAX_BACKOFF = 30 * SECOND, 10 * MINUTE
RUNAWAY_FACTOR = 4
"""A person is asked after this many times `max_attempts` runs of one phase within an hour, however each of them ended."""
MIN_JITTER, MAX_JITTER = 20 * SECOND, 90 * SECOND
STAGGER = 15 * SECOND


def backoff(failures: int, first: int = FIRST_BACKOFF, longest: int = MAX_BACKOFF) -> int:
    """Return the nanoseconds to wait after this many failures in a row: doubled each time, at most `longest`."""
    return min(first << min(max(failures, 1) - 1, 30), longest)


def jitter(noise: float, least: int = MIN_JITTER, most: int = MAX_JITTER) -> int:
    """Return a time between `least` and `most`; `noise` is 0 to 1."""
    return least + int((most - least) * min(max(noise, 0.0), 1.0))


def stagger(due: Sequence[int], desired: int, distance: int = STAGGER) -> int:
    """Return when to resume a task, at `desired` or later, so that it keeps its distance from others of its account."""
    moment = desired
    for other in sorted(due):
        if abs(other - moment) < distance:
            moment = other + distance
    return moment


class Budget(NamedTuple):
    """What a task may use; 0 means no limit."""

    tokens: int = 0
    money: float = 0.0
    seconds: int = 0

    @classmethod
    def of(cls, limits: Limits) -> Budget:
        """Return the budget of a task's row."""
        return cls(limits.get("tokens", 0), limits.get("money", 0.0), limits.get("seconds", 0))


class Spent(NamedTuple):
    """What a task has used."""

    tokens: int = 0
    money: float = 0.0
    seconds: int = 0


BUDGET_MARKS = (0.5, 0.75)


def used(budget: Budget, spent: Spent) -> tuple[float, str]:
    """Return the largest used fraction of the budget and what it is of; (0, "") without any limit."""
    parts = [
        (amount / limit, name)
        for name, amount, limit in zip(("tokens", "money", "time"), spent, budget, strict=True)
        if limit
    ]
    return max(parts) if parts else (0.0, "")


def nudge(budget: Budget, spent: Spent, last_mark: float) -> float:
    """Return the highest of `BUDGET_MARKS` that was passed since `last_mark`; 0 if there is none."""
    part, _ = used(budget, spent)
    return max((mark for mark in BUDGET_MARKS if last_mark < mark <= part), default=0.0)


def describe(budget: Budget, spent: Spent) -> str:
    """Return the sentence about the budget in an agent's prompt; empty without a budget."""
    parts = []
    if budget.tokens:
        parts.append(f"{spent.tokens:,} of {budget.tokens:,} tokens")
    if budget.money:
        parts.append(f"${spent.money:.2f} of ${budget.money:.2f}")
    if budget.seconds:
        parts.append(f"{spent.seconds // 60} of {amount(budget.seconds // 60, 'minute')}")
    return f"Budget used so far: {', '.join(parts)}." if parts else ""


def is_quiet(minute_of_day: int, hours: str) -> bool:
    """Return whether this minute is within hours such as `22:00-07:00`; an empty or invalid text has no quiet hours."""
    begin, _, end = hours.partition("-")
    span = [_minute(begin), _minute(end)]
    if None in span or span[0] == span[1]:
        return False
    first, last = span
    assert first is not None
    assert last is not None
    inside = first <= minute_of_day < last
    return inside if first < last else not last <= minute_of_day < first


def _minute(text: str) -> int | None:
    hour, _, minute = text.strip().partition(":")
    if not (hour.isdigit() and (minute or "0").isdigit()):
        return None
    value = int(hour) * 60 + int(minute or 0)
    return value if int(hour) < 24 and int(minute or 0) < 60 else None
