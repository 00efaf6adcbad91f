"""What a session is told at its start, by its source: the hook in this process, with the worker done at once."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from holdfast.agents import claude_code
from holdfast.frontends.hook import respond
from holdfast.frontends.surroundings import Surroundings
from holdfast.store import sessions
from sessions import Session

from .ground import SESSION, Ground
from .inline import Inline

OTHER = "99999999-2222-4333-8444-555555555555"
RESUMED = "Resumed from checkpoint:"


def answer(ground: Ground, event: str, part: int = 1, **fields: Any) -> dict[str, Any]:
    around = Surroundings({key.encode(): value.encode() for key, value in ground.variables.items()})
    payload = json.dumps({**ground.payload(event), **fields}).encode()
    said, problem, code = respond(claude_code, payload, around, Inline(), {"--part": str(part)})
    assert (code, problem) == (0, "")
    return json.loads(said) if said else {}


def told(reply: dict[str, Any]) -> str:
    return str(reply.get("hookSpecificOutput", {}).get("additionalContext", ""))


@pytest.fixture
def worked(ground: Ground) -> Ground:
    """A session that was asked something and did something, attended by a person."""
    ground.variables |= {"CLAUDE_CODE_SESSION_ATTENDED": "1", "CLAUDE_PID": "999999"}
    answer(ground, "SessionStart", source="startup")
    session = Session(cwd=str(ground.project), files={"a.txt": "one\n"})
    session.asked("make the totals exact")
    session.read("a.txt")
    session.edit("a.txt", "one", "two")
    session.said("Next I'll round them.")
    ground.transcript.write_bytes(session.bytes())
    (ground.project / "a.txt").write_text("two\n")
    answer(ground, "Stop", last_assistant_message="Next I'll round them.")
    return ground


def start(ground: Ground, source: str = "startup", part: int = 1, session: str = OTHER) -> dict[str, Any]:
    return answer(ground, "SessionStart", part, source=source, session_id=session, transcript_path="")


def test_a_new_session_gets_the_first_part_once(worked: Ground) -> None:
    answer(worked, "SessionEnd", reason="prompt_input_exit")

    first, again = start(worked), start(worked)

    assert "make the totals exact" in told(first) and RESUMED in first["systemMessage"]
    assert told(again) == ""
    assert start(worked, part=2) == {}


def test_after_a_crash_it_gets_both(worked: Ground) -> None:
    assert told(start(worked)) and "two" in told(start(worked, part=2))


@pytest.mark.parametrize(
    "hooks", [{"resume_on_startup": "off"}, {"auto_resume_on_start": False}, {"auto_resume_on_start": "prompt"}]
)
def test_the_settings_decide_what_is_told(worked: Ground, hooks: dict[str, Any]) -> None:
    worked.configure(hooks=hooks)

    reply = start(worked)

    assert told(reply) == ""
    assert ("/holdfast:resume" in reply.get("systemMessage", "")) is ("prompt" in hooks.values())


def test_nothing_is_told_beside_a_live_session_or_where_nobody_attends(worked: Ground) -> None:
    sessions.remember(str(worked.folder), SESSION, client=str(os.getpid()))
    assert told(start(worked)) == ""

    sessions.remember(str(worked.folder), SESSION, client="nobody")
    worked.variables["CLAUDE_CODE_SESSION_ATTENDED"] = "0"
    assert told(start(worked)) == ""


def test_a_resumed_session_is_told_only_what_changed_on_disk(worked: Ground) -> None:
    assert start(worked, "resume", part=2, session=SESSION) == {}
    assert RESUMED not in told(start(worked, "resume", session=SESSION))


def test_a_clear_that_asks_tells_what_was_kept(worked: Ground) -> None:
    for number in range(14):
        (worked.project / f"file-{number}.txt").write_text("x\n")
    answer(worked, "SessionEnd", reason="clear")

    reply = start(worked, "clear")

    shown = reply["systemMessage"]
    assert 'Checkpoint saved: "make the totals exact"' in shown and "Files changed: 14" in shown
    assert "and 2 more" in shown and "/holdfast:keep" in shown
    assert "make the totals exact" in told(reply)


def test_a_clear_whose_checkpoint_failed_or_is_not_there_yet_is_told_so(worked: Ground) -> None:
    for status, said in (("failed", "failed"), ("", "saving")):
        sessions.note_cleared(str(worked.folder), 999999, session=SESSION, status=status, at=0)
        assert said in start(worked, "clear", session=f"new-{said}")["systemMessage"]


def test_a_checkpoint_without_a_transcript_is_told_by_its_notes(worked: Ground) -> None:
    worked.transcript.unlink()

    text = told(start(worked, "compact", session=SESSION))

    assert "make the totals exact" in text and "a.txt" in text


def test_notes_by_a_command_are_asked_for_after_the_turn(worked: Ground) -> None:
    script = worked.base / "answer.py"
    script.write_text("""print('{"current_task": "Exact totals", "next_steps": ["Round"]}')""")
    worked.configure(analysis={"llm": "command", "command": [sys.executable, str(script)]})
    (worked.project / "a.txt").write_text("three\n")
    answer(worked, "Stop", last_assistant_message="Next I'll round them.")

    assert "## Current Task\nExact totals" in told(start(worked, "compact", session=SESSION))


@pytest.mark.parametrize("source", ["startup", "clear", "compact"])
def test_another_workspaces_checkpoint_never_appears(worked: Ground, source: str) -> None:
    """Not even where client, session and transcript are the same."""
    answer(worked, "SessionEnd", reason="clear")
    other = Ground(worked.base, project="other")
    other.variables = worked.variables
    (other.project / "b.txt").write_text("mine\n")

    for part in (1, 2):
        reply = start(other, source, part, SESSION)
        assert "make the totals exact" not in json.dumps(reply) and told(reply) == ""
    assert "make the totals exact" in told(start(worked, source, 1, SESSION if source == "compact" else OTHER))
