"""When a save is due: pure decisions over moments."""

from __future__ import annotations

from keepfast.model.save_schedule import Rhythm


def rhythm(*changes: float) -> Rhythm:
    made = Rhythm(settle=2, at_most=15)
    for moment in changes:
        made.changed(moment)
    return made


def test_nothing_is_due_before_a_change() -> None:
    assert rhythm().due() is None


def test_a_save_is_due_once_the_tree_settles() -> None:
    assert rhythm(100, 101).due() == 103


def test_a_change_never_waits_longer_than_the_limit() -> None:
    assert rhythm(*range(100, 140)).due() == 115


def test_two_saves_keep_their_distance() -> None:
    made = rhythm(100)
    made.saved(102, made=True)
    made.changed(103)

    assert made.due() == 117


def test_a_look_that_found_nothing_does_not_hold_up_the_next() -> None:
    made = rhythm(100)
    made.saved(102, made=False)
    made.changed(103)

    assert made.due() == 105


def test_after_a_failure_the_next_change_tries_again() -> None:
    made = rhythm(100)
    made.failed(102)

    assert made.due() is None
    assert made.unsaved
    made.changed(110)
    assert made.due() == 117


def test_saving_leaves_nothing_to_do() -> None:
    made = rhythm(100)
    made.saved(102, made=True)

    assert made.due() is None
    assert not made.unsaved
