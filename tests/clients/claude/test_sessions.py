"""Sessions of the real client: cleared, compacted, resumed, forked, interrupted; the work is kept each time."""

from __future__ import annotations

import json

import pytest

from .bench import Bench
from .endpoint import Rule, call, say, use
from .terminal import PROMPT, Terminal

both = pytest.mark.parametrize("client", ["newest_client", "older_client"], indirect=True)
FREELY = ("--permission-mode", "bypassPermissions")


def triggers(bench: Bench) -> list[str]:
    """Oldest first."""
    return [one["trigger"] for one in reversed(bench.settle())]


def begin(bench: Bench) -> str:
    """A session with one turn that wrote a file; its id."""
    bench.script(call(use("Write", file_path=bench.path("a.txt"), content="first turn\n")), say("First turn done."))
    turn = bench.run("write a.txt")
    bench.settle()
    return turn.session


def test_clear_keeps_what_changed_since_the_last_turn(hooked: Bench) -> None:
    session = begin(hooked)
    hooked.put("by-hand.txt", "not yet saved\n")

    hooked.run("/clear", "--resume", session)

    made = triggers(hooked)
    assert hooked.keepfast("cat", "latest", "by-hand.txt").stdout == "not yet saved\n"
    assert hooked.unsaved() == [], made


def test_clear_in_a_running_client_is_a_checkpoint_of_its_own(hooked: Bench) -> None:
    hooked.script(call(use("Write", file_path=hooked.path("a.txt"), content="1\n")), say("First turn done."))

    with Terminal(hooked, *FREELY) as terminal:
        terminal.wait(PROMPT)
        terminal.type("write a.txt")
        terminal.wait("First turn done")
        hooked.wait_for(lambda: "turn" in triggers(hooked))
        hooked.put("by-hand.txt", "not yet saved\n")
        terminal.type("/clear")

        assert hooked.wait_for(lambda: "before_clear" in triggers(hooked))

    (cleared,) = [one for one in hooked.settle() if one["trigger"] == "before_clear"]
    assert hooked.keepfast("cat", cleared["id"], "by-hand.txt").stdout == "not yet saved\n"


@both
def test_the_compaction_request_holds_id_and_summary_of_the_last_checkpoint(hooked: Bench) -> None:
    session = begin(hooked)
    hooked.put("by-hand.txt", "before compaction\n")
    hooked.script(rules=[Rule([say("<summary>Wrote a.txt.</summary>")], last="summary")])

    hooked.run("/compact keep names", "--resume", session)

    made = hooked.settle()
    (before,) = [one for one in made if one["trigger"] == "before_compact"]
    (asked,) = [
        request for request in hooked.endpoint.requests if "keep names" in request.raw and "ummar" in request.raw
    ][:1]
    assert before["id"] in asked.raw
    assert json.dumps(before["message"], ensure_ascii=False)[1:-1] in asked.texts()
    assert hooked.keepfast("cat", before["id"], "by-hand.txt").stdout == "before compaction\n"


def test_a_resumed_session_stores_what_changed_while_nobody_looked(hooked: Bench) -> None:
    session = begin(hooked)
    hooked.put("between.txt", "between sessions\n")
    before = len(hooked.checkpoints())

    hooked.run("go on", "--resume", session)

    made = hooked.settle()
    assert [one["trigger"] for one in made[:-before]] == ["turn", "session_start"]
    assert {one["session_id"] for one in made[:-before]} == {session}
    assert hooked.keepfast("cat", "latest", "between.txt").stdout == "between sessions\n"


def test_a_forked_session_goes_on_under_its_own_id(hooked: Bench) -> None:
    session = begin(hooked)
    hooked.script(call(use("Write", file_path=hooked.path("fork.txt"), content="fork\n")), say("Done."))

    fork = hooked.run("go on", "--resume", session, "--fork-session")

    made = hooked.settle()
    assert fork.session != session
    assert made[0]["session_id"] == fork.session
    assert hooked.keepfast("cat", "latest", "fork.txt").stdout == "fork\n"


def test_what_an_interrupted_tool_wrote_is_stored_at_the_next_prompt(hooked: Bench) -> None:
    """Esc fires no hook at all: nobody sees the file until the user speaks again."""
    slow = "echo half >> half.txt; sleep 30"
    hooked.script(call(use("Bash", command=slow, description="slow")), say("Second turn done."))

    with Terminal(hooked, *FREELY) as terminal:
        terminal.wait(PROMPT)
        terminal.type("write half.txt")
        assert hooked.wait_for(lambda: (hooked.project / "half.txt").exists())
        terminal.wait("esc to interrupt|Running|sleep 30")
        terminal.press("Escape")
        terminal.wait("Interrupted")
        assert "half.txt" in hooked.unsaved()
        terminal.type("go on")
        terminal.wait("Second turn done")

        assert hooked.wait_for(lambda: "prompt" in triggers(hooked))

    (prompted,) = [one for one in hooked.settle() if one["trigger"] == "prompt"]
    assert hooked.keepfast("cat", prompted["id"], "half.txt").stdout == "half\n"
