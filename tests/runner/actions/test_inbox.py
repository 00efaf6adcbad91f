"""One query for everything that waits for a person: whatever `task list` marks is in the inbox and in the report."""

from __future__ import annotations

import shutil

import pytest

from keepfast.runner.actions import recovery
from keepfast.runner.actions.report import report
from keepfast.runner.domain.task import HOLDS
from tests.runner.place import DONE, PHASE, Place, say_phase

ASK = {"say": "[USER_QUESTION]\nquestion: Which?\n[/USER_QUESTION]"}


@pytest.mark.databases
def test_whatever_is_marked_as_waiting_for_a_person_is_in_the_inbox_and_in_the_report(place: Place) -> None:
    for kind in HOLDS:
        task = place.task([DONE], name=kind)
        with place.runtime.tables.write() as tables:
            tables.move(task.id, "hold", place.now(), trigger="test", hold=kind, human=1, why=f"because of {kind}")
    asked = place.task([ASK], name="asked")
    review = place.task([say_phase(1)], name="review_", phases=[{**PHASE, "review": True}])
    place.task([DONE], name="done")
    place.supervise()

    marked = {one["id"] for one in place.tasks.views.listing() if one["hold"] and one["hold"]["needs_you"]}
    inbox = place.tasks.views.inbox()

    assert len(marked) == len(HOLDS) + 2
    assert {one["task"] for one in inbox} == marked
    assert len(inbox) == len(marked), "each of them once"
    assert report(place.runtime, 0)["needs_you"] == inbox
    kinds = {one["task"]: (one["kind"], one["hold"]) for one in inbox}
    assert kinds[asked.id] == ("question", None) and kinds[review.id] == ("approval", None)
    assert sorted(hold or "" for kind, hold in kinds.values() if kind == "hold") == sorted(HOLDS)
    assert all(one["actions"] for one in inbox if one["kind"] == "hold"), "each says what can be done"


def test_a_hold_beside_an_open_question_is_there_as_well(place: Place) -> None:
    task = place.task([ASK], [DONE])
    place.supervise()
    place.tasks.pause(task.id)

    assert sorted(one["kind"] for one in place.tasks.views.inbox()) == ["hold", "question"]


def test_a_workspace_that_is_gone_is_in_the_inbox(place: Place) -> None:
    task = place.task([DONE])
    shutil.rmtree(place.workspace())
    place.supervise()

    [waiting] = place.tasks.views.inbox()
    assert (waiting["task"], waiting["hold"]) == (task.id, "crashed")
    assert "Workspace validation failed" in waiting["text"]


def test_what_waits_for_time_alone_is_not_there(place: Place) -> None:
    task = place.task([{"limited": 3600}, {"exit": 1}], [DONE])
    place.supervise(until=place.holds(task, "rate_limit"))

    assert place.tasks.views.inbox() == []


def test_the_phase_of_a_task_is_told_and_that_of_one_without_phases_is_null(place: Place) -> None:
    later = place.task([say_phase(1)], [ASK], name="later", phases=[PHASE, PHASE])
    held = place.task([say_phase(1)], [{"sleep": 60}], name="held", phases=[PHASE, PHASE])
    plain = place.task([ASK], name="plain")
    needs = place.task([DONE], name="needs", secrets=["TOKEN"], phases=[PHASE])
    place.supervise(until=lambda: len(place.tasks.views.inbox()) == 3 and len(place.journal("held")) == 3)
    place.tasks.pause(held.id, now=True)
    place.supervise()

    told = {one["task"]: one["phase"] for one in place.tasks.views.inbox()}
    assert told == {later.id: 2, held.id: 2, plain.id: None, needs.id: 1}
    assert [run["phase"] for run in place.tasks.views.show(later.id)["runs"]] == [1, 2]
    shown = place.tasks.views.show(plain.id)
    assert {one["phase"] for one in [*shown["runs"], *shown["checkpoints"], *shown["prompts"]]} == {None}
    place.lose_database()
    recovery.rebuild(place.runtime, [str(place.base)])
    rebuilt = {(one["task"], one["kind"]): one["phase"] for one in place.tasks.views.inbox()}
    assert rebuilt[later.id, "question"] == rebuilt[later.id, "hold"] == 2
    assert rebuilt[plain.id, "question"] is None
