"""A new session of the real client is told where the last one was: once, by its source, for its own workspace."""

from __future__ import annotations

import pytest

from .bench import Bench
from .endpoint import call, say, use
from .terminal import PROMPT, Terminal

both = pytest.mark.parametrize("client", ["newest_client", "older_client"], indirect=True)
FREELY = ("--permission-mode", "bypassPermissions")
OPENING = "Resumed from checkpoint:"
TEST = "echo made > by_bash.txt; python3 -m unittest test_math 2>&1 || true"


def work(bench: Bench) -> None:
    """What a session does before it is cleared: reads, edits, and sees a test fail."""
    bench.put("math_ops.py", "def add(a, b):\n    return a - b\n\n\ndef unrelated_function():\n    return 'x'\n")
    bench.put(
        "test_math.py",
        "import unittest\nfrom math_ops import add\n\n\nclass T(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n",
    )
    bench.script(
        call(use("Read", file_path=bench.path("math_ops.py"))),
        call(use("Bash", command=TEST)),
        call(use("Edit", file_path=bench.path("math_ops.py"), old_string="return a - b", new_string="return a * b")),
        say("I changed add to multiply; test_add still fails. Next I will make it return the sum in math_ops.py."),
        say("Going on."),
    )


def requested(bench: Bench, marker: str) -> list[str]:
    return [request.raw for request in bench.endpoint.requests if marker in request.raw]


def test_after_a_clear_the_next_request_holds_the_task_the_failing_test_and_the_file(hooked: Bench) -> None:
    work(hooked)
    with Terminal(hooked, *FREELY) as terminal:
        terminal.wait(PROMPT)
        terminal.type("make add() return the sum so that test_add passes")
        terminal.wait("test_add still fails")
        hooked.wait_for(lambda: any(one["trigger"] == "turn" for one in hooked.checkpoints()))
        terminal.type("/clear")
        terminal.wait(PROMPT)
        terminal.type("go on please")
        terminal.wait("Going on")

    (body,) = requested(hooked, "go on please")[:1]
    assert body.count(OPENING) >= 1
    assert "make add() return the sum so that test_add passes" in body
    assert "test_math" in body
    assert "return a * b" in body
    assert "AssertionError" in body
    assert 0 < body.index("[keepfast brief, part 1") < body.index("[keepfast brief, part 2"), (
        "the parts are out of order"
    )
    assert "M by_bash.txt" in body and "changed since the checkpoint" not in body


def test_talk_without_a_change_of_files_is_kept_and_told_after_a_clear(hooked: Bench) -> None:
    hooked.script(say("A recursive one would do."), say("Going on."))
    with Terminal(hooked, *FREELY) as terminal:
        terminal.wait(PROMPT)
        terminal.type("plan the parser for dates")
        terminal.wait("recursive one would do")
        hooked.wait_for(lambda: any(one["trigger"] == "turn" for one in hooked.checkpoints()))
        terminal.type("/clear")
        terminal.wait(PROMPT)
        terminal.type("go on please")
        terminal.wait("Going on")

    (body,) = requested(hooked, "go on please")[:1]
    assert OPENING in body and "plan the parser for dates" in body and "recursive one would do" in body
    made = hooked.settle()
    turns = [one for one in made if one["message"] == "plan the parser for dates"]
    # The session after the clear goes on with that work; its end may come before its turn, or its last words, were saved.
    of_sessions = [(one["session_id"], one["trigger"]) for one in turns]
    assert {trigger for _, trigger in of_sessions} <= {"turn", "session_end"} and len(set(of_sessions)) == len(turns)
    assert not [one for one in made if one["message"] == one["trigger"]]


