"""What a session is told at its start, by its source: the hook in this process, with the worker done at once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import keepfast
from keepfast.agents.claude import hooks as claude_code
from keepfast.hook.main import respond
from keepfast.present.environment import Environment
from keepfast.state import sessions
from tests.equipment.sessions import Session

from .background import Inline
from .ground import SESSION, Ground

OTHER = "99999999-2222-4333-8444-555555555555"
RESUMED = "Resumed from checkpoint:"


def answer(ground: Ground, event: str, part: int = 1, **fields: Any) -> dict[str, Any]:
    environment = Environment({key.encode(): value.encode() for key, value in ground.variables.items()})
    payload = json.dumps({**ground.payload(event), **fields}).encode()
    said, problem, code = respond(claude_code, payload, environment, Inline(), {"--part": str(part)})
    assert (code, problem) == (0, "")
    return json.loads(said) if said.startswith(b"{") else {}


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
    assert ("keepfast resume" in reply.get("systemMessage", "")) is ("prompt" in hooks.values())


PLUGIN = Path(__file__).parents[2] / "plugin"


def offered(ground: Ground) -> list[str]:
    """All commands that a user is offered, at a start and after a clear that asks."""
    ground.configure(hooks={"auto_resume_on_start": "prompt", "auto_checkpoint_on_clear": "prompt"})
    (ground.project / "more.txt").write_text("x\n")
    answer(ground, "SessionEnd", reason="clear")
    shown = start(ground, "clear")["systemMessage"]
    assert "resume v3 to continue from it" in shown
    return re.findall(r"/keepfast:\w+|! (?:'[^']*'|\S)+(?: -m keepfast)? \w+", shown)


def test_with_the_plugin_its_commands_are_offered(worked: Ground) -> None:
    worked.variables["CLAUDE_PLUGIN_ROOT"] = str(PLUGIN)

    commands = offered(worked)

    assert [command.partition(":")[2] for command in commands] == ["keep", "drop", "resume"]
    assert all((PLUGIN / f"commands/{command.partition(':')[2]}.md").exists() for command in commands)


@pytest.mark.parametrize("is_on_path", [True, False])
def test_without_the_plugin_commands_are_offered_that_a_shell_can_run(
    worked: Ground, tmp_path: Path, is_on_path: bool
) -> None:
    if is_on_path:
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin/keepfast"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m keepfast "$@"\n')
        program.chmod(0o755)
        worked.variables["PATH"] = f"{tmp_path}/bin:/usr/bin:/bin"

    commands = offered(worked)

    assert [command.split()[-1] for command in commands] == ["keep", "drop", "resume"]
    assert all(command.startswith("! keepfast ") is is_on_path for command in commands)
    for command in commands:
        line = f"{command[2:]} --help"
        variables = {**worked.variables, "PYTHONPATH": str(Path(keepfast.__file__).parents[1])}
        assert subprocess.run(line, shell=True, env=variables, capture_output=True).returncode == 0, line


def test_what_is_offered_is_told_after_a_prompt_too(worked: Ground) -> None:
    """The new session's own prompt may make a checkpoint that is newer."""
    worked.configure(hooks={"auto_resume_on_start": "prompt"})
    offer = start(worked)["systemMessage"]
    (worked.project / "more.txt").write_text("x\n")
    answer(worked, "UserPromptSubmit", prompt="what shall we do about the weather now", session_id=OTHER)
    worked.settle()

    version = re.findall(r"resume (v\d+)", offer)[0]
    done = subprocess.run(
        [sys.executable, "-m", "keepfast", "resume", version],
        cwd=worked.project, env=worked.variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "make the totals exact" in done.stdout
    assert "weather" not in done.stdout


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
    assert "and 2 more" in shown and "keepfast keep" in shown
    assert "make the totals exact" in told(reply)


def test_a_clear_names_what_is_too_large_to_be_told_of(worked: Ground) -> None:
    (worked.project / "big.txt").write_text("x" * 1_500_000)
    (worked.project / "Makefile").write_text("all:\n")
    (worked.project / "build").mkdir()
    (worked.project / "build/o.txt").write_text("made\n")
    answer(worked, "SessionEnd", reason="clear")

    reply = start(worked, "clear")

    assert "big.txt (1.5 MB)" in reply["systemMessage"]
    (captured,) = [line for line in reply["systemMessage"].split("\n") if line.startswith("Captured:")]
    assert "build/o.txt" not in captured + told(reply) + told(start(worked, "clear", 2))


@pytest.mark.parametrize(("entry", "is_told"), [("sdk-cli", False), ("sdk-py", False), ("cli", True)])
def test_a_client_that_does_not_say_who_attends_it_is_known_by_how_it_was_started(
    worked: Ground, entry: str, is_told: bool
) -> None:
    answer(worked, "SessionEnd", reason="other")
    del worked.variables["CLAUDE_CODE_SESSION_ATTENDED"]
    worked.variables["CLAUDE_CODE_ENTRYPOINT"] = entry

    assert bool(told(start(worked))) is is_told


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
