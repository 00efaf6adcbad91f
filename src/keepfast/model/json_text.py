"""Editing JSON in its own text: what is not changed keeps its bytes, its order and its white space."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

SPACE = " \t\r\n"
_decoder = json.JSONDecoder()


class Part(NamedTuple):
    """A member of an object or an element of a list, by its place in the text."""

    key: str
    start: int
    """Where the key begins, or the element."""
    value: int
    end: int


def parts(text: str, at: int) -> list[Part]:
    """What the container that opens at `at` holds. The text must be valid JSON."""
    named = text[at] == "{"
    found: list[Part] = []
    here = _skip(text, at + 1)
    while text[here] not in "}]":
        start, key = here, ""
        if named:
            key, here = _decoder.raw_decode(text, here)
            here = _skip(text, _skip(text, here) + 1)  # over the colon
        value, here = here, _decoder.raw_decode(text, here)[1]
        found.append(Part(key, start, value, here))
        here = _skip(text, here)
        if text[here] == ",":
            here = _skip(text, here + 1)
    return found


def member(text: str, at: int, key: str) -> Part | None:
    """The member of that key; of several the last, which is the one that readers see."""
    return next((part for part in reversed(parts(text, at)) if part.key == key), None)


def append(text: str, at: int, value: Any, key: str = "") -> str:
    """Return the text with one more part at the end of the container, written in the style of the rest."""
    unit, newline = _style(text)
    held = parts(text, at)
    inner = _indent_of(text, at) + unit
    broken = bool(unit)
    if held:
        gap = text[at + 1 : held[0].start]
        broken = "\n" in gap
        if broken:
            inner = gap.rpartition("\n")[2]
        between = gap if broken or len(held) == 1 else text[_comma(text, held[-2].end) + 1 : held[-1].start]
        return (
            text[: held[-1].end]
            + ","
            + between
            + _written(value, key, inner, unit, newline, broken)
            + text[held[-1].end :]
        )
    close = _skip(text, at + 1)
    if not broken:
        return text[: at + 1] + _written(value, key, inner, unit, newline, broken) + text[close:]
    outer = newline + _indent_of(text, at)
    return text[: at + 1] + newline + inner + _written(value, key, inner, unit, newline, broken) + outer + text[close:]


def remove(text: str, at: int, index: int) -> str:
    """Return the text without that part: the reverse of `append`, where it was the last."""
    held = parts(text, at)
    if index > 0:
        return text[: held[index - 1].end] + text[held[index].end :]
    if len(held) > 1:
        return text[: held[0].start] + text[held[1].start :]
    return text[: at + 1] + text[_skip(text, held[0].end) :]


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in SPACE:
        at += 1
    return at


def _comma(text: str, at: int) -> int:
    return _skip(text, at)


def _style(text: str) -> tuple[str, str]:
    """One step of indentation, empty if all stands on one line; and the end of a line."""
    newline = "\r\n" if "\r\n" in text else "\n"
    for line in text.split("\n")[1:]:
        step = line[: len(line) - len(line.lstrip(" \t"))]
        if step and line.strip():
            return step, newline
    return ("  " if len(text.strip()) <= 2 or "\n" in text.strip() else ""), newline


def _indent_of(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _written(value: Any, key: str, indent: str, unit: str, newline: str, broken: bool) -> str:
    if broken:
        lines = json.dumps(value, indent=unit or None, ensure_ascii=False).split("\n")
        body = (newline + indent).join(lines)
    else:
        body = json.dumps(value, ensure_ascii=False)
    return f"{json.dumps(key, ensure_ascii=False)}: {body}" if key else body
