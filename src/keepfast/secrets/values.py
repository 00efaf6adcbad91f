"""Extract the secret values of a sealed file, so that they can be redacted wherever else they appear."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from re import Match

from keepfast.secrets.lazy_pattern import lazy
from keepfast.secrets.marks import is_secret_by_name
from keepfast.secrets.patterns import CONTINUED, NAMED, PLACEHOLDER, PROSE
from keepfast.secrets.prose import WORD_PATH, is_public
from keepfast.secrets.redaction import WORDS, find, unescaped

MIN_VALUE_LENGTH, MAX_VALUE_LENGTH = 8, 4096
"""Shorter values occur in many texts by chance."""
MIN_LINE_LENGTH = 16
"""A shorter line of a value, such as the last one of a private key, says little."""
MAX_COMPARED_LENGTH = 500
"""It takes longer to compare a longer text with a file than to extract the file's values."""
ASSIGNED = lazy(
    r"(?m)^[ \t]{0,60}(?:export[ \t]+|set[ \t]+|-[ \t]+)?[\"']?(?P<name>[A-Za-z_][\w.-]{0,120})[\"']?[ \t]{0,8}[=:][ \t]{0,8}"
    r"(?:\"(?P<double>(?:[^\"\\\r\n]|\\.)*)\"|'(?P<single>[^'\r\n]*)'|(?P<bare>[^\s\"'#,;{}\[\]]+))"
)
LOGIN = lazy(r"(?:^|\s)(?:password|account)\s+(\S+)")
ADDRESS = lazy(r"://[^\s:/@]{0,256}:([^\s/@]{1,1024})@")
LOCATED = lazy(r"[a-z][a-z0-9+.-]*://\S*|~?\.{0,2}/\S*|[\w-]+(?:\.[\w-]+)+(?::\d+)?(?:/\S*)?")
"""An address, a path, or a host."""
BETWEEN_COLUMNS = lazy(r"(?<!\\)[:;,|\t]")
MAX_ASSIGNED_CELLS = 3
"""`host: name:8080` is no row; one of `.pgpass` has five cells."""
BACKSLASH = lazy(r"\\(.)")
CONTROL = {"n": "\n", "r": "\r", "t": "\t"}
ORDINARY = lazy(r"[A-Za-z]+(?:[-_. :/][A-Za-z]+)*(?:[-_. ]?v?\d{1,4}(?:\.\d{1,4}){0,3})?|[\d.:,TZ+ -]+")
"""Words, also followed by a version, and numbers, times and dates."""
HISTORY = b"_history"


class SealedFile:
    """A sealed file; its values are extracted when a text could repeat one, for most texts repeat none."""

    def __init__(self, path: bytes, content: bytes) -> None:
        self.path, self.content = path, content
        self._readings: tuple[str, ...] = ()
        self._values: set[str] | None = None

    def values_for(self, text: str) -> set[str]:
        """Return the file's values; nothing if the text, which is short, shares too few letters with it to repeat one."""
        if self._values is None:
            if len(text) <= MAX_COMPARED_LENGTH and not self._shares_letters(text):
                return set()
            self._values = values_of(self.path, self.content)
        return self._values

    def _shares_letters(self, text: str) -> bool:
        if not self._readings:
            readings = _readings(self.content)
            self._readings = tuple(dict.fromkeys([*readings, *map(_plain, readings)]))
        parts = [text[at : at + MIN_VALUE_LENGTH] for at in range(len(text) - MIN_VALUE_LENGTH + 1)]
        return any(part in reading for reading in self._readings for part in parts)


def values_of(path: bytes, content: bytes) -> set[str]:
    """Return the secret values of a sealed file: every value if it is secret by its name, else those that are recognised.

    A value is in it as it is written and without its escapes, one of several lines also line by line.
    """
    values: set[str] = set()
    for text in _readings(content):
        spans = [(text[start:end].strip(), kind) for start, end, kind in find(text)]
        values.update([value for value, kind in spans if kind != "secret" or _is_specific("password", value)])
        if is_secret_by_name(path) and not path.endswith(
            HISTORY
        ):  # a history is full of words that are in every command
            values.update(_values(text))
    lines = [line.strip() for value in values if "\n" in value for line in value.split("\n")]
    values.update([line for line in lines if len(line) >= MIN_LINE_LENGTH and " " not in line])
    values.update([_plain(value) for value in values])
    return {value for value in values if MIN_VALUE_LENGTH <= len(value) <= MAX_VALUE_LENGTH and "\n" not in value}


def _readings(content: bytes) -> list[str]:
    """Return the text, and the text with continued lines joined."""
    text = content.decode("utf-8", "replace")
    return [*dict.fromkeys((text, CONTINUED.sub("", text)))]


def _plain(value: str) -> str:
    """Return the value without its escapes."""
    return BACKSLASH.sub(_escaped_character, unescaped(value))


def _escaped_character(match: Match[str]) -> str:
    return CONTROL.get(match[1], match[1])


def redact_values(text: str, values: Iterable[str]) -> str:
    """Return the text with these values redacted; the longest first, as one may be part of another."""
    for value in sorted(values, key=len, reverse=True):
        if value in text:
            text = text.replace(value, "[redacted:secret]")
    return text


def _values(text: str) -> Iterator[str]:
    for match in ASSIGNED.finditer(text):
        value = match["double"] or match["single"] or match["bare"] or ""
        if _is_specific(match["name"], value):
            yield value
    yield from _cells(text)
    for pattern in (LOGIN, ADDRESS):
        yield from [match[1] for match in pattern.finditer(text) if _is_specific("password", match[1])]
    alone = text.strip()
    if not any(sign in alone for sign in "\n =") and _is_specific("", alone):
        yield alone


def _cells(text: str) -> Iterator[str]:
    """Yield the values of lines that are rows, as in `.pgpass` or a table."""
    for line in text.split("\n"):
        cells = [cell.strip(" \t\r\"'") for cell in BETWEEN_COLUMNS.split(line)]
        if "://" not in line and len(cells) > (MAX_ASSIGNED_CELLS if ASSIGNED.match(line) else 1):
            yield from [cell for cell in cells if " " not in cell and _is_specific("", cell)]


def _is_specific(name: str, value: str) -> bool:
    """Return whether the value is specific to this file, and not a word, number, path or URL that other texts have, too."""
    if LOCATED.fullmatch(value) or WORD_PATH.fullmatch(value) or PLACEHOLDER.match(value) or is_public(value):
        return False
    if NAMED.search(name):
        return "-" in value or PROSE.match(value) is None
    return WORDS.fullmatch(value) is None and ORDINARY.fullmatch(value) is None
