"""Cutting a file into blocks that an edit is likely to need whole."""

from __future__ import annotations

MAX_BLOCK_LINES = 16
MIN_BLOCK_LINES = 3
# A line that long is data or minified code; a brief can neither show nor use it.
MAX_LINE_LENGTH = 600
TAB = 4
CLOSING = ("}", ")", "]", "end")


def cut(lines: list[str | None], first: int = 0, last: int | None = None) -> list[tuple[int, int]]:
    """Return blocks of known lines as (first, last) indices: definitions stay together where they fit, and no block starts
    with a closing bracket."""
    blocks = []
    stop = len(lines) if last is None else min(len(lines), last + 1)
    usable = [line is not None and len(line) <= MAX_LINE_LENGTH for line in lines[first:stop]]
    usable.append(False)
    at = first
    while at < stop:
        if not usable[at - first]:
            at += 1
            continue
        end = first + usable.index(False, at - first)
        while at < end:
            after = _end(lines, at, end)
            blocks.append((at, after - 1))
            at = after
    return blocks


def _end(lines: list[str | None], start: int, end: int) -> int:
    """Return where the block that begins at `start` should end: after a blank line, before little indentation."""
    limit = min(end, start + MAX_BLOCK_LINES)
    best, best_worth = limit, -1000.0
    for at in range(start + MIN_BLOCK_LINES, limit + 1):
        if at >= end:
            return end
        before, after = lines[at - 1] or "", lines[at] or ""
        blank, bare = not before.strip(), after.strip()
        indent = indentation(after) if bare else 50
        if blank and indent == 0 and bare:
            return at
        worth = (20 if blank else 0) - min(indent, 16) + (at - start) * 0.3
        if not bare:
            worth -= 10
        elif bare.startswith(CLOSING):
            worth -= 15
        if worth >= best_worth:
            best, best_worth = at, worth
    return best


def indentation(line: str) -> int:
    """Return the number of columns before the first sign; a tab counts as four."""
    columns = 0
    for sign in line:
        if sign == " ":
            columns += 1
        elif sign == "\t":
            columns += TAB
        else:
            break
    return columns
