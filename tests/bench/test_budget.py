"""A run of the bench ends when it was told to, and no case takes the time of those behind it."""

from __future__ import annotations

from bench.budget import COMPACTION, Budget
from bench.plan import TREE_CASES


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_run_without_minutes_never_ends() -> None:
    clock = Clock()
    budget = Budget(None, [("project", "first"), ("project", "none")], clock)

    assert budget.begin("project", "none")
    clock.now += 1e6

    assert not budget.is_over()
    assert budget.left() is None
    assert budget.share(1800.0) == 1800.0


def test_cases_that_use_up_their_share_fill_the_time_exactly() -> None:
    clock = Clock()
    cases = [(tree, case) for tree, cases in TREE_CASES.items() for case in cases]
    budget = Budget(30, cases, clock)

    for tree, case in [*cases, *((tree, COMPACTION) for tree in TREE_CASES)]:
        assert budget.begin(tree, case)
        assert not budget.is_over()
        while not budget.is_over():
            clock.now += 0.5

    assert abs(clock.now - 100.0 - 30 * 60) < 60


def test_what_one_case_does_not_need_is_left_to_the_others_and_what_it_overdraws_is_theirs() -> None:
    clock = Clock()
    budget = Budget(10, [("project", "none"), ("project", "edit-10")], clock)
    budget.begin("project", "none")
    first = budget.share(1e9)
    budget.begin("project", "edit-10")
    second = budget.share(1e9)

    assert second > first
    clock.now += 600

    assert budget.is_over()
    assert not budget.begin("project", COMPACTION)
    assert budget.share(1800.0) == 1.0
    assert str(budget) == "part 3 of 3, 10 of 10 min"
