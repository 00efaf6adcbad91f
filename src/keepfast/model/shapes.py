"""Check untrusted JSON values against a shape of nested types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MAX_TEXT, MAX_NUMBER = 1 << 20, 1 << 63
SPAN = "span"
"""Two numbers in a list."""


def fits(value: object, shape: Any) -> bool:
    """Return whether the value has this shape: a type, a list of one shape, or names with a shape each. Other names are ignored.

    The name `*` stands for all names. An integer is accepted as a float; no other type is accepted for another one.
    """
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(part, shape[0]) for part in value)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        every = shape.get("*")
        return all(fits(part, shape.get(name, every)) for name, part in value.items() if every or name in shape)
    if shape is SPAN:
        return isinstance(value, list) and len(value) == 2 and all(map(is_number, value))
    return _KINDS[shape](value)


def is_text(value: object) -> bool:
    """Return whether it is a text of limited length that can be encoded as UTF-8 or as the bytes of a file name."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        return False
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def is_number(value: object) -> bool:
    return type(value) in (int, float) and -MAX_NUMBER < value < MAX_NUMBER  # type: ignore[operator]


_KINDS: dict[type, Callable[[object], bool]] = {
    str: is_text,
    int: lambda value: type(value) is int and is_number(value),
    float: is_number,
    bool: lambda value: isinstance(value, bool),
}
