"""`.logs/` in a workspace: what the agent said and did, copied from its run, once."""

from __future__ import annotations

import json
import os

import pytest

from holdfast.supervisor import logs

from .place import DONE, Place

pytestmark = pytest.mark.databases
QUESTION = {"say": "[USER_QUESTION]\ncategory: choice\nquestion: Which?\nrequired: false\ndefault: a\n[/USER_QUESTION]"}


def test_output_protocol_and_events_are_there_and_ignore_themselves(place: Place) -> None:
    task = place.task([{"say": "first words"}, {"error": "careful"}, QUESTION], [{"say": "second words"}, DONE])
    place.supervise()
    place.tasks.answer(task.id, "b")
    place.supervise()
    folder = place.workspace() / ".logs"

    assert (folder / "stdout.log").read_text().startswith("second words\n")
    assert os.readlink(folder / "stdout.log") == "run-2.stdout.log"
    assert (folder / "run-1.stderr.log").read_text() == "careful\n"
    told = [json.loads(line) for line in (folder / "protocols.jsonl").read_text().splitlines()]
    assert [one["type"] for one in told] == ["user_question", "answered"]
    lines = (folder / "agent.log").read_text().splitlines()
    assert len(lines) == len({line.split()[1] for line in lines}), "every event once"
    assert "task_created" in lines[0] and any(" state_transition " in line for line in lines)
    assert (folder / ".gitignore").exists()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    run = place.ground.tables.last_run(task.id)
    assert run is not None

    logs.write(place.ground, run)

    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_outputs_of_the_newest_runs_stay(place: Place) -> None:
    task = place.task([{"say": "x"}, DONE])
    place.supervise()
    folder = place.workspace() / ".logs"
    for number in range(2, 15):
        (folder / f"run-{number}.stdout.log").write_text("x")
    run = place.ground.tables.last_run(task.id)
    assert run is not None

    logs.write(place.ground, run)

    kept = sorted(int(path.name[4:].split(".")[0]) for path in folder.glob("run-*.stdout.log"))
    assert kept == list(range(5, 15))
