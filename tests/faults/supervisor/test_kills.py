"""Supervisors killed at every step and at random: agents see nothing of it, and nothing is lost or done twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from keepfast.model.errors import Busy
from keepfast.runner.actions import documents, recovery
from keepfast.runner.domain.records import Run, Task
from keepfast.runner.process import shims
from keepfast.runner.scheduler.lock import SupervisorLock
from keepfast.store.rows import Query
from tests.runner.place import DONE, PHASE, QUICK, Place, say_phase

from .child import answer
from .seats import side_by_side

PROGRAM = Path(__file__).with_name("child.py")
ASK = {"say": "[USER_QUESTION]\nquestion: Which one?\noptions:\n - a\n - b\n[/USER_QUESTION]"}
STEPS = [
    "tick:lifted", "tick:began", "run:baseline", "checkpoint:saved", "checkpoint:written", "run:spawning", "run:spawned",
    "run:observed", "settle:judged", "settle:saved", "settle:verified", "tables:commit", "tables:committed", "settle:written",
    "reconciled",
]  # fmt: skip
TURNS: list[list[dict[str, Any]]] = [
    [{"write": ["a.txt", "1"]}, ASK],
    [{"write": ["b.txt", "bad"]}, {"sleep": 0.2}, say_phase(1)],  # the verification sends it back
    [{"write": ["b.txt", "good"]}, say_phase(1)],  # a person wants changes
    [{"write": ["c.txt", "tabs"]}, say_phase(1)],  # approved
    [{"limited": 1}, {"exit": 1}],
    [{"write": ["d.txt", "3"]}, say_phase(2)],
]
PHASES = [{**PHASE, "verify": "grep -q good b.txt", "review": True}, PHASE]
EXPECTED = [f"{word} {turn}" for turn in range(len(TURNS)) for word in ("begin", "end")]
TREE = {"a.txt": "1", "b.txt": "good", "c.txt": "tabs", "d.txt": "3"}
OUTCOMES = ["asked", "phase", "phase", "phase", "limited", "phase"]
REASONS = ["start", "question", *["phase_complete"] * 3, "rate_limit", "phase_complete", "final"]
SAMPLE = [
    ("tick:began", 1, "threads"), ("run:spawned", 2, "threads"), ("settle:verified", 3, "threads"),
    ("tables:commit", 17, "threads"), ("checkpoint:saved", 5, "threads"), ("settle:saved", 6, "durable"),
]  # fmt: skip
STATUS = {
    "start": ["in_progress"], "question": ["waiting_question"], "rate_limit": ["waiting_rate_limit"], "final": ["completed"],
    "phase_complete": ["in_progress", "review", "completed"],  # a rework, two reviews, the last phase
}  # fmt: skip
MOST = 60
"""Steps of every tick are reached as often as the machine has time for; so many of each are tried."""


def begin(place: Place) -> Task:
    return place.task(*TURNS, phases=PHASES)


def words(place: Place, step: str, nth: int, how: str, boot: str = "") -> list[str]:
    return [sys.executable, str(PROGRAM), str(place.base), step, str(nth), how, place.options.database, boot]


def supervise(place: Place, step: str = "never", nth: int = 1, how: str = "threads", boot: str = "") -> int:
    return subprocess.run(
        words(place, step, nth, how, boot), env={"PATH": os.environ["PATH"]}, stderr=subprocess.DEVNULL, timeout=240
    ).returncode


def finish(place: Place, task: Task, how: str = "threads") -> None:
    assert supervise(place, how=f"{how}+person") == 0
    assert place.state(task)[0] == "done", place.explain()


def claim_all_is_well(place: Place, task: Task) -> None:
    """The agent was started as often as without any kill, and everything it said came to its end, once."""
    assert place.state(task) == ("done", ""), place.explain()
    assert place.journal() == EXPECTED
    assert place.outcomes(task) == OUTCOMES
    assert {path.name: path.read_text() for path in place.workspace().glob("*.txt")} == TREE
    assert sorted(place.reasons(task)) == sorted(REASONS)
    claim_nothing_was_made_twice(place, task)
    claim_nothing_was_left_behind(place, task)
    claim_every_checkpoint_has_its_document(place, task)
    told = place.told()
    assert "The answer: a" in told[1]
    assert "1 of 3 reworks" in told[2]
    assert "Use tabs." in told[3]
    assert "Now phase 2" in told[4]


def claim_nothing_was_made_twice(place: Place, task: Task) -> None:
    with place.runtime.engine() as engine:
        _, row = engine.workspaces.root(os.fsencode(place.workspace()))
        made = engine.repository().ledger.find(Query(workspace=row.id, task=task.id))
        assert len(made) == len(place.reasons(task)), "a checkpoint was made twice"
    prompts = place.runtime.tables.prompts("task = ?", task.id)
    assert [(prompt.kind, prompt.answer) for prompt in prompts] == [
        ("question", "a"), ("approval", "changes requested"), ("approval", "approved"),
    ]  # fmt: skip


def claim_every_checkpoint_has_its_document(place: Place, task: Task) -> None:
    """One for each, telling the state that followed, whoever was killed in between; and `latest.json` is the newest."""
    rows = place.runtime.tables.all("SELECT id, reason, file FROM checkpoint WHERE task = ? ORDER BY version", task.id)
    folder = place.workspace() / ".checkpoints"
    assert sorted(path.name.removesuffix(".gz") for path in folder.glob("checkpoint_*")) == sorted(
        row["file"] for row in rows
    )
    for row in rows:
        path = folder / row["file"]
        document = documents.load(place.runtime, str(path if path.exists() else f"{path}.gz"))
        assert (document["id"], document["task"]["status"]) in [(row["id"], status) for status in STATUS[row["reason"]]]
    assert os.readlink(folder / "latest.json") == rows[-1]["file"]
    assert list((place.data / "supervisor/documents").iterdir()) == []


def claim_nothing_was_left_behind(place: Place, task: Task) -> None:
    tokens = [run.token for run in place.runtime.tables.runs("task = ?", task.id)]
    assert sum(shims.end_strays(token) for token in tokens) == 0, "a process was left behind"


@pytest.mark.parametrize(("step", "nth", "how"), SAMPLE)
def test_killed_at_a_step(place: Place, step: str, nth: int, how: str) -> None:
    task = begin(place)
    assert supervise(place, step, nth, f"{how}+person") == -signal.SIGKILL

    finish(place, task, how)

    claim_all_is_well(place, task)


def test_a_document_whose_writer_was_killed_tells_what_was_so_then(place: Place) -> None:
    """Killed between the rows and the document; somebody answers before the next supervisor comes to write it."""
    task = begin(place)
    assert supervise(place, "settle:written", 1, "threads") == -signal.SIGKILL
    assert place.state(task) == ("active", "question")
    folder = place.workspace() / ".checkpoints"
    assert not list(folder.glob("*_question.json"))
    [prompt] = place.tasks.views.inbox()
    answer(place, task.id, prompt["id"], "question")

    assert supervise(place, "run:spawning", 1, "threads") == -signal.SIGKILL

    [path] = folder.glob("*_question.json")
    document = documents.load(place.runtime, str(path))
    assert document["task"]["status"] == "waiting_question"
    assert document["agent"]["blockedBy"] == "question"
    assert [one["id"] for one in document["protocols"]["pendingQuestions"]] == [prompt["id"]]
    assert os.readlink(folder / "latest.json") == path.name


def test_a_state_that_never_came_about_is_told_by_no_document(place: Place) -> None:
    task = begin(place)

    assert supervise(place, "settle:verified", 1, "threads") == -signal.SIGKILL

    assert place.state(task) == ("active", "")
    assert [path.name.split("_")[-1] for path in (place.workspace() / ".checkpoints").glob("checkpoint_*")] == [
        "start.json"
    ]


@pytest.fixture(scope="module")
def fresh(request: pytest.FixtureRequest) -> Fresh:
    """Makes a place of its own in a new folder, on the database that `--database` names, one for each seat."""
    served = request.config.getoption("database") == "postgresql"
    cluster = request.getfixturevalue("cluster") if served else None

    def make(folder: Path, seat: int = 0) -> a_place:
        return a_place(folder, cluster.database(f"tasks{seat}") if cluster else "")

    return make


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory, fresh: Fresh) -> Callable[[str], dict[str, int]]:
    """How often each step is reached by a supervisor that nobody kills, by its engine."""
    known: dict[str, dict[str, int]] = {}

    def count(how: str) -> dict[str, int]:
        if how not in known:
            with fresh(tmp_path_factory.mktemp("counted") / how) as place:
                task = begin(place)
                assert supervise(place, "all", 0, f"{how}+person") == 0
                claim_all_is_well(place, task)
                known[how] = {path.name.removeprefix("at "): path.stat().st_size for path in place.base.glob("at *")}
        return known[how]

    return count


@pytest.mark.campaign
@pytest.mark.parametrize("how", ["threads", "durable"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_each_time_that_a_step_is_reached(
    tmp_path: Path, step: str, how: str, request: Any, reached: Callable[[str], dict[str, int]], fresh: Fresh
) -> None:
    """The first run, later ones, after a question, a rework, a rejection and a limit: each time in a task of its own."""
    if not request.config.getoption("campaign"):
        pytest.skip("the campaign does this")
    codes: list[int] = []
    end, count = deadline(request), min(reached(how)[step], MOST)

    def kill(seat: int, nth: int) -> None:
        if time.monotonic() > end:
            return
        with fresh(tmp_path / str(nth), seat) as place:
            task = begin(place)
            codes.append(supervise(place, step, nth, f"{how}+person"))
            finish(place, task, how)
            claim_all_is_well(place, task)

    side_by_side(Random(step).sample(range(1, count + 1), count), kill, seats(request))
    killed = codes.count(-signal.SIGKILL)
    print(f"{step}, {how}: {killed} kills of {count} that are possible")
    assert killed
    assert killed + codes.count(0) == len(codes)  # steps of the tick are reached as often as there is time for


def deadline(request: Any) -> float:
    """`--minutes` ends a series early; it says how far it came."""
    minutes = request.config.getoption("minutes")
    return time.monotonic() + minutes * 60 if minutes else float("inf")


def seats(request: Any) -> int:
    return int(request.config.getoption("at_once")) if request.config.getoption("campaign") else 1


class a_place:
    """A place of its own in a folder that goes with it."""

    def __init__(self, folder: Path, database: str) -> None:
        folder.mkdir()
        self.place = Place(folder, QUICK.but(database=database))

    def __enter__(self) -> Place:
        return self.place

    def __exit__(self, kind: object, *_: object) -> None:
        self.place.close()
        if kind is None:  # what failed is left to be looked at
            shutil.rmtree(self.place.base)


Fresh = Callable[..., a_place]


def cut_off(place: Place, how: str, seconds: float, boot: str = "") -> bool:
    """Supervise, and kill the supervisor so long after it was ready; False if it had ended by then."""
    ready = place.base / "ready"
    ready.unlink(missing_ok=True)
    child = subprocess.Popen(
        words(place, "never", 1, f"{how}+person", boot), env={"PATH": os.environ["PATH"]}, stderr=subprocess.DEVNULL
    )
    while not ready.exists() and child.poll() is None:
        time.sleep(0.01)
    time.sleep(seconds)
    lives = child.poll() is None
    child.kill()
    child.wait()
    return lives


@pytest.mark.campaign
@pytest.mark.parametrize(("how", "sample", "all"), [("threads", 6, 200), ("durable", 4, 200)])
def test_killed_at_random(tmp_path: Path, request: Any, fresh: Fresh, how: str, sample: int, all: int) -> None:
    """Kills of the supervisor alone, at any moment, until the wanted number is reached."""
    end, tally = deadline(request), Tally(all if request.config.getoption("campaign") else sample)

    def kill(seat: int, nth: int) -> None:
        random = Random(f"{how} {nth}")
        if tally.is_reached() or time.monotonic() > end:
            return
        with fresh(tmp_path / str(nth), seat) as place:
            task = begin(place)
            while not tally.is_reached() and time.monotonic() < end and place.state(task)[0] != "done":
                tally.add(cut_off(place, how, random.random() * 1.5))
            finish(place, task, how)
            claim_all_is_well(place, task)
            tally.tasks.append(nth)

    side_by_side(range(tally.wanted), kill, seats(request))
    print(f"{how}: {tally}")
    assert tally.kills


@pytest.mark.campaign
def test_the_machine_goes_down_at_random(tmp_path: Path, request: Any, fresh: Fresh) -> None:
    """Everything is killed, and the boot is another: each turn that had ended counts, what was cut off is done again."""
    end, tally = deadline(request), Tally(40 if request.config.getoption("campaign") else 2)

    def kill(seat: int, nth: int) -> None:
        random, boots = Random(f"boot {nth}"), 0
        if tally.is_reached() or time.monotonic() > end:
            return
        with fresh(tmp_path / str(nth), seat) as place:
            task = begin(place)
            while not tally.is_reached() and time.monotonic() < end and place.state(task)[0] != "done":
                tally.add(cut_off(place, "threads", random.random() * 1.5, boot=f"boot {boots}"))
                boots += 1
                kill_all(place, task)
                forget_the_unreported(place, task)
            assert supervise(place, how="threads+person", boot="the last boot") == 0
            claim_the_work_is_done(place, task)
            tally.tasks.append(nth)

    side_by_side(range(tally.wanted), kill, seats(request))
    print(f"restarts of the machine: {tally}")
    assert tally.kills


class Tally:
    """Kills of a series, and the tasks that came to their end."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.kills: list[bool] = []
        self.tasks: list[int] = []

    def add(self, killed: bool) -> None:
        if killed:
            self.kills.append(killed)

    def is_reached(self) -> bool:
        return len(self.kills) >= self.wanted

    def __str__(self) -> str:
        return f"{len(self.kills)} kills in {len(self.tasks)} tasks"


