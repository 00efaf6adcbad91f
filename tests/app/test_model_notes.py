"""`analysis.llm`: notes by a model are a gift; without it, late or wrong, those of our own rules stand."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from keepfast.state import sessions
from tests.clients.claude.endpoint import Endpoint, Reply, call, say, use
from tests.equipment.sessions import Session
from tests.hook.ground import SESSION, Ground, wait

KEY = "AKIA" + "Q3EGRXPLM7ZKNV2A"
ANSWER = {"current_task": "Totals of the cart", "next_steps": ["Round"], "decisions": [f"Use {KEY}"], "blockers": []}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def converse(ground: Ground, *prompts: str) -> None:
    made = Session(cwd=str(ground.project))
    for prompt in prompts:
        made.asked(prompt)
        made.said("The totals are rounded now.")
    ground.transcript.write_bytes(made.bytes())


def turn(ground: Ground, trigger: str = "Stop", **fields: Any) -> dict[str, Any]:
    """End a turn with a change, and wait for what becomes of the question."""
    (ground.project / "a.txt").open("a").write("more\n")
    said = {"last_assistant_message": "The totals are rounded now."} if trigger == "Stop" else fields
    assert ground.hook(trigger, **said).returncode == 0
    ground.settle()
    wait(lambda: bool(kept(ground)), 60)
    return kept(ground)


def kept(ground: Ground) -> dict[str, Any]:
    return sessions.extract(str(ground.folder), SESSION)


def over_http(ground: Ground, endpoint: Endpoint, **more: Any) -> None:
    key = ground.home / "key"
    key.write_text("made-up")
    key.chmod(0o600)
    ground.configure(analysis={"llm": "anthropic", "url": endpoint.url, "key_file": str(key), **more})


def run(ground: Ground, *words: str) -> str:
    """What the command says, in the project and with the home of the ground."""
    program = "import sys; from keepfast.entry import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=ground.project,
        env=ground.variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_notes_by_a_model_are_in_the_next_checkpoint_and_in_the_brief(started: Ground, endpoint: Endpoint) -> None:
    over_http(started, endpoint)
    endpoint.script(call(use("notes", **ANSWER)))
    converse(started, f"Fix the totals of the cart; the key is {KEY}.")

    turn(started)
    wait(lambda: "extract" in kept(started), 60)
    (started.project / "b.txt").write_text("next\n")
    assert started.hook("SessionEnd", reason="other").returncode == 0
    row = started.checkpoints()[-1]

    (request,) = endpoint.requests
    assert "Fix the totals of the cart" in request.raw and KEY not in request.raw
    found = started.header(row)["notes"]
    assert found["analysis"]["current_task"] == "Totals of the cart"
    assert found["analysis"]["decisions_made"] == ["Use [redacted:aws-key]"]
    assert found["read_by"] == "claude-haiku-4-5"
    text = run(started, "resume")
    assert "## Current Task\nTotals of the cart" in text and "1. Round" in text and KEY not in text
    assert "as read by claude-haiku-4-5" in text


def test_a_second_question_is_not_asked_for_the_same_words(started: Ground, endpoint: Endpoint) -> None:
    over_http(started, endpoint)
    endpoint.script(call(use("notes", **ANSWER)))
    converse(started, "Fix the totals of the cart.")
    turn(started)
    wait(lambda: "extract" in kept(started), 60)

    turn(started, "SessionEnd", reason="other")
    started.settle()

    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (say("I would rather not."), "no notes"),
        (call(use("notes", current_task=["a", "list"])), "current_task is not a string"),
        (call(use("notes", current_task="x" * 1_000_000)), "larger than"),
        (Reply(status=529), "answered 529"),
        (say("late", delay=30), "no answer within 1 s"),
    ],
)
def test_without_a_useful_answer_our_own_notes_stand_and_status_and_doctor_say_so(
    started: Ground,
    endpoint: Endpoint,
    reply: Reply,
    why: str,
) -> None:
    over_http(started, endpoint, timeout=1 if reply.delay else 30)
    endpoint.script(reply)
    converse(started, "Fix the totals of the cart.")

    assert why in turn(started)["trouble"]
    wait(lambda: any("(analysis)" in notice for notice in started.notices()), 60)

    analysis = started.header(started.checkpoints()[-1])["notes"]["analysis"]
    assert analysis["current_task"] == "Fix the totals of the cart."
    assert why in run(started, "status")
    assert why in run(started, "doctor")


def test_a_command_may_answer_instead(
    started: Ground,
) -> None:
    script = started.base / "answer.py"
    heard = started.base / "heard"
    script.write_text(
        f"import sys\nopen({str(heard)!r}, 'w').write(sys.stdin.read())\nprint({json.dumps(json.dumps(ANSWER))})\n"
    )
    started.configure(analysis={"llm": "command", "command": [sys.executable, str(script)]})
    converse(started, f"Fix the totals of the cart; the key is {KEY}.")

    turn(started, "SessionEnd", reason="other")
    wait(lambda: "extract" in kept(started), 60)

    assert "Fix the totals" in heard.read_text() and KEY not in heard.read_text()
    assert KEY not in json.dumps(kept(started))
    assert "notes by a model (command)" in run(started, "doctor")


@pytest.mark.parametrize(
    "sections",
    [
        {"analysis": {"llm": "off"}},
        {"analysis": {"llm": "command", "command": ["/bin/cat"]}, "checkpoint": {"mode": "summary"}},
        {"analysis": {"llm": "command", "command": ["/bin/cat"]}, "checkpoint": {"capture_analysis": False}},
    ],
)
def test_nobody_is_asked_unless_the_user_wants_notes(ground: Ground, sections: dict[str, Any]) -> None:
    from keepfast.app.model_notes import analyse

    ground.configure(**sections)
    converse(ground, "Fix the totals of the cart.")
    assert ground.hook("SessionStart", source="startup").returncode == 0
    ground.settle()

    engine = ground.engine
    root = str(ground.project).encode()
    analyse(engine, root, str(ground.folder), SESSION, str(ground.transcript), last=True)
    engine.close()

    assert not kept(ground)


@pytest.mark.parametrize("analysis", [{"llm": "anthropic"}, {"llm": "command"}])
def test_doctor_says_what_is_missing(
    started: Ground,
    analysis: dict[str, Any],
) -> None:
    started.configure(analysis=analysis)

    said = run(started, "doctor")

    assert "analysis.key_file is not set" in said or "analysis.command is empty" in said


def test_a_project_cannot_choose_who_reads_the_conversation(started: Ground, endpoint: Endpoint) -> None:
    """The project's file comes with a repository, and so may variables of our hooks."""
    own = {"analysis": {"llm": "anthropic", "url": endpoint.url, "command": ["/bin/cat"], "key_file": "/dev/null"}}
    (started.project / ".keepfast" / "config.json").write_text(json.dumps(own))
    started.variables |= {"KEEPFAST_ANALYSIS_LLM": "anthropic", "ANTHROPIC_BASE_URL": endpoint.url}
    converse(started, "Fix the totals of the cart.")
    (started.project / "a.txt").write_text("changed\n")
    assert started.hook("Stop", last_assistant_message="The totals are rounded now.").returncode == 0
    started.settle()

    assert endpoint.requests == [] and not kept(started)