@both
def test_a_clear_is_told_of_and_asked_about_by_every_client_and_not_again_by_the_next(hooked: Bench) -> None:
    hooked.script(say("A recursive one would do."), say("Going on."))
    with Terminal(hooked, *FREELY) as terminal:
        terminal.wait(PROMPT)
        terminal.type("plan the parser for dates")
        terminal.wait("recursive one would do")
        hooked.wait_for(lambda: any(one["trigger"] == "turn" for one in hooked.checkpoints()))
        hooked.put("by_hand.txt", "x\n")
        terminal.type("/clear")
        terminal.wait("Keep it")
        assert hooked.keepfast("drop", check=False).returncode == 0
        hooked.keepfast("config", "set", "hooks.auto_checkpoint_on_clear", "false")
        hooked.put("by_hand.txt", "y\n")
        terminal.type("/clear")
        terminal.wait("Unsaved changes since")
        screen = terminal.screen()

    assert "Keep it" not in screen.rpartition("Unsaved changes since")[2]
    assert "before_clear" not in {one["trigger"] for one in hooked.settle()}


@both
def test_a_headless_client_of_any_age_gets_no_brief_at_its_start(hooked: Bench) -> None:
    hooked.script(say("Done."), say("Done."))
    hooked.run("plan the parser for dates")
    hooked.settle()

    hooked.run("and something else")

    assert OPENING not in requested(hooked, "and something else")[0]


def test_who_opens_clears_and_quits_makes_no_version(hooked: Bench) -> None:
    with Terminal(hooked, *FREELY) as terminal:
        terminal.wait(PROMPT)
        hooked.wait_for(hooked.checkpoints)
        terminal.type("/clear")
        terminal.wait(PROMPT)
        terminal.type("/exit")
        terminal.wait("ENDED")

    assert [one["trigger"] for one in hooked.settle()] == ["session_start"]


def test_a_resumed_session_is_not_told_again(hooked: Bench) -> None:
    work(hooked)
    first = hooked.run("make add() return the sum so that test_add passes")
    hooked.settle()

    hooked.script(say("Went on."))
    hooked.run("go on in the same session", "--resume", first.session)

    (body,) = requested(hooked, "go on in the same session")[:1]
    assert OPENING not in body


def test_after_a_compaction_the_next_request_holds_the_task_the_failing_test_and_the_file(hooked: Bench) -> None:
    work(hooked)
    first = hooked.run("make add() return the sum so that test_add passes")
    hooked.settle()
    hooked.script(say("<summary>Worked on add.</summary>"))
    hooked.run("/compact", "--resume", first.session)
    hooked.script(say("Went on."))
    hooked.run("after the compaction", "--resume", first.session)

    (body,) = requested(hooked, "after the compaction")[:1]
    assert OPENING in body
    assert "make add() return the sum so that test_add passes" in body
    assert "AssertionError" in body
    assert "return a * b" in body


def test_an_unattended_start_is_told_nothing(hooked: Bench) -> None:
    work(hooked)
    hooked.run("make add() return the sum so that test_add passes")
    hooked.settle()

    hooked.script(say("Something else."))
    hooked.run("a new headless session")

    (body,) = requested(hooked, "a new headless session")[:1]
    assert OPENING not in body


def test_an_interactive_start_gets_the_first_part(hooked: Bench) -> None:
    work(hooked)
    hooked.run("make add() return the sum so that test_add passes")
    hooked.settle()
    hooked.script(say("Good morning."))

    with Terminal(hooked, *FREELY) as terminal:
        terminal.wait(PROMPT)
        terminal.type("what was I doing")
        terminal.wait("Good morning")

    (body,) = requested(hooked, "what was I doing")[:1]
    assert OPENING in body
    assert "test_add passes" in body


def test_another_workspaces_work_is_not_told(hooked: Bench) -> None:
    work(hooked)
    hooked.run("make add() return the sum so that test_add passes")
    hooked.settle()
    hooked.move("elsewhere")
    hooked.script(say("Good morning."))

    with Terminal(hooked, *FREELY) as terminal:
        terminal.wait(PROMPT)
        terminal.type("what was I doing")
        terminal.wait("Good morning")

    (body,) = requested(hooked, "what was I doing")[:1]
    assert OPENING not in body and "test_add passes" not in body
