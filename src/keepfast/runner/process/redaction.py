"""Redaction of secrets in texts, JSON values and lines of output, before any of it is written.

The shim uses this module: it imports only the standard library and `keepfast.secrets`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from keepfast.secrets import services
from keepfast.secrets.redaction import MAX_TEXT, find

KINDS = frozenset((*services.kinds(), "secret", "random", "base64", "authorization", "url-parameter", "password"))
MARK = re.compile(rf"\[redacted:(?:{'|'.join(sorted(map(re.escape, KINDS)))})#([0-9a-f]{{12}})\]")
"""The mark of a sealed value (`vault.py`), which must stay as it is. Its form has no room for a secret."""
SEALED = re.compile(r"encrypted:SEZWM[A-Za-z0-9+/]{48,}={0,2}")
"""A sealed value: `HFV1`, and at least an id, a nonce and a tag."""
IDS = frozenset((
    "id", "uuid", "session", "session_id", "sessionId", "tool_use_id", "parent_tool_use_id", "thread_id", "request_id",
    "checkpointId", "taskId", "message_id",
))  # fmt: skip
"""Fields with ids, which look random: only keys of known forms are redacted in them."""
GUESSED = frozenset(("random", "secret", "base64"))
"""Kinds of secrets that are recognised by the look of a value or by the word next to it."""
PROTOCOL = re.compile(
    r"^[ \t]*(?:\[/?(?:ERROR|DEPENDENCY_REQUEST|USER_QUESTION|PHASE_COMPLETE|CUSTOM_TASK_COMPLETE|PROGRESS)(?:_JSON)?\]"
    r"|===[ \t]*(?:PHASE[ \t]+\d{1,4}|CUSTOM[ \t]+TASK)[ \t]+COMPLETE[ \t]*===)[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
"""Lines of the protocol: no secret extends over one."""
OPENED = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY")
CLOSED = "-----END "
BEHIND, MAX_KEY_LENGTH = 1_000, 16_000
"""Characters of earlier lines that are searched together with new ones, and of a private key that has not ended."""

MIN_VALUE_LENGTH = 12
"""Minimum length of a variable's value that counts as a secret although neither its name nor a known form says so."""
PARTS = str.maketrans("-_./:,@ ", "        ")

Span = tuple[int, int, str]


def clean_text(text: str) -> str:
    """Return the text with each secret replaced by `[redacted:<kind>]`; marks of sealed values stay."""
    if SEALED.fullmatch(text):
        return text
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + " […]"
    return _without(text, spans(text))


def spans(text: str) -> list[Span]:
    """Return where the secrets of a text are, with their kinds; none extends into a mark or over a line of the protocol."""
    result: list[Span] = []
    for start, end in _between(text):
        result += [(start + first, start + last, kind) for first, last, kind in find(text[start:end])]
    return result


def clean(value: Any, name: str = "") -> Any:
    """Return a JSON value with the secrets in its texts redacted; `name` is the key or option of the value."""
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
    """Return whether a value with this name looks like a secret."""
    if SEALED.fullmatch(value):
        return False
    if spans(value):
        return True
    return bool(name) and MARK.search(value) is None and bool(find(f"{name} = {json.dumps(value, ensure_ascii=False)}"))


def is_telling(name: str, value: str) -> bool:
    """Return whether an environment variable is a secret: by its name, by its look, or because it can be nothing else."""
    return is_secret(name, value) or _is_noise(value)


class Lines:
    """Redacts lines of output as they arrive; earlier lines are remembered, so that a name there identifies a value here."""

    def __init__(self) -> None:
        self._before = ""

    def clean(self, data: bytes) -> bytes:
        """Return whole lines, redacted."""
        parts = []
        for is_json, text in _segments(data.decode("utf-8", "surrogateescape")):
            parts.append(_clean_json(text) if is_json else self._clean_plain(text))
        cleaned = "".join(parts)
        if data.endswith(b"\n") and not cleaned.endswith("\n"):
            cleaned += "\n"  # the end of the line may be part of a private key that continues
        return cleaned.encode("utf-8", "surrogateescape")

    def _clean_plain(self, text: str) -> str:
        before = self._before
        whole = before + text
        at = len(before)
        new = [(max(start, at), end, kind) for start, end, kind in spans(whole) if end > at]
        self._before = _remembered(whole)
        return _without(whole, new, at)


def _remembered(text: str) -> str:
    """Return the last lines of a text, or all of a private key that has not ended."""
    begun = [match.start() for match in OPENED.finditer(text)]
    if begun and CLOSED not in text[begun[-1] :] and len(text) - begun[-1] <= MAX_KEY_LENGTH:
        return text[begun[-1] :]
    if len(text) <= BEHIND:
        return text
    return text[-BEHIND:].partition("\n")[2]


def _segments(text: str) -> Iterator[tuple[bool, str]]:
    """Yield lines that are JSON objects one by one, and the others together."""
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
    """Return an object without duplicate keys. Raises `ValueError` if there are any: one would hide another."""
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
    """Return the name of an item of an object: its key, or the name that the object has next to `value`."""
    if key != "value":
        return key
    return next((value[one] for one in ("name", "key") if isinstance(value.get(one), str)), key)


def _is_noise(value: str) -> bool:
    """Return whether a value such as `9f86d081884c7d65` is neither short nor a path, an address, a number or words."""
    if len(value) < MIN_VALUE_LENGTH or value.startswith(("/", "~", ".")) or "://" in value or "\n" in value:
        return False
    parts = value.translate(PARTS).split()
    return any(len(part) >= MIN_VALUE_LENGTH // 2 and not part.isalpha() and not part.isdigit() for part in parts)


def option_before(words: list[Any] | tuple[Any, ...], number: int) -> str:
    """Return the option before a word of a command line, as the word's name; empty if there is none."""
    before = words[number - 1] if number else ""
    return before.lstrip("-") if isinstance(before, str) and before.startswith("-") else ""


def _between(text: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text between marks and lines of the protocol."""
    at = 0
    fixed = [match.span() for pattern in (MARK, PROTOCOL) for match in pattern.finditer(text)]
    for start, end in sorted(fixed):
        if start > at:
            yield at, start
        at = max(at, end)
    if at < len(text):
        yield at, len(text)


def _without(text: str, secrets: list[Span], at: int = 0) -> str:
    """Return the text from `at` on, with `[redacted:<kind>]` in the place of each secret."""
    parts = []
    for start, end, kind in secrets:
        parts += [text[at:start], f"[redacted:{kind}]"]
        at = end
    return "".join([*parts, text[at:]])
