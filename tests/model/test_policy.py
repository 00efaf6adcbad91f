"""One decision for every event: what is taken, when, and what is passed over."""

from __future__ import annotations

from typing import Any

import pytest

from keepfast.agents.claude.hooks import KINDS
from keepfast.model.agent_event import (
    COMPACTION_STARTS,
    OTHER,
    PROMPT,
    SESSION_ENDS,
    SESSION_STARTS,
    SUBAGENT_ENDED,
    TOOL_ENDED,
    TOOL_STARTS,
    TURN_ENDED,
    TURN_FAILED,
    AgentEvent,
)
from keepfast.model.event import ONLY_IF_CHANGED, takes
from keepfast.model.policy import MINUTE, RULES, Ask, Decision, Skip, State, Take, decide
from keepfast.settings import Settings

NOON = 1_800_000_000_000_000_000


def settings(**values: Any) -> Settings:
    made = Settings()
    for key, value in values.items():
        made.put(key.replace("__", "."), value, "the test")
    return made


def event(kind: str, **fields: Any) -> AgentEvent:
    made = AgentEvent("claude-code", kind)
    for key, value in fields.items():
        setattr(made, key, value)
    return made


AT_ONCE = {"at_once": True}
TABLE: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], Decision]] = [
    # kind, fields of the event, state, settings → decision
    (SESSION_STARTS, {"reason": "startup"}, {}, {}, Take("session_start")),
    (SESSION_STARTS, {"reason": "resume"}, {}, {}, Take("session_start")),
    (SESSION_STARTS, {"reason": "fork"}, {}, {}, Take("session_start")),
    (SESSION_STARTS, {"reason": "clear"}, {}, {}, Take("session_start")),
    (SESSION_STARTS, {"reason": "of a newer client"}, {}, {}, Take("session_start")),
    (SESSION_STARTS, {"reason": "compact"}, {}, {}, Skip("already saved before the compaction")),
    (PROMPT, {}, {}, {}, Take("prompt")),
    (TURN_ENDED, {}, {}, {}, Take("turn")),
    (TURN_FAILED, {"reason": "rate_limit"}, {}, {}, Take("rate_limit")),
    (TURN_FAILED, {"reason": "server_error"}, {}, {}, Take("error")),
    (TURN_FAILED, {"reason": ""}, {}, {}, Take("error")),
    (TURN_FAILED, {"reason": "x"}, {"taken_at": {"error": NOON - 4 * MINUTE}}, {}, Skip("error was taken 4 min ago")),
    (TURN_FAILED, {"reason": "rate_limit"}, {"taken_at": {"rate_limit": NOON - 5 * MINUTE}}, {}, Take("rate_limit")),
    (TURN_FAILED, {"reason": "x"}, {"taken_at": {"rate_limit": NOON - MINUTE}}, {}, Take("error")),
    (SUBAGENT_ENDED, {"subagent_kind": "general-purpose"}, {}, {}, Take("subagent")),
    (SUBAGENT_ENDED, {"subagent_kind": ""}, {}, {}, Skip("not a subagent of the user's")),
    (COMPACTION_STARTS, {"reason": "auto"}, {}, {}, Take("before_compact", **AT_ONCE)),
    (COMPACTION_STARTS, {}, {"taken_at": {"before_compact": NOON - 20}}, {}, Skip("before_compact was taken 0 min ago")),
    (COMPACTION_STARTS, {}, {"taken_at": {"before_compact": NOON - MINUTE}}, {}, Take("before_compact", **AT_ONCE)),
    (SESSION_ENDS, {"reason": "other"}, {}, {}, Take("session_end")),
    (SESSION_ENDS, {"reason": "prompt_input_exit"}, {}, {}, Take("session_end")),
    (SESSION_ENDS, {"reason": "clear"}, {}, {}, Ask("before_clear")),
    (SESSION_ENDS, {"reason": "clear"}, {}, {"hooks__auto_checkpoint_on_clear": "prompt"}, Ask("before_clear")),
    (SESSION_ENDS, {"reason": "clear"}, {}, {"hooks__auto_checkpoint_on_clear": True}, Take("before_clear")),
    (SESSION_ENDS, {"reason": "clear"}, {}, {"hooks__auto_checkpoint_on_clear": False},
     Skip("hooks.auto_checkpoint_on_clear is false")),
    (SESSION_ENDS, {"reason": "other"}, {}, {"hooks__auto_checkpoint_on_clear": False}, Take("session_end")),
    (TOOL_STARTS, {}, {}, {}, Skip("no checkpoint for this event")),
    (TOOL_STARTS, {}, {"is_destructive": True}, {}, Ask("before_command", **AT_ONCE)),
    (TOOL_STARTS, {}, {"is_destructive": True}, {"hooks__before_command": "deadline"}, Take("before_command", **AT_ONCE)),
    (TOOL_STARTS, {}, {"is_destructive": True}, {"hooks__before_command": "off"}, Skip("hooks.before_command is off")),
    (TOOL_STARTS, {}, {"band": "auto_70"}, {}, Take("auto_70", **AT_ONCE)),
    (TOOL_STARTS, {}, {"band": "auto_80"}, {}, Take("auto_80", **AT_ONCE)),
    (TOOL_STARTS, {}, {"band": "auto_90"}, {}, Take("auto_90", **AT_ONCE)),
    (TOOL_STARTS, {}, {"band": "auto_90", "is_destructive": True}, {}, Take("auto_90", **AT_ONCE)),
    (TOOL_STARTS, {"subagent": "a1"}, {"band": "auto_90"}, {}, Skip("no checkpoint for this event")),
    (TOOL_STARTS, {"subagent": "a1"}, {"band": "auto_90", "is_destructive": True}, {}, Ask("before_command", **AT_ONCE)),
    (TOOL_STARTS, {}, {"band": "auto_90", "taken_at": {"auto_90": NOON - 4 * MINUTE}}, {}, Skip("auto_90 was taken 4 min ago")),
    (TOOL_STARTS, {}, {"band": "auto_90", "taken_at": {"auto_90": NOON - 5 * MINUTE}}, {}, Take("auto_90", **AT_ONCE)),
    (TOOL_STARTS, {}, {"band": "auto_90", "taken_at": {"auto_80": NOON - MINUTE}}, {}, Take("auto_90", **AT_ONCE)),
    (TOOL_STARTS, {}, {"band": "auto_90", "taken_at": {"auto_90": NOON + MINUTE}}, {}, Take("auto_90", **AT_ONCE)),
    (TOOL_STARTS, {}, {"band": "auto_90", "is_destructive": True, "taken_at": {"auto_90": NOON - 1}}, {},
     Ask("before_command", **AT_ONCE)),
    (TOOL_ENDED, {}, {}, {}, Skip("no checkpoint for this event")),
    (OTHER, {}, {"band": "auto_90", "is_destructive": True}, {}, Skip("no checkpoint for this event")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "state", "chosen", "decision"), TABLE)
