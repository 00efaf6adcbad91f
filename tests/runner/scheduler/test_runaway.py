"""No agent is started over and over: what leads nowhere counts, waits grow, and a person is told."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from keepfast.runner.domain.records import Task
from keepfast.runner.notify.channels import URGENT
from tests.runner.actions.test_needs import need
from tests.runner.place import DONE, PHASE, QUICK, Place, say_phase

MALFORMED = {"say": "[USER_QUESTION]\ncategory: choice\n[/USER_QUESTION]"}
LIMITED = {"say": "[ERROR] type: recoverable, message: Rate limit exceeded. Please retry in 0.1s"}
MOST = 30
"""Turns that a script has: more than any of these tasks may use."""


def changing(*actions: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Turns that end so, each after another change of the workspace."""
    return [[{"write": ["work.log", str(number)]}, *actions] for number in range(MOST)]


def runs(place: Place, task: Task) -> int:
    return len(place.runtime.tables.runs("task = ?", task.id))


def waits(place: Place, task: Task, kind: str) -> list[int]:
    """How long each hold of this kind was to last."""
    rows = place.runtime.tables.all("SELECT * FROM hold WHERE task = ? AND kind = ? ORDER BY id", task.id, kind)
    return [row["due_at"] - row["since"] for row in rows if row["due_at"]]


def supervise(place: Place, task: Task) -> None:
    place.supervise(until=lambda: place.tasks.views.inbox() != [] or runs(place, task) >= MOST - 1)


def kinds_told(place: Place, task: Task) -> list[str]:
    return [row["kind"] for row in place.runtime.tables.all("SELECT kind FROM notice WHERE task = ?", task.id)]


@pytest.mark.databases
def test_malformed_turns_are_attempts_whatever_they_changed(place: Place) -> None:
    task = place.task(*changing(MALFORMED))

    supervise(place, task)

    assert place.state(task) == ("active", "no_progress"), place
    assert place.outcomes(task) == ["idle"] * 3
    assert [one["hold"] for one in place.tasks.views.inbox()] == ["no_progress"]
    assert kinds_told(place, task) == ["stuck"]
    assert "stuck" in URGENT


def test_the_wait_between_such_turns_grows(place: Place) -> None:
    place.runtime.options = QUICK.but(max_attempts=4, backoff_first=0.05)
    task = place.task(*changing(MALFORMED))

    supervise(place, task)

    found = waits(place, task, "backoff")
    assert len(found) == 3
    assert all(after == 2 * before for before, after in pairwise(found))


@pytest.mark.parametrize("most", [1, 5])
def test_max_attempts_says_how_many(place: Place, most: int) -> None:
    place.runtime.options = QUICK.but(max_attempts=most, backoff_first=0.01)
    task = place.task(*changing({"say": "I went on."}))

    supervise(place, task)

    assert place.state(task) == ("active", "no_progress"), place
    assert runs(place, task) == most


def test_crashes_and_idle_turns_count_together(place: Place) -> None:
    turns = [[{"say": "Hm."}] if number % 2 else [{"exit": 3}] for number in range(MOST)]
    task = place.task(*turns)

    supervise(place, task)

    assert place.outcomes(task) == ["crashed", "idle", "crashed"]
    assert place.state(task) == ("active", "crashed"), place


def test_idle_turns_and_crashes_count_together(place: Place) -> None:
    turns: list[list[dict[str, Any]]] = [[{"exit": 3}] if number % 2 else [{"say": "Hm."}] for number in range(MOST)]
    task = place.task(*turns)

    supervise(place, task)

    assert place.outcomes(task) == ["idle", "crashed", "idle"]
    assert place.state(task) == ("active", "no_progress"), place


def test_a_person_who_resumes_after_crashes_forgives_idle_turns_too(place: Place) -> None:
    turns: list[list[dict[str, Any]]] = [[{"exit": 3}] for _ in range(MOST)]
    task = place.task([{"say": "Hm."}], *turns)
    supervise(place, task)
    assert place.state(task) == ("active", "crashed"), place

    place.tasks.resume(task.id)
    place.supervise(until=lambda: runs(place, task) > 3 and place.tasks.views.inbox() != [])

    assert runs(place, task) == 6


def test_a_person_who_resumes_it_gives_as_many_attempts_again(place: Place) -> None:
    task = place.task(*changing(MALFORMED))
    supervise(place, task)

    place.tasks.resume(task.id)
    place.supervise(until=lambda: runs(place, task) > 3 and place.tasks.views.inbox() != [])

    assert runs(place, task) == 6


def test_a_phase_that_was_completed_lets_the_next_one_begin_to_count(place: Place) -> None:
    turns = [[{"say": "Hm."}], [{"say": "Hm."}], [say_phase(1)], [{"say": "Hm."}], [{"say": "Hm."}], [say_phase(2)]]
    task = place.task(*turns, phases=[PHASE, PHASE])

    place.supervise()

    assert place.state(task) == ("done", ""), place


def test_asking_again_for_what_was_given_leads_to_a_person(place: Place) -> None:
    task = place.task(*changing(need("api_key", "SHOP_KEY")))
    place.supervise()
    place.tasks.answers.secret(task.id, "SHOP_KEY", "4711-0815")

    supervise(place, task)

    assert place.state(task) == ("active", "no_progress"), place
    assert runs(place, task) == 4
    assert "SHOP_KEY is already in your environment" in place.told()[-1]


def test_the_wait_for_short_limits_in_a_row_grows(place: Place) -> None:
    place.runtime.options = QUICK.but(backoff_first=1.2, backoff_longest=5)
    task = place.task(*changing(LIMITED))

    place.supervise(until=lambda: len(waits(place, task, "rate_limit")) >= 3)

    found = waits(place, task, "rate_limit")
    assert found[2] > found[1] > found[0]


def test_questions_that_answer_themselves_do_not_keep_a_task_running(place: Place) -> None:
    """Whatever lets runs follow one another: after twelve of a phase in an hour nobody starts another one unasked."""
    place.runtime.options = QUICK.but(question_timeout=0.01)
    asks = [[{"say": f"[USER_QUESTION]\nquestion: Is {number} right?\nrequired: false\n[/USER_QUESTION]"}]
            for number in range(MOST)]  # fmt: skip
    task = place.task(*asks)

    place.supervise(until=lambda: place.state(task)[1] == "no_progress" or runs(place, task) >= MOST - 1)

    assert place.state(task) == ("active", "no_progress"), place
    assert runs(place, task) == 12
    assert "stuck" in kinds_told(place, task)
    place.tasks.resume(task.id)
    place.supervise(until=lambda: runs(place, task) > 13)
    assert place.state(task) != ("active", "no_progress"), "it was resumed by a person"


def test_runs_that_a_limit_ended_do_not_blow_the_fuse(place: Place) -> None:
    place.runtime.options = QUICK.but(backoff_first=0.01, backoff_longest=0.02)
    task = place.task(*[[LIMITED] for _ in range(14)], [DONE])

    place.supervise()

    assert place.state(task) == ("done", ""), place
