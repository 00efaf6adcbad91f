"""Clocks that jump: resets follow the wall clock, back-off does not, and no timer is lost."""

from __future__ import annotations

from holdfast.supervisor.supervise import Supervisor, Threads

from .place import DONE, Place

DAY = 86_400 * 1_000_000_000
YEAR = 365 * DAY


def due(place: Place, kind: str) -> bool:
    supervisor = Supervisor(place.ground, Threads(place.ground))
    [hold] = [hold for hold in place.ground.tables.holds() if hold.kind == kind]
    return supervisor._is_due(hold)


def test_back_off_is_not_affected_by_a_clock_that_is_set(place: Place) -> None:
    place.close()
    place.__init__(place.base, place.options.but(backoff_first=3600, backoff_longest=3600))  # type: ignore[misc]
    task = place.task([{"exit": 3}], [DONE])
    place.supervise(until=place.holds(task, "backoff"))

    for jump in (-10 * DAY, 10 * YEAR):
        place.ahead = jump
        assert not due(place, "backoff"), "an hour has not passed since boot"

    hour = 3600 * 1_000_000_000
    before = place.ground.since_boot
    place.ground.since_boot = lambda: before() + hour  # type: ignore[method-assign]
    place.ahead = -10 * DAY
    assert due(place, "backoff"), "it has, although the wall clock went back, as it does after a suspend"


def test_back_off_of_another_boot_goes_by_the_wall_clock(place: Place) -> None:
    place.close()
    place.__init__(place.base, place.options.but(backoff_first=3600, backoff_longest=3600))  # type: ignore[misc]
    task = place.task([{"exit": 3}], [DONE])
    place.supervise(until=place.holds(task, "backoff"))
    place.ground.boot = "another"

    assert not due(place, "backoff")
    place.ahead = 3601 * 1_000_000_000
    assert due(place, "backoff")


def test_a_reset_follows_the_wall_clock(place: Place) -> None:
    task = place.task([{"limited": 3600}, {"exit": 1}], [DONE])
    place.supervise(until=place.holds(task, "rate_limit"))

    place.ahead = -10 * DAY
    assert not due(place, "rate_limit")
    place.ahead = 10 * YEAR
    assert due(place, "rate_limit")

    place.supervise()
    assert place.state(task) == ("done", "")


def test_a_clock_that_jumps_while_an_agent_runs_loses_nothing(place: Place) -> None:
    go = place.base / "go"
    task = place.task([{"wait_for": str(go)}, {"exit": 3}], [DONE])
    place.supervise(until=lambda: place.journal() == ["begin 0"])
    place.ahead = 10 * YEAR
    go.touch()
    place.supervise(until=place.holds(task, "backoff"))
    place.ahead = -10 * DAY

    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.outcomes(task) == ["crashed", "complete"]
