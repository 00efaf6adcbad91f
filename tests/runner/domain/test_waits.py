"""Back-off, loops, staggered resumes, budgets, quiet hours."""

from __future__ import annotations

import itertools

import pytest

from keepfast.runner.domain.waits import (
    MINUTE,
    SECOND,
    Budget,
    Spent,
    backoff,
    describe,
    is_quiet,
    jitter,
    nudge,
    stagger,
    used,
)


def test_backoff_doubles_up_to_ten_minutes() -> None:
    assert [backoff(count) // SECOND for count in range(1, 8)] == [30, 60, 120, 240, 480, 600, 600]
    assert backoff(10_000) == 10 * MINUTE


def test_jitter_stays_between_20_and_90_seconds() -> None:
    assert jitter(0.0) == 20 * SECOND
    assert jitter(1.0) == 90 * SECOND
    assert jitter(7.0) == 90 * SECOND


def test_tasks_of_one_account_resume_one_after_another() -> None:
    due: list[int] = []
    for _ in range(10):
        due.append(stagger(due, 1000 * SECOND))

    gaps = [later - sooner for sooner, later in itertools.pairwise(due)]

    assert due[0] == 1000 * SECOND
    assert set(gaps) == {15 * SECOND}


def test_the_tightest_part_of_a_budget_counts() -> None:
    assert used(Budget(1000, 10.0, 600), Spent(500, 9.0, 60)) == (0.9, "money")
    assert used(Budget(), Spent(500, 9.0, 60)) == (0.0, "")


def test_half_and_three_quarters_are_told_once() -> None:
    budget = Budget(tokens=1000)

    assert nudge(budget, Spent(499), 0.0) == 0.0
    assert nudge(budget, Spent(500), 0.0) == 0.5
    assert nudge(budget, Spent(700), 0.5) == 0.0
    assert nudge(budget, Spent(800), 0.5) == 0.75
    assert nudge(budget, Spent(999), 0.75) == 0.0


def test_the_agent_is_told_its_budget() -> None:
    assert describe(Budget(1000, 2.5, 3600), Spent(10, 0.5, 120)) == (
        "Budget used so far: 10 of 1,000 tokens, $0.50 of $2.50, 2 of 60 minutes."
    )
    assert describe(Budget(), Spent(10)) == ""


@pytest.mark.parametrize(
    ("minute", "hours", "quiet"),
    [
        (23 * 60, "22:00-07:00", True), (6 * 60, "22:00-07:00", True), (7 * 60, "22:00-07:00", False),
        (12 * 60, "9-17", True), (17 * 60, "9-17", False), (0, "", False), (0, "odd", False), (0, "7-7", False),
        (0, "25-26", False),
    ],
)  # fmt: skip
def test_quiet_hours(minute: int, hours: str, quiet: bool) -> None:
    assert is_quiet(minute, hours) is quiet