def kill_all(place: Place, task: Task) -> None:
    """End every shim and agent of a task as a power cut does."""
    for run in place.runtime.tables.runs("task = ?", task.id):
        look = shims.status_of(run.folder, run.id)
        if look.kind == shims.ALIVE and look.pid:
            os.kill(look.pid, signal.SIGKILL)
        shims.end_strays(run.token)
        while shims.status_of(run.folder, run.id).kind == shims.ALIVE:
            time.sleep(0.01)


def forget_the_unreported(place: Place, task: Task) -> None:
    """A scripted agent goes by its journal. A turn whose end nobody reported is done again, as a model would do it."""
    runs = place.runtime.tables.runs("task = ?", task.id)
    reported = sum(shims.status_of(run.folder, run.id).kind == shims.OVER for run in runs)
    (place.base / "work.journal").write_text("".join([f"begin {turn}\nend {turn}\n" for turn in range(reported)]))


def claim_the_work_is_done(place: Place, task: Task) -> None:
    assert place.state(task) == ("done", ""), place.explain()
    assert [line for line in place.journal() if line.startswith("end")] == [line for line in EXPECTED if "end" in line]
    assert {path.name: path.read_text() for path in place.workspace().glob("*.txt")} == TREE
    cut = [outcome for outcome in place.outcomes(task) if outcome not in ("host_restart", "crashed")]
    assert [outcome for outcome in cut if outcome != "limited"] == [one for one in OUTCOMES if one != "limited"]
    claim_nothing_was_left_behind(place, task)


