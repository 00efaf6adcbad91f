"""`clear-check` beside hooks: it belongs to a session, and what that session's prompt has just saved is still asked about."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from .ground import Ground
from .test_conversations import Talk, command, kept

TYPED = "/keepfast:clear-check"
WRITTEN = f"<command-message>keepfast:clear-check</command-message>\n<command-name>{TYPED}</command-name>"
"""How the client writes such a prompt down."""


@pytest.fixture
def talk(ground: Ground) -> Talk:
    """A session that worked, after which the user edited by hand."""
    talk = Talk(ground, "a", client=os.getpid())
    talk.start()
    talk.ask("plan the parser")
    (ground.project / "parser.py").write_text("parse = 1\n")
    talk.reply("We take a recursive one.")
    (ground.project / "a.txt").write_text("one\nby hand\n")
    return talk


def type_command(talk: Talk) -> None:
    talk.session.asked(WRITTEN)
    talk.write()
    talk.tell("UserPromptSubmit", prompt=TYPED)


def check(talk: Talk, *words: str, within: bool = True) -> tuple[int, dict[str, Any]]:
    """What the command says, in the session or in a terminal beside it."""
    talk.ground.variables.pop("CLAUDE_PID", None)
    if within:
        talk.ground.variables |= {"CLAUDE_PID": str(talk.client), "CLAUDE_CODE_SESSION_ID": talk.name}
    done = command(talk.ground, "clear-check", "--json", *words)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_it_asks_although_its_own_prompt_has_just_saved(talk: Talk) -> None:
    type_command(talk)
    assert talk.ground.triggers() == ["session_start", "turn", "prompt"]

    code, told = check(talk)

    assert (code, told["action"], told["files_changed"], told["lines_added"]) == (1, "ask", 1, 1)
    assert told["last"]["version"] == "v2"


def test_what_the_prompt_before_saved_is_saved(talk: Talk) -> None:
    """That turn was interrupted, and nothing changed since."""
    talk.ask("and now the lexer")
    type_command(talk)
    assert talk.ground.triggers() == ["session_start", "turn", "prompt"]

    assert check(talk)[1]["action"] == "nothing"


def test_beside_the_session_what_its_prompt_saved_is_saved(talk: Talk) -> None:
    talk.ask("go on")
    talk.reply("I go on.")

    assert check(talk, within=False)[1]["action"] == "nothing"


@pytest.mark.parametrize("within", [True, False])
def test_what_it_saves_belongs_to_the_session_and_says_its_work(talk: Talk, within: bool) -> None:
    if within:
        type_command(talk)

    code, told = check(talk, "-y", within=within)

    row = talk.ground.checkpoints()[-1]
    assert (code, told["action"], told["checkpoint"]["id"]) == (0, "saved", row.id)
    assert (row.trigger, row.session, row.message) == ("before_clear", "a", "plan the parser")
    assert b"recursive" in kept(talk.ground, row)
    assert talk.ground.contents(row)["a.txt"] == b"one\nby hand\n"


def test_a_yes_in_a_later_prompt_saves_what_was_said_since(talk: Talk) -> None:
    type_command(talk)
    talk.reply("1 file changed. Save?")
    talk.ask("yes, save it")

    code, told = check(talk, "-y")

    assert (code, told["action"], told["checkpoint"]["trigger"]) == (0, "saved", "before_clear")


def test_true_saves_at_once_and_false_stops(talk: Talk) -> None:
    type_command(talk)
    talk.ground.configure(hooks={"auto_checkpoint_on_clear": False})
    assert check(talk)[0] == 1

    talk.ground.configure(hooks={"auto_checkpoint_on_clear": True})
    code, told = check(talk)

    assert (code, told["action"], told["checkpoint"]["message"]) == (0, "saved", "plan the parser")


def test_beside_a_session_talk_that_is_not_saved_is_unsaved_work(talk: Talk) -> None:
    talk.ask("go on")  # this saves what was done by hand
    talk.ask("quicker")  # and its turn is interrupted

    before = check(talk, within=False)[1]
    after = check(talk, "-y", within=False)[1]

    assert (before["action"], before["files_changed"], before["conversation_changed"]) == ("ask", 0, True)
    assert after["action"] == "saved"
    assert check(talk, within=False)[1]["action"] == "nothing"


def test_a_session_that_ended_is_not_taken_for_a_live_one(talk: Talk) -> None:
    talk.end()
    (talk.ground.project / "a.txt").write_text("later\n")

    told = check(talk, "-y", within=False)[1]

    row = talk.ground.checkpoints()[-1]
    assert (told["action"], row.session) == ("saved", "")
    assert row.message not in ("before_clear", "before clear", "")


def test_of_two_open_sessions_it_says_which_it_took(ground: Ground) -> None:
    def said() -> str:
        ground.variables.pop("CLAUDE_PID", None)
        done = command(ground, "clear-check", "-y")
        assert done.returncode == 0
        return done.stdout + done.stderr

    first = Talk(ground, "the-first-one", client=os.getpid())
    first.start()
    first.ask("plan the parser")
    assert check(first, within=False)[1]["session"] == first.name
    assert first.name not in said()

    second = Talk(ground, "the-second-one", client=os.getppid())
    second.start()
    second.ask("write the docs")

    assert check(first, within=False)[1]["session"] == second.name
    assert second.name in said() and first.name not in said()
    assert check(first)[1]["session"] == first.name


def test_the_commands_to_choose_from_can_be_typed_where_keepfast_is_not_on_the_path(talk: Talk) -> None:
    type_command(talk)
    talk.ground.variables |= {"CLAUDE_PID": str(talk.client), "CLAUDE_CODE_SESSION_ID": talk.name}

    done = command(talk.ground, "clear-check")

    offered = [line.strip() for line in done.stdout.splitlines() if "clear-check" in line]
    assert len(offered) == 2
    assert all(line.startswith("! /") for line in offered), offered
