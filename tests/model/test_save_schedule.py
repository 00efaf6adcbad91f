"""When a save is due: pure decisions over moments."""

from __future__ import annotations

from keepfast.model.save_schedule import SaveSchedule


def rhythm(*changes: float) -> SaveSchedule:
    schedule = SaveSchedule(settle=2, at_most=15)
    for moment in changes:
        schedule.changed(moment)
    return schedule


def test_nothing_is_due_before_a_change() -> None:
    assert rhythm().due() is None


def test_a_save_is_due_once_the_tree_settles() -> None:
    assert rhythm(100, 101).due() == 103


def test_a_change_never_waits_longer_than_the_limit() -> None:
    assert rhythm(*range(100, 140)).due() == 115


def test_two_saves_keep_their_distance() -> None:
    schedule = rhythm(100)
    schedule.saved(102, created_version=True)
    schedule.changed(103)

    assert schedule.due() == 117


def test_a_look_that_found_nothing_does_not_hold_up_the_next() -> None:
    schedule = rhythm(100)
    schedule.saved(102, created_version=False)
    schedule.changed(103)

    assert schedule.due() == 105


def test_after_a_failure_the_next_change_tries_again() -> None:
    schedule = rhythm(100)
    schedule.failed(102)

    assert schedule.due() is None
    assert schedule.unsaved
    schedule.changed(110)
    assert schedule.due() == 117


def test_saving_leaves_nothing_to_do() -> None:
    schedule = rhythm(100)
    schedule.saved(102, created_version=True)

    assert schedule.due() is None
    assert not schedule.unsaved
