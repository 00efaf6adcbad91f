"""Events of a task as pairs of a label and a value, without what the page shows elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from keepfast.present.terminal import size
from keepfast.web.markup import account_windows

Words = Callable[[str], str]
HIDDEN = frozenset(
    ("sequence", "timestamp", "taskId", "run", "type", "metadata", "output", "checkpointId", "pid", "session", "id",
     "trigger", "taskType", "from", "to", "fromState", "toState", "flagged")
)  # fmt: skip
"""Keys that are shown elsewhere or are of use to programs only; the API's log has all."""
ENUMS = frozenset(("reason", "outcome", "gate", "kind", "what", "hold", "as", "recovery"))
ENUM = re.compile(r"[a-z0-9_]+")
"""A word of ours; anything else is text, in which names of variables stay as they are."""
PLAIN = frozenset(("text", "title", "why", "error", "message", "answer", "name", *ENUMS))
"""Values that need no label."""
MAX_VALUE_CHARACTERS = 160


def facts(event: dict[str, Any], words: Words) -> list[tuple[str, str]]:
    """Return the facts of an event as pairs of label and value, in order."""
    if event.get("type") == "state_transition":
        return [("", text) for text in _transition(event, words)]
    pairs = []
    for key, value in event.items():
        if key in HIDDEN or (value in (None, "", [], {}, 0, False) and key != "fraction"):
            continue
        if key == "account" and isinstance(value, dict):
            pairs += [(words(name.replace("_", " ")), f"{part:.0f} %") for name, part in account_windows(value).items()]
            continue
        pairs.append(("" if key in PLAIN or key in FORMATTERS else words(_label(key)), _formatted(key, value, words)))
    if event.get("passed") is False:
        pairs.append(("", words("failed")))
    return pairs


def _transition(event: dict[str, Any], words: Words) -> list[str]:
    """Return the state transition; if only a hold began or ended, the hold."""
    about = event.get("metadata") or {}
    if event.get("fromState") != event.get("toState"):
        before, after = [str(event.get(key)).replace("_", " ") for key in ("from", "to")]
        return [f"{words(before)} → {words(after)}"]
    hold = str(about.get("hold") or "").replace("_", " ")
    return [f"{words('On hold')}: {words(hold)}"] if hold else [words("continues")]


def _formatted(key: str, value: Any, words: Words) -> str:
    shape = FORMATTERS.get(key)
    if shape is not None and isinstance(value, int | float):
        return shape(value, words)
    if key in ENUMS and isinstance(value, str):
        return words(value.replace("_", " ") if ENUM.fullmatch(value) else value)[:MAX_VALUE_CHARACTERS]
    if isinstance(value, bool):
        return words("yes")
    return f"{value:,}" if type(value) is int else str(value)[:MAX_VALUE_CHARACTERS]


def _label(key: str) -> str:
    """Return a key such as `resetsAt` or `messages_restored` as words."""
    return "".join([f" {char.lower()}" if char.isupper() else char for char in key]).replace("_", " ")


FORMATTERS: dict[str, Callable[[Any, Words], str]] = {
    "size": lambda value, words: size(value),
    "durationMs": lambda value, words: f"{value:,} ms",
    "duration_ms": lambda value, words: f"{value:,} ms",
    "fraction": lambda value, words: f"{100 * value:.0f} %",
    "percent": lambda value, words: f"{value:.0f} %",
    "passed": lambda value, words: words("passed") if value else words("failed"),
    "resumed": lambda value, words: words("resumed"),
    "tokens": lambda value, words: f"{value:,} {words('tokens')}",
    "exit": lambda value, words: f"{words('exit code')} {value}",
    "phase": lambda value, words: f"{words('phase')} {value}",
    "attempt": lambda value, words: f"{words('attempt')} {value}",
}
"""How values with a unit are written; they need no label."""
