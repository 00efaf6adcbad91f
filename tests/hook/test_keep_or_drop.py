"""`drop` forgets what a clear has just asked about, and nothing else that a clear left."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .ground import Ground
from .test_conversations import command
from .test_delivery import OTHER, answer, start
from .test_delivery import worked as worked

THIRD = "33333333-2222-4333-8444-555555555555"


@pytest.fixture
def asked(worked: Ground) -> Ground:
    """After a clear that asks; its checkpoint is v3."""
    return clear(worked, "prompt")


def clear(ground: Ground, mode: Any) -> Ground:
    ground.configure(hooks={"auto_checkpoint_on_clear": mode})
    (ground.project / "more.txt").write_text("x\n")
    answer(ground, "SessionEnd", reason="clear")
    start(ground, "clear")
    assert ground.triggers()[-1] == "before_clear"
    return ground


def drop(ground: Ground) -> tuple[int, dict[str, Any]]:
    done = command(ground, "drop", "--json")
    return done.returncode, json.loads(done.stdout)


def stays(ground: Ground) -> bool:
    """Does `drop` say that there is nothing to drop, and leave everything as it was?"""
    before = ground.triggers()
    code, told = drop(ground)
    return code == 4 and told["error"]["kind"] == "not_found" and ground.triggers() == before


def test_an_open_question_is_answered_once(asked: Ground) -> None:
    assert drop(asked) == (0, {"dropped": f"v{len(asked.checkpoints()) + 1}"})
    assert "before_clear" not in asked.triggers()
    assert stays(asked)


def test_beside_the_session_it_is_answered_too(asked: Ground) -> None:
    del asked.variables["CLAUDE_PID"]

    assert drop(asked)[0] == 0


def test_the_prompt_that_drops_may_have_saved_before(asked: Ground) -> None:
    (asked.project / "again.txt").write_text("x\n")
    answer(asked, "UserPromptSubmit", prompt="/keepfast:drop", session_id=OTHER)
    assert asked.triggers()[-1] == "prompt"

    assert drop(asked)[0] == 0


def test_a_clear_that_nobody_was_asked_about_is_kept(worked: Ground) -> None:
    clear(worked, True)

    assert stays(worked)


def test_what_was_kept_stays(asked: Ground) -> None:
    assert command(asked, "keep").returncode == 0

    assert stays(asked)


def test_the_end_of_the_next_turn_keeps_it(asked: Ground) -> None:
    answer(asked, "Stop", last_assistant_message="Done.", session_id=OTHER, transcript_path="")

    assert stays(asked)


def test_the_next_clear_keeps_it(asked: Ground) -> None:
    asked.configure(hooks={"auto_checkpoint_on_clear": True})
    (asked.project / "later.txt").write_text("x\n")
    answer(asked, "SessionEnd", reason="clear", session_id=OTHER)
    start(asked, "clear", session=THIRD)

    assert stays(asked)


def test_a_session_in_another_client_was_not_asked(asked: Ground) -> None:
    asked.variables["CLAUDE_PID"] = "999998"

    assert stays(asked)


def test_a_clear_that_takes_no_checkpoint_closes_the_question_too(asked: Ground) -> None:
    asked.configure(hooks={"auto_checkpoint_on_clear": False})
    answer(asked, "SessionEnd", reason="clear", session_id=OTHER)

    assert stays(asked)


@pytest.mark.parametrize("words", [["save", "-m", "mine"], ["pin", "@"], ["name", "@", "dear"]])
def test_what_something_else_was_built_on_stays(asked: Ground, words: list[str]) -> None:
    (asked.project / "again.txt").write_text("x\n")
    assert command(asked, *words).returncode == 0

    assert stays(asked)
