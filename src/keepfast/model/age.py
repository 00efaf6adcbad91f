"""How long ago something was, in words."""

from __future__ import annotations

SECOND = 1_000_000_000
UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def ago(nanoseconds: int) -> str:
    """Return `12 seconds ago`, `1 hour ago`, `3 days ago`."""
    count, word = unit(nanoseconds)
    return f"{amount(count, word)} ago" if word else "just now"


def unit(nanoseconds: int) -> tuple[int, str]:
    """Return how many of the largest unit that fits: (3, "day"); (0, "") for less than a second."""
    seconds = max(0, nanoseconds // SECOND)
    for length, word in UNITS:
        if seconds >= length:
            return seconds // length, word
    return 0, ""


def amount(count: int, word: str) -> str:
    """Return `1 hour`, `1,200 hours`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"
