"""What a checkpoint of a hook says of the work: its summary, its key points, and what stands in the way."""

from __future__ import annotations

import json
import os

import pytest

from keepfast.app.resume import Resumer
from keepfast.app.state_document import state
from keepfast.app.worker import without_heading
from keepfast.model.document import Header
from keepfast.state import sessions
from tests.equipment.sessions import Session

from .ground import Ground
from .test_conversations import Talk
from .test_delivery import answer


def talked(ground: Ground) -> Session:
    session = Session(cwd=str(ground.project))
    session.asked("Give the shop's API a login with JSON web tokens")
    session.said("**Decisions Made**:\n- HS256 for now\n- One hour until a token expires")
    return session


def test_key_points_are_the_decisions_where_none_are_stated(started: Ground) -> None:
    started.transcript.write_bytes(talked(started).bytes())
    (started.project / "a.txt").write_text("two\n")

    started.hook("Stop", last_assistant_message="The login works.")

    header = started.header(started.checkpoints()[-1])
    assert header["notes"]["analysis"]["decisions_made"] == ["HS256 for now", "One hour until a token expires"]
    assert header["key_points"] == ["HS256 for now", "One hour until a token expires", "The login works."]


def test_key_points_do_not_say_a_decision_twice(started: Ground) -> None:
    started.transcript.write_bytes(talked(started).bytes())
    (started.project / "a.txt").write_text("two\n")

    started.hook("Stop", last_assistant_message="**Decided**: one hour, until a token expires.")

    header = started.header(started.checkpoints()[-1])
    assert header["key_points"] == ["HS256 for now", "One hour until a token expires"]


def test_the_first_state_is_told_as_nobodys_work(started: Ground) -> None:
    first = started.checkpoints()[0]
    resumer = Resumer(started.engine, os.fsencode(started.project), first.workspace)

    text = resumer.moment_brief(resumer.work_at(first)).brief.text

    assert "No work yet" in text and "First checkpoint" not in text


def test_key_points_end_with_the_last_words_of_the_transcript_while_a_turn_goes_on(started: Ground) -> None:
    session = Session(cwd=str(started.project))
    session.asked("Make the invoice importer handle semicolons")
    session.said("The dialect sniffing was wrong.\nMore of it.")
    session.begin("Read", {"file_path": "a.py"})
    started.transcript.write_bytes(session.bytes())
    started.answers(164_000, model="claude-haiku-4-5")
    started.tool("Read", file_path="a.py")
    first = started.checkpoints()[-1]
    started.hook("Stop", last_assistant_message="The semicolon files import now.")
    started.settle()
    second = started.checkpoints()[-1]
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    session.said("The semicolon files import now.")
    session.asked("And now quoted fields")
    session.said(f"Quoted fields need {token}.")
    session.begin("Read", {"file_path": "a.py"})
    started.transcript.write_bytes(session.bytes())
    started.answers(182_000, model="claude-haiku-4-5")
    started.tool("Read", file_path="a.py")
    third = started.checkpoints()[-1]

    points = [(row.trigger, started.header(row)["key_points"][-1]) for row in (first, second, third)]
    assert points[:2] == [("auto_80", "The dialect sniffing was wrong."), ("turn", "The semicolon files import now.")]
    assert points[2][0] == "auto_90"
    assert points[2][1].startswith("Quoted fields need ")
    assert token not in points[2][1]


def test_values_of_sealed_files_are_in_no_document_and_no_brief(started: Ground) -> None:
    """Nothing beside them tells that they are secret, and nothing about them does: only the file that they are from."""
    (started.project / ".env").write_text("BOAT=tang3rine-dr3am\n")
    started.hook("Stop", last_assistant_message="Begun.")
    started.settle()
    session = talked(started)
    session.run("curl -H 'X-Boat: tang3rine-dr3am' http://localhost/boats", "ok")
    session.run("./sail --as tang3rine-dr3am && pytest -q", "1 passed")
    session.said("Sailed as tang3rine-dr3am.")
    started.transcript.write_bytes(session.bytes())
    (started.project / "a.txt").write_text("two\n")
    started.hook("Stop", last_assistant_message="Sailed.")
    started.settle()
    row = started.checkpoints()[-1]
    header = started.header(row)
    engine = started.engine
    repository = engine.repository()
    # What was written before the value was known is struck out when it is told.
    header["notes"]["context"]["recent_commands"].append("./sail --as tang3rine-dr3am")
    document = state(repository, row, Header(header), str(started.project), engine.settings).document
    resumer = Resumer(engine, bytes(started.project), row.workspace)
    told = resumer.newest()
    assert told is not None
    brief = resumer.brief(told, transcript=str(started.transcript))
    engine.close()

    assert document is not None and len(document.context.recent_commands) > 1
    assert "./sail --as [redacted:secret]" in str(brief)
    assert "tang3rine-dr3am" not in str(started.header(row)) + str(document) + str(brief)


