"""Extract the secret values of a sealed file, so that they can be redacted wherever else they appear."""

from __future__ import annotations

from keepfast.secrets.light_re import lazy
from keepfast.secrets.marks import is_secret_by_name
from keepfast.secrets.patterns import NAMED, PLACEHOLDER, PROSE
from keepfast.secrets.prose import WORD_PATH, is_public
from keepfast.secrets.redaction import WORDS, find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIN_VALUE_LENGTH, MAX_VALUE_LENGTH = 8, 4096
"""Shorter values occur in many texts by chance."""
ASSIGNED = lazy(
    r"(?m)^[ \t]{0,60}(?:export[ \t]+|set[ \t]+|-[ \t]+)?[\"']?(?P<name>[A-Za-z_][\w.-]{0,120})[\"']?[ \t]{0,8}[=:][ \t]{0,8}"
    r"(?:\"(?P<double>[^\"\r\n]*)\"|'(?P<single>[^'\r\n]*)'|(?P<bare>[^\s\"'#,;{}\[\]]+))"
)
LOGIN = lazy(r"(?:^|\s)(?:password|account)\s+(\S+)")
ADDRESS = lazy(r"://[^\s:/@]{0,256}:([^\s/@]{1,1024})@")
LOCATED = lazy(r"[a-z][a-z0-9+.-]*://\S*|~?\.{0,2}/\S*|[\w-]+(?:\.[\w-]+)+(?::\d+)?(?:/\S*)?")
"""An address, a path, or a host."""
ORDINARY = lazy(r"[A-Za-z]+(?:[-_. :/][A-Za-z]+)*(?:[-_. ]?v?\d{1,4}(?:\.\d{1,4}){0,3})?|[\d.:,TZ+ -]+")
"""Words, also followed by a version, and numbers, times and dates."""
HISTORY = b"_history"


def values_of(path: bytes, content: bytes) -> set[str]:
    """Return the secret values of a sealed file: every value if it is secret by its name, else those that are recognised."""
    text = content.decode("utf-8", "replace")
    spans = [(text[start:end].strip(), kind) for start, end, kind in find(text)]
    values = {value for value, kind in spans if kind != "secret" or _is_specific("password", value)}
    if is_secret_by_name(path) and not path.endswith(HISTORY):  # a history is full of words that are in every command
        values.update(_values(text))
    return {value for value in values if MIN_VALUE_LENGTH <= len(value) <= MAX_VALUE_LENGTH and "\n" not in value}


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
    for pattern in (LOGIN, ADDRESS):
        yield from [match[1] for match in pattern.finditer(text) if _is_specific("password", match[1])]
    alone = text.strip()
    if not any(sign in alone for sign in "\n =") and _is_specific("", alone):
        yield alone


def _is_specific(name: str, value: str) -> bool:
    """Is the value specific to this file, and not a word, number, path or URL that other texts have, too?"""
    if LOCATED.fullmatch(value) or WORD_PATH.fullmatch(value) or PLACEHOLDER.match(value) or is_public(value):
        return False
    if NAMED.search(name):
        return "-" in value or PROSE.match(value) is None
    return WORDS.fullmatch(value) is None and ORDINARY.fullmatch(value) is None
