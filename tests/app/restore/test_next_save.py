"""What comes right after a restore: a save that knows the tree, and finds what the restore wrote and what others did."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepfast.workspace import scan
from tests.equipment.trees import disk

from .ground import Ground

FILES = 30


@pytest.fixture
def ground(folder: Path) -> Iterator[Ground]:
    made = Ground(folder)
    for number in range(FILES):
        made.put(f"part{number % 3}/file{number}", f"content {number}\n")
    made.save()
    made.save()
    yield made
    made.close()


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows whenever the whole tree is walked through."""
    found: list[str] = []
    walk = scan.walk

    def counted(*arguments: Any) -> Any:
        found.append("walked")
        return walk(*arguments)

    monkeypatch.setattr(scan, "walk", counted)
    return found


@pytest.mark.parametrize("changed", [1, 10, FILES])
def test_a_save_after_it_does_not_walk_through_everything(ground: Ground, walks: list[str], changed: int) -> None:
    for number in range(changed):
        ground.put(f"part{number % 3}/file{number}", "damaged\n")
    assert ground.restore(1, at_once=True) is not None
    assert not walks

    ground.put("part0/file0", "worked on\n")
    version = ground.save()

    assert not walks
    assert set(ground.saver.state(version)) == set(ground.saver.state(1))
    rows, first = ground.saver.state(version), ground.saver.state(1)
    assert {path for path in rows if rows[path].content != first[path].content} == {b"part0/file0"}


def test_what_it_made_and_removed_is_found_by_the_next_save(ground: Ground) -> None:
    shutil.rmtree(ground.root / "part1")
    ground.put("part2/new", "not in the checkpoint\n")
    before = ground.save()
    assert ground.restore(1) is not None

    version = ground.save()

    assert b"part2/new" in ground.saver.state(before) and b"part2/new" not in ground.saver.state(version)
    there = {path: row.content for path, row in ground.saver.state(1).items() if row.kind == "f"}
    assert {path: row.content for path, row in ground.saver.state(version).items() if row.kind == "f"} == there


def test_undo_and_redo_keep_it_so(ground: Ground, walks: list[str]) -> None:
    ground.put("part0/file0", "damaged\n")
    damaged = disk(ground.root)
    ground.restore(1, at_once=True)
    whole = disk(ground.root)

    ground.undo()
    assert disk(ground.root) == damaged
    ground.redo()
    assert disk(ground.root) == whole
    ground.save()

    assert not walks
