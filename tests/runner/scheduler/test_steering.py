"""Where people steer a task: freeze, try now, sessions that are lost, the report, and all of it typed as commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keepfast.runner.actions.report import report
from keepfast.runner.actions.restores import RESTARTING
from keepfast.runner.domain.moments import moment
from keepfast.runner.domain.records import Run, Task
from keepfast.runner.domain.task import NotAllowed
from keepfast.runner.process import shims
from keepfast.runner.scheduler import service
from keepfast.runner.scheduler.lock import SupervisorLock
from keepfast.runner.scheduler.supervisor import Supervisor
from tests.runner.place import DONE, PHASE, Place, say_phase
from tests.runner.test_commands import Person, person

from .test_observation import change, client, result, spoken

__all__ = ["person"]
SECOND = 1_000_000_000


def last(place: Place, task: Task) -> Run:
    run = place.runtime.tables.last_run(task.id)
    assert run is not None
    return run


# Freezing


@pytest.mark.databases
def test_a_frozen_task_is_found_again_and_goes_on_where_it_stood(place: Place) -> None:
    """The supervisor that froze it is gone; the next one leaves it frozen until somebody says so."""
    go = place.base / "go"
    task = place.task([{"write": ["a.txt", "1"]}, {"wait_for": str(go)}, DONE])
    place.supervise(until=lambda: (place.workspace() / "a.txt").exists())
    place.tasks.freeze(task.id)
    place.supervise(until=lambda: bool(shims.state(last(place, task).folder).frozen))
    go.touch()

    begin = time.monotonic()
    place.supervise(until=lambda: time.monotonic() - begin > 1)
    assert shims.state(last(place, task).folder).frozen
    assert place.journal() == ["begin 0"]
    assert place.shown(task)["frozen"]
    place.tasks.resume(task.id)
    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.journal() == ["begin 0", "end 0"]
    assert place.outcomes(task) == ["complete"]


def test_what_is_frozen_is_kept_once_for_each_freeze(place: Place) -> None:
    go = place.base / "go"
    task = place.task([{"write": ["a.txt", "1"]}, {"wait_for": str(go)}, DONE])
    place.supervise(until=lambda: (place.workspace() / "a.txt").exists())

    for number in (1, 2):
        place.tasks.freeze(task.id)
        place.supervise(until=lambda number=number: place.reasons(task).count("user_pause") == number)  # type: ignore[misc]
        assert shims.state(last(place, task).folder).frozen
        begin = time.monotonic()
        place.supervise(until=lambda begin=begin: time.monotonic() - begin > 1)  # type: ignore[misc]
        assert place.reasons(task).count("user_pause") == number, "another supervisor finds it frozen, and kept"
        place.tasks.resume(task.id)
        place.supervise(until=lambda: not shims.state(last(place, task).folder).frozen)
    go.touch()
    place.supervise()

    assert place.reasons(task) == ["start", "user_pause", "user_pause", "final"]
    [run] = place.runtime.tables.runs("task = ?", task.id)
    assert run.outcome == "complete"


def test_a_frozen_task_is_paused_wherever_it_is_told(place: Place) -> None:
    go = place.base / "go"
    task = place.task([{"write": ["a.txt", "1"]}, {"wait_for": str(go)}, DONE])
    place.supervise(until=lambda: (place.workspace() / "a.txt").exists())
    place.tasks.freeze(task.id)
    place.supervise(until=lambda: "user_pause" in place.reasons(task))

    document = json.loads((place.workspace() / ".checkpoints" / "latest.json").read_text())
    assert document["reason"] == "user_pause"
    assert document["task"]["status"] == document["agent"]["status"] == "paused"
    assert document["agent"]["blockedBy"] == "user_pause"
    assert json.loads((place.workspace() / ".metadata" / "task.json").read_text())["status"] == "paused"
    listed, [waiting] = place.shown(task), place.tasks.views.inbox()
    assert listed["frozen"] and (listed["status"], listed["agent_status"]) == ("paused", "paused")
    assert (listed["hold"]["kind"], listed["hold"]["needs_you"]) == ("user_pause", True)
    assert listed["actions"] == waiting["actions"] == ["resume", "pause", "cancel"]
    assert (waiting["task"], waiting["hold"]) == (task.id, "user_pause")

    place.tasks.resume(task.id)
    [listed] = place.tasks.views.listing()
    assert (listed["status"], listed["agent_status"], listed["hold"]) == ("in_progress", "running", None)
    assert "freeze" in listed["actions"] and not place.tasks.views.inbox()
    go.touch()
    place.supervise()
    assert place.state(task) == ("done", "")


@pytest.mark.parametrize("then", ["resume", "cancel"])
def test_a_freeze_is_a_hold_with_its_transitions(place: Place, then: str) -> None:
    go = place.base / "go"
    task = place.task([{"write": ["a.txt", "1"]}, {"wait_for": str(go)}, DONE])
    place.supervise(until=lambda: (place.workspace() / "a.txt").exists())

    place.tasks.freeze(task.id)

    [hold] = place.runtime.tables.all_holds(place.runtime.tables.task(task.id))
    assert (hold.kind, hold.human, hold.lifted_at) == ("user_pause", 1, None)
    getattr(place.tasks, then)(task.id)
    go.touch()
    place.supervise()
    moves = [event for event in place.tasks.views.log(task.id) if event["type"] == "state_transition"]
    told = [
        (one["from"], one["to"], one["trigger"], one["metadata"]["hold"], one["metadata"].get("lifted"))
        for one in moves
    ]
    assert ("in_progress", "paused", "freeze", "user_pause", None) in told
    assert ("paused", "in_progress", then, "", "user_pause") in told
    [lifted] = place.runtime.tables.all_holds(place.runtime.tables.task(task.id))
    assert (lifted.since, lifted.lifted_by) == (hold.since, then)
    assert lifted.lifted_at is not None and lifted.lifted_at > lifted.since
    [shown] = report(place.runtime, 0)["tasks"]
    assert shown["waited_seconds"].keys() == {"user_pause"}


def test_a_frozen_agent_that_is_killed_no_longer_counts_as_frozen(place: Place) -> None:
    go = place.base / "go"
    task = place.task([{"write": ["a.txt", "1"]}, {"wait_for": str(go)}, DONE])
    place.supervise(until=lambda: (place.workspace() / "a.txt").exists())
    place.tasks.freeze(task.id)
    place.supervise(until=lambda: bool(shims.state(last(place, task).folder).frozen))
    pid = shims.agent(last(place, task).folder).pid
    assert pid is not None
    os.kill(pid, 9)
    go.touch()

    place.supervise()

    assert place.state(task) == ("active", "user_pause")
    assert place.shown(task)["frozen"] is False and place.journal() == ["begin 0"]
    place.tasks.resume(task.id)
    place.supervise()
    assert place.state(task) == ("done", "")
    holds = place.runtime.tables.all_holds(place.runtime.tables.task(task.id))
    assert {hold.kind for hold in holds} >= {"user_pause"} and all(hold.lifted_at for hold in holds)


def ended_while_nobody_looked(place: Place, *turns: list[dict[str, Any]], **keys: Any) -> Task:
    """A task whose run has ended and that a person has paused since; no supervisor has seen either."""
    go = place.base / "go"
    first, *rest = turns
    task = place.task([{"write": ["a.txt", "1"]}, {"wait_for": str(go)}, *first], *rest, **keys)
    place.supervise(until=lambda: (place.workspace() / "a.txt").exists())
    go.touch()
    run = last(place, task)
    while shims.status_of(run.folder, run.id).kind == shims.ALIVE:
        time.sleep(0.02)
    place.tasks.pause(task.id)
    return task


@pytest.mark.parametrize(
    "ending",
    [[{"exit": 3}], [{"say": "Hm."}], [say_phase(1)], [{"limited": 1}, {"exit": 1}]],
    ids=["crash", "idle", "phase", "limit"],
)
def test_a_pause_of_a_run_that_has_just_ended_keeps_the_next_one_from_starting(
    place: Place, ending: list[dict[str, Any]]
) -> None:
    task = ended_while_nobody_looked(place, ending, [say_phase(1)], phases=[PHASE, PHASE])

    place.supervise()

    assert place.state(task) == ("active", "user_pause")
    assert [line for line in place.journal() if line.startswith("begin")] == ["begin 0"]


def test_a_pause_of_a_task_that_has_just_come_to_its_end_changes_nothing(place: Place) -> None:
    task = ended_while_nobody_looked(place, [DONE])

    place.supervise()

    assert place.state(task) == ("done", "")


def test_nothing_that_does_not_run_can_be_frozen(place: Place) -> None:
    task = place.task([DONE])

    with pytest.raises(NotAllowed, match="no running agent"):
        place.tasks.freeze(task.id)


# What people decide while nothing runs


@pytest.mark.parametrize("what", ["pause", "cancel"])
@pytest.mark.parametrize("ending", [[{"exit": 3}], [{"limited": 3600}, {"exit": 1}]], ids=["backoff", "limit"])
def test_what_is_decided_about_a_task_that_waits_is_in_its_newest_document(
    place: Place, what: str, ending: list[dict[str, Any]]
) -> None:
    change(place, backoff_first=600, backoff_longest=600)
    task = place.task([{"write": ["a.txt", "1"]}, *ending])
    place.supervise(until=lambda: place.state(task)[1] in ("backoff", "rate_limit"))

    getattr(place.tasks, what)(task.id)

    document = json.loads((place.workspace() / ".checkpoints" / "latest.json").read_text())
    expected = {"pause": ("user_pause", "paused"), "cancel": ("cancel", "cancelled")}[what]
    assert (document["reason"], document["task"]["status"]) == expected
    assert document["createdBy"] == "user"
    assert place.shown(task)["status"] == expected[1]


def test_a_task_that_never_ran_leaves_no_document_when_it_is_cancelled(place: Place) -> None:
    task = place.task([DONE])
    place.tasks.cancel(task.id)

    assert place.state(task) == ("cancelled", "") and place.reasons(task) == []


def test_a_short_run_has_all_its_events(place: Place) -> None:
    task = place.task([DONE])
    place.supervise()

    begun = [one for one in place.events(task) if one in ("run_begun", "agent_started", "agent_ended")]
    assert begun == ["run_begun", "agent_started", "agent_ended"]


@pytest.mark.parametrize("ending", [[{"exit": 3}], [{"say": "Hm."}]], ids=["crash", "idle"])
def test_a_task_that_was_paused_between_two_runs_resumes_from_the_checkpoint_of_the_pause(
    place: Place, ending: list[dict[str, Any]]
) -> None:
    change(place, backoff_first=3600, backoff_longest=3600)
    task = place.task(ending, [DONE])
    place.supervise(until=place.holds(task, "backoff"))
    place.tasks.pause(task.id)
    place.tasks.resume(task.id)
    place.supervise()

    made = [point["id"] for point in place.shown(task)["checkpoints"] if point["reason"] == "user_pause"]
    restored = [event for event in place.tasks.views.log(task.id) if event["type"] == "checkpoint_restored"]
    assert [event["checkpointId"] for event in restored] == made != []


def test_whoever_met_the_limit_goes_on_before_others_begin(place: Place) -> None:
    change(place, concurrency=1, limit_jitter_least=2, limit_jitter_most=2)
    one = place.task([{"limited": 2}, {"exit": 1}], [DONE])
    place.supervise(until=place.holds(one, "rate_limit"))
    agent = place.runtime.tables.task(one.id).agent
    two = place.task(name="two", agent=agent, start=True)
    place.supervise(until=lambda: place.state(one) == ("done", ""))

    first = [place.runtime.tables.runs("task = ?", id) for id in (one.id, two.id)]
    assert len(first[0]) == 2
    assert not first[1] or first[1][0].started_at > first[0][1].started_at
    place.tasks.cancel(two.id)
    place.supervise()


def test_tasks_that_queue_up_behind_a_limit_do_not_wait_for_one_another(place: Place) -> None:
    change(place, concurrency=1, limit_jitter_least=1, limit_jitter_most=1, stagger=1)
    one = place.task([{"limited": 1}, {"exit": 1}], [DONE])
    place.supervise(until=place.holds(one, "rate_limit"))
    agent = place.runtime.tables.task(one.id).agent
    waiting = [place.task(name=name, agent=agent, start=True) for name in ("two", "three", "four")]
    place.supervise(until=lambda: all(place.runtime.tables.runs("task = ?", task.id) for task in waiting))

    assert place.state(one) == ("done", "")
    for task in waiting:
        if place.runtime.tables.task(task.id).state not in ("done", "failed"):
            place.tasks.cancel(task.id)
    place.supervise()


def test_tasks_behind_a_limit_go_on_by_their_priority(place: Place) -> None:
    change(place, concurrency=1, limit_jitter_least=0, limit_jitter_most=0, stagger=1)
    one = place.task([{"limited": 5}, {"exit": 1}], *[[DONE]] * 9)
    place.supervise(until=place.holds(one, "rate_limit"))
    agent = place.runtime.tables.task(one.id).agent
    tasks = {"normal, begun": one}
    for priority in ("low", "normal", "critical", "high"):
        tasks[priority] = place.task(name=priority, agent=agent, priority=priority)
        place.supervise(until=place.holds(tasks[priority], "rate_limit"))
    wanted = ["critical", "high", "normal, begun", "normal", "low"]

    due = {name: place.shown(task)["hold"]["until"] for name, task in tasks.items()}
    assert sorted(due, key=lambda name: due[name]) == wanted
    place.supervise()
    started = {name: last(place, task).started_at for name, task in tasks.items()}
    assert sorted(started, key=lambda name: started[name]) == wanted


def test_a_restore_is_shown_before_it_is_done_and_what_is_not_listed_is_counted(person: Person) -> None:
    turns: list[list[dict[str, Any]]] = [
        [{"write": ["a.txt", str(number)]}, {"say": "[USER_QUESTION]\nquestion: Go?\n[/USER_QUESTION]"}]
        for number in range(12)
    ]
    id = person.json("task", "new", "x", "--agent", person.agent(*turns))[0]["id"]
    for number in range(12):
        assert person.run("supervise", "--until-idle").returncode == 0
        if number < 11:
            assert person.run("task", "answer", id, "yes").returncode == 0
    shown = person.json("task", "show", id)
    assert shown["checkpoints_total"] == len(shown["checkpoints"]) == 13
    assert "3 older" in person.run("task", "show", id).stdout

    planned = person.json("task", "restore", id, shown["checkpoints"][-2]["version"], "--dry-run")

    assert planned["dry_run"] and (person.project / "a.txt").read_text() == "11"
    assert person.json("task", "show", id)["checkpoints_total"] == 13


# Who runs tasks


def test_a_supervisor_in_the_background_takes_over_when_the_other_one_ends(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RETRY_SECONDS", 0.1)
    said: list[str] = []
    task = place.task([DONE])
    other = SupervisorLock(place.runtime.folder)
    background = service.Background(place.runtime, said.append)
    background.start()
    try:
        _wait(lambda: bool(said))
        time.sleep(0.5)
        assert len(said) == 1 and f"process {os.getpid()}" in said[0]
        assert place.state(task) == ("queued", "")
        other.close()
        _wait(lambda: place.state(task) == ("done", ""))
    finally:
        background.close()
    assert len(said) == 2 and background.error is None


def _wait(until: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_it_is_said_that_no_supervisor_runs(person: Person) -> None:
    id = person.run("task", "new", "x", "--agent", "true", "--draft").stdout.split()[1].rstrip(":")

    assert "No supervisor" not in person.run("task", "list").stderr
    assert "No supervisor" in person.run("task", "start", id).stderr
    assert "No supervisor" in person.run("task", "list").stderr


# What a task that was cut off is told


@pytest.mark.parametrize("phases", [0, 2])
def test_where_a_task_was_is_told_when_it_goes_on(place: Place, phases: int) -> None:
    progress = {"say": "[PROGRESS]\nstep: 03_users\npercent: 35\n[/PROGRESS]"}
    task = place.task([progress, {"exit": 3}], [{"sleep": 600}], phases=[PHASE] * phases)
    place.supervise(until=lambda: place.journal().count("begin 1") == 1)

    prompt = last(place, task).prompt
    assert "tep 03_users, 35 %" in prompt
    assert ("Phase 1 of 2" in prompt) == bool(phases) and "of 1" not in prompt
    place.tasks.cancel(task.id)
    place.supervise()


# Waiting no longer


@pytest.mark.databases
def test_whoever_tries_now_does_not_wait_for_the_limit(place: Place) -> None:
    task = place.task([{"limited": 3600}, {"exit": 1}], [DONE])
    place.supervise(until=place.holds(task, "rate_limit"))

    place.tasks.try_now(task.id)
    place.supervise()

    assert place.state(task) == ("done", "")
    with pytest.raises(NotAllowed, match="not waiting for a limit"):
        place.tasks.try_now(task.id)


# Sessions that are gone


def test_a_session_that_cannot_be_restored_begins_anew_once_and_then_a_person_decides(place: Place) -> None:
    change(place, backoff_first=600, backoff_longest=600, resume_with="history")
    lost = [result(is_error=True, result="No conversation found with session ID"), {"exit": 1}]
    cut = [{"write": ["a.txt", "1"]}, spoken("I work."), {"exit": 3}]
    task = client(place, cut, lost, cut, lost, [spoken(say_phase(2)["say"]), result()], phases=[PHASE])
    for runs in (1, 3):
        place.supervise(until=_backs_off(place, task, runs))
        _keep_session(place, last(place, task).session)
        place.tasks.try_now(task.id)
    place.supervise()

    assert place.state(task) == ("active", "crashed"), place
    assert place.runtime.tables.task(task.id).reason.startswith(
        "The session could not be restored for the second time: "
    )
    assert [run.resume for run in place.runtime.tables.runs("task = ?", task.id)] == [0, 1, 0, 1]
    rows = place.runtime.tables.all("SELECT kind, text FROM notice WHERE task = ?", task.id)
    assert ("warning", RESTARTING) in [(row["kind"], row["text"]) for row in rows]
    assert (place.workspace() / "a.txt").read_text() == "1", "what is on disk stays"


def _backs_off(place: Place, task: Task, runs: int) -> Callable[[], bool]:
    return lambda: place.state(task)[1] == "backoff" and len(place.outcomes(task)) == runs


def _keep_session(place: Place, session: str) -> None:
    """The client kept this session, as far as can be seen from outside."""
    folder = place.home / ".claude/projects/p"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{session}.jsonl").write_text(json.dumps({"type": "user", "message": {"role": "user", "content": "x"}}))


# Looking


@pytest.mark.databases
def test_the_report_says_what_ran_waited_cost_changed_and_needs_you(place: Place) -> None:
    turn = [
        {"write": ["a.txt", "1"]},
        {"write": ["b.txt", "1"]},
        spoken(say_phase(1)["say"]),
        result(total_cost_usd=1.5),
    ]
    task = client(place, turn, phases=[{**PHASE, "review": True}])
    place.supervise()
    place.ahead = 7200 * SECOND

    found = report(place.runtime, place.now() - 10 * 3600 * SECOND)

    [one] = found["tasks"]
    assert (one["status"], one["runs"], one["money"], one["changed_files"]) == ("review", 1, 1.5, 2)
    assert 7200 <= one["waited_seconds"]["approval"] < 7300
    assert [(need["kind"], need["task"]) for need in found["needs_you"]] == [("approval", task.id)]
    assert report(place.runtime, place.now() + SECOND)["tasks"][0]["runs"] == 0, "nothing ran since then"


@pytest.mark.sqlite
def test_tasks_below_the_roots_come_back_when_a_supervisor_starts(place: Place) -> None:
    """Nobody has to say `rebuild`: the supervisor looks where it was told that tasks are."""
    task = place.task([DONE])
    place.lose_database()
    assert place.tasks.views.listing() == []
    change(place, roots=[str(place.base)])

    supervisor = Supervisor(place.runtime, Idle())
    supervisor.stop.set()
    supervisor.run()

    assert place.state(task) == ("active", "user_pause")


class Idle:
    """Workflows of a supervisor that starts nothing."""

    def start(self, run: str) -> None:
        raise AssertionError("nothing was to be started")

    def is_busy(self, run: str) -> bool:
        return False

    def close(self) -> None:
        pass


# As commands


class Session(Person):
    """Somebody at a terminal while a supervisor runs in another."""

    def __init__(self, person: Person) -> None:
        self.base, self.project, self.variables = person.base, person.project, person.variables
        self.supervisor = subprocess.Popen([sys.executable, "-m", "keepfast", "-q", "supervise"], env=self.variables)

    def close(self) -> None:
        self.supervisor.terminate()
        self.supervisor.wait(60)

    def does(self, *words: str) -> None:
        done = self.run("task", *words)
        assert done.returncode == 0, done

    def wait(self, id: str, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = time.monotonic() + 90
        while not until(found := self.json("task", "show", id)):
            assert time.monotonic() < end, found
            time.sleep(0.1)
        return dict(found)


def test_a_task_is_steered_from_its_draft_to_its_end(person: Person) -> None:
    """Every verb, each seen to have its effect: start, freeze, resume, pause, restore, cancel, retry, try-now, inbox."""
    go = person.base / "go"
    ask = {"say": "[USER_QUESTION]\nquestion: Which one?\noptions:\n - a\n - b\n[/USER_QUESTION]"}
    agent = person.agent(
        [{"write": ["a.txt", "1"]}, {"wait_for": str(go)}], [{"limited": 3600}, {"exit": 1}], [ask], [DONE]
    )
    id = person.json("task", "new", "x", "--agent", agent, "--draft")[0]["id"]
    assert person.json("task", "list", "--state", "draft")[0]["id"] == id
    session = Session(person)
    try:
        session.does("start", id)
        session.wait(id, lambda task: (person.project / "a.txt").exists() and task["agent_status"] == "running")
        session.does("freeze", id)
        session.wait(id, lambda task: task["frozen"])
        assert "frozen" in session.run("task", "list").stdout
        assert "frozen" in session.run("task", "show", id).stdout
        session.does("resume", id)
        session.wait(id, lambda task: not task["frozen"])
        session.does("pause", id, "--now")
        session.wait(id, lambda task: task["status"] == "paused")
        (person.project / "a.txt").write_text("somebody else")
        session.does("restore", id, "latest", "--files", "-y")
        assert (person.project / "a.txt").read_text() == "1"
        session.wait(id, lambda task: task["agent_status"] == "running")
        session.does("cancel", id)
        session.wait(id, lambda task: task["status"] == "cancelled")
        go.touch()
        (person.base / "journal").write_text("begin 0\nend 0\n")
        session.does("retry", id)
        session.wait(id, lambda task: task["status"] == "waiting_rate_limit")
        session.does("try-now", id)
        session.wait(id, lambda task: task["status"] == "waiting_question")
        assert "Which one?" in session.run("task", "inbox").stdout
        session.does("answer", id, "b")
        session.wait(id, lambda task: task["status"] == "completed")
    finally:
        session.close()

    assert "The answer: b" in person.told()[-1]


def test_settings_that_change_count_for_a_supervisor_that_runs(person: Person) -> None:
    said = {"type": "assistant", "message": {"id": "1", "content": [{"type": "text", "text": DONE["say"]}]}}
    agent = person.agent([DONE], [{"say": json.dumps(said)}])
    session = Session(person)
    try:
        first = person.json("task", "new", "x", "--agent", agent)[0]["id"]
        session.wait(first, lambda task: task["status"] == "completed")
        assert person.run("config", "set", "supervisor.agent", json.dumps(agent.split())).returncode == 0
        second = person.json("task", "new", "y")[0]["id"]
        session.wait(second, lambda task: task["status"] == "completed")
    finally:
        session.close()


def test_the_demonstration_comes_to_its_end() -> None:
    """`make demo-task`, as everybody sees it first."""
    program = Path(__file__).parents[3] / "tools" / "demo_task.py"

    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=400)

    assert done.returncode == 0, done
    for word in ("asks something", "keepfast task approve", "limited", "keepfast task pause", "completed"):
        assert word in done.stdout, done.stdout


# Changing one's mind


def test_a_pause_that_is_taken_back_while_the_agent_ends_goes_on(place: Place) -> None:
    go = place.base / "go"
    task = place.task([{"write": ["a.txt", "1"]}, {"ignore": "TERM"}, {"wait_for": str(go)}], [DONE])
    place.supervise(until=lambda: (place.workspace() / "a.txt").exists())
    place.tasks.pause(task.id, now=True)
    place.supervise(until=lambda: shims.last_wish(last(place, task).folder) == "stop")

    place.tasks.resume(task.id)
    go.touch()
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert (place.outcomes(task)[0], place.outcomes(task)[-1]) == ("paused", "complete")


def test_a_pause_that_is_taken_back_before_the_agent_is_stopped_is_none(place: Place) -> None:
    go = place.base / "go"
    place.options = place.runtime.options = replace(place.options, pause_grace=60)
    task = client(place, [{"wait_for": str(go)}, spoken(DONE["say"]), result()])
    place.supervise(until=lambda: place.journal() == ["begin 0"])
    place.tasks.pause(task.id)
    place.supervise(until=lambda: last(place, task).request == "pause")

    place.tasks.resume(task.id)
    place.supervise(until=lambda: last(place, task).request == "")
    assert not (Path(last(place, task).folder) / "pause").exists()
    go.touch()
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert place.outcomes(task) == ["complete"]


def test_the_report_counts_files_and_not_their_folders(place: Place) -> None:
    place.task([{"write": ["src/deep/a.txt", "1"]}, {"write": ["src/b.txt", "1"]}, DONE])
    place.supervise()

    [one] = report(place.runtime, place.now() - 3600 * SECOND)["tasks"]

    assert one["changed_files"] == 2


@pytest.mark.parametrize("seconds", [0, 1.5])
def test_an_agent_is_started_before_it_speaks_and_tells_nothing_before_it_does(place: Place, seconds: float) -> None:
    task = place.task([{"say": "I begin."}, {"sleep": seconds}, DONE])
    place.supervise()

    log = {event["type"]: event for event in place.tasks.views.log(task.id)}
    run = place.runtime.tables.last_run(task.id)
    assert run is not None
    with open(f"{run.folder}/out.log.times") as file:
        first = int(file.read().split()[1])
    assert run.started_at <= run.live_at <= first
    assert log["run_begun"]["timestamp"] <= log["agent_started"]["timestamp"] <= moment(first)
    assert "progress" not in log


def test_a_task_that_is_paused_before_its_first_run_is_simply_queued_again(place: Place) -> None:
    task = place.task([DONE])
    place.tasks.pause(task.id)
    assert place.state(task) == ("queued", "user_pause")
    place.tasks.resume(task.id)

    assert place.state(task) == ("queued", "") and place.reasons(task) == []
    place.supervise()
    assert place.state(task) == ("done", "") and "checkpoint_restored" not in place.events(task)


def test_a_retried_task_that_is_done_does_not_say_why_it_was_cancelled(place: Place) -> None:
    task = place.task([{"say": "[USER_QUESTION]\nquestion: Go?\n[/USER_QUESTION]"}], [DONE])
    place.supervise()
    place.tasks.cancel(task.id)
    assert place.shown(task)["reason"] == "cancelled by a person"
    place.tasks.retry(task.id)
    assert place.shown(task)["reason"] is None
    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.shown(task)["reason"] != "cancelled by a person"


def test_an_agent_that_completes_another_phase_is_told_which_one_it_works_on(place: Place) -> None:
    task = place.task([say_phase(2)], [say_phase(1)], [say_phase(2)], phases=[PHASE, PHASE])
    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.shown(task)["runs"][0]["reason"] == "the agent said that phase 2 is complete, but it works on phase 1"
    assert "phase 2 is complete, but it works on phase 1" in place.told()[1]


def test_the_prompt_of_a_rework_names_the_command_and_not_its_secrets(place: Place) -> None:
    phase = {**PHASE, "verify": "grep -q ok result.txt # password=hunter2xyzzy"}
    task = place.task([say_phase(1)], [{"write": ["result.txt", "ok"]}, say_phase(1)], phases=[phase])
    place.supervise()

    assert place.state(task) == ("done", "")
    assert "grep -q ok result.txt" in place.told()[1]
    assert "hunter2xyzzy" not in place.told()[1]