@pytest.mark.databases
def test_a_second_supervisor_is_refused_and_changes_nothing(place: Place) -> None:
    lock = SupervisorLock(place.runtime.folder)
    begin(place)
    try:
        with pytest.raises(Busy, match=f"process {os.getpid()}"):
            SupervisorLock(place.runtime.folder)
        assert supervise(place) == 1
        assert place.journal() == []
    finally:
        lock.close()


def test_a_second_supervisor_in_the_middle_of_a_run_changes_nothing(place: Place) -> None:
    go = place.base / "go"
    task = place.task([{"wait_for": str(go)}, *TURNS[0]], *TURNS[1:], phases=PHASES)
    first = subprocess.Popen(words(place, "never", 1, "threads+person"), env={"PATH": os.environ["PATH"]})
    while not place.journal():
        time.sleep(0.02)
    refused = [supervise(place) for _ in range(3)]
    go.touch()

    assert first.wait(120) == 0
    assert refused == [1, 1, 1]
    claim_all_is_well(place, task)


def test_a_database_that_was_deleted_while_an_agent_ran_is_made_again(place: Place) -> None:
    """The agent that no row speaks of is ended; the task waits for a person, and goes on to the same end."""
    task = place.task([{"write": ["a.txt", "1"]}, ASK], [{"write": ["b.txt", "2"]}, {"sleep": 600}], [DONE])
    place.supervise()
    [prompt] = place.tasks.views.inbox()
    answer(place, task.id, prompt["id"], "question")
    place.supervise(until=lambda: place.journal() == ["begin 0", "end 0", "begin 1"])
    lost = last(place, task)
    place.lose_database()

    [found] = recovery.rebuild(place.runtime, [str(place.base)])
    assert (found.task, found.outcome) == (task.id, "rebuilt")
    assert place.state(task) == ("active", "user_pause")
    place.supervise()
    wait_for_end(lost)
    assert shims.end_strays(lost.token) == 0
    (place.base / "work.journal").write_text("begin 0\nend 0\nbegin 1\nend 1\n")
    place.tasks.resume(task.id)
    place.supervise()

    assert place.state(task) == ("done", "")
    assert last(place, task).number > lost.number
    assert [one.answer for one in place.runtime.tables.prompts("task = ?", task.id)] == ["a"]


