"""Clocks that jump: resets follow the wall clock, back-off does not, and no timer is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from keepfast.runner.domain.records import Task
from keepfast.runner.process import shims
from keepfast.runner.scheduler.attempts import Threads
from keepfast.runner.scheduler.supervisor import Supervisor
from tests.equipment import programs
from tests.faults.supervisor.child import reached
from tests.faults.supervisor.test_kills import PROGRAM
from tests.runner.place import DONE, PHASE, Place, say_phase

DAY = 86_400 * 1_000_000_000
YEAR = 365 * DAY


def due(place: Place, kind: str) -> bool:
    supervisor = Supervisor(place.runtime, Threads(place.runtime))
    [hold] = [hold for hold in place.runtime.tables.holds() if hold.kind == kind]
    return supervisor.timers.is_due(hold)


def test_back_off_is_not_affected_by_a_clock_that_is_set(place: Place) -> None:
    place.close()
    place.__init__(place.base, place.options.but(backoff_first=3600, backoff_longest=3600))  # type: ignore[misc]
    task = place.task([{"exit": 3}], [DONE])
    place.supervise(until=place.holds(task, "backoff"))

    for jump in (-10 * DAY, 10 * YEAR):
        place.ahead = jump
        assert not due(place, "backoff"), "an hour has not passed since boot"

    hour = 3600 * 1_000_000_000
    before = place.runtime.since_boot
    place.runtime.since_boot = lambda: before() + hour  # type: ignore[method-assign]
    place.ahead = -10 * DAY
    assert due(place, "backoff"), "it has, although the wall clock went back, as it does after a suspend"


def test_back_off_of_another_boot_goes_by_the_wall_clock(place: Place) -> None:
    place.close()
    place.__init__(place.base, place.options.but(backoff_first=3600, backoff_longest=3600))  # type: ignore[misc]
    task = place.task([{"exit": 3}], [DONE])
    place.supervise(until=place.holds(task, "backoff"))
    place.runtime.boot = "another"

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


# With faketime: the clock of a supervisor that runs is set from outside.

TICKS = 8
"""A hold that is still there after so many ticks was not lifted by them."""
ASK = {"say": "[USER_QUESTION]\nquestion: Colour?\ndefault: blue\nrequired: false\n[/USER_QUESTION]"}


class Clock:
    """A supervisor in a process of its own, whose wall clock is what a file says; the clock since boot is the real one."""

    def __init__(self, place: Place, library: str) -> None:
        self.place, self.library = place, library
        self.file = place.base / "clock"
        self.child: subprocess.Popen[bytes] | None = None
        self.set("+0")

    def set(self, offset: str) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(offset + "\n")
        fresh.rename(self.file)

    def start(self, before: tuple[str, ...] = (), **options: Any) -> None:
        (self.place.base / "options.json").write_text(json.dumps(options))
        variables = {
            "PATH": os.environ["PATH"], "TZ": "UTC", "LD_PRELOAD": self.library, "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1",
        }  # fmt: skip
        words = [sys.executable, str(PROGRAM), str(self.place.base), "all", "0", "threads+person"]
        self.child = subprocess.Popen(
            [*before, *words, self.place.options.database], env=variables, stderr=subprocess.DEVNULL
        )

    def stop(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()

    def wait(self, until: Callable[[], bool], what: str) -> None:
        assert self.child is not None
        end = time.monotonic() + 90
        while not until():
            assert time.monotonic() < end, f"{what}\n{self.place.explain()}"
            assert self.child.poll() in (None, 0), self.place.explain()
            time.sleep(0.05)

    def let_it_tick(self) -> None:
        before = reached(str(self.place.base), "tick:lifted")
        self.wait(lambda: reached_so_far(self.place) >= before + TICKS, "no tick came")


def reached_so_far(place: Place) -> int:
    return (place.base / "at tick:lifted").stat().st_size


@pytest.fixture
def clock(place: Place) -> Iterator[Clock]:
    programs.find("faketime", "faketime")
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        pytest.skip("faketime is not installed and could not be: NO CLOCK WAS SET")
    clock = Clock(place, str(found[0]))
    yield clock
    clock.stop()


def test_a_back_off_ends_in_time_although_the_clock_was_set_back_ten_days(place: Place, clock: Clock) -> None:
    task = place.task([{"exit": 3}], [DONE])
    clock.start(backoff_first=3)
    clock.wait(place.holds(task, "backoff"), "no back-off came")
    clock.set("-10d")

    clock.wait(lambda: place.state(task) == ("done", ""), "the timer was lost")


def test_a_back_off_does_not_end_because_the_clock_was_set_ahead_ten_years(place: Place, clock: Clock) -> None:
    task = place.task([{"exit": 3}], [DONE])
    clock.start(backoff_first=3600, backoff_longest=3600)
    clock.wait(place.holds(task, "backoff"), "no back-off came")
    clock.set("+10y")

    clock.let_it_tick()

    assert place.state(task) == ("active", "backoff")


def test_a_reset_comes_when_the_wall_clock_says_so(place: Place, clock: Clock) -> None:
    task = place.task([{"limited": 3600}, {"exit": 1}], [DONE])
    clock.start()
    clock.wait(place.holds(task, "rate_limit"), "no limit came")
    for early in ("-10d", "+10m"):
        clock.set(early)
        clock.let_it_tick()
        assert place.state(task) == ("active", "rate_limit"), early
    clock.set("+2h")

    clock.wait(lambda: place.state(task) == ("done", ""), "the reset was missed")


def test_a_reset_is_not_lost_by_a_clock_of_ten_years_ahead(place: Place, clock: Clock) -> None:
    task = place.task([{"limited": 3600}, {"exit": 1}], [DONE])
    clock.start()
    clock.wait(place.holds(task, "rate_limit"), "no limit came")
    clock.set("+10y")

    clock.wait(lambda: place.state(task) == ("done", ""), "the reset was missed")


@pytest.mark.parametrize("jump", ["-10d", "+10y"])
def test_a_clock_that_is_set_under_way_ends_no_run_and_uses_no_budget(place: Place, clock: Clock, jump: str) -> None:
    go = place.base / "go"
    task = place.task([{"write": ["a", "1"]}, {"wait_for": str(go)}, {"exit": 3}], [DONE], budget={"minutes": 60})
    clock.start(checkpoint_interval=1)
    clock.wait(lambda: "interval" in place.reasons(task), "nothing was saved")
    clock.set(jump)
    saved = place.reasons(task).count("interval")
    (place.workspace() / "a").write_text("2")
    clock.wait(lambda: place.reasons(task).count("interval") > saved, "intervals stopped")
    go.touch()

    clock.wait(lambda: place.state(task) == ("done", ""), "it did not go on")

    assert place.outcomes(task) == ["crashed", "complete"]
    assert place.runtime.tables.task(task.id).seconds < 3600
    latest = place.workspace() / ".checkpoints/latest.json"  # written right after the state that it tells
    clock.wait(lambda: json.loads(latest.read_text())["reason"] == "final", "the newest document is not the last one")


@pytest.mark.parametrize("jump", ["-10d", "+10y"])
def test_a_question_waits_as_long_as_it_would_have(place: Place, jump: str) -> None:
    """Neither ten days longer nor not at all."""
    task = place.task([ASK], [DONE])
    place.close()
    place.__init__(place.base, place.options.but(question_timeout=3600))  # type: ignore[misc]
    place.supervise(until=place.holds(task, "question"))
    [before] = place.runtime.tables.prompts("task = ?", task.id)
    supervisor = Supervisor(place.runtime, Threads(place.runtime))
    look_at_the_clock(supervisor)
    place.ahead = {"-10d": -10 * DAY, "+10y": 10 * YEAR}[jump]
    look_at_the_clock(supervisor)

    [after] = place.runtime.tables.prompts("task = ?", task.id)
    assert after.status == "pending"
    assert after.expires_at - place.now() <= before.expires_at - before.created_at
    assert after.expires_at - place.now() > 3000 * 1_000_000_000
    place.ahead += 3601 * 1_000_000_000
    look_at_the_clock(Supervisor(place.runtime, Threads(place.runtime)))
    [late] = place.runtime.tables.prompts("task = ?", task.id)
    assert (late.status, late.answer) == ("expired", "blue")


def test_a_clock_of_ten_years_ahead_approves_nothing(place: Place) -> None:
    place.close()
    place.__init__(place.base, place.options.but(auto_approve_after=3600))  # type: ignore[misc]
    task = place.task([say_phase(1)], phases=[{**PHASE, "review": True}])
    place.supervise(until=place.holds(task, "approval"))
    supervisor = Supervisor(place.runtime, Threads(place.runtime))
    look_at_the_clock(supervisor)
    place.ahead = 10 * YEAR
    look_at_the_clock(supervisor)
    assert place.state(task) == ("review", "approval")

    place.ahead += 3 * 3600 * 1_000_000_000
    supervisor.timers.remind()

    assert place.state(task) == ("done", "")


def look_at_the_clock(supervisor: Supervisor) -> None:
    supervisor.timers.follow_clock()
    supervisor.timers.expire()
    supervisor.timers.remind()


def test_a_clock_that_was_set_back_while_nobody_looked_loses_no_question(place: Place) -> None:
    task = place.task([ASK], [DONE])
    place.supervise(until=place.holds(task, "question"))
    place.ahead = -10 * DAY
    look_at_the_clock(Supervisor(place.runtime, Threads(place.runtime)))

    [prompt] = place.runtime.tables.prompts("task = ?", task.id)
    assert prompt.expires_at - place.now() <= place.options.question_timeout * 1_000_000_000


def test_a_back_off_goes_on_while_the_machine_sleeps(place: Place, clock: Clock) -> None:
    """After two hours of sleep both clocks are two hours on, and the boot is the same."""
    asleep = ("unshare", "-T", "--boottime", "7200")
    if subprocess.run([*asleep, "true"], capture_output=True).returncode:
        pytest.skip("no namespace of time can be made here")
    task = place.task([{"exit": 3}], [DONE])
    clock.start(backoff_first=3600, backoff_longest=3600)
    clock.wait(place.holds(task, "backoff"), "no back-off came")
    clock.stop()
    clock.set("+2h")
    clock.start(asleep, backoff_first=3600, backoff_longest=3600)

    clock.wait(lambda: place.state(task) == ("done", ""), "the back-off was lost")


def test_an_agent_is_found_again_after_the_clock_was_set(place: Place, clock: Clock) -> None:
    go = place.base / "go"
    task = place.task([{"wait_for": str(go)}, DONE])
    clock.start()
    clock.wait(lambda: place.journal() == ["begin 0"], "it was not started")
    clock.stop()
    clock.set("+2h")
    clock.start()
    go.touch()

    clock.wait(lambda: place.state(task) == ("done", ""), "it was not found")

    assert place.outcomes(task) == ["complete"]
    assert sum(shims.end_strays(run.token) for run in runs(place, task)) == 0


def runs(place: Place, task: Task) -> list[Any]:
    return list(place.runtime.tables.runs("task = ?", task.id))
