"""`.logs/` in a workspace: what the agent said and did, copied from its run, once."""

from __future__ import annotations

import json
import os
import time
from threading import Thread
from typing import Any

import pytest

from keepfast.runner.actions import documents, logs, metadata, recovery
from tests.runner.place import DONE, Place

pytestmark = pytest.mark.databases
QUESTION = {"say": "[USER_QUESTION]\ncategory: choice\nquestion: Which?\nrequired: false\ndefault: a\n[/USER_QUESTION]"}


def test_output_protocol_and_events_are_there_and_ignore_themselves(place: Place) -> None:
    task = place.task([{"say": "first words"}, {"error": "careful"}, QUESTION], [{"say": "second words"}, DONE])
    place.supervise()
    place.tasks.answers.answer(task.id, "b")
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
    run = place.runtime.tables.last_run(task.id)
    assert run is not None

    logs.write(place.runtime, run)

    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_outputs_of_the_newest_runs_stay(place: Place) -> None:
    task = place.task([{"say": "x"}, DONE])
    place.supervise()
    folder = place.workspace() / ".logs"
    for number in range(2, 15):
        (folder / f"run-{number}.stdout.log").write_text("x")
    run = place.runtime.tables.last_run(task.id)
    assert run is not None

    logs.write(place.runtime, run)

    kept = sorted(int(path.name[4:].split(".")[0]) for path in folder.glob("run-*.stdout.log"))
    assert kept == list(range(5, 15))


def test_they_follow_while_the_agent_is_still_at_work(place: Place) -> None:
    key = "sk-ant-api03-" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9" * 3
    go = [place.base / name for name in "ab"]
    turn = [
        {"say": "first words"}, {"error": f"careful with {key}"}, {"wait_for": str(go[0])}, {"say": "second words"},
        {"say": "[PROGRESS]\nstep: two\npercent: 50\n[/PROGRESS]"}, {"wait_for": str(go[1])}, DONE,
    ]  # fmt: skip
    task = place.task(turn)
    folder = place.workspace() / ".logs"
    history = place.workspace() / ".metadata/history.jsonl"

    def types() -> list[str]:
        return [json.loads(line)["type"] for line in history.read_text().splitlines()]

    def output(name: str) -> str:
        return (folder / name).read_text() if (folder / name).exists() else ""

    began = time.monotonic()
    place.supervise(until=lambda: "first words\n" in output("stdout.log") and "careful" in output("stderr.log"))
    place.supervise(until=lambda: "agent_started" in types())
    assert time.monotonic() - began < 20
    assert place.journal() == ["begin 0"], "it is still at work"
    assert json.loads((place.workspace() / ".metadata/task.json").read_text())["status"] == "in_progress"
    assert " agent_started " in (folder / "agent.log").read_text()
    assert key not in output("stderr.log")
    assert os.readlink(folder / "stdout.log") == "run-1.stdout.log"

    go[0].touch()
    place.supervise(until=lambda: "second words\n" in output("stdout.log") and "progress" in types())
    assert place.journal() == ["begin 0"]
    go[1].touch()
    place.supervise()

    assert output("stdout.log").splitlines()[:2] == ["first words", "second words"]
    assert types() == [event["type"] for event in place.tasks.views.log(task.id)]
    lines = (folder / "agent.log").read_text().splitlines()
    assert len(lines) == len({line.split()[1] for line in lines}) == len(types())


def test_what_happens_between_two_runs_is_in_the_history_at_once(place: Place) -> None:
    task = place.task([{"write": ["a", "1"]}, QUESTION], [DONE])
    place.supervise()
    place.ahead = 3600 * 1_000_000_000
    place.supervise(until=lambda: "question_expired" in place.events(task))

    told = (place.workspace() / ".metadata/history.jsonl").read_text()

    assert "question_expired" in [json.loads(line)["type"] for line in told.splitlines()]


def test_a_long_output_is_followed_by_its_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_LOG_BYTES", 1000)
    task = place.task([DONE])
    place.supervise()
    run = place.runtime.tables.last_run(task.id)
    assert run is not None
    outputs = logs.OutputCopies(run, task.workspace)
    copy = place.workspace() / ".logs/run-1.stdout.log"
    with open(f"{run.folder}/out.log", "w") as source:
        for number in range(300):
            source.write(f"line {number:04}\nhalf ")
            source.flush()
            outputs.look()
            assert copy.read_text().endswith(f"line {number:04}\n")
            assert copy.stat().st_size <= 1000
    lines = copy.read_text().splitlines()

    assert len(lines) > 30 and all(
        line.endswith(f"line {number:04}") for number, line in enumerate(lines, 300 - len(lines))
    )
    copy.unlink()
    os.symlink(place.base / "elsewhere", copy)
    with open(f"{run.folder}/out.log", "a") as source:
        source.write("one more\n")
    for _ in range(2):
        outputs.look()
    assert not (place.base / "elsewhere").exists() and copy.read_text().endswith("one more\n")


