"""Events of tasks in words: the lines that `task log` and `supervise` print."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from keepfast.present.terminal import size

HIDDEN = frozenset(("sequence", "timestamp", "taskId", "type", "run"))
AGENT_STATES = {
    "alive": "its agent is running", "over": "its agent has ended", "lost": "its agent was interrupted",
    "absent": "its agent was not started",
}  # fmt: skip
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


def log_line(event: dict[str, Any]) -> str:
    """Return the line of an event in `task log`: time, type and facts."""
    return f"{local_time(event['timestamp'])}  {event['type']}  {_line(facts(event))}".rstrip()


def facts(event: dict[str, Any]) -> str:
    """Return the facts of an event as words and values."""
    if event["type"] == "state_transition":
        return _transition_text(event)
    return _pairs({key: value for key, value in event.items() if key not in HIDDEN})


def progress_line(event: dict[str, Any]) -> str:
    """Return the line that `supervise` prints for an event; empty for events that it does not show."""
    line_of = _PROGRESS_LINES.get(event["type"])
    text = _line(line_of(event)) if line_of is not None else ""
    return f"{local_time(event['timestamp'])[11:]}  {event['taskId']}  {text}" if text else ""


def local_time(moment: str) -> str:
    """Return a timestamp of a log in local time."""
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _transition_text(event: dict[str, Any]) -> str:
    before, after, metadata = event["from"], event["to"], event.get("metadata") or {}
    parts = [f"{_words(before)} to {_words(after)}" if before != after else "", _hold_text(metadata)]
    if metadata.get("lifted") and not metadata.get("hold"):
        parts.append(f"no longer waits for {_words(metadata['lifted'])}")
    return ", ".join([part for part in [*parts, f"by {event['trigger']}"] if part])


def _hold_text(metadata: dict[str, Any]) -> str:
    """Return what a task waits for, until when and why; without a hold, the reason of the transition."""
    if not metadata.get("hold"):
        return str(metadata.get("reason") or "")
    until = f" until {local_time(metadata['until'])}" if metadata.get("until") else ""
    why = f": {metadata['reason']}" if metadata.get("reason") else ""
    return f"waits for {_words(metadata['hold'])}{until}{why}"


def _pairs(pairs: dict[str, Any]) -> str:
    return ", ".join([f"{_words(key)} {_value(value)}" for key, value in pairs.items() if not _is_empty(value)])


def _is_empty(value: Any) -> bool:
    return value in (None, "", [], {}) or (value == 0 and not isinstance(value, bool))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return f"({_pairs(value)})"
    if isinstance(value, list):
        return "; ".join([_value(one) for one in value])
    return _line(str(value))


def _line(text: str) -> str:
    return " ".join(text.splitlines())


def _words(name: str) -> str:
    return _HUMP.sub(" ", name).replace("_", " ").lower() if not name.isupper() else name


def _state_line(event: dict[str, Any]) -> str:
    metadata = event.get("metadata") or {}
    if metadata.get("hold"):
        return _hold_text(metadata)
    if event["fromState"] != event["toState"]:
        return f"is {_words(event['to'])}" + (f": {_value(metadata['reason'])}" if metadata.get("reason") else "")
    return "goes on"


def _saved_line(event: dict[str, Any]) -> str:
    return (
        f"saved: {_words(event['reason'])}, {event['checkpointId']} ({size(event['size'])}, {event['duration_ms']} ms)"
    )


def _restored_line(event: dict[str, Any]) -> str:
    if not event["success"]:
        return "could not be restored from a checkpoint"
    messages = f", {event['messages_restored']} messages" if event["messages_restored"] else ""
    return f"restored from {event['checkpointId']}{messages} ({event['duration_ms']} ms)"


def _need_text(event: dict[str, Any]) -> str:
    """Return what the agent needs, and how to provide it; events of older versions have no name."""
    name = event.get("name")
    if not name:
        return str(event["text"])
    text = event["text"] if name in event["text"] else f"{name}: {event['text']}"
    return f"{text}, `keepfast task secret {event['taskId']} {name}`" if event["kind"] == "secret" else text


_PROGRESS_LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "found": lambda event: f"found: {AGENT_STATES.get(event['as'], event['as'])}",
    "checkpoint_created": _saved_line,
    "checkpoint_failed": lambda event: f"NOT SAVED ({_words(event['reason'])}): {event['error']}",
    "checkpoint_restored": _restored_line,
    "warning": lambda event: f"WARNING: {event['message']}",
    "state_transition": _state_line,
    "agent_started": lambda event: f"agent started, process {event['pid']}",
    "agent_ended": lambda event: (
        f"agent ended: {event['outcome']}" + (f", {event['reason']}" if event["reason"] else "")
    ),
    "phase_complete": lambda event: f"phase {event['phase']} is complete: {event['gate']}",
    "user_question": lambda event: f"asks: {event['text']} ({event['id']})",
    "dependency_request": lambda event: f"needs: {_need_text(event)} ({event['id']})",
    "answered": lambda event: f"answered: {event['id']}",
    "block_refused": lambda event: f"a [{event['block']}] block was not understood: {event['why']}",
    "error": lambda event: f"error ({event['kind']}): {event['message']}",
    "limit_near": lambda event: f"is near its limit ({event['scope']})",
    "budget_exceeded": lambda event: f"has used up its budget of {event['what']}",
    "silent": lambda event: f"no output for {event['seconds']} s",
    "stuck": lambda event: f"is stuck: no output for {event['seconds']} s",
    "rebuilt": lambda event: "rebuilt from its documents",
    "trouble": lambda event: f"error: {event['error']}",
    "notice_failed": lambda event: f"notification failed: {event['why']}",
}
