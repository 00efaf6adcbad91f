"""Tasks from start to end with a scripted agent: phases, questions, limits, pauses, secrets, errors."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any, cast

import pytest

from keepfast.agents import transcript
from keepfast.model.errors import Conflict, NotFound, Usage
from keepfast.resume import extractor as notes
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.domain import prompts
from keepfast.runner.domain.records import Agent, TaskSpec
from keepfast.runner.domain.task import NotAllowed
from keepfast.runner.scheduler import attempts
from keepfast.runner.scheduler.attempts import Threads
from keepfast.runner.scheduler.conclusion import settle
from keepfast.runner.scheduler.supervisor import Supervisor
from tests.equipment.sessions import Session
from tests.faults.supervisor.test_kills import supervise
from tests.runner.place import DONE, PHASE, Place, say_phase
from tests.runner.process.test_output import TALK

TWO = [{**PHASE, "name": "Plan", "prompt": "Make a plan."}, {**PHASE, "name": "Build", "prompt": "Build it."}]
ASK = {
    "say": "[USER_QUESTION]\ncategory: choice\nquestion: Which database?\noptions:\n - PostgreSQL\n - SQLite\n"
    "required: true\n[/USER_QUESTION]"
}
NEED = {"say": "[DEPENDENCY_REQUEST]\ntype: api_key\nname: API_KEY\ndescription: the service\n[/DEPENDENCY_REQUEST]"}


@pytest.mark.databases
def test_a_task_of_two_phases_runs_to_its_end(place: Place) -> None:
    task = place.task([{"write": ["plan.md", "1"]}, say_phase(1)], [{"write": ["a.py", "2"]}, say_phase(2)], phases=TWO)

    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.outcomes(task) == ["phase", "phase"]
    assert place.reasons(task) == ["start", "phase_complete", "phase_complete", "final"]
    assert place.journal() == ["begin 0", "end 0", "begin 1", "end 1"]
    assert "Make a plan." in place.told()[0]
    assert "Now phase 2: Build." in place.told()[1]


def test_a_custom_task_ends_with_its_marker(place: Place) -> None:
    task = place.task([DONE])

    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.reasons(task) == ["start", "final"]


@pytest.mark.databases
def test_a_question_waits_for_its_answer(place: Place) -> None:
    task = place.task([ASK], [DONE])
    place.supervise()
    [prompt] = place.tasks.views.inbox()
    assert place.state(task) == ("active", "question")
    assert place.shown(task)["status"] == "waiting_question"

    place.tasks.answers.answer(prompt["id"], "sqlite")
    place.supervise()

    assert place.state(task) == ("done", "")
    assert "The answer: SQLite" in place.told()[1]
    assert f'"questionId": "{prompt["id"]}"' in place.told()[1]


@pytest.mark.databases
def test_of_two_answers_only_the_first_counts(place: Place) -> None:
    place.task([ASK], [DONE])
    place.supervise()
    [prompt] = place.tasks.views.inbox()
    place.tasks.answers.answer(prompt["id"], "SQLite")

    with pytest.raises(Conflict, match="no longer waiting"):
        place.tasks.answers.answer(prompt["id"], "PostgreSQL")


def test_an_answer_that_is_nearly_an_option_is_refused_with_a_suggestion(place: Place) -> None:
    place.task([ASK], [DONE])
    place.supervise()
    [prompt] = place.tasks.views.inbox()

    with pytest.raises(Usage, match="Did you mean 'PostgreSQL'"):
        place.tasks.answers.answer(prompt["id"], "Postgre")


@pytest.mark.parametrize(("text", "exactly"), [("Neither; keep it in files", False), ("PostgreSQL 9", True)])
def test_a_choice_takes_words_of_ones_own(place: Place, text: str, exactly: bool) -> None:
    task = place.task([ASK], [DONE])
    place.supervise()
    [prompt] = place.tasks.views.inbox()

    _, warning = place.tasks.answers.answer(prompt["id"], text, exactly=exactly)
    place.supervise()

    assert warning, "it is said that this was none of the options"
    assert place.state(task) == ("done", "")
    assert place.shown(task)["prompts"][0]["answer"] == text
    assert text in place.told()[1]


@pytest.mark.databases
def test_a_secret_reaches_the_agent_and_no_log(place: Place) -> None:
    task = place.task([NEED], [{"show_variable": "API_KEY"}, DONE])
    place.supervise()
    assert place.state(task) == ("active", "secret")

    place.tasks.answers.secret(task.id, "API_KEY", "s3cr3t-value-42")
    place.supervise()

    assert place.state(task) == ("done", "")
    [_, run] = place.runtime.tables.runs("task = ?", task.id)
    assert "API_KEY is [secret]" in open(run.folder + "/out.log").read()
    for path in [*place.data.rglob("*"), *place.workspace().rglob("*")]:
        if path.is_file():
            assert b"s3cr3t-value-42" not in path.read_bytes(), path


@pytest.mark.databases
def test_secrets_that_a_task_names_are_asked_for_before_it_starts(place: Place) -> None:
    task = place.task([DONE], secrets=["TOKEN"])
    place.supervise()
    assert place.state(task) == ("queued", "secret")
    assert place.journal() == []

    place.tasks.answers.secret(task.id, "TOKEN", "value-of-it")
    place.supervise()

    assert place.state(task) == ("done", "")


@pytest.mark.databases
def test_a_limit_is_waited_for_and_the_task_goes_on(place: Place) -> None:
    task = place.task([{"limited": 1}, {"exit": 1}], [DONE])
    place.supervise(until=place.holds(task, "rate_limit"))
    hold = place.shown(task)["hold"]
    assert hold["until"]
    assert hold["seconds_left"] <= 1

    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.outcomes(task) == ["limited", "complete"]
    assert "rate_limit" in place.reasons(task)
    assert "Resume from where you left off" in place.told()[1]


@pytest.mark.databases
def test_a_crash_is_tried_again_after_a_back_off(place: Place) -> None:
    task = place.task([{"exit": 3}], [DONE])

    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.outcomes(task) == ["crashed", "complete"]
    assert "backoff" in [event.get("metadata", {}).get("hold") for event in place.tasks.views.log(task.id)]


@pytest.mark.parametrize(
    "ending",
    [
        [{"exit": 3}],
        [{"say": "[ERROR] type: recoverable, message: code 3"}],
        [{"say": "[ERROR]\nmessage: code 3"}],
    ],
)
def test_after_max_attempts_crashes_in_a_row_a_person_decides(place: Place, ending: list[dict[str, Any]]) -> None:
    ask = [{"say": "[USER_QUESTION]\nquestion: Which?\n[/USER_QUESTION]"}]
    task = place.task(ending, ask, *[ending] * 4, [DONE])
    place.supervise()
    place.tasks.answers.answer(task.id, "this")

    place.supervise()

    assert place.state(task) == ("active", "crashed")
    assert len(place.outcomes(task)) == 5, "one, a question, and three in a row"
    reason = place.runtime.tables.task(task.id).reason
    assert "3 times" in reason and "code 3" in reason
    [waiting] = place.tasks.views.inbox()
    assert (waiting["task"], waiting["hold"], waiting["text"]) == (task.id, "crashed", reason)
    place.tasks.resume(task.id)
    place.supervise()
    assert place.state(task) == ("done", "")


def test_max_attempts_is_the_number_that_is_set(place: Place) -> None:
    place.close()
    place.__init__(place.base, place.options.but(max_attempts=1))  # type: ignore[misc]
    task = place.task([{"exit": 3}], [DONE])

    place.supervise()

    assert place.state(task) == ("active", "crashed")
    assert place.outcomes(task) == ["crashed"]


def test_a_failed_task_can_be_tried_again(place: Place) -> None:
    task = place.task(
        [{"say": "[ERROR]\ntype: fatal\nmessage: no way\nrecovery: checkpoint_and_fail\n[/ERROR]"}], [DONE]
    )
    place.supervise()
    assert place.state(task) == ("failed", "")
    assert place.runtime.tables.task(task.id).reason == "no way"

    place.tasks.retry(task.id)
    place.supervise()

    assert place.state(task) == ("done", "")


@pytest.mark.parametrize("form", ["[ERROR]\ntype: {}\nmessage: {}\n[/ERROR]", "[ERROR] type: {}, message: {}"])
@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize(
    ("kind", "message", "outcomes", "reason", "state"),
    [
        ("recoverable", "the network is down", ["retry", "complete"], "error", "done"),
        ("fatal", "no way", ["failed"], "error", "failed"),
        ("recoverable", "Rate limit exceeded", ["limited", "complete"], "rate_limit", "done"),
    ],
)
def test_an_error_in_the_sources_own_fields_leads_to_what_its_type_says(
    place: Place, form: str, code: int, kind: str, message: str, outcomes: list[str], reason: str, state: str
) -> None:
    task = place.task([{"write": ["a", "1"]}, {"say": form.format(kind, message)}, {"exit": code}], [DONE])

    place.supervise()

    assert place.state(task) == (state, ""), place
    assert place.outcomes(task) == outcomes
    assert reason in place.reasons(task), "what there was is kept first"


def test_an_agent_that_is_not_installed_fails_with_its_name_and_leaves_no_draft(place: Place) -> None:
    with pytest.raises(Usage, match="no-such-agent"):
        place.task([DONE], agent={"command": ["no-such-agent"]})

    assert place.tasks.views.listing(archived=True) == []
    assert list(place.workspace().iterdir()) == [], "the folder is as it was"


def test_of_several_tasks_none_is_made_if_one_cannot_start(place: Place) -> None:
    good = _spec(place)
    with pytest.raises(Usage, match="no-such-agent"):
        place.tasks.new_all([good, replace(good, agent={"command": ["no-such-agent"]})], start=True)

    assert place.tasks.views.listing() == []


def test_a_fork_that_cannot_start_is_not_made(place: Place) -> None:
    task = place.task([DONE], start=False, agent={"command": ["no-such-agent"]})
    with pytest.raises(Usage, match="no-such-agent"):
        place.tasks.fork(task.id, str(place.base / "trial"), start=True)

    assert [one["id"] for one in place.tasks.views.listing()] == [task.id]
    assert not (place.base / "trial").exists()


@pytest.mark.databases
def test_a_review_is_approved_and_bound_to_what_was_reviewed(place: Place) -> None:
    phases = [{**PHASE, "review": True}, {**PHASE, "review": True}]
    task = place.task([{"write": ["a", "1"]}, say_phase(1)], [say_phase(2)], phases=phases)
    place.supervise()
    assert place.state(task) == ("review", "approval")
    (place.workspace() / "a").write_text("somebody else")
    with pytest.raises(Conflict, match="changed since the review"):
        place.tasks.answers.approve(task.id)
    (place.workspace() / "a").write_text("1")

    place.tasks.answers.approve(task.id)
    place.supervise()
    assert place.state(task) == ("review", "approval")
    place.tasks.answers.approve(task.id)

    assert place.state(task) == ("done", "")


def test_requested_changes_become_the_next_prompt_at_most_three_times(place: Place) -> None:
    phases = [{**PHASE, "review": True}]
    task = place.task(*[[say_phase(1)]] * 4, phases=phases)
    for number in range(3):
        place.supervise()
        place.tasks.answers.reject(task.id, f"Please use tabs {number}.")
    place.supervise()

    assert "Please use tabs 2." in place.told()[3]
    with pytest.raises(NotAllowed, match="reworked 3 times"):
        place.tasks.answers.reject(task.id, "Again.")


def test_a_failing_verification_sends_the_agent_back_with_its_output(place: Place) -> None:
    phases = [{**PHASE, "verify": "cat result; grep -q good result"}]
    task = place.task(
        [{"write": ["result", "bad"]}, say_phase(1)], [{"write": ["result", "good"]}, say_phase(1)], phases=phases
    )

    place.supervise()

    assert place.state(task) == ("done", "")
    assert "bad" in place.told()[1]
    assert "1 of 3 reworks" in place.told()[1]


def test_after_three_failed_verifications_a_person_decides(place: Place) -> None:
    phases = [{**PHASE, "verify": "false"}]
    task = place.task(*[[say_phase(1)]] * 5, phases=phases)

    place.supervise()

    assert place.state(task) == ("review", "approval")
    assert place.tasks.views.inbox()[0]["flagged"]
    assert len(place.outcomes(task)) == 4


@pytest.mark.databases
def test_a_pause_ends_the_process_and_keeps_the_work(place: Place) -> None:
    task = place.task([{"write": ["half", "done"]}, {"sleep": 60}], [DONE])
    place.supervise(until=lambda: (place.workspace() / "half").exists())

    place.tasks.pause(task.id)
    place.supervise(until=place.holds(task, "user_pause"))
    assert place.reasons(task)[-1] == "user_pause"
    place.supervise()
    assert place.outcomes(task) == ["paused"]
    place.tasks.resume(task.id)

    assert place.state(task) == ("active", "")


def test_a_paused_task_stays_paused_when_the_supervisor_comes_back(place: Place) -> None:
    task = place.task([DONE])
    place.tasks.pause(task.id)

    place.supervise()

    assert place.state(task) == ("queued", "user_pause")
    assert place.journal() == []


def test_a_cancelled_task_ends_its_agent(place: Place) -> None:
    task = place.task([{"sleep": 60}])
    place.supervise(until=lambda: place.journal() == ["begin 0"])

    place.tasks.cancel(task.id)
    place.supervise()

    assert place.state(task) == ("cancelled", "")


@pytest.mark.databases
def test_an_agent_outlives_its_supervisor_and_is_found_again(place: Place) -> None:
    go = place.base / "go"
    task = place.task([{"wait_for": str(go)}, DONE])
    place.supervise(until=lambda: place.journal() == ["begin 0"])
    go.touch()

    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.journal() == ["begin 0", "end 0"]


def test_a_turn_that_says_nothing_is_nudged_and_then_a_person_is_asked(place: Place) -> None:
    task = place.task([{"say": "hm"}], [{"say": "hm"}], [{"say": "hm"}], [DONE])

    place.supervise()

    assert place.state(task) == ("active", "no_progress"), "nothing crashed"
    assert place.outcomes(task) == ["idle"] * 3
    assert "without completing" in place.told()[1]
    assert "No progress" in place.runtime.tables.task(task.id).reason


def test_a_malformed_block_is_answered_back(place: Place) -> None:
    task = place.task([{"say": "[USER_QUESTION]\nquestion:\n[/USER_QUESTION]"}], [DONE])

    place.supervise()

    assert place.state(task) == ("done", "")
    assert "the field question is missing" in place.told()[1]


def test_a_malformed_question_beside_a_valid_one_is_told_and_the_valid_one_counts(place: Place) -> None:
    malformed = "[USER_QUESTION]\nquestion:\n[/USER_QUESTION]"
    task = place.task([{"say": f"{malformed}\n[USER_QUESTION]\nquestion: Which?\n[/USER_QUESTION]"}], [DONE])

    place.supervise()

    assert place.state(task) == ("active", "question")
    [refused] = [event for event in place.tasks.views.log(task.id) if event["type"] == "block_refused"]
    assert (refused["block"], refused["why"]) == ("USER_QUESTION", "the field question is missing")
    [warning] = place.shown(task)["warnings"]
    assert "the field question is missing" in warning["message"]
    log = (place.workspace() / ".logs/agent.log").read_text()
    assert " block_refused " in log and " warning " in log
    place.tasks.answers.answer(task.id, "this")
    place.supervise()
    assert place.state(task) == ("done", "")
    assert "the field question is missing" in place.told()[1]
    assert "The answer: this" in place.told()[1]


def test_a_budget_of_time_ends_the_run_and_more_of_it_lets_it_go_on(place: Place) -> None:
    task = place.task([{"sleep": 60}], budget={"minutes": 1 / 60})
    place.supervise()
    assert place.state(task) == ("active", "budget")

    place.tasks.answers.budget(task.id, minutes=10)

    assert place.state(task) == ("active", "")


def test_tasks_wait_for_those_they_name(place: Place) -> None:
    first = place.task([{"sleep": 0.3}, DONE], name="one")
    second = place.task([DONE], name="two", after=[first.id])
    place.supervise()

    assert place.state(second) == ("done", "")
    assert place.runtime.tables.task(second.id).started_at >= place.runtime.tables.task(first.id).ended_at


def test_two_tasks_never_run_in_one_workspace_at_once(place: Place) -> None:
    first = place.task([{"sleep": 0.3}, DONE])
    second = place.tasks.new(replace(_spec(place), agent=cast(Agent, place.agent("other", [DONE]))), start=True)
    place.supervise()

    [one], [two] = (place.runtime.tables.runs("task = ?", task.id) for task in (first, second))
    assert one.ended_at <= two.started_at or two.ended_at <= one.started_at


def _spec(place: Place) -> TaskSpec:
    from keepfast.runner.actions import taskfile

    return taskfile.check({"brief": "Do it.", "workspace": str(place.workspace()), "agent": {"command": ["true"]}}, "/")


def test_a_workspace_that_was_deleted_holds_its_task_and_no_other(place: Place) -> None:
    gone = place.task([DONE], name="gone")
    other = place.task([DONE], name="other")
    (place.workspace("gone") / ".keepfast/workspace.json").unlink()
    shutil.rmtree(place.base / "gone")

    place.supervise()

    assert place.state(gone) == ("queued", "crashed")
    assert "Workspace validation failed" in place.runtime.tables.task(gone.id).reason
    assert place.state(other) == ("done", "")


def test_a_workspace_deleted_under_way_holds_its_task(place: Place) -> None:
    go = place.base / "go"
    task = place.task([{"wait_for": str(go)}, say_phase(1)], phases=[{**PHASE, "verify": "true"}], name="gone")
    place.supervise(until=lambda: place.journal("gone") == ["begin 0"])
    shutil.rmtree(place.base / "gone")
    go.touch()

    place.supervise()

    assert place.state(task) == ("active", "crashed")
    assert "there is no folder" in place.runtime.tables.task(task.id).reason


@pytest.mark.databases
def test_a_database_that_is_locked_is_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    task = place.task([DONE])
    monkeypatch.setattr("keepfast.runner.db.sqlite.WAIT", 0.1)
    monkeypatch.setattr("keepfast.runner.db.postgres.WAIT", 0.1)
    runtime = place.make_runtime()
    other = place.runtime.tables._db
    other.begin()
    workflows = Threads(runtime)
    supervisor = Supervisor(runtime, workflows)
    thread = Thread(target=supervisor.run, args=(True,))
    thread.start()
    while not supervisor.problem:
        sleep(0.02)
    other.rollback()
    thread.join(60)
    workflows.close()
    runtime.close()

    assert "locked by another process" in supervisor.problem
    assert place.state(task) == ("done", "")


@pytest.mark.databases
def test_garbage_and_a_line_of_100_megabytes_do_no_harm(place: Place) -> None:
    task = place.task([{"flood": 100_000_000}, {"say": "\x00\xff[ERROR]\n{}"}, DONE])

    place.supervise()

    assert place.state(task) == ("done", "")
    [run] = place.runtime.tables.runs("task = ?", task.id)
    assert b"line cut by keepfast" in open(run.folder + "/out.log", "rb").read(100)


@pytest.mark.databases
def test_optional_questions_are_answered_by_their_default_in_time(place: Place) -> None:
    ask = {"say": "[USER_QUESTION]\nquestion: Colour?\ndefault: blue\nrequired: false\n[/USER_QUESTION]"}
    place.close()
    place.__init__(place.base, place.options.but(question_timeout=0.3))  # type: ignore[misc]
    task = place.task([ASK, ask], [DONE])
    place.supervise(until=lambda: "question_expired" in place.events(task))

    assert place.state(task) == ("active", "question")  # the required one still waits
    [prompt] = place.tasks.views.inbox()
    place.tasks.answers.answer(prompt["id"], "1")
    place.supervise()
    assert "The answer: blue" in place.told()[1]


def test_the_same_question_twice_is_asked_once(place: Place) -> None:
    place.task([ASK, {"say": ASK["say"].replace("Which database?", "which  DATABASE")}])
    place.supervise()

    assert len(place.tasks.views.inbox()) == 1


def test_the_task_with_exactly_this_title_is_meant(place: Place) -> None:
    """Also if other titles, or all ids, begin so."""
    place.task([DONE], title="Translate the README", start=False)
    short = place.task([DONE], title="Translate", start=False)
    word = place.task([DONE], title="task", start=False)

    assert place.tasks.views.find("Translate").id == short.id
    assert place.tasks.views.find("task").id == word.id
    with pytest.raises(Usage, match="ambiguous"):
        place.tasks.views.find("Trans")
    place.task([DONE], title="Translate", start=False)
    with pytest.raises(Usage, match="ambiguous"):
        place.tasks.views.find("Translate")


def test_an_unknown_task_is_named(place: Place) -> None:
    with pytest.raises(NotFound, match="nothing"):
        place.tasks.pause("nothing")


def test_a_task_of_a_name_that_is_no_text_is_unknown(place: Place) -> None:
    with pytest.raises(NotFound):
        place.tasks.views.show("bad\udcff")


@pytest.mark.databases
def test_a_limited_account_holds_back_the_tasks_that_have_not_begun(place: Place) -> None:
    place.close()
    place.__init__(place.base, place.options.but(concurrency=1))  # type: ignore[misc]
    first = place.task([{"limited": 3600}, {"exit": 1}], [DONE], name="one")
    second = place.task([DONE], name="two")
    place.supervise(until=lambda: place.state(second)[1] == "rate_limit")
    assert place.journal("two") == []

    place.ahead = 3700 * 1_000_000_000
    place.supervise()

    assert place.state(first) == place.state(second) == ("done", "")


def test_how_full_an_agent_is_is_told_once_for_each_request(place: Place) -> None:
    def full(used: int) -> dict[str, str]:
        info = {"last_token_usage": {"total_tokens": used}, "model_context_window": 200_000}
        return {"say": json.dumps({"type": "token_count", "info": info}, separators=(",", ":"))}

    task = place.task([full(50_000), full(90_000), {"wait_for": str(place.base / "go")}, full(180_000), DONE])
    place.supervise(until=lambda: len(place.journal()) == 1 and place.events(task).count("context") == 2, seconds=90)
    (place.base / "go").touch()
    place.supervise()  # another observer reads everything again

    told = [one for one in place.tasks.views.log(task.id) if one["type"] == "context"]
    assert [(one["request"], one["used"], one["percent"]) for one in told] == [
        (1, 50_000, 25.0), (2, 90_000, 45.0), (3, 180_000, 90.0),
    ]  # fmt: skip
    assert {one["window"] for one in told} == {200_000}


def test_a_fault_of_ours_is_said_and_tried_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [ZeroDivisionError("planted")]

    def faulty(runtime: Runtime, run: str) -> None:
        if faults:
            raise faults.pop()
        settle(runtime, run)

    monkeypatch.setattr(attempts, "settle", faulty)
    task = place.task([DONE])

    place.supervise()

    assert place.state(task) == ("done", "")
    [problem] = [one for one in place.tasks.views.log(task.id) if one["type"] == "trouble"]
    assert problem["error"] == "ZeroDivisionError: planted"
    assert place.journal() == ["begin 0", "end 0"]


def test_an_agent_that_only_talks_about_limits_is_never_held(place: Place) -> None:
    """Five thousand lines on its output, as answers and tools write them; then it completes, crashes, and completes."""
    lines = "\n".join([f"{number}: {TALK[number % len(TALK)]}" for number in range(5000)])
    assert len(lines.splitlines()) == 5000
    bare = "\n".join(TALK)
    task = place.task([{"say": lines}, {"say": bare}, say_phase(1)], [{"say": lines}, {"exit": 3}],
                      [{"say": bare}, say_phase(2)], phases=TWO)  # fmt: skip

    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.outcomes(task) == ["phase", "crashed", "phase"]
    assert not place.runtime.tables.all("SELECT 1 AS one FROM hold WHERE kind = 'rate_limit'")
    assert not place.runtime.tables.all("SELECT 1 AS one FROM account")


def test_a_reset_is_counted_from_when_it_was_said(place: Place) -> None:
    """The supervisor was down for a night: a reset an hour after the agent's end has long passed."""
    soon = datetime.fromtimestamp(place.now() / 1e9 + 3600, UTC)
    said = f"You've hit your limit · resets {soon:%-I:%M%p} (UTC)".replace("AM", "am").replace("PM", "pm")
    task = place.task([{"error": said}, {"exit": 1}], [DONE])
    assert supervise(place, "run:observed") == -signal.SIGKILL

    place.ahead = 8 * 3600 * 1_000_000_000
    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.outcomes(task) == ["limited", "complete"]


