"""A task is done when its last state is kept: until then it is held, told of everywhere, tried again, and can be accepted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from keepfast.model.errors import Conflict
from keepfast.runner.actions.report import report
from keepfast.runner.domain.records import Task
from keepfast.runner.domain.task import NotAllowed
from keepfast.runner.scheduler.supervisor import Supervisor
from tests.runner.place import DONE, PHASE, Place, say_phase


@contextmanager
def without_store(place: Place) -> Iterator[None]:
    """Something else lies where the store was; afterwards it is back."""
    store, away = place.data / "store", place.data / "away"
    store.rename(away)
    store.write_text("not a store")
    yield
    store.unlink()
    away.rename(store)


def end(place: Place, word: dict[str, str], **keys: Any) -> Task:
    """A task whose agent says this word while nothing can be saved."""
    go = place.base / "go"
    task = place.task([{"write": ["result", "1"]}, {"wait_for": str(go)}, word], **keys)
    place.supervise(until=lambda: (place.workspace() / "result").exists())
    with without_store(place):
        go.touch()
        place.supervise()
    return task


@pytest.mark.databases
def test_a_task_whose_last_state_is_not_saved_is_held_and_told_of_everywhere(place: Place) -> None:
    task = end(place, DONE)

    assert place.state(task) == ("active", "unsaved")
    shown = place.shown(task)
    assert shown["status"] != "completed" and shown["ended_at"] is None
    assert shown["hold"]["needs_you"] and shown["hold"]["until"] and shown["hold"]["reason"]
    assert shown["save_failed"]["error"] in shown["hold"]["reason"]
    assert {"resume", "accept"} <= set(shown["actions"])
    [waiting] = place.tasks.views.inbox()
    assert (waiting["task"], waiting["kind"], waiting["hold"]) == (task.id, "hold", "unsaved")
    told = report(place.runtime, 0)
    assert [one["hold"] for one in told["needs_you"]] == ["unsaved"]
    assert told["tasks"][0]["save_failed"]["error"] == shown["save_failed"]["error"]
    assert "done" not in [row["kind"] for row in place.runtime.tables.all("SELECT kind FROM notice")]


def test_the_last_phase_is_not_done_before_its_state_is_saved(place: Place) -> None:
    task = end(place, say_phase(1), phases=[PHASE])

    assert place.state(task) == ("active", "unsaved")
    assert place.journal() == ["begin 0", "end 0"], "the agent is not asked to do it again"


def test_it_is_saved_again_at_the_next_interval_and_then_done(place: Place) -> None:
    task = end(place, DONE)
    with without_store(place):
        place.ahead += 11 * 60 * 1_000_000_000
        _tick(place)
        assert place.state(task) == ("active", "unsaved")
        until = place.shown(task)["hold"]["seconds_left"]
    assert until > 0, "tried, and put off again"

    place.ahead += 11 * 60 * 1_000_000_000
    _tick(place)

    assert place.state(task) == ("done", "")
    assert place.reasons(task) == ["start", "final"]
    assert place.shown(task)["save_failed"] is None
    assert place.tasks.views.inbox() == []


def _tick(place: Place) -> None:
    """The kernel's clock cannot be set; a hold of another boot goes by the calendar."""
    with place.runtime.tables.write() as tables:
        tables.do("UPDATE hold SET boot = 'another' WHERE lifted_at IS NULL")
    place.supervise()


def test_a_person_saves_it_again_at_once(place: Place) -> None:
    task = end(place, DONE)
    with without_store(place), pytest.raises(Conflict):
        place.tasks.resume(task.id)
    assert place.state(task) == ("active", "unsaved")

    place.tasks.resume(task.id)

    assert place.state(task) == ("done", "")
    assert place.reasons(task)[-1] == "final"


def test_a_person_accepts_it_as_it_is(place: Place) -> None:
    task = end(place, DONE)
    with without_store(place):
        done = place.tasks.accept(task.id)

        assert done.state == "done"
        shown = place.shown(task)
    assert shown["save_failed"]["error"], "whoever looks later sees that it is not saved"
    assert place.tasks.views.inbox() == []
    place.supervise()  # the store is back, and nothing saves what was accepted
    [told] = report(place.runtime, 0)["tasks"]
    assert told["save_failed"] == shown["save_failed"] and told["reason"]
    with pytest.raises(NotAllowed):
        place.tasks.accept(task.id)


def test_a_held_end_is_neither_paused_nor_run_again(place: Place) -> None:
    task = end(place, DONE)

    with pytest.raises(NotAllowed):
        place.tasks.pause(task.id)
    place.supervise()

    assert place.state(task) == ("active", "unsaved")
    assert place.outcomes(task) == ["complete"]


def test_an_approved_task_whose_last_state_is_not_saved_is_held(place: Place) -> None:
    task = place.task([{"write": ["a", "1"]}, say_phase(1)], phases=[{**PHASE, "review": True}])
    place.supervise()
    with without_store(place):
        place.tasks.answers.approve(task.id, anyway=True)

        assert place.state(task) == ("active", "unsaved")
    place.tasks.resume(task.id)
    assert place.state(task) == ("done", "")


def test_an_approved_end_is_kept_once(place: Place) -> None:
    task = place.task([{"write": ["a", "1"]}, say_phase(1)], phases=[{**PHASE, "review": True}])
    place.supervise()
    place.tasks.answers.approve(task.id)
    place.supervise()  # whoever comes later finds it kept

    assert place.reasons(task) == ["start", "phase_complete", "final"]


def test_a_task_that_waits_for_another_waits_until_that_one_is_saved(place: Place) -> None:
    go = place.base / "go"
    first = place.task([{"wait_for": str(go)}, DONE])
    second = place.task([DONE], name="second", after=[first.id])
    place.supervise(until=lambda: place.journal() == ["begin 0"])
    with without_store(place):
        go.touch()
        place.supervise(until=place.holds(first, "unsaved"))
        Supervisor(place.runtime, _Nobody()).tick()
        assert place.state(second) == ("queued", "")
    place.tasks.resume(first.id)

    place.supervise()

    assert place.state(second) == ("done", "")


class _Nobody:
    """Workflows that begin nothing."""

    def start(self, run: str) -> None:
        raise AssertionError("nothing may begin")

    def is_busy(self, run: str) -> bool:
        return False

    def close(self) -> None:
        return


def test_the_log_has_the_start_of_an_agent_before_what_failed_after_its_end(place: Place) -> None:
    place.task([DONE])
    place.supervise()
    with without_store(place):
        task = place.task([DONE])
        place.supervise()

    events = place.events(task)
    begun = events.index("agent_started")
    assert begun < max(number for number, event in enumerate(events) if event == "checkpoint_failed"), events
    assert begun < min(number for number, event in enumerate(events) if event == "run_begun") + 4, events
