"""What a supervisor watches while an agent works: silence, budgets, limits that come near, checkpoints that fail."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from keepfast.app.checkpoint import Engine
from keepfast.model.errors import DiskFull
from keepfast.runner.actions.report import report
from keepfast.runner.domain.records import Task
from tests.runner.place import DONE, PHASE, Place, say_phase

HOUR = 3600
SECOND = 1_000_000_000


def said(**event: Any) -> dict[str, Any]:
    """A line of a client that tells of itself in JSON."""
    return {"say": json.dumps(event)}


def used(tokens: int, id: str) -> dict[str, Any]:
    message = {"id": id, "model": "m", "content": [], "usage": {"input_tokens": tokens, "output_tokens": 0}}
    return said(type="assistant", message=message)


def spoken(text: str) -> dict[str, Any]:
    return said(type="assistant", message={"id": text, "model": "m", "content": [{"type": "text", "text": text}]})


def result(**facts: Any) -> dict[str, Any]:
    return said(type="result", subtype="success", **{"is_error": False, "result": "", **facts})


def limit(status: str, at: float, **facts: Any) -> dict[str, Any]:
    info = {"status": status, "resetsAt": int(at), "rateLimitType": "five_hour", **facts}
    return said(type="rate_limit_event", rate_limit_info=info)


def client(place: Place, *turns: list[dict[str, Any]], **keys: Any) -> Task:
    """A task of the scripted agent, which is started and listened to as Claude Code is."""
    return place.task(*turns, agent={**place.agent("work", *turns), "kind": "claude"}, **keys)


def nudge_of(place: Place, task: str) -> Path:
    run = place.runtime.tables.last_run(task)
    assert run is not None
    return Path(run.folder) / "nudge"


def change(place: Place, **options: Any) -> None:
    """Other settings, as for a supervisor that is started with them."""
    place.close()
    place.__init__(place.base, place.options.but(**options))  # type: ignore[misc]


# Silence


def test_an_agent_that_says_nothing_is_stuck_and_started_again(place: Place) -> None:
    change(place, silent_after=0.3, stuck_after=1)
    task = place.task([{"write": ["a.txt", "1"]}, {"sleep": 600}], [DONE])
    (place.base / "work.journal").touch()
    place.supervise(until=lambda: place.outcomes(task) == ["retry"])
    (place.base / "work.journal").write_text("begin 0\nend 0\n")
    place.supervise()

    assert place.state(task) == ("done", "")
    events = place.events(task)
    assert events.index("silent") < events.index("stuck")
    assert "error" in place.reasons(task), "what it had done is kept"


def test_an_agent_that_goes_on_talking_is_not_stuck(place: Place) -> None:
    change(place, stuck_after=30)
    lines = [step for number in range(8) for step in ({"say": f"line {number}"}, {"sleep": 0.2})]
    task = place.task([*lines, DONE])

    place.supervise()

    assert place.outcomes(task) == ["complete"]
    assert "stuck" not in place.events(task)


# Budgets


@pytest.mark.databases
def test_a_budget_of_tokens_is_told_at_half_and_ends_the_run(place: Place) -> None:
    marks = [str(place.base / name) for name in "abc"]
    turn = [
        used(600, "1"),
        {"wait_for": marks[0]},
        used(200, "2"),
        {"wait_for": marks[1]},
        used(300, "3"),
        {"sleep": 600},
    ]
    task = client(place, turn, [spoken(DONE["say"]), result()], budget={"tokens": 1000})

    place.supervise(until=lambda: place.events(task).count("budget_told") == 1)
    assert "50% of the token budget" in nudge_of(place, task.id).read_text()
    Path(marks[0]).touch()
    place.supervise(until=lambda: place.events(task).count("budget_told") == 2)
    assert "75% of the token budget" in nudge_of(place, task.id).read_text()
    Path(marks[1]).touch()
    place.supervise()

    assert place.state(task) == ("active", "budget")
    assert place.reasons(task)[-1] == "budget"
    assert [one["hold"] for one in report(place.runtime, 0)["needs_you"]] == ["budget"]
    (place.base / "work.journal").write_text("begin 0\nend 0\n")
    place.tasks.answers.budget(task.id, tokens=100_000)
    place.supervise()
    assert place.state(task) == ("done", "")


def test_the_time_of_a_live_run_is_counted_as_used(place: Place) -> None:
    go = place.base / "go"
    task = place.task([{"write": ["a.txt", "1"]}, {"wait_for": str(go)}, DONE])
    begin = time.monotonic()
    place.supervise(until=lambda: (place.workspace() / "a.txt").exists() and time.monotonic() - begin > 2.5)

    live = place.shown(task)["used"]["seconds"]
    assert 1 <= live <= 60
    go.touch()
    place.supervise()
    assert live <= place.shown(task)["used"]["seconds"] <= 60


def test_what_a_live_run_has_used_is_told_and_counts_against_its_budget(place: Place) -> None:
    """A client tells of a message before its end: how long it became stands in its transcript alone."""
    change(place, checkpoint_interval=0.5)
    go, folder = place.base / "go", place.home / ".claude/projects/work"
    folder.mkdir(parents=True)
    turn = [used(10, "1"), {"write": ["a.txt", "1"]}, {"wait_for": str(go)}, {"write": ["b.txt", "1"]}, {"sleep": 600}]
    task = client(place, turn, budget={"tokens": 2000})
    place.supervise(until=lambda: "interval" in place.reasons(task))
    session = place.runtime.tables.task(task.id).session

    def write(tokens: int) -> None:
        usage = {"input_tokens": 10, "output_tokens": tokens}
        with (folder / f"{session}.jsonl").open("a") as file:
            file.write(json.dumps({"type": "assistant", "message": {"id": "1", "usage": usage}}) + "\n")

    write(830)
    go.touch()
    place.supervise(until=lambda: place.reasons(task).count("interval") == 2)
    newest = json.loads((place.workspace() / ".checkpoints/latest.json").read_text())
    assert newest["agent"]["tokensUsed"] == 840
    write(2000)
    place.supervise()

    assert place.state(task) == ("active", "budget")
    assert place.runtime.tables.task(task.id).tokens == 2010


@pytest.mark.parametrize(
    ("end", "reason", "outcome"),
    [([result()], "budget", "budget"), ([result(total_cost_usd=3.0)], "budget", "budget"), ([{"exit": 3}], "crash", "crashed")],
    ids=["tokens", "money", "crash"],
)  # fmt: skip
def test_a_run_that_ends_over_its_budget_without_a_word_is_held_at_once(
    place: Place, end: list[dict[str, Any]], reason: str, outcome: str
) -> None:
    """It does not wait to go on first, which it may not."""
    change(place, backoff_first=HOUR, backoff_longest=HOUR)
    keys: dict[str, Any] = {"money": 2.5} if "cost" in str(end) else {"tokens": 500}
    turn = [{"write": ["a.txt", "1"]}, used(900, "1"), spoken("I could not say more."), *end]
    task = client(place, turn, [spoken(DONE["say"]), result()], budget=keys)

    place.supervise()

    newest = json.loads((place.workspace() / ".checkpoints/latest.json").read_text())
    assert place.state(task) == ("active", "budget")
    assert (place.reasons(task)[-1], place.outcomes(task)) == (reason, [outcome])
    assert (newest["reason"], newest["agent"]["blockedBy"]) == (reason, "budget")
    assert [one["hold"] for one in report(place.runtime, 0)["needs_you"]] == ["budget"]
    place.tasks.answers.budget(task.id, tokens=100_000, money=10)
    place.supervise()
    assert place.state(task) == ("done", "")


@pytest.mark.databases
def test_money_that_is_used_up_starts_nothing_more(place: Place) -> None:
    """What a run cost is known when it ends: the next one, though its phase is due, is not begun."""
    turns = [[spoken(say_phase(number)["say"]), result(total_cost_usd=3.0)] for number in (1, 2)]
    task = client(place, *turns, phases=[PHASE, PHASE], budget={"money": 2.5})

    place.supervise()

    assert place.state(task) == ("active", "budget")
    assert place.journal() == ["begin 0", "end 0"]
    assert place.runtime.tables.task(task.id).reason == "The budget of money is used up."
    place.tasks.answers.budget(task.id, money=2.75)
    place.supervise()
    assert place.journal() == ["begin 0", "end 0"], "that is not enough either"
    place.tasks.answers.budget(task.id, money=10)
    place.supervise()
    assert place.state(task) == ("done", "")


# Limits


@pytest.mark.databases
def test_a_limit_that_comes_near_is_logged_and_saved_before_it_comes(place: Place) -> None:
    go = place.base / "go"
    near = limit("allowed_warning", time.time() + HOUR, utilization=0.9)
    turn = [{"write": ["a.txt", "1"]}, near, {"wait_for": str(go)}, spoken(DONE["say"]), result()]
    task = client(place, turn)
    place.supervise(until=lambda: "limit" in place.reasons(task))
    assert place.events(task).count("limit_near") == 1

    go.touch()
    place.supervise()

    assert place.state(task) == ("done", ""), "a warning holds nobody"
    assert place.outcomes(task) == ["complete"]


@pytest.mark.databases
def test_after_so_many_windows_a_person_decides(place: Place) -> None:
    change(place, max_windows=1)
    begun = time.time()
    limited = [
        [limit("rejected", begun + hours * HOUR), result(is_error=True, result="limit"), {"exit": 1}]
        for hours in (1, 2)
    ]
    task = client(place, *limited, [spoken(DONE["say"]), result()])
    place.supervise(until=place.holds(task, "rate_limit"))
    place.ahead = int(1.1 * HOUR) * SECOND
    place.supervise()

    assert place.outcomes(task) == ["limited", "limited"]
    assert place.state(task) == ("active", "rate_limit")
    place.ahead = 10 * HOUR * SECOND
    place.supervise()
    assert place.outcomes(task) == ["limited", "limited"], "it does not wait by the clock any more"
    assert [one["text"] for one in report(place.runtime, 0)["needs_you"]] == ["usage limits already waited for: 1"]
    place.tasks.try_now(task.id)
    place.supervise()
    assert place.state(task) == ("done", "")


@pytest.mark.databases
@pytest.mark.parametrize("verb", ["resume", "try_now"])
def test_a_limit_that_needs_money_holds_the_account_until_a_person_says_so(place: Place, verb: str) -> None:
    change(place, concurrency=1)
    poor = {"error": "Your credit balance is too low to access the API."}
    first = place.task([poor, {"exit": 1}], [DONE], name="one")
    second = place.task([DONE], name="two")
    place.supervise()
    place.ahead = 1000 * HOUR * SECOND
    place.supervise()
    assert place.state(first) == ("active", "rate_limit")
    assert place.state(second) == ("queued", "rate_limit")
    assert place.journal("two") == []

    for task in (first, second):
        getattr(place.tasks, verb)(task.id)
    place.supervise()

    assert place.state(first) == place.state(second) == ("done", "")


@pytest.mark.databases
@pytest.mark.parametrize(
    "words",
    [{"say": "[ERROR] type: recoverable, message: Rate limit exceeded"}, result(is_error=True, api_error_status=429)],
)
def test_a_limit_without_a_reset_time_is_a_limit_of_the_account(place: Place, words: dict[str, Any]) -> None:
    change(place, concurrency=1, backoff_first=HOUR, backoff_longest=HOUR)
    turns = [words, {"exit": 1}], [spoken(DONE["say"]), result()]
    kind = {"kind": "claude"} if "result" in words["say"] else {}
    first = place.task(*turns, name="one", agent={**place.agent("one", *turns), **kind})
    second = place.task(*turns, name="two", agent={**place.agent("two", *turns), **kind})
    place.supervise(until=place.holds(second, "rate_limit"))

    assert place.state(first) == ("active", "rate_limit"), place
    shown = place.shown(first)
    assert shown["status"] == shown["agent_status"] == "waiting_rate_limit"
    assert 0 < shown["hold"]["seconds_left"] <= HOUR and not shown["hold"]["needs_you"]
    document = json.loads((place.base / "one/.checkpoints/latest.json").read_text())
    assert document["task"]["status"] == document["agent"]["status"] == "waiting_rate_limit"
    assert (document["reason"], document["agent"]["blockedBy"]) == ("rate_limit", "rate_limit")
    assert place.state(second) == ("queued", "rate_limit") and place.journal("two") == []


def test_a_limit_of_unknown_length_shortens_none_that_is_known(place: Place) -> None:
    change(place, concurrency=2)
    go = place.base / "go"
    short = place.task(
        [{"wait_for": str(go)}, {"say": "[ERROR] type: recoverable, message: Rate limit exceeded"}], name="one"
    )
    long = place.task([{"limited": HOUR}, {"exit": 1}], name="two")
    place.supervise(until=place.holds(long, "rate_limit"))
    go.touch()
    place.supervise(until=place.holds(short, "rate_limit"))

    row = place.runtime.tables.one("SELECT due_at FROM account")
    assert row is not None and row["due_at"] > place.now() + HOUR * SECOND // 2


@pytest.mark.databases
def test_tasks_of_one_account_resume_one_after_another(place: Place) -> None:
    change(place, stagger=60)
    tasks = [place.task([{"limited": HOUR}, {"exit": 1}], name=name) for name in ("one", "two", "three")]
    place.supervise(until=lambda: all(place.state(task)[1] == "rate_limit" for task in tasks))

    due = sorted(hold.due_at or 0 for hold in place.runtime.tables.holds())
    assert len(due) == 3
    assert all(later - sooner >= 60 * SECOND for sooner, later in pairwise(due))


@pytest.mark.parametrize("kind", ["claude", "command"])
@pytest.mark.parametrize(
    "chosen",
    [
        {"ANTHROPIC_BASE_URL": "https://two.test"},
        {"ANTHROPIC_API_KEY": "key-of-two"},
        {"ANTHROPIC_AUTH_TOKEN": "token-of-two"},
    ],
    ids=["endpoint", "key", "token"],
)
def test_a_limit_does_not_hold_a_task_with_an_account_of_its_own(
    place: Place, kind: str, chosen: dict[str, str]
) -> None:
    limited = [limit("rejected", time.time() + HOUR), result(is_error=True, result="limit"), {"exit": 1}]
    if kind == "command":
        limited = [{"limited": HOUR}, {"exit": 1}]
    done = [spoken(DONE["say"]), result()] if kind == "claude" else [DONE]
    first = place.task(limited, name="one", agent={**place.agent("one", limited), "kind": kind})
    place.supervise(until=place.holds(first, "rate_limit"))
    same = place.task(done, name="same", agent={**place.agent("same", done), "kind": kind})
    other = place.task(done, name="two", agent={**place.agent("two", done), "kind": kind, "set": chosen})
    place.supervise(until=lambda: place.state(other)[0] == "done" and place.holds(same, "rate_limit")())

    assert place.state(first)[1] == "rate_limit"


def test_a_key_that_a_person_provided_is_an_account_of_its_own(place: Place) -> None:
    first = place.task([{"limited": HOUR}, {"exit": 1}], name="one")
    place.supervise(until=place.holds(first, "rate_limit"))
    other = place.task([DONE], name="two", start=False)
    place.tasks.answers.secret(other.id, "ANTHROPIC_API_KEY", "key-of-two")
    place.tasks.start(other.id)

    place.supervise(until=lambda: place.state(other)[0] == "done")


def test_a_longer_limit_of_the_account_is_the_reason_and_the_time_of_all_who_wait_for_it(place: Place) -> None:
    """Those who wait for one of its models among them."""
    change(place, concurrency=3, stagger=60)
    go, begun = place.base / "go", time.time()
    short = limit("rejected", begun + HOUR, rateLimitType="five_hour")
    model = limit("rejected", begun + HOUR / 2, rateLimitType="seven_day_opus")
    long = limit("rejected", begun + 5 * HOUR, rateLimitType="seven_day")
    end = [result(is_error=True, result="limit"), {"exit": 1}]
    turns = {"short": [short, *end], "model": [model, *end], "long": [{"wait_for": str(go)}, long, *end]}
    tasks = {
        name: place.task(turn, name=name, priority="high" if name == "long" else "normal",
                         agent={**place.agent(name, turn), "kind": "claude"})
        for name, turn in turns.items()
    }  # fmt: skip
    place.supervise(until=lambda: all(place.state(tasks[name])[1] == "rate_limit" for name in ("short", "model")))
    go.touch()
    place.supervise(until=place.holds(tasks["long"], "rate_limit"))

    for name, task in tasks.items():
        shown = place.shown(task)
        assert shown["hold"]["reason"] == shown["reason"] == "seven_day", name
        assert shown["hold"]["seconds_left"] > 4.9 * HOUR, name
    due = sorted(hold.due_at or 0 for hold in place.runtime.tables.holds())
    assert all(later - sooner >= 60 * SECOND for sooner, later in pairwise(due))


def test_a_shorter_limit_does_not_end_a_longer_one_that_stands(place: Place) -> None:
    change(place, concurrency=2)
    go, begun = place.base / "go", time.time()
    end = [result(is_error=True, result="limit"), {"exit": 1}]
    one = [limit("rejected", begun + 5 * HOUR, rateLimitType="seven_day"), *end]
    two = [{"wait_for": str(go)}, limit("rejected", begun + HOUR), *end]
    long = place.task(one, name="one", agent={**place.agent("one", one), "kind": "claude"})
    short = place.task(two, name="two", agent={**place.agent("two", two), "kind": "claude"})
    place.supervise(until=place.holds(long, "rate_limit"))
    go.touch()
    place.supervise(until=place.holds(short, "rate_limit"))

    assert place.shown(short)["hold"]["reason"] == "seven_day"
    assert place.shown(short)["hold"]["seconds_left"] > 4.9 * HOUR


def test_the_reason_of_a_limit_that_an_agent_reports_is_its_message(place: Place) -> None:
    error = {"type": "recoverable", "message": "Rate limit exceeded", "reset_at": int(time.time()) + HOUR}
    task = place.task([{"say": "[ERROR] " + json.dumps(error)}])
    place.supervise(until=place.holds(task, "rate_limit"))

    hold = place.shown(task)["hold"]
    assert hold["reason"] == place.shown(task)["runs"][0]["reason"] == "Rate limit exceeded"
    assert 0.9 * HOUR < hold["seconds_left"] <= HOUR


# Errors and denials


@pytest.mark.databases
def test_an_error_that_can_be_got_over_is_saved_told_and_tried_again(place: Place) -> None:
    error = {"say": "[ERROR]\ntype: recoverable\nmessage: the registry is down\nrecovery: notify_user\n[/ERROR]"}
    task = place.task([{"write": ["a.txt", "1"]}, error], [DONE])

    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.outcomes(task) == ["retry", "complete"]
    assert "error" in place.reasons(task)
    rows = place.runtime.tables.all("SELECT text FROM notice WHERE task = ?", task.id)
    assert [row["text"] for row in rows if "registry" in row["text"]] == ["Do it.: the registry is down"]


@pytest.mark.databases
def test_a_denied_tool_is_a_question_and_may_be_allowed(place: Place) -> None:
    denied = [spoken("I cannot."), result(permission_denials=[{"tool_name": "Bash"}])]
    task = client(place, denied, [spoken(DONE["say"]), result()])
    place.supervise()
    assert place.state(task) == ("active", "approval")
    assert "was not allowed to use Bash" in place.runtime.tables.task(task.id).reason
    assert "resume" in place.shown(task)["actions"]

    place.tasks.resume(task.id, allow=["Bash(make test)"])
    place.supervise()

    assert place.state(task) == ("done", "")
    assert "Bash(make test)" in place.runtime.tables.task(task.id).agent["allowed_tools"]


# Checkpoints


def test_a_checkpoint_that_fails_stops_no_agent_and_is_tried_at_the_next_interval(place: Place) -> None:
    change(place, checkpoint_interval=0.5)
    go, build = place.base / "go", place.runtime.build
    task = place.task([{"write": ["a.txt", "1"]}, {"wait_for": str(go)}, DONE])
    place.supervise(until=lambda: (place.workspace() / "a.txt").exists())

    def full() -> Engine:
        raise DiskFull("There is no space left for the store.")

    place.runtime.build = full
    place.supervise(until=lambda: place.events(task).count("checkpoint_failed") >= 2)
    assert place.journal() == ["begin 0"]
    place.runtime.build = build
    place.supervise(until=lambda: "interval" in place.reasons(task))
    go.touch()
    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.journal() == ["begin 0", "end 0"]


# An agent that has said its last word, and stays


@pytest.mark.parametrize(
    ("words", "phases", "outcome", "reason"),
    [
        (say_phase(1)["say"], 1, "phase", "phase_complete"),
        ("=== PHASE 1 COMPLETE ===", 1, "phase", "phase_complete"),
        (DONE["say"], 0, "complete", "final"),
        ("[ERROR] type: fatal, message: no way", 0, "failed", "error"),
        ("[ERROR] type: recoverable, message: no network", 0, "retry", "error"),
        ("[ERROR] something broke badly", 0, "retry", "error"),
        ("[USER_QUESTION]\ncategory: choice\nquestion: Which?\n[/USER_QUESTION]", 0, "asked", "question"),
        ("[DEPENDENCY_REQUEST]\ntype: service\nname: db\ndescription: x\n[/DEPENDENCY_REQUEST]", 0, "needs", "dependency"),
    ],
)  # fmt: skip
def test_a_marker_counts_though_the_agent_stays(
    place: Place, words: str, phases: int, outcome: str, reason: str
) -> None:
    change(place, marker_grace=0.5, backoff_first=HOUR, backoff_longest=HOUR)
    turn: list[dict[str, Any]] = [{"write": ["a.txt", "1"]}, {"ignore": "TERM"}, {"say": words}, {"sleep": 600}]
    task = place.task(turn, phases=[PHASE, PHASE][:phases])

    place.supervise(until=lambda: place.outcomes(task)[:1] == [outcome])

    assert reason in place.reasons(task)
    why = [one["why"] for one in place.tasks.views.log(task.id) if one["type"] == "stopping"]
    assert why == ["lingering"]


@pytest.mark.parametrize(
    "words", ["I think.", "=== PHASE 2 COMPLETE ===", "[ERROR]\ntype: fatal", "say === PHASE 1 COMPLETE === then"]
)
def test_an_agent_without_a_last_word_is_left_alone(place: Place, words: str) -> None:
    change(place, marker_grace=0.2)
    go = place.base / "go"
    began = time.monotonic()
    task = place.task([{"say": words}, {"wait_for": str(go)}, say_phase(1)], phases=[PHASE])

    place.supervise(until=lambda: time.monotonic() - began > 3)

    assert "stopping" not in place.events(task) and place.journal() == ["begin 0"]
    go.touch()
    place.supervise()
    assert place.journal()[:2] == ["begin 0", "end 0"]


def test_a_client_in_the_middle_of_a_turn_is_left_alone(place: Place) -> None:
    """It may think for long after it has quoted a marker; its result says that the turn is over."""
    change(place, marker_grace=0.2)
    go = place.base / "go"
    began = time.monotonic()
    task = client(place, [spoken(DONE["say"]), {"wait_for": str(go)}, result(), {"sleep": 600}])
    place.supervise(until=lambda: time.monotonic() - began > 3)
    assert "stopping" not in place.events(task)

    go.touch()
    place.supervise()

    assert place.outcomes(task) == ["complete"]
    assert place.state(task) == ("done", "")