def test_a_memory_that_fills_up_is_saved_and_the_agent_is_told(place: Place) -> None:
    def full(used: int) -> dict[str, str]:
        info = {"last_token_usage": {"total_tokens": used}, "model_context_window": 200_000}
        return {"say": json.dumps({"type": "token_count", "info": info}, separators=(",", ":"))}

    marks = [str(place.base / name) for name in "ab"]
    task = place.task(
        [full(144_000), {"wait_for": marks[0]}, full(170_000), {"wait_for": marks[1]}, full(172_000), DONE]
    )
    place.supervise(until=lambda: "auto_70" in place.reasons(task), seconds=90)
    run = place.runtime.tables.last_run(task.id)
    assert run is not None
    nudge = Path(run.folder) / "nudge"
    assert not nudge.exists(), "the threshold is quiet"
    Path(marks[0]).touch()
    place.supervise(until=lambda: "auto_80" in place.reasons(task) and nudge.exists(), seconds=90)
    told = json.loads(nudge.read_text())["hookSpecificOutput"]["additionalContext"]
    Path(marks[1]).touch()
    place.supervise()

    assert "Checkpoint created (tokens 85%). 170,000 of 200,000 tokens used." in told
    assert [one["band"] for one in place.tasks.views.log(task.id) if one["type"] == "context_band"] == [70, 80]


