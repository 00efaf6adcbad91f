"""Which events make a checkpoint."""

from __future__ import annotations

from keepfast.model.agent_event import (
    COMPACTION_STARTS,
    PROMPT,
    SESSION_ENDS,
    SESSION_STARTS,
    SUBAGENT_ENDED,
    TOOL_STARTS,
    TURN_ENDED,
    TURN_FAILED,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from keepfast.model.agent_event import AgentEvent

    class Chosen(Protocol):
        def __getitem__(self, key: str, /) -> Any: ...

    class Times(Protocol):
        def get(self, trigger: str, otherwise: int, /) -> int: ...


MINUTE = 60_000_000_000
RESTS = {"rate_limit": 5 * MINUTE, "error": 5 * MINUTE, "before_compact": MINUTE}
BUDGET_REST = 5 * MINUTE
"""How long the same trigger of the same session is not taken again. A compaction may be announced twice."""
FAILED_REST = 20_000_000_000
"""The same after one that failed: an attempt may cost the whole deadline."""


class Decision:
    """What is to be done about an event, and why."""

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
    """A checkpoint, and a question to the user: whether to keep it, or to go on where it cannot be made in time."""

    __slots__ = ()


class State:
    """What a decision depends on apart from the event and the settings."""

    __slots__ = ("band", "is_destructive", "now", "taken")

    def __init__(self, now: int, taken: Times, band: str = "", is_destructive: bool = False) -> None:
        self.now, self.taken = now, taken
        """When each trigger was last taken in this session, in nanoseconds; 0 for never."""
        self.band = band
        """The trigger of the highest band of the budget that is crossed; empty below all."""
        self.is_destructive = is_destructive


def decide(event: AgentEvent, state: State, settings: Chosen) -> Decision:
    """Return what an event deserves: the first of what its kind asks for that is not at rest."""
    rule = RULES.get(event.kind)
    if rule is None:
        return Skip("nothing to save for")
    skipped: Skip | None = None
    for candidate in rule(event, state, settings):
        why = candidate.why if isinstance(candidate, Skip) else _resting(candidate.trigger, state)
        if not why:
            return candidate
        skipped = skipped or Skip(why)
    return skipped or Skip("nothing to save for")


def rest_of(trigger: str) -> int:
    return BUDGET_REST if trigger.startswith("auto_") else RESTS.get(trigger, 0)


def taken_before(trigger: str, now: int) -> int:
    """When the trigger counts as taken whose checkpoint failed now, so that only the short rest is left of its own."""
    return now - max(0, rest_of(trigger) - FAILED_REST)


def _resting(trigger: str, state: State) -> str:
    rest = rest_of(trigger)
    taken = state.taken.get(trigger, 0) if rest else 0
    # A time in the future is that of a clock that has been set back.
    if taken and 0 <= state.now - taken < rest:
        return f"{trigger} was taken {(state.now - taken) // MINUTE} min ago"
    return ""


def _tool_starts(event: AgentEvent, state: State, settings: Chosen) -> list[Decision]:
    found: list[Decision] = []
    # A subagent has a memory of its own, of which nobody tells.
    if state.band and not event.subagent:
        found.append(Take(state.band, at_once=True))
    if state.is_destructive:
        mode = settings["hooks.before_command"]
        if mode == "off":
            found.append(Skip("hooks.before_command is off"))
        else:
            found.append((Ask if mode == "ask" else Take)("before_command", at_once=True))
    return found


def _session_starts(event: AgentEvent, state: State, settings: Chosen) -> list[Decision]:
    if event.reason == "compact":
        return [Skip("the compaction had its checkpoint")]
    return [Take("session_start")]


def _session_ends(event: AgentEvent, state: State, settings: Chosen) -> list[Decision]:
    if event.reason != "clear":
        return [Take("session_end")]
    mode = settings["hooks.auto_checkpoint_on_clear"]
    if mode in (False, "false"):
        return [Skip("hooks.auto_checkpoint_on_clear is false")]
    return [(Ask if mode == "prompt" else Take)("before_clear")]


def _subagent_ended(event: AgentEvent, state: State, settings: Chosen) -> list[Decision]:
    # One without a type is the client's own summariser.
    return [Take("subagent") if event.subagent_kind else Skip("not a subagent of the user's")]


def _turn_failed(event: AgentEvent, state: State, settings: Chosen) -> list[Decision]:
    return [Take("rate_limit" if event.reason == "rate_limit" else "error")]


RULES: dict[str, Callable[[AgentEvent, State, Chosen], list[Decision]]] = {
    SESSION_STARTS: _session_starts,
    SESSION_ENDS: _session_ends,
    PROMPT: lambda event, state, settings: [Take("prompt")],
    TOOL_STARTS: _tool_starts,
    TURN_ENDED: lambda event, state, settings: [Take("turn")],
    TURN_FAILED: _turn_failed,
    COMPACTION_STARTS: lambda event, state, settings: [Take("before_compact", at_once=True)],
    SUBAGENT_ENDED: _subagent_ended,
}
