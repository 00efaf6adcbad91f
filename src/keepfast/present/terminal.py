"""Colours, tables, sizes and ages for terminals; wide characters count as two columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from unicodedata import category

from keepfast.model.age import ago, amount
from keepfast.workspace.diff import display_width

STYLE_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
SECOND = 1_000_000_000
AGE_UNITS = ((60, 1, "s"), (3600, 60, "m"), (86400, 3600, "h"), (30 * 86400, 86400, "d"))
OUR_COLOURS = re.compile(r"(\x1b\[(?:0|[12]|3[12346])(?:;(?:[12]|3[12346]))*m)")
"""Matches the escape sequences that `Paint` writes, and no others."""
SIZE_UNITS = ("B", "KB", "MB", "GB", "TB")


class Paint:
    """Colours text if `enabled`; `columns` is the width of the terminal, None if the output is no terminal."""

    def __init__(self, enabled: bool, columns: int | None) -> None:
        self.enabled, self.columns = enabled, columns

    def __call__(self, style: str, text: str) -> str:
        if not self.enabled or not style or not text:
            return text
        return f"\x1b[{';'.join([STYLE_CODES[word] for word in style.split()])}m{text}\x1b[0m"

    def table(
        self, head: Sequence[str], rows: Sequence[Sequence[str]], *, right: str = "", give: int = -1
    ) -> list[str]:
        """Lay out rows in columns; `right` has an `r` for each column to align right. Column `give` is cut to fit."""
        cells = [list(head), *[list(row) for row in rows]]
        widths = [max(width(row[column]) for row in cells) for column in range(len(head))]
        if self.columns is not None and give >= 0:
            spare = self.columns - sum(widths) - 2 * (len(widths) - 1)
            widths[give] = max(widths[give] + min(spare, 0), 8)
        lines = []
        for number, row in enumerate(cells):
            if give >= 0:
                row[give] = shorten(row[give], widths[give])
            parts = [pad(text, widths[at], right[at : at + 1] == "r") for at, text in enumerate(row)]
            line = "  ".join(parts).rstrip()
            lines.append(self("bold", line) if number == 0 else line)
        return lines


def width(text: str) -> int:
    """Return the number of terminal columns that the text takes."""
    if text.isascii():
        return len(text)
    return display_width(text)


def pad(text: str, columns: int, right: bool = False) -> str:
    space = " " * (columns - width(text))
    return space + text if right else text + space


def shorten(text: str, columns: int) -> str:
    """Shorten the text to so many columns, with an ellipsis if it was longer."""
    if width(text) <= columns:
        return text
    while text and width(text) > columns - 1:
        text = text[:-1]
    return text + "…"


def one_line(text: str) -> str:
    """Return the first line of a text, with control characters escaped."""
    lines = text.splitlines() or [""]
    more = " …" if len(lines) > 1 else ""
    return printable(lines[0]) + more


def printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text])


def harmless(text: str, coloured: bool = False) -> str:
    """Escape control, invisible and bidirectional characters in a text for a terminal.

    Newlines and tabs stay, and so do our own colours if `coloured`.
    """
    if text.isprintable():
        return text
    parts = OUR_COLOURS.split(text) if coloured else [text]
    return "".join([part if number % 2 else _escaped(part) for number, part in enumerate(parts)])


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        [
            char
            if char.isprintable() or char in "\n\t" or category(char) == "Zs"
            else char.encode("unicode_escape", "surrogatepass").decode("ascii")
            for char in text
        ]
    )


def size(count: int) -> str:
    """Format bytes as `512B`, `24KB`, `1.5MB`."""
    amount = float(count)
    for unit in SIZE_UNITS:
        if amount < 999.5 or unit == SIZE_UNITS[-1]:
            return f"{amount:.1f}{unit}" if amount < 9.95 and amount != int(amount) else f"{amount:.0f}{unit}"
        amount /= 1024
    raise AssertionError


def age(then: int, now: int) -> str:
    """Format an age as `12s ago`, `5m ago`, `3h ago`, `2d ago`, or as a date after 30 days."""
    seconds = max(0, now - then) // SECOND
    for limit, unit, letter in AGE_UNITS:
        if seconds < limit:
            return f"{seconds // unit}{letter} ago" if seconds else "now"
    return local(then)[:10]


def age_in_words(then: int, now: int) -> str:
    """Format an age as `12 seconds ago`, `1 hour ago`."""
    return ago(now - then)


def plural(count: int, word: str) -> str:
    return amount(count, word)


def rfc3339(moment: int) -> str:
    """Format nanoseconds since 1970 as `2026-03-01T09:00:00.123456Z`."""
    seconds, rest = divmod(moment, SECOND)
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest // 1000:06d}Z"
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00.000000Z"


def local(moment: int) -> str:
    """Format nanoseconds since 1970 as local time, `2026-03-01 09:00:00`."""
    try:
        return datetime.fromtimestamp(moment // SECOND).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "?"