def test_writers_at_the_same_time_write_every_event_once(place: Place) -> None:
    task = place.task([DONE], start=False)
    path = place.workspace() / ".metadata/history.jsonl"
    tables = place.runtime.tables

    def work(number: int) -> None:
        for _ in range(20):
            with tables.write():
                tables.change(task.id, place.now())
                tables.log(task.id, place.now(), "warning", {"message": f"{number}"})
            metadata.project(place.runtime, task.id)

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [json.loads(line)["sequence"] for line in path.read_text().splitlines()]

    assert numbers == [event["sequence"] for event in place.tasks.views.log(task.id)]
    documents.load(place.runtime, str(place.workspace() / ".metadata/task.json"))


def test_after_a_rebuild_the_files_of_a_task_go_on_at_once(place: Place) -> None:
    """The new database counts on from the largest number in any task's folder."""
    task = place.task([QUESTION], [DONE])
    place.supervise()
    before = {name: numbers(place, name) for name in FOLLOWED}
    place.lose_database()
    recovery.rebuild(place.runtime, [str(place.base)])

    place.tasks.answers.answer(task.id, "a")
    place.tasks.resume(task.id)
    place.supervise()

    last = max(max(found) for found in before.values())
    for name in FOLLOWED:
        told = numbers(place, name)
        assert told[: len(before[name])] == before[name]
        assert len(told) > len(before[name]) and min(told[len(before[name]) :]) > last, name
        assert told == sorted(set(told))
    assert min(event["sequence"] for event in place.tasks.views.log(task.id)) > last


def test_a_new_task_in_the_folder_of_a_lost_one_is_told_there(place: Place) -> None:
    place.task([DONE])
    place.supervise()
    before = numbers(place, "history.jsonl")
    place.lose_database()

    place.task([DONE])

    assert min(numbers(place, "history.jsonl")[len(before) :]) > max(before)


@pytest.mark.parametrize("number", [2**53, 2**63 - 1, 2**64])
def test_a_number_that_cannot_be_one_stops_neither_the_files_nor_the_database(place: Place, number: int) -> None:
    """An agent can write into these files."""
    task = place.task([QUESTION], [DONE])
    place.supervise()
    with open(place.workspace() / ".metadata/history.jsonl", "a") as file:
        file.write(json.dumps({"sequence": number, "type": "forged"}) + "\n")
    place.lose_database()

    recovery.rebuild(place.runtime, [str(place.base)])
    place.tasks.answers.answer(task.id, "a")

    assert 0 < max(event["sequence"] for event in place.tasks.views.log(task.id)) < 1000
    assert numbers(place, "history.jsonl")[-1] < 1000


FOLLOWED = ("history.jsonl", "protocols.jsonl", "agent.log")


def numbers(place: Place, name: str) -> list[int]:
    """The sequence numbers in a file that tells a task's events."""
    folder = ".metadata" if name == "history.jsonl" else ".logs"
    lines = (place.workspace() / folder / name).read_text().splitlines()
    return [json.loads(line)["sequence"] if line.startswith("{") else int(line.split()[1]) for line in lines]


def test_protocols_have_progress_and_a_limit_that_the_agent_told(place: Place) -> None:
    """Each once, whoever saw it first: while the agent lives, or when it has ended."""
    progress = "[PROGRESS]\nstep: {}\npercent: {}\n{}[/PROGRESS]"
    limited = "[ERROR]\ntype: recoverable\nmessage: Rate limit exceeded. Please retry in 0.1s\n[/ERROR]"
    turn: list[dict[str, Any]] = [
        {"say": progress.format("01_one", 10, "")}, {"sleep": 1.2}, {"say": progress.format("02_two", 50, "message: half\n")},
        {"say": progress.format("02_two", 50, "message: half\n")}, {"say": limited},
    ]  # fmt: skip
    task = place.task(turn, [DONE])
    place.supervise()

    assert place.outcomes(task) == ["limited", "complete"], place
    path = place.workspace() / ".logs/protocols.jsonl"
    first, second, error = [json.loads(line) for line in path.read_text().splitlines()]
    assert {one["type"] for one in (first, second)} == {"progress_report"}
    assert [(one["step"], one["percent"], one["message"]) for one in (first, second)] == [
        ("01_one", 10, None), ("02_two", 50, "half"),
    ]  # fmt: skip
    assert (error["type"], error["kind"], error["recovery"]) == ("error", "recoverable", "pause_and_retry")
    assert error["message"].startswith("Rate limit exceeded")
