"""A restore of chosen hunks that was interrupted: continued, aborted, and kept whole by a compaction."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.app.inspect import compare
from keepfast.app.restore import Restorer
from keepfast.model.errors import Conflict
from keepfast.store.maintenance.space import compact
from tests.equipment.trees import disk

from .ground import Ground, at

NOW, CHOSEN = "now 1\nnow 2\n", "then 1\nnow 2\n"


class Killed(Exception):
    pass


@pytest.fixture
def ground(folder: Path) -> Iterator[Ground]:
    made = Ground(folder)
    made.put("a", "then 1\nthen 2\n")
    made.put("b", "b1")
    made.save()
    made.put("a", NOW, 0o640)
    made.save()
    yield made
    made.close()


def choose(restorer: Restorer) -> None:
    target = restorer._checkpoint(1)
    change = compare(restorer.engine, restorer.root, restorer.row, target, None, [b"a"])[0]
    assert change.new is not None
    restorer.restore_parts(target, {b"a": (change.new, CHOSEN.encode())})


def interrupt(ground: Ground, step: str) -> None:
    def kill() -> None:
        raise Killed

    with pytest.raises(Killed), at(step, kill):
        choose(ground.restorer())


def text(ground: Ground) -> str:
    return (ground.root / "a").read_text()


def test_one_version_is_made_and_it_is_the_state_before(ground: Ground) -> None:
    choose(ground.restorer())

    assert (text(ground), (ground.root / "a").stat().st_mode & 0o777) == (CHOSEN, 0o640)
    assert ground.saver.version() == 3
    assert ground.saver.read("a", 3).decode() == NOW


@pytest.mark.parametrize("step", ["restore:journal", "restore:recorded"])
def test_an_interrupted_one_is_continued(ground: Ground, step: str) -> None:
    interrupt(ground, step)
    goal, preview = ground.restorer().preview_finish(aborting=False)
    assert (goal.version, len(preview.plan.steps)) == (1, 1 if step == "restore:journal" else 0)
    ground.restorer().resume()

    assert text(ground) == CHOSEN
    ground.undo()
    assert text(ground) == NOW


@pytest.mark.parametrize("step", ["restore:journal", "restore:recorded"])
def test_an_interrupted_one_is_aborted(ground: Ground, step: str) -> None:
    before = disk(ground.root)
    interrupt(ground, step)
    ground.restorer().abort()

    assert disk(ground.root) == before


def test_a_compaction_meanwhile_keeps_the_chosen_content(ground: Ground) -> None:
    interrupt(ground, "restore:journal")
    engine = ground.restorer().engine
    compact(engine.repository(), engine.place.path, everything=True)
    ground.restorer().resume()

    assert text(ground) == CHOSEN


def test_a_file_that_changes_while_it_is_saved_is_not_overwritten(ground: Ground) -> None:
    with pytest.raises(Conflict), at("save:scanned", lambda: os.truncate(ground.root / "a", 3)):
        choose(ground.restorer())

    assert text(ground) == NOW[:3]
