"""Which events make a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from keepfast.model.agent_event import (
    COMPACTION_STARTS,
    PROMPT,
    SESSION_ENDS,
    SESSION_STARTS,
    SUBAGENT_ENDED,
    TOOL_STARTS,
    TURN_ENDED,
    TURN_FAILED,
    AgentEvent,
)


class Settings(Protocol):
    def __getitem__(self, key: str, /) -> Any: ...


class Times(Protocol):
    def get(self, trigger: str, otherwise: int, /) -> int: ...


MINUTE = 60_000_000_000
REST_PERIODS = {"rate_limit": 5 * MINUTE, "error": 5 * MINUTE, "before_compact": MINUTE}
BUDGET_REST = 5 * MINUTE
"""How long a trigger is not taken again in the same session. A client may announce a compaction twice."""
REST_AFTER_FAILURE = 20_000_000_000
"""How long after a failed attempt, which may cost the whole deadline."""


class Decision:
    """What to do about an event, and why."""

    __slots__ = ("trigger", "why")

    def __init__(self, trigger: str, why: str = "") -> None:
        self.trigger, self.why = trigger, why

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([repr(getattr(self, name)) for name in self.names()])})"

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return ("trigger", "why")


class Skip(Decision):
    """No checkpoint."""

    __slots__ = ()

    def __init__(self, why: str) -> None:
        super().__init__("", why)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return ("why",)


class Take(Decision):
    """A checkpoint: at once while the client waits, or later by the worker."""

    __slots__ = ("at_once",)

    def __init__(self, trigger: str, *, at_once: bool = False) -> None:
        super().__init__(trigger)
        self.at_once = at_once

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return ("trigger", "at_once")


class Ask(Take):
    """A checkpoint, and a question to the user: keep it? Or, if it cannot be made in time: continue without it?"""

    __slots__ = ()


class State:
    """What a decision depends on besides the event and the settings."""

    __slots__ = ("band", "is_destructive", "now", "taken_at")

    def __init__(self, now: int, taken_at: Times, band: str = "", is_destructive: bool = False) -> None:
        self.now, self.taken_at = now, taken_at
        """Trigger → when it was last taken in this session, in nanoseconds; 0 for never."""
        self.band = band
        """Trigger of the highest budget band that is crossed; empty below all."""
        self.is_destructive = is_destructive


def decide(event: AgentEvent, state: State, settings: Settings) -> Decision:
    """Return what to do about an event: the first decision for its kind whose trigger was not taken recently."""
    rule = RULES.get(event.kind)
    if rule is None:
        return Skip("no checkpoint for this event")
    skipped: Skip | None = None
    for candidate in rule(event, state, settings):
        why = candidate.why if isinstance(candidate, Skip) else _rest_reason(candidate.trigger, state)
        if not why:
            return candidate
        skipped = skipped or Skip(why)
    return skipped or Skip("no checkpoint for this event")


def rest_period(trigger: str) -> int:
    """Return for how many nanoseconds a trigger is not taken again; 0 for no limit."""
    return BUDGET_REST if trigger.startswith("auto_") else REST_PERIODS.get(trigger, 0)


def failed_trigger_time(trigger: str, now: int) -> int:
    """Return the time to record for a trigger whose checkpoint failed now, so that only `REST_AFTER_FAILURE` remains."""
    return now - max(0, rest_period(trigger) - REST_AFTER_FAILURE)


def _rest_reason(trigger: str, state: State) -> str:
    rest = rest_period(trigger)
    taken_at = state.taken_at.get(trigger, 0) if rest else 0
    # A time in the future means that the clock was set back.
    if taken_at and 0 <= state.now - taken_at < rest:
        return f"{trigger} was taken {(state.now - taken_at) // MINUTE} min ago"
    return ""


def _tool_starts(event: AgentEvent, state: State, settings: Settings) -> list[Decision]:
    candidates: list[Decision] = []
    # A subagent has a context of its own, whose usage is not reported.
    if state.band and not event.subagent:
        candidates.append(Take(state.band, at_once=True))
    if state.is_destructive:
        mode = settings["hooks.before_command"]
        if mode == "off":
            candidates.append(Skip("hooks.before_command is off"))
        else:
            candidates.append((Ask if mode == "ask" else Take)("before_command", at_once=True))
    return candidates


def _session_starts(event: AgentEvent, state: State, settings: Settings) -> list[Decision]:
    if event.reason == "compact":
        return [Skip("already saved before the compaction")]
    return [Take("session_start")]


def _session_ends(event: AgentEvent, state: State, settings: Settings) -> list[Decision]:
    if event.reason != "clear":
        return [Take("session_end")]
    mode = settings["hooks.auto_checkpoint_on_clear"]
    if mode in (False, "false"):
        return [Skip("hooks.auto_checkpoint_on_clear is false")]
    return [(Ask if mode == "prompt" else Take)("before_clear")]


def _subagent_ended(event: AgentEvent, state: State, settings: Settings) -> list[Decision]:
    # A subagent without a type is the client's own summariser.
    return [Take("subagent") if event.subagent_kind else Skip("not a subagent of the user's")]


def _turn_failed(event: AgentEvent, state: State, settings: Settings) -> list[Decision]:
    return [Take("rate_limit" if event.reason == "rate_limit" else "error")]


RULES: dict[str, Callable[[AgentEvent, State, Settings], list[Decision]]] = {
    SESSION_STARTS: _session_starts,
    SESSION_ENDS: _session_ends,
    PROMPT: lambda event, state, settings: [Take("prompt")],
    TOOL_STARTS: _tool_starts,
    TURN_ENDED: lambda event, state, settings: [Take("turn")],
    TURN_FAILED: _turn_failed,
    COMPACTION_STARTS: lambda event, state, settings: [Take("before_compact", at_once=True)],
    SUBAGENT_ENDED: _subagent_ended,
}
