"""A session that crashed in the middle of a turn: what it said is kept at the next start, and that work is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from keepfast.state import sessions

from .ground import Ground
from .test_conversations import Talk, kept
from .test_delivery import told

WORK, OLD = "Implement the ring buffer for telemetry", "Write the old module for parsing"


def cut_off(ground: Ground, name: str = "crashed", client: int = 0, text: str = WORK) -> Talk:
    """A session whose first turn never ends."""
    talk = Talk(ground, name, client)
    talk.start()
    go_on(talk, text)
    return talk


def go_on(talk: Talk, text: str = WORK) -> None:
    """A turn that never ends."""
    talk.ask(text)
    name = talk.ground.project / f"{talk.name}.go"
    talk.session.write(name.name, "package ring\n")
    talk.write()
    name.write_text("package ring\n")
    talk.tell("PostToolUse", tool_name="Write", tool_input={"file_path": str(name)}, tool_response={})


def finished(ground: Ground, name: str = "old") -> Talk:
    talk = Talk(ground, name)
    talk.start()
    talk.ask(OLD)
    (ground.project / f"{name}.py").write_text("parse = 1\n")
    talk.reply("Old work done.")
    talk.end()
    return talk


def begin(ground: Ground, name: str = "the new one", part: int = 1, client: int = 0) -> dict[str, Any]:
    return Talk(ground, name, client).tell("SessionStart", part, source="startup")


def test_the_work_of_a_first_turn_that_crashed_is_kept_and_told(ground: Ground) -> None:
    talk = cut_off(ground)

    reply = begin(ground)

    row = next(row for row in ground.checkpoints() if row.trigger == "crash")
    header = ground.header(row)
    assert (row.session, header["summary"], header["active_files"]) == (talk.name, WORK, ["crashed.go"])
    assert header["conversation"]["session"] == talk.name
    assert b"ring buffer" in kept(ground, row)
    assert f'"{WORK}"' in reply["systemMessage"] and WORK in told(reply)
    assert "package ring" in told(begin(ground, part=2))


def test_after_finished_work_what_crashed_is_told(ground: Ground) -> None:
    finished(ground)
    cut_off(ground)

    assert f'"{WORK}"' in begin(ground)["systemMessage"]


def test_a_later_turn_of_a_session_that_crashed_is_told(ground: Ground) -> None:
    talk = Talk(ground, "crashed")
    talk.start()
    talk.ask(OLD)
    talk.reply("Old work done.")
    go_on(talk)

    assert f'"{WORK}"' in begin(ground)["systemMessage"]


def test_a_process_of_the_same_number_is_another_one(ground: Ground) -> None:
    """In a container the client has the same number each time."""
    cut_off(ground, client=os.getpid())

    assert f'"{WORK}"' in begin(ground, client=os.getpid())["systemMessage"]


def test_another_process_that_has_the_clients_number_after_a_restart_of_the_machine_is_not_the_client(
    ground: Ground,
) -> None:
    talk = cut_off(ground, client=os.getppid())
    notes = Path(sessions.path(str(ground.folder), talk.name, "json"))
    facts = json.loads(notes.read_text())
    assert int(facts["client_started"]) > 1
    notes.write_text(json.dumps({**facts, "client_started": "1"}))  # of the boot before

    assert f'"{WORK}"' in begin(ground)["systemMessage"]
    assert "crash" in ground.triggers()


def test_a_session_that_an_older_version_noted_goes_by_the_number_of_its_client(ground: Ground) -> None:
    talk = cut_off(ground, client=os.getppid())
    notes = Path(sessions.path(str(ground.folder), talk.name, "json"))
    facts = json.loads(notes.read_text())
    del facts["client_started"]
    notes.write_text(json.dumps(facts))

    begin(ground)

    assert "crash" not in ground.triggers()


def test_a_live_session_is_left_alone(ground: Ground) -> None:
    talk = cut_off(ground, client=os.getppid())

    begin(ground)

    assert "crash" not in ground.triggers()
    assert not sessions.facts(str(ground.folder), talk.name).get("ended")


def test_a_crash_after_the_end_of_a_turn_makes_no_second_version(ground: Ground) -> None:
    talk = Talk(ground, "crashed")
    talk.start()
    talk.ask(WORK)
    talk.reply("Done.")

    reply = begin(ground)

    assert "crash" not in ground.triggers()
    assert f'"{WORK}"' in reply["systemMessage"]


def test_it_is_kept_once(ground: Ground) -> None:
    cut_off(ground)
    begin(ground)
    begin(ground, "and the next one")

    assert ground.triggers().count("crash") == 1


def test_what_was_finished_after_the_crash_is_told(ground: Ground) -> None:
    """Two sessions were open: one crashed, the other went on, and no session began in between."""
    other = Talk(ground, "other one", client=os.getppid())
    other.start()
    crashed = cut_off(ground)
    other.ask(OLD)
    other.reply("Old work done.")
    other.end()

    reply = begin(ground)

    assert [row.session for row in ground.checkpoints() if row.trigger == "crash"] == [crashed.name]
    assert f'"{OLD}"' in reply["systemMessage"]


def test_a_session_that_goes_on_after_its_crash_may_crash_again(ground: Ground) -> None:
    talk = cut_off(ground)
    begin(ground)
    talk.start("resume")
    go_on(talk, "Now write the tests for the telemetry pipeline")

    begin(ground, "and the next one")

    assert [row.session for row in ground.checkpoints() if row.trigger == "crash"] == [talk.name] * 2


@pytest.mark.parametrize("source", ["resume", "clear"])
def test_it_is_kept_whatever_begins(ground: Ground, source: str) -> None:
    cut_off(ground)

    Talk(ground, "the new one").start(source)

    assert "crash" in ground.triggers()


def test_it_is_found_by_its_words(ground: Ground) -> None:
    from .test_conversations import command

    cut_off(ground)
    begin(ground)
    ground.settle()

    assert "ring buffer" in command(ground, "search", "ring buffer").stdout


def test_what_the_command_wrote_during_which_a_session_was_killed_is_told(ground: Ground) -> None:
    """The checkpoint before the command has the whole conversation: only files changed after it."""
    talk = Talk(ground, "crashed")
    talk.start()
    talk.ask(WORK)
    (ground.project / "old.txt").write_text("old\n")
    talk.write()
    talk.tell("PreToolUse", tool_name="Bash", tool_input={"command": "rm old.txt; make w2.txt"}, tool_use_id="toolu_1")
    (ground.project / "w2.txt").write_text("written by the command\n")

    brief = told(begin(ground))

    row = next(row for row in ground.checkpoints() if row.trigger == "crash")
    assert (row.session, ground.header(row)["active_files"][0]) == (talk.name, "w2.txt")
    assert "w2.txt" in brief
    assert ground.triggers() == ["session_start", "before_command", "crash"]
