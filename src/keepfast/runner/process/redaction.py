"""What looks like a secret, taken out of texts, JSON values and lines of output before any of it is written.

The shim uses this as well: it imports the standard library and `keepfast.secrets` only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from keepfast.secrets import services
from keepfast.secrets.redaction import MOST_TEXT, find

KINDS = frozenset((*services.kinds(), "secret", "random", "base64", "authorization", "url-parameter", "password"))
MARK = re.compile(rf"\[redacted:(?:{'|'.join(sorted(map(re.escape, KINDS)))})#([0-9a-f]{{12}})\]")
"""Stands for a value that was sealed (`vault.py`); it is no secret, and must stay as it is. No other word has room in it."""
SEALED = re.compile(r"encrypted:SEZWM[A-Za-z0-9+/]{48,}={0,2}")
"""A value as the store seals it: `HFV1`, and at least an id, a nonce and a tag."""
IDS = frozenset((
    "id", "uuid", "session", "session_id", "sessionId", "tool_use_id", "parent_tool_use_id", "thread_id", "request_id",
    "checkpointId", "taskId", "message_id",
))  # fmt: skip
"""Fields of programs' lines and of events whose values look random and are none: only keys of known forms count there."""
GUESSED = frozenset(("random", "secret", "base64"))
"""Kinds that are told by the look of a value or by the word beside it."""
PROTOCOL = re.compile(
    r"^[ \t]*(?:\[/?(?:ERROR|DEPENDENCY_REQUEST|USER_QUESTION|PHASE_COMPLETE|CUSTOM_TASK_COMPLETE|PROGRESS)(?:_JSON)?\]"
    r"|===[ \t]*(?:PHASE[ \t]+\d{1,4}|CUSTOM[ \t]+TASK)[ \t]+COMPLETE[ \t]*===)[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
"""Lines that a supervisor goes by: no value of the line before reaches over one."""
OPENED = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY")
CLOSED = "-----END "
BEHIND, LONGEST_KEY = 1_000, 16_000
"""Characters of the lines before that are looked at together with new ones; those of a private key that has not ended."""

SHORTEST = 12
"""Letters of a value that is taken for a secret although neither its name nor its look says so."""
PARTS = str.maketrans("-_./:,@ ", "        ")

Span = tuple[int, int, str]


def clean_text(text: str) -> str:
    """Return the text with each secret replaced by `[redacted:<kind>]`; marks of sealed values stay."""
    if SEALED.fullmatch(text):
        return text
    if len(text) > MOST_TEXT:
        text = text[:MOST_TEXT] + " […]"
    return _without(text, spans(text))


def spans(text: str) -> list[Span]:
    """Where the secrets of a text are, and of which kind; none reaches into a mark or over a line of the protocol."""
    result: list[Span] = []
    for start, end in _between(text):
        result += [(start + first, start + last, kind) for first, last, kind in find(text[start:end])]
    return result


def clean(value: Any, name: str = "") -> Any:
    """Return a JSON value without the secrets in its texts; `name` is what the value is called where it stands."""
    if isinstance(value, str):
        return _clean_named(name, value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean(item, _called(value, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [
            clean(item, option_before(value, number) if isinstance(item, str) else name)
            for number, item in enumerate(value)
        ]
    return value


def is_secret(name: str, value: str) -> bool:
    """Does a value that is called so look like a secret?"""
    if SEALED.fullmatch(value):
        return False
    if spans(value):
        return True
    return bool(name) and MARK.search(value) is None and bool(find(f"{name} = {json.dumps(value, ensure_ascii=False)}"))


def is_telling(name: str, value: str) -> bool:
    """Would a variable of an agent's environment tell a secret? By its name, by its look, or because it can be nothing else."""
    return is_secret(name, value) or _is_noise(value)


class Lines:
    """Lines of output, redacted as they come; what stood before is remembered, so that a value is known by its name there."""

    def __init__(self) -> None:
        self._before = ""

    def clean(self, data: bytes) -> bytes:
        """Take whole lines, return them without secrets."""
        parts = []
        for is_json, text in _segments(data.decode("utf-8", "surrogateescape")):
            parts.append(_clean_json(text) if is_json else self._clean_plain(text))
        cleaned = "".join(parts)
        if data.endswith(b"\n") and not cleaned.endswith("\n"):
            cleaned += "\n"  # a private key that goes on would take the end of the line with it
        return cleaned.encode("utf-8", "surrogateescape")

    def _clean_plain(self, text: str) -> str:
        before = self._before
        whole = before + text
        at = len(before)
        new = [(max(start, at), end, kind) for start, end, kind in spans(whole) if end > at]
        self._before = _remembered(whole)
        return _without(whole, new, at)


def _remembered(text: str) -> str:
    """The last lines of a text, and all of a private key that has not ended."""
    begun = [match.start() for match in OPENED.finditer(text)]
    if begun and CLOSED not in text[begun[-1] :] and len(text) - begun[-1] <= LONGEST_KEY:
        return text[begun[-1] :]
    if len(text) <= BEHIND:
        return text
    return text[-BEHIND:].partition("\n")[2]


def _segments(text: str) -> Iterator[tuple[bool, str]]:
    """Lines that are JSON objects, one by one, and the others together."""
    plain: list[str] = []
    for line in text.splitlines(keepends=True) if "{" in text else ():
        if line.startswith("{") and line.rstrip().endswith("}"):
            if plain:
                yield False, "".join(plain)
                plain = []
            yield True, line
        else:
            plain.append(line)
    if "{" not in text:
        yield False, text
    elif plain:
        yield False, "".join(plain)


def _clean_json(line: str) -> str:
    try:
        value = json.loads(line, object_pairs_hook=_once)
        cleaned = clean(value)
    except (ValueError, RecursionError):
        return clean_text(line)
    if cleaned == value:
        return line
    return json.dumps(cleaned, ensure_ascii=False, separators=(",", ":")) + line[len(line.rstrip("\r\n")) :]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, none of whose keys hides another. Raises `ValueError`."""
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key is there twice")
    return result


def _clean_named(name: str, value: str) -> str:
    if name in IDS:
        return _without(value, [span for span in spans(value) if span[2] not in GUESSED])
    cleaned = clean_text(value)
    return "[redacted:secret]" if cleaned == value and is_secret(name, value) else cleaned


def _called(value: dict[Any, Any], key: str) -> str:
    """What an item of an object is called: by its key, or by the name that stands beside its value."""
    if key != "value":
        return key
    return next((value[one] for one in ("name", "key") if isinstance(value.get(one), str)), key)


def _is_noise(value: str) -> bool:
    """Is a value neither short, nor a path, an address, a number or words? `9f86d081884c7d65` is nothing of that kind."""
    if len(value) < SHORTEST or value.startswith(("/", "~", ".")) or "://" in value or "\n" in value:
        return False
    parts = value.translate(PARTS).split()
    return any(len(part) >= SHORTEST // 2 and not part.isalpha() and not part.isdigit() for part in parts)


def option_before(words: list[Any] | tuple[Any, ...], number: int) -> str:
    """What a word of a command line is called by the option before it."""
    before = words[number - 1] if number else ""
    return before.lstrip("-") if isinstance(before, str) and before.startswith("-") else ""


def _between(text: str) -> Iterator[tuple[int, int]]:
    """The parts of a text between marks and lines of the protocol."""
    at = 0
    fixed = [match.span() for pattern in (MARK, PROTOCOL) for match in pattern.finditer(text)]
    for start, end in sorted(fixed):
        if start > at:
            yield at, start
        at = max(at, end)
    if at < len(text):
        yield at, len(text)


def _without(text: str, secrets: list[Span], at: int = 0) -> str:
    """The text from `at` on, with `[redacted:<kind>]` in the place of what was found."""
    parts = []
    for start, end, kind in secrets:
        parts += [text[at:start], f"[redacted:{kind}]"]
        at = end
    return "".join([*parts, text[at:]])