def test_key_points_hold_no_words_of_a_subagent(started: Ground) -> None:
    session = Session(cwd=str(started.project))
    session.asked("Make the invoice importer handle semicolons")
    session.said("The dialect sniffing was wrong.")
    started.transcript.write_bytes(session.bytes())
    side = Session(cwd=str(started.project))
    side.said("I am a subagent.")
    lines = [json.dumps({**json.loads(line), "isSidechain": True}) for line in side.bytes().splitlines()]
    with started.transcript.open("a") as file:
        file.write("\n".join(lines) + "\n")
    started.answers(164_000, model="claude-haiku-4-5")

    started.tool("Read", file_path="a.py")

    assert started.header(started.checkpoints()[-1])["key_points"] == ["The dialect sniffing was wrong."]


def test_the_tool_call_that_is_about_to_run_blocks_nothing(started: Ground) -> None:
    session = talked(started)
    session.begin("Bash", {"command": "make seed"})
    started.transcript.write_bytes(session.bytes())
    started.answers(180_000, model="claude-haiku-4-5")

    started.tool("Bash", command="make seed")

    row = started.checkpoints()[-1]
    assert row.trigger == "auto_90"
    notes = started.header(row)["notes"]
    assert (notes["unfinished"], notes["analysis"]["blockers"]) == ("make seed", [])
    assert "make seed" not in json.dumps(notes["analysis"])


def test_a_summary_is_the_work_where_nothing_can_be_read_but_prompts(started: Ground) -> None:
    """Before a command nobody waits for the notes of a conversation; and a transcript may be missing."""
    prompts = [
        "Implement the following plan:\n\n# Plan: Rate limits for the public API\n\n## Context\nToo many calls.",
        "<task-notification>\n<task-id>b1</task-id>\n</task-notification>\nRead the output file",
        "/compact",
        "yes",
        "commit and push",
    ]
    found = []
    for number, prompt in enumerate(prompts):
        started.hook("UserPromptSubmit", prompt=prompt)
        started.settle()
        (started.project / "a.txt").write_text(f"{number}\n")
        started.tool("Bash", command="rm -rf a.txt")
        row = started.checkpoints()[-1]
        assert row.trigger == "before_command"
        found.append(started.header(row)["summary"])

    assert found == [*["Rate limits for the public API"] * 4, "Rate limits for the public API — commit and push"]


def test_a_summary_is_the_work_where_no_state_is_kept(started: Ground) -> None:
    started.configure(checkpoint={"mode": "summary"})
    session = talked(started)
    session.asked("commit it")
    started.transcript.write_bytes(session.bytes())
    (started.project / "a.txt").write_text("two\n")

    started.hook("Stop", last_assistant_message="Done.")

    header = started.header(started.checkpoints()[-1])
    assert header["summary"].startswith("Give the shop's API a login")
    assert header["summary"].endswith(" — commit it")
    assert "notes" not in header


def test_a_checkpoint_before_a_command_has_the_task_and_the_last_words(ground: Ground) -> None:
    ground.variables |= {"CLAUDE_CODE_SESSION_ATTENDED": "1"}
    answer(ground, "SessionStart", source="startup")
    session = Session(cwd=str(ground.project), files={"a.txt": "one\n"})
    session.asked("make the totals exact")
    session.said("## Plan\n\nThe old figures go first.")
    ground.transcript.write_bytes(session.bytes())
    answer(ground, "UserPromptSubmit", prompt="make the totals exact")
    (ground.project / "a.txt").write_text("two\n")

    answer(ground, "PreToolUse", tool_name="Bash", tool_input={"command": "rm a.txt"}, tool_use_id="toolu_1")

    row = ground.checkpoints()[-1]
    header = ground.header(row)
    assert row.trigger == "before_command"
    assert header["notes"]["analysis"]["current_task"] == "make the totals exact"
    assert header["key_points"] == ["The old figures go first."]


def test_a_heading_is_no_key_point(ground: Ground) -> None:
    answer(ground, "SessionStart", source="startup")
    session = Session(cwd=str(ground.project), files={"a.txt": "one\n"})
    session.asked("make the totals exact")
    session.said("## Decisions Made\n\nTotals are integers.")
    ground.transcript.write_bytes(session.bytes())

    answer(ground, "Stop", last_assistant_message="## Decisions Made\n\nTotals are integers.")

    points = ground.header(ground.checkpoints()[-1])["key_points"]
    assert points and not [point for point in points if "Decisions Made" in point]


@pytest.mark.parametrize(
    ("line", "point"),
    [
        ("Wrote a. **Decisions Made**:", "Wrote a."),
        ("Wrote a. **Decisions made:**", "Wrote a."),
        ("## Summary", ""),
        ("**Summary**", ""),
        ("Wrote `a: b` in **bold**.", "Wrote `a: b` in **bold**."),
        ("I wrote these files:", "I wrote these files:"),
    ],
)
def test_a_heading_is_no_point(line: str, point: str) -> None:
    assert without_heading(line) == point


def test_a_command_that_is_the_first_prompt_is_the_task(ground: Ground) -> None:
    talk = Talk(ground, "a")
    talk.start()
    talk.tell("UserPromptSubmit", prompt="/review the cart")

    assert sessions.facts(str(ground.folder), "a")["prompt"] == "/review the cart"
