"""Claude Code's payloads become events, and its events get the answers that they accept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keepfast.agents import registry
from keepfast.agents.base import Reply
from keepfast.agents.claude import hooks as claude_code
from keepfast.agents.claude.hooks import HEAD, KINDS, LARGE, answer, read
from keepfast.model import agent_event as kinds
from keepfast.model.agent_event import AgentEvent
from tests.equipment.judge import CONTEXT, judge

FOLDER = Path(__file__).parents[2] / "data" / "payloads"
SAMPLES = [
    (path.stem, index, sample)
    for path in sorted(FOLDER.glob("*.json"))
    if path.stem != "StatusLine"
    for index, sample in enumerate(json.loads(path.read_text())["samples"])
]
FULL = Reply(agent_text="told", user_text="user", budget="notice", checkpoint="cp-1", warning=True, ask="really?")


def event_of(payload: dict[str, Any], environment: dict[str, str] | None = None) -> AgentEvent:
    variables = {key.encode(): value.encode() for key, value in (environment or {}).items()}
    return read(json.dumps(payload, ensure_ascii=False).encode() + b"\n", variables)


@pytest.mark.parametrize(("name", "index", "sample"), SAMPLES, ids=[f"{name}-{index}" for name, index, _ in SAMPLES])
def test_a_recorded_payload_is_understood(name: str, index: int, sample: dict[str, Any]) -> None:
    payload = sample["payload"]

    event = event_of(payload, sample["env_claude"])

    assert event.name == name
    assert event.kind == KINDS.get(name, kinds.OTHER)
    assert event.session == payload["session_id"]
    assert event.transcript == payload["transcript_path"]
    assert event.cwd == payload["cwd"].encode()
    assert event.client == int(sample["env_claude"]["CLAUDE_PID"])
    assert event.attended == (sample["env_claude"]["CLAUDE_CODE_SESSION_ATTENDED"] == "1")
    assert event.prompt == payload.get("prompt", "")
    assert event.last_answer == payload.get("last_assistant_message", "")
    assert event.subagent == payload.get("agent_id", "")
    assert event.tool == payload.get("tool_name", "")


@pytest.mark.parametrize(("name", "index", "sample"), SAMPLES, ids=[f"{name}-{index}" for name, index, _ in SAMPLES])
def test_whatever_we_have_to_say_the_client_accepts_the_answer(name: str, index: int, sample: dict[str, Any]) -> None:
    event = event_of(sample["payload"])

    assert answer(event, Reply()) == (b"", 0)
    judge(name, *answer(event, FULL))
    judge(name, *answer(event, Reply(failed="it failed")))
    judge(name, *answer(event, Reply(agent_text="가" * 20_000, user_text="x")))


@pytest.mark.parametrize(
    "name", ["Stop", "StopFailure", "SessionEnd", "SubagentStop", "PostCompact", "Notification", "Unheard"]
)
def test_where_the_client_accepts_nothing_nothing_is_said(name: str) -> None:
    event = event_of({"hook_event_name": name})

    assert answer(event, FULL) == (b"", 0)


def test_the_form_of_the_budget_notice() -> None:
    """The keys of the source, and the two that the real client needs."""
    event = event_of({"hook_event_name": "PreToolUse", "tool_name": "Write"})
    reply = Reply(agent_text="for the agent", user_text="for the user", budget="tokens 82%", checkpoint="cp-abc123")

    said = json.loads(answer(event, reply)[0])

    assert said == {
        "continue": True,
        "systemMessage": "for the user",
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "additionalContext": "for the agent",
            "checkpoint": "cp-abc123",
            "message": "tokens 82%",
            "warning": False,
        },
    }


def test_a_question_is_put_to_the_user_and_neither_allows_nor_denies() -> None:
    event = event_of({"hook_event_name": "PreToolUse", "tool_name": "Bash"})

    said = judge("PreToolUse", *answer(event, Reply(ask="not saved; go on?")))

    assert said["hookSpecificOutput"] == {
        "hookEventName": "PreToolUse",
        "permissionDecision": "ask",
        "permissionDecisionReason": "not saved; go on?",
    }


def test_the_summariser_gets_plain_text() -> None:
    event = event_of({"hook_event_name": "PreCompact", "trigger": "auto"})

    assert answer(event, Reply(agent_text="The last checkpoint is cp-1."))[0] == b"The last checkpoint is cp-1."


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_failure_is_exit_code_one_and_never_blocks(name: str) -> None:
    output, code = answer(event_of({"hook_event_name": name}), Reply(failed="no"))

    assert (output, code) == (b"", 1)


def test_every_event_that_is_told_something_is_one_that_accepts_it() -> None:
    assert set(claude_code.CONTEXT_EVENTS) <= CONTEXT


@pytest.mark.parametrize(
    ("tool", "writes"),
    [
        ("Read", False), ("Grep", False), ("Task", False), ("Write", True), ("Edit", True), ("Bash", True),
        ("mcp__x__y", True), ("Unheard", True), ("", True),
    ],
)  # fmt: skip
def test_a_tool_that_is_not_known_to_be_harmless_may_write(tool: str, writes: bool) -> None:
    assert event_of({"hook_event_name": "PreToolUse", "tool_name": tool}).writes is writes
    assert event_of({"hook_event_name": "PostToolUse", "tool_name": tool}).writes is writes


def test_touched_paths_are_those_of_edits_reads_commands_and_batches() -> None:
    def paths(name: str, **fields: Any) -> tuple[str, ...]:
        return event_of({"hook_event_name": name, **fields}).paths

    changed = {"bashEditDiff": {"changedFiles": ["/p/b", "/p/c", 7]}}

    assert paths("PostToolUse", tool_name="Edit", tool_input={"file_path": "/p/a"}) == ("w /p/a",)
    assert paths("PostToolUse", tool_name="NotebookEdit", tool_input={"notebook_path": "/p/n"}) == ("w /p/n",)
    assert paths("PostToolUse", tool_name="Read", tool_input={"file_path": "/p/a"}) == ("r /p/a",)
    assert paths("PostToolUse", tool_name="Bash", tool_input={}, tool_response=changed) == ("w /p/b", "w /p/c")
    calls = [{"tool_name": "Write", "tool_input": {"file_path": "/p/a"}}, 5, {"tool_name": "Read", "tool_input": None}]
    assert paths("PostToolBatch", tool_calls=calls) == ("w /p/a",)
    assert paths("PostToolUse", tool_name="Edit", tool_input={"file_path": "not/absolute"}) == ()
    assert paths("PostToolUse", tool_name="Edit", tool_input={"file_path": "/p/a\n/p/b"}) == ()


def test_a_write_of_megabytes_is_understood_from_its_beginning() -> None:
    content = 'line with "quotes" and \\ and 한글\n' * 100_000
    small: dict[str, Any] = {"session_id": "s", "cwd": "/p", "hook_event_name": "PreToolUse", "tool_name": "Write"}
    large = {**small, "tool_input": {"file_path": "/p/한 글", "content": content}, "tool_use_id": "t"}

    event = event_of(large)

    assert len(json.dumps(large)) > LARGE
    assert (event.session, event.cwd, event.tool, event.paths) == ("s", b"/p", "Write", ("w /p/한 글",))


def test_the_beginning_says_the_same_as_the_whole_wherever_it_is_cut() -> None:
    given = {"file_path": '/p/\\"é한', "content": "c" * 50}
    small = {
        "session_id": 's"\\',
        "cwd": "/p/é",
        "effort": {"level": "x"},
        "hook_event_name": "PostToolUse",
        "tool_name": "Edit",
    }
    for length in range(HEAD - 400, HEAD + 100, 7):
        payload = {
            "session_id": 's"\\',
            "padding": "é" * (length // 2),
            **small,
            "tool_input": given,
            "rest": "z" * LARGE,
        }

        event = event_of(payload)

        assert (event.name, event.session, event.cwd) == ("PostToolUse", 's"\\', "/p/é".encode())
        assert event.paths in (('w /p/\\"é한',), ())


def test_a_long_command_is_read_to_its_end() -> None:
    command = "cat > f <<'EOF'\n" + "x\n" * 100_000 + "EOF\nrm -rf src"

    event = event_of({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": command}})

    assert event.command == command


@pytest.mark.parametrize(
    "payload", [b"", b"null", b"[]", b"5", b'"text"', b"{", b"\xff\xfe", b'{"a":' + b"[" * 100_000]
)
def test_what_is_no_payload_is_an_error_and_not_a_guess(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(payload, {})


@pytest.mark.parametrize("value", [None, 5, [], {}, True, "", "\0", "relative", "/a\0b", "\ud800", "/\ud800"])
def test_fields_of_another_type_are_as_if_they_were_not_there(value: object) -> None:
    fields = ("session_id", "transcript_path", "cwd", "tool_name", "tool_input", "tool_response", "prompt", "agent_id", "source",
              "last_assistant_message", "context_tokens", "tool_calls")  # fmt: skip
    for name in [*KINDS, "Unheard"]:
        event = read(
            json.dumps({"hook_event_name": name, **dict.fromkeys(fields, value)}).encode(), {b"CLAUDE_PID": b"x"}
        )

        assert event.cwd == b""
        assert event.transcript == ""
        assert event.client == 0
        judge(name, *answer(event, FULL))


def test_half_a_character_is_no_text_for_a_store() -> None:
    payload = {
        "hook_event_name": "Stop",
        "session_id": "s\ud800",
        "prompt": "\udcff",
        "last_assistant_message": "ok \ud83d",
    }

    event = read(json.dumps(payload).encode(), {})

    assert (event.session, event.prompt, event.last_answer) == ("s?", "?", "ok ?")


def test_agents_are_known_by_name() -> None:
    for name in registry.NAMES:
        agent = registry.agent(name)

        assert agent is not None
        assert name == agent.NAME
    assert registry.agent("unheard-of") is None
