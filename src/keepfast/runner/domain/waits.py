"""How long to wait: back-off after crashes, resumes one after another, budgets, quiet hours. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from keepfast.model.age import amount
from keepfast.runner.domain.records import Limits

SECOND = 1_000_000_000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
FIRST, LONGEST = 30 * SECOND, 10 * MINUTE
FUSE = 4
"""So many times `max_attempts` runs of one phase within an hour, before a person is asked, whatever each of them led to."""
LEAST_JITTER, MOST_JITTER = 20 * SECOND, 90 * SECOND
STAGGER = 15 * SECOND


def backoff(failures: int, first: int = FIRST, longest: int = LONGEST) -> int:
    """Nanoseconds to wait after that many failures in a row; doubles, and stays below the longest."""
    return min(first << min(max(failures, 1) - 1, 30), longest)


def jitter(noise: float, least: int = LEAST_JITTER, most: int = MOST_JITTER) -> int:
    """Between least and most; `noise` is 0 to 1."""
    return least + int((most - least) * min(max(noise, 0.0), 1.0))


def stagger(due: Sequence[int], wanted: int, apart: int = STAGGER) -> int:
    """When to resume a task that wants to at `wanted`, given when others of its account do."""
    moment = wanted
    for other in sorted(due):
        if abs(other - moment) < apart:
            moment = other + apart
    return moment


class Budget(NamedTuple):
    """What a task may use; 0 is without limit."""

    tokens: int = 0
    money: float = 0.0
    seconds: int = 0

    @classmethod
    def of(cls, given: Limits) -> Budget:
        """As a task keeps it."""
        return cls(given.get("tokens", 0), given.get("money", 0.0), given.get("seconds", 0))


class Spent(NamedTuple):
    """What a task has used."""

    tokens: int = 0
    money: float = 0.0
    seconds: int = 0


NUDGES = (0.5, 0.75)


def used(budget: Budget, spent: Spent) -> tuple[float, str]:
    """The largest used part of the budget and what it is of; (0, "") without any limit."""
    parts = [
        (amount / limit, name)
        for name, amount, limit in zip(("tokens", "money", "time"), spent, budget, strict=True)
        if limit
    ]
    return max(parts) if parts else (0.0, "")


def nudge(budget: Budget, spent: Spent, told: float) -> float:
    """The highest mark that was passed and not told of yet; 0 if there is none."""
    part, _ = used(budget, spent)
    return max((mark for mark in NUDGES if told < mark <= part), default=0.0)


def describe(budget: Budget, spent: Spent) -> str:
    """What an agent is told of its budget; empty without one."""
    parts = []
    if budget.tokens:
        parts.append(f"{spent.tokens:,} of {budget.tokens:,} tokens")
    if budget.money:
        parts.append(f"${spent.money:.2f} of ${budget.money:.2f}")
    if budget.seconds:
        parts.append(f"{spent.seconds // 60} of {amount(budget.seconds // 60, 'minute')}")
    return f"Budget used so far: {', '.join(parts)}." if parts else ""


def is_quiet(minute_of_day: int, hours: str) -> bool:
    """Is this minute in `22:00-07:00`? An empty or odd text has no quiet hours."""
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
