"""JSON proper and nothing else: no NaN, text keys only, every mistake in a text a `ValueError`; and objects that are cut off."""

from __future__ import annotations

from json import JSONDecoder
from json.encoder import encode_basestring_ascii as _quote
from typing import Any

_SPACE = " \t\n\r"
_INFINITE = (float("inf"), float("-inf"))


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_decoder = JSONDecoder(parse_constant=_refuse)


def loads(text: str | bytes) -> Any:
    """Return the value. Raises `ValueError` on anything that is not exactly one JSON value."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"not UTF-8 at byte {error.start}") from None
    try:
        return _decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dumps(value: object) -> str:
    """Return compact ASCII JSON of dicts with string keys, lists, strings, numbers, booleans and None."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        if value != value or value in _INFINITE:
            raise ValueError("not a JSON number")
        return float.__repr__(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{_quote(key)}:{dumps(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([dumps(item) for item in value]) + "]"
    raise TypeError(f"no JSON form for {type(value).__name__}")


def load_truncated(text: str, inner: str) -> dict[str, Any]:
    """Return the complete members of a JSON object that is cut off.

    If the member `inner`, itself an object, is cut off, its complete members are included. Raises nothing: a text that is
    no object gives an empty dict.
    """
    members: dict[str, Any] = {}
    start = _past_space(text, 0)
    if text[start : start + 1] == "{":
        _members(text, start + 1, members, inner)
    return members


def _members(text: str, index: int, members: dict[str, Any], inner: str) -> None:
    while True:
        index = _past_space(text, index)
        end = _string_end(text, index)
        if end < 0:
            return
        key = text[index + 1 : end]
        index = _past_space(text, end + 1)
        if text[index : index + 1] != ":":
            return
        index = _past_space(text, index + 1)
        first = text[index : index + 1]
        if first == "{" and key == inner:
            members[key] = {}
            _members(text, index + 1, members[key], "")
            return  # what follows is large or not needed
        try:
            value, index = _decoder.raw_decode(text, index)
        except (ValueError, RecursionError):
            return
        if index == len(text) and type(value) in (int, float):
            return  # the rest of the number may be cut off
        members[key] = value
        index = _past_space(text, index)
        if text[index : index + 1] != ",":
            return
        index += 1


def _past_space(text: str, index: int) -> int:
    while text[index : index + 1] in _SPACE and index < len(text):
        index += 1
    return index


def _string_end(text: str, index: int) -> int:
    """Return the position of the closing quote of the string that begins at `index`; -1 if there is none."""
    if text[index : index + 1] != '"':
        return -1
    end = index
    while True:
        end = text.find('"', end + 1)
        if end < 0:
            return -1
        before = end
        while text[before - 1] == "\\":
            before -= 1
        if (end - before) % 2 == 0:
            return end
