"""How long ago something was, in words."""

from __future__ import annotations

SECOND = 1_000_000_000
UNITS = ((86_400, "day", "일"), (3_600, "hour", "시간"), (60, "minute", "분"), (1, "second", "초"))


def ago(nanoseconds: int, language: str = "en") -> str:
    """`12 seconds ago`, `1 hour ago`, `3 days ago`; in Korean if `language` is `ko`."""
    seconds = max(0, nanoseconds // SECOND)
    for length, word, korean in UNITS:
        if seconds >= length:
            count = seconds // length
            return f"{count}{korean} 전" if language == "ko" else f"{amount(count, word)} ago"
    return "방금" if language == "ko" else "just now"


def amount(count: int, word: str) -> str:
    """`1 hour`, `1,200 hours`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"