def test_what_an_event_deserves(
    kind: str, fields: dict[str, Any], state: dict[str, Any], chosen: dict[str, Any], decision: Decision
) -> None:
    state = {"now": NOON, "taken_at": {}, **state}

    assert decide(event(kind, **fields), State(**state), settings(**chosen)) == decision


def test_every_kind_of_event_of_the_client_has_its_lines_in_the_table() -> None:
    assert set(RULES) | {TOOL_ENDED} == set(KINDS.values())
    assert {line[0] for line in TABLE} == {*KINDS.values(), OTHER}


@pytest.mark.parametrize("trigger", sorted(ONLY_IF_CHANGED))
def test_what_comes_often_makes_no_version_of_an_unchanged_tree(trigger: str) -> None:
    assert not takes(trigger, changed=False, first=False)
    assert takes(trigger, changed=True, first=False)
    assert takes(trigger, changed=False, first=True)


@pytest.mark.parametrize(
    "trigger",
    ["manual", "auto_70", "auto_80", "auto_90", "rate_limit", "error", "before_compact", "final", "user_pause"],
)
def test_what_marks_a_moment_always_makes_a_version(trigger: str) -> None:
    assert takes(trigger, changed=False, first=False)


def test_decisions_differ_by_kind_trigger_and_time() -> None:
    assert len({Take("a"), Take("a", at_once=True), Ask("a"), Take("b"), Skip("a"), Skip("b")}) == 6
