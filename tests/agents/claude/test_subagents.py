"""What subagents did is part of the conversation, in the order of time, and never the main conversation itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keepfast.agents.claude import subagents
from keepfast.agents.transcript import read
from keepfast.resume import extractor as notes
from tests.equipment.sessions import Session


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "session" / "subagents").mkdir(parents=True)
    return tmp_path / "session.jsonl"


def helper(place: Path, name: str, entries: list[dict[str, Any]]) -> Path:
    path = place.with_suffix("") / "subagents" / f"agent-{name}.jsonl"
    path.write_text("".join([json.dumps(entry) + "\n" for entry in entries]))
    return path


def two() -> tuple[Session, list[dict[str, Any]]]:
    """A main session, and a subagent that changed a file between its second and its third step."""
    main = Session(files={"a.py": "one = 1\n", "b.py": "two = 2\n"})
    main.asked("change both modules")
    main.read("a.py")
    other = Session(files={"b.py": "two = 2\n"})
    other.counter = main.counter  # its clock goes on from there
    other.asked("look at b.py, subagent")
    other.read("b.py")
    other.edit("b.py", "two = 2", "two = 22")
    other.said("The subagent is done.")
    for entry in other.entries:
        entry["uuid"] = "side-" + entry["uuid"]
    main.counter = other.counter
    main.files[main.path("b.py")] = "two = 22\n"
    main.edit("b.py", "two = 22", "two = 222")
    main.said("Both are changed.")
    return main, other.entries


def test_a_subagents_files_are_known_and_its_words_are_not_the_agents(place: Path) -> None:
    main, entries = two()
    main.save(place)
    helper(place, "1", entries)

    conversation = read(place)
    taken = notes.take(conversation)

    known = {file.path.rpartition("/")[2]: file.lines for file in conversation.files.newest_first()}
    assert known["b.py"][0] == "two = 222"  # the main agent's edit came last
    assert taken.prompts == ["change both modules"] and taken.last_answer == "Both are changed."
    assert [turn.text for turn in conversation.turns if turn.side and turn.kind == "said"] == ["The subagent is done."]


def test_a_subagent_that_still_runs_is_read_on_from_where_it_was(place: Path) -> None:
    main, entries = two()
    main.entries = main.entries[:3]
    main.save(place)
    path = helper(place, "1", entries[:-1])
    with path.open("a") as file:
        file.write('{"torn')
    first = read(place)
    turns = len(first.turns)
    helper(place, "1", entries)

    again = read(place, first)

    assert again is first and len(again.turns) == turns + 1
    assert again.turns[-1].text == "The subagent is done."


def test_odd_files_of_subagents_do_no_harm(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main, entries = two()
    main.save(place)
    helper(place, "1", entries).write_bytes(
        b'{"type": \xff\n[]\n{"type": "user", "timestamp": 7}\n' + b"[" * 100_000 + b"\n"
    )
    (place.with_suffix("") / "subagents" / "agent-2.jsonl").mkdir()
    assert notes.take(read(place)).last_answer == "Both are changed."

    helper(place, "1", entries)
    monkeypatch.setattr(subagents, "MAX_BYTES", 10)
    assert not any(turn.side for turn in read(place).turns)


def test_bytes_and_sessions_without_subagents_are_read_as_ever(place: Path) -> None:
    main, _ = two()
    main.save(place)

    assert len(read(place).turns) == len(read(main.bytes()).turns)
    assert len(read(str(place.with_name("session.jsonl"))).turns) > 0
