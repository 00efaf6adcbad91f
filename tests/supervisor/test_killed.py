"""Supervisors killed at every step and at random: agents see nothing of it, and nothing is lost or done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.core.errors import Busy
from holdfast.supervisor import process
from holdfast.supervisor.supervise import Lock
from holdfast.supervisor.tables import Task

from .place import PHASE, Place, say_phase

PROGRAM = Path(__file__).with_name("killed.py")
ASK = {"say": "[USER_QUESTION]\nquestion: Which one?\noptions:\n - a\n - b\n[/USER_QUESTION]"}
STEPS = [
    "tick:lifted", "tick:began", "run:baseline", "checkpoint:saved", "checkpoint:written", "run:spawning", "run:spawned",
    "run:observed", "settle:judged", "settle:saved", "settle:verified", "tables:commit", "tables:committed", "settle:written",
    "reconciled",
]  # fmt: skip
SAMPLE = ("tick:began", "checkpoint:saved", "run:spawned", "settle:verified")
TURNS: list[list[dict[str, Any]]] = [
    [{"write": ["a.txt", "1"]}, ASK],
    [{"write": ["b.txt", "2"]}, {"sleep": 0.3}, say_phase(1)],
    [{"limited": 1}, {"exit": 1}],
    [{"write": ["c.txt", "3"]}, say_phase(2)],
]
EXPECTED = [f"{word} {turn}" for turn in range(4) for word in ("begin", "end")]


def begin(place: Place) -> Task:
    return place.task(*TURNS, phases=[{**PHASE, "review": True}, PHASE])


def supervise(place: Place, step: str = "never", nth: int = 1, how: str = "threads") -> int:
    words = [sys.executable, str(PROGRAM), str(place.base), step, str(nth), how, place.options.database]
    return subprocess.run(words, env={"PATH": os.environ["PATH"]}, stderr=subprocess.DEVNULL, timeout=120).returncode


def answer_all(place: Place) -> None:
    for prompt in place.tasks.inbox():
        if prompt["kind"] == "question":
            place.tasks.answer(prompt["id"], "a")
        else:
            place.tasks.approve(prompt["task"])


def finish(place: Place, task: Task, how: str = "threads") -> None:
    for _ in range(6):
        answer_all(place)
        if place.state(task)[0] == "done":
            return
        assert supervise(place, how=how) == 0
    raise AssertionError(place.explain())


def claim_all_is_well(place: Place, task: Task) -> None:
    """The agent was started as often as without any kill, and everything it said came to its end."""
    assert place.state(task) == ("done", ""), place.explain()
    assert place.journal() == EXPECTED
    assert place.outcomes(task) == ["asked", "phase", "limited", "phase"]
    assert {path.name: path.read_text() for path in place.workspace().glob("*.txt")} == {
        "a.txt": "1", "b.txt": "2", "c.txt": "3",
    }  # fmt: skip
    reasons = place.reasons(task)
    # A kill after the last row leaves no later step that would take the final one.
    wanted = ["start", "question", "phase_complete", "rate_limit", "phase_complete"]
    assert sorted(reasons) in (sorted(wanted), sorted([*wanted, "final"]))
    with place.ground.engine() as engine:
        from holdfast.store.rows import Query

        _, row = engine.root(os.fsencode(place.workspace()))
        made = engine.repository().ledger.find(Query(workspace=row.id, task=task.id))
        assert len(made) == len(reasons), "a checkpoint was made twice"
    prompts = place.ground.tables.prompts("task = ?", task.id)
    assert [(prompt.kind, prompt.status) for prompt in prompts] == [("question", "answered"), ("approval", "answered")]
    tokens = [run.token for run in place.ground.tables.runs("task = ?", task.id)]
    assert sum(process.end_strays(token) for token in tokens) == 0, "a process was left behind"


@pytest.mark.campaign
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(place: Place, step: str, request: Any) -> None:
    if step not in SAMPLE and not request.config.getoption("campaign"):
        pytest.skip("the campaign does this")
    task = begin(place)
    for nth in (1, 2):
        # Threads of a killed process are cut off anywhere, not only at the step.
        assert supervise(place, step, nth) in (-signal.SIGKILL, 0)
        answer_all(place)

    finish(place, task)

    claim_all_is_well(place, task)


@pytest.mark.campaign
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_killed_at_every_step_of_a_durable_workflow(place: Place, step: str, nth: int, request: Any) -> None:
    if not request.config.getoption("campaign"):
        pytest.skip("the campaign does this")
    task = begin(place)
    supervise(place, step, nth, "durable")

    finish(place, task, "durable")

    claim_all_is_well(place, task)


@pytest.mark.campaign
def test_killed_at_random(tmp_path: Path, request: Any) -> None:
    """Kills of the supervisor alone, at any moment, until the wanted number is reached."""
    wanted = 200 if request.config.getoption("campaign") else 6
    random, kills, round = Random(11), 0, 0
    while kills < wanted:
        round += 1
        folder = tmp_path / str(round)
        folder.mkdir()
        place = Place(folder)
        task = begin(place)
        for _ in range(200):
            answer_all(place)
            if place.state(task)[0] == "done":
                break
            child = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(folder), "never", "1", "threads"],
                env={"PATH": os.environ["PATH"]},
                stderr=subprocess.DEVNULL,
            )
            time.sleep(0.5 + random.random() * 1.5)
            kills += child.poll() is None
            child.kill()
            child.wait()
        claim_all_is_well(place, task)
        place.close()
    print(f"{kills} kills in {round} tasks")


@pytest.mark.databases
def test_a_second_supervisor_is_refused_and_changes_nothing(place: Place) -> None:
    lock = Lock(place.ground.folder)
    begin(place)
    try:
        with pytest.raises(Busy, match=f"process {os.getpid()}"):
            Lock(place.ground.folder)
        assert supervise(place) == 1
        assert place.journal() == []
    finally:
        lock.close()


@pytest.mark.databases
def test_after_a_restart_of_the_machine_the_task_goes_on(place: Place) -> None:
    task = place.task([{"write": ["a.txt", "1"]}, {"sleep": 60}], [{"say": "=== CUSTOM TASK COMPLETE ==="}])
    place.supervise(until=lambda: (place.workspace() / "a.txt").exists())
    run = place.ground.tables.last_run(task.id)
    assert run is not None
    look = process.look(run.folder, run.id)
    os.kill(look.pid, signal.SIGKILL)
    process.end_strays(run.token)
    while process.look(run.folder, run.id).kind == process.ALIVE:
        time.sleep(0.05)
    with place.ground.tables.write() as tables:
        tables.change_run(run.id, boot="another boot")  # as if everything above was before a restart
    (place.base / "work.journal").write_text("begin 0\nend 0\n")

    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.outcomes(task) == ["host_restart", "complete"]
    assert "You were restarted" in place.told()[1] or "Resume from where" in place.told()[1]


def test_a_shim_that_was_killed_leaves_no_stray(place: Place) -> None:
    task = place.task([{"sleep": 60}], [{"say": "=== CUSTOM TASK COMPLETE ==="}])
    place.supervise(until=lambda: place.journal() == ["begin 0"])
    run = place.ground.tables.last_run(task.id)
    assert run is not None
    os.kill(process.look(run.folder, run.id).pid, signal.SIGKILL)
    (place.base / "work.journal").write_text("begin 0\nend 0\n")

    place.supervise()

    assert place.outcomes(task) == ["crashed", "complete"]
    assert process.end_strays(run.token) == 0


@pytest.mark.databases
def test_an_epoch_that_was_overtaken_writes_nothing(place: Place) -> None:
    from holdfast.supervisor.settling import settle

    task = place.task([{"sleep": 60}])
    place.supervise(until=lambda: place.journal() == ["begin 0"])
    run = place.ground.tables.last_run(task.id)
    assert run is not None
    with place.ground.tables.write() as tables:
        tables.change(task.id, place.now(), epoch=run.epoch + 1)
    process.wish(run.folder, "kill")
    while process.look(run.folder, run.id).kind == process.ALIVE:
        time.sleep(0.05)

    settle(place.ground, run.id)

    assert place.outcomes(task) == ["overtaken"]
    assert place.state(task) == ("active", "")