def last(place: Place, task: Task) -> Run:
    run = place.runtime.tables.last_run(task.id)
    assert run is not None
    return run


def wait_for_end(run: Run) -> None:
    end = time.monotonic() + 90
    while shims.status_of(run.folder, run.id).kind == shims.ALIVE:
        assert time.monotonic() < end, "the agent was not ended"
        time.sleep(0.05)


@pytest.mark.databases
def test_after_a_restart_of_the_machine_the_task_goes_on(place: Place) -> None:
    task = place.task([{"write": ["a.txt", "1"]}, {"sleep": 60}], [{"say": "=== CUSTOM TASK COMPLETE ==="}])
    place.supervise(until=lambda: (place.workspace() / "a.txt").exists())
    kill_all(place, task)
    with place.runtime.tables.write() as tables:
        tables.change_run(last(place, task).id, boot="another boot")  # as if everything above was before a restart
    (place.base / "work.journal").write_text("begin 0\nend 0\n")

    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.outcomes(task) == ["host_restart", "complete"]
    assert "You were restarted" in place.told()[1] or "Resume from where" in place.told()[1]


def test_a_shim_that_was_killed_leaves_no_stray(place: Place) -> None:
    task = place.task([{"sleep": 60}], [{"say": "=== CUSTOM TASK COMPLETE ==="}])
    place.supervise(until=lambda: place.journal() == ["begin 0"])
    run = last(place, task)
    os.kill(shims.status_of(run.folder, run.id).pid, signal.SIGKILL)
    (place.base / "work.journal").write_text("begin 0\nend 0\n")

    place.supervise()

    assert place.outcomes(task) == ["crashed", "complete"]
    assert shims.end_strays(run.token) == 0


@pytest.mark.databases
def test_an_epoch_that_was_overtaken_writes_nothing(place: Place) -> None:
    from keepfast.runner.scheduler.conclusion import settle

    task = place.task([{"sleep": 60}])
    place.supervise(until=lambda: place.journal() == ["begin 0"])
    run = last(place, task)
    with place.runtime.tables.write() as tables:
        tables.change(task.id, place.now(), epoch=run.epoch + 1)
    shims.wish(run.folder, "kill")
    wait_for_end(run)

    settle(place.runtime, run.id)

    assert place.outcomes(task) == ["overtaken"]
    assert place.state(task) == ("active", "")