def test_notes_of_a_supervised_task_hold_words_of_people_alone(place: Place) -> None:
    """A checkpoint says what was asked for: neither how the supervisor talks nor what it has to say."""
    phases = [{**PHASE, "name": "Plan", "review": True}, {**PHASE, "name": "Build", "verify": "test -f built"}]
    turns: list[list[dict[str, Any]]] = [
        [ASK],
        [say_phase(1)],
        [say_phase(1)],
        [say_phase(2)],
        [{"say": "Hm."}],
        [{"write": ["built", "1"]}, say_phase(2)],
    ]
    task = place.task(*turns, phases=phases, title="real", brief="Build the JWT thing")
    place.supervise()
    place.tasks.answers.answer(place.tasks.views.inbox()[0]["id"], "SQLite")
    place.supervise()
    place.tasks.answers.reject(task.id, "Name the columns.")
    place.supervise()
    place.tasks.answers.approve(task.id)
    place.supervise()
    assert place.state(task) == ("done", "")
    told = place.told()

    began = ["# Task: real", "Build the JWT thing", "Phase 1: Plan"]
    goes_on = ["# Task: real", "Build the JWT thing", "Phase 2: Build"]

    assert [noted(prompt)[1] for prompt in told] == [
        began,
        [*began, "SQLite"],
        [*began, "Name the columns."],
        [*goes_on, "Phase 2: Build"],
        goes_on,
        goes_on,
    ]
    assert [noted(told[number])[0] for number in (0, 1, 3, 4, 5)] == ["Build the JWT thing"] * 5


