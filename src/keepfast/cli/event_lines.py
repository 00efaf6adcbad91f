"""Turns events of tasks into the lines that `task log` and `supervise` print."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from keepfast.present.terminal import size

HIDDEN_MEMBERS = frozenset(("sequence", "timestamp", "taskId", "type", "run"))
AGENT_STATES = {
    "alive": "its agent is running", "over": "its agent has ended", "lost": "its agent was interrupted",
    "absent": "its agent was not started",
}  # fmt: skip
_WORD_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])")


def log_line(event: dict[str, Any]) -> str:
    """Return the line of `task log` for an event: time, type and facts."""
    return f"{local(event['timestamp'])}  {event['type']}  {_line(facts(event))}".rstrip()


def facts(event: dict[str, Any]) -> str:
    """Return the members of an event as words and values."""
    if event["type"] == "state_transition":
        return _transition_text(event)
    return _pairs({key: value for key, value in event.items() if key not in HIDDEN_MEMBERS})


def supervisor_line(event: dict[str, Any]) -> str:
    """Return the line that a supervisor prints for an event; empty if it prints none."""
    say = _SENTENCES.get(event["type"])
    text = _line(say(event)) if say is not None else ""
    return f"{local(event['timestamp'])[11:]}  {event['taskId']}  {text}" if text else ""


def local(moment: str) -> str:
    """Return a timestamp of a log in local time."""
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _transition_text(event: dict[str, Any]) -> str:
    before, after, about = event["from"], event["to"], event.get("metadata") or {}
    parts = [f"{_words(before)} to {_words(after)}" if before != after else "", _hold_text(about)]
    if about.get("lifted") and not about.get("hold"):
        parts.append(f"no longer waits ({_words(about['lifted'])})")
    return ", ".join([part for part in [*parts, f"by {event['trigger']}"] if part])


def _hold_text(about: dict[str, Any]) -> str:
    """Return what a task waits for, until when and why; empty if nothing."""
    if not about.get("hold"):
        return str(about.get("reason") or "")
    until = f" until {local(about['until'])}" if about.get("until") else ""
    why = f": {about['reason']}" if about.get("reason") else ""
    return f"waits ({_words(about['hold'])}){until}{why}"


def _pairs(facts: dict[str, Any]) -> str:
    return ", ".join([f"{_words(key)} {_value(value)}" for key, value in facts.items() if not _is_empty(value)])


def _is_empty(value: Any) -> bool:
    return value in (None, "", [], {}) or (value == 0 and not isinstance(value, bool))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return f"({_pairs(value)})"
    if isinstance(value, list):
        return "; ".join([_value(item) for item in value])
    return _line(str(value))


def _line(text: str) -> str:
    return " ".join(text.splitlines())


def _words(name: str) -> str:
    return _WORD_BOUNDARY.sub(" ", name).replace("_", " ").lower() if not name.isupper() else name


def _state_text(event: dict[str, Any]) -> str:
    about = event.get("metadata") or {}
    if about.get("hold"):
        return _hold_text(about)
    if event["fromState"] != event["toState"]:
        return f"is {_words(event['to'])}" + (f": {_value(about['reason'])}" if about.get("reason") else "")
    return "continues"


def _saved_text(event: dict[str, Any]) -> str:
    return (
        f"saved: {_words(event['reason'])}, {event['checkpointId']} ({size(event['size'])}, {event['duration_ms']} ms)"
    )


def _restored_text(event: dict[str, Any]) -> str:
    if not event["success"]:
        return "could not be restored from a checkpoint"
    messages = f", {event['messages_restored']} messages" if event["messages_restored"] else ""
    return f"restored from {event['checkpointId']}{messages} ({event['duration_ms']} ms)"


def _need_text(event: dict[str, Any]) -> str:
    """Return what a task needs; events of older versions have no name for it."""
    name = event.get("name")
    if not name:
        return str(event["text"])
    text = event["text"] if name in event["text"] else f"{name}: {event['text']}"
    return f"{text}, `keepfast task secret {event['taskId']} {name}`" if event["kind"] == "secret" else text


_SENTENCES: dict[str, Callable[[dict[str, Any]], str]] = {
    "found": lambda event: f"found: {AGENT_STATES.get(event['as'], event['as'])}",
    "checkpoint_created": _saved_text,
    "checkpoint_failed": lambda event: f"NOT SAVED ({_words(event['reason'])}): {event['error']}",
    "checkpoint_restored": _restored_text,
    "warning": lambda event: f"WARNING: {event['message']}",
    "state_transition": _state_text,
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
