"""Edit JSON text in place: whatever is not changed keeps its bytes, order and white space."""

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
    """Return the members or elements of the container that opens at `at`. The text must be valid JSON."""
    is_object = text[at] == "{"
    members: list[Part] = []
    position = _skip(text, at + 1)
    while text[position] not in "}]":
        start, key = position, ""
        if is_object:
            key, position = _decoder.raw_decode(text, position)
            position = _skip(text, _skip(text, position) + 1)  # over the colon
        value, position = position, _decoder.raw_decode(text, position)[1]
        members.append(Part(key, start, value, position))
        position = _skip(text, position)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return members


def member(text: str, at: int, key: str) -> Part | None:
    """Return the member with that key; the last one if there are several, because that is what readers see."""
    return next((part for part in reversed(parts(text, at)) if part.key == key), None)


def append(text: str, at: int, value: Any, key: str = "") -> str:
    """Return the text with one more part at the end of the container, written in the style of the rest."""
    unit, newline = _style(text)
    members = parts(text, at)
    inner = _indent_of(text, at) + unit
    is_multiline = bool(unit)
    if members:
        gap = text[at + 1 : members[0].start]
        is_multiline = "\n" in gap
        if is_multiline:
            inner = gap.rpartition("\n")[2]
        between = (
            gap if is_multiline or len(members) == 1 else text[_comma(text, members[-2].end) + 1 : members[-1].start]
        )
        return (
            text[: members[-1].end]
            + ","
            + between
            + _written(value, key, inner, unit, newline, is_multiline)
            + text[members[-1].end :]
        )
    close = _skip(text, at + 1)
    if not is_multiline:
        return text[: at + 1] + _written(value, key, inner, unit, newline, is_multiline) + text[close:]
    outer = newline + _indent_of(text, at)
    return (
        text[: at + 1]
        + newline
        + inner
        + _written(value, key, inner, unit, newline, is_multiline)
        + outer
        + text[close:]
    )


def remove(text: str, at: int, index: int) -> str:
    """Return the text without that part: the reverse of `append`, where it was the last."""
    members = parts(text, at)
    if index > 0:
        return text[: members[index - 1].end] + text[members[index].end :]
    if len(members) > 1:
        return text[: members[0].start] + text[members[1].start :]
    return text[: at + 1] + text[_skip(text, members[0].end) :]


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in SPACE:
        at += 1
    return at


def _comma(text: str, at: int) -> int:
    return _skip(text, at)


def _style(text: str) -> tuple[str, str]:
    """Return one step of indentation, empty if everything is on one line, and the line ending."""
    newline = "\r\n" if "\r\n" in text else "\n"
    for line in text.split("\n")[1:]:
        step = line[: len(line) - len(line.lstrip(" \t"))]
        if step and line.strip():
            return step, newline
    return ("  " if len(text.strip()) <= 2 or "\n" in text.strip() else ""), newline


def _indent_of(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _written(value: Any, key: str, indent: str, unit: str, newline: str, is_multiline: bool) -> str:
    if is_multiline:
        lines = json.dumps(value, indent=unit or None, ensure_ascii=False).split("\n")
        body = (newline + indent).join(lines)
    else:
        body = json.dumps(value, ensure_ascii=False)
    return f"{json.dumps(key, ensure_ascii=False)}: {body}" if key else body