def test_a_session_that_goes_on_keeps_the_task_as_its_current_one(place: Place) -> None:
    phases = [{**PHASE, "name": "Plan"}, {**PHASE, "name": "Build"}]
    task = place.task([ASK], [DONE], phases=phases, title="real", brief="Build the JWT thing")
    place.supervise()
    prompt = place.tasks.views.inbox()[0]["id"]
    place.tasks.answers.answer(prompt, "SQLite")
    [answer] = place.runtime.tables.prompts("id = ?", prompt)
    begun = place.told()[0]

    assert noted(begun, prompts.answered(answer))[0] == "Build the JWT thing — SQLite"
    assert noted(begun, prompts.next_phase(task, 2))[0] == "Build the JWT thing — Phase 2: Build"
    for text in (
        prompts.rework("make test", "FAILED </keepfast> x", 1, 3),
        prompts.restored("v2", True),
        prompts.forked("/f"),
    ):
        assert noted(begun, text) == noted(begun)


def noted(*prompts: str) -> tuple[str, list[str]]:
    """The current task, and the paragraphs of the last words that were asked, as a checkpoint has them after these prompts."""
    session = Session()
    for prompt in prompts:
        session.asked(prompt)
    found = notes.take(transcript.read(session.bytes()))
    return found.current_task, [part.strip() for part in found.prompts[-1].split("\n\n") if part.strip()]
