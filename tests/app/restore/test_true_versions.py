"""A version is a state that the disk had, also if only some paths were scanned for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.app.checkpoint_save import read_ahead
from keepfast.model.event import Event
from tests.equipment.box import Box
from tests.equipment.trees import disk

from .ground import Ground, at


@pytest.fixture
def ground(folder: Path) -> Iterator[Ground]:
    """v1 has a, b and c; v2 another a and no b; the disk is at v1 again, and the newest version is v3."""
    made = Ground(folder)
    for name in "abc":
        made.put(name, f"{name}1")
    made.save()
    (made.root / "b").unlink()
    made.put("a", "a2")
    made.save()
    assert made.restore(1) is not None
    yield made
    made.close()


def texts(ground: Ground, version: int) -> dict[str, str]:
    return {os.fsdecode(path): content.decode() for path, (_, _, content) in ground.saver.contents(version).items()}


def present(ground: Ground) -> dict[str, str]:
    return {os.fsdecode(path): content.decode() for path, (_, _, content) in disk(ground.root).items()}


ONE = {"a": "a1", "b": "b1", "c": "c1"}


def test_the_safety_version_of_a_path_is_the_disk_before_it(ground: Ground) -> None:
    done = ground.restore(2, "a")
    assert done is not None
    assert texts(ground, done.before) == ONE
    ground.restore(done.before)

    assert present(ground) == ONE


def test_the_second_path_after_a_restore_of_one_is_true_too(ground: Ground) -> None:
    ground.restore(2, "a")
    done = ground.restore(2, "b")

    assert done is not None
    assert texts(ground, done.before) == ONE | {"a": "a2"}


def test_two_paths_without_a_whole_restore_before(folder: Path) -> None:
    ground = Ground(folder)
    for name in "ab":
        ground.put(name, f"{name}1")
    ground.save()
    for name in "ab":
        ground.put(name, f"{name}2")
    ground.save()
    ground.restore(1, "a")
    done = ground.restore(1, "b")
    assert done is not None

    assert texts(ground, done.before) == {"a": "a1", "b": "b2"}
    ground.close()


def test_what_is_saved_before_a_command_is_the_disk(ground: Ground) -> None:
    ground.put("c", "c3")
    outcome = ground.saver.save("before_command", only=(b"c",), created_by="auto")

    assert texts(ground, outcome.version) == ONE | {"c": "c3"}


def test_an_ignored_file_that_a_command_names_is_in_it(ground: Ground) -> None:
    ground.put(".gitignore", "made\n")
    ground.put("made", "by hand")
    outcome = ground.saver.save("before_command", only=(b"made",), created_by="auto")

    assert texts(ground, outcome.version) == ONE | {".gitignore": "made\n", "made": "by hand"}


def test_the_next_save_after_it_finds_what_changed(ground: Ground) -> None:
    """The stat cache describes the version."""
    ground.put("c", "c3")
    ground.saver.save("before_command", only=(b"c",), created_by="auto")
    ground.put("b", "b3")
    (ground.root / "a").unlink()

    assert texts(ground, ground.save()) == {"b": "b3", "c": "c3"}


def test_a_fork_and_a_diff_of_a_safety_version_are_true(tmp_path: Path) -> None:
    box = Box(tmp_path)
    for name in "abc":
        box.put(name, f"{name}1\n")
    box.call("init")
    box.save()
    (box.project / "b").unlink()
    box.put("a", "a2\n")
    box.save()
    box.call("restore", "v1", "-y")
    box.call("restore", "v2", "-y", "--", "a")

    assert box.call("fork", "v4", "../copy").code == 0
    assert {path.name for path in (box.project / "../copy").iterdir() if path.is_file()} >= {"a", "b", "c"}
    assert [change["path"] for change in box.call("diff", "v1", "v4", "--json").json()["changes"]] == []


def test_a_save_during_an_interrupted_restore_scans_everything(ground: Ground) -> None:
    class Killed(Exception):
        pass

    def kill() -> None:
        raise Killed

    with pytest.raises(Killed), at("restore:recorded", kill):
        ground.restore(2)
    restorer = ground.restorer()
    assert restorer.cut_off() is not None
    ground.put("c", "c3")
    outcome = ground.saver.save("before_command", only=(b"c",), created_by="auto")

    assert texts(ground, outcome.version) == {"a": "a2", "c": "c3"}


def test_what_was_read_ahead_covers_those_paths_alone(ground: Ground) -> None:
    ground.put("c", "c3")
    engine = ground.restorer().engine
    root, row = engine.workspaces.root(os.fsencode(ground.root))
    ahead = read_ahead(engine, root, row.id, (b"c",), engine.clock() + 10**10)
    assert ahead is not None
    outcome = ahead.record(Event(root, engine.clock(), trigger="before_command", created_by="auto", message="before x"))
    ground.put("c", "lost")
    done = ground.restore(outcome.version)

    assert done is not None
    assert present(ground) == ONE | {"c": "c3"}


def test_too_many_files_make_a_version_of_the_named_paths_alone(ground: Ground) -> None:
    ground.saver.options["capture__max_files"] = 2
    ground.put("c", "c3")
    outcome = ground.saver.save("before_command", only=(b"c",), created_by="auto")
    ground.saver.options["capture__max_files"] = 200
    ground.put("c", "lost")
    done = ground.restore(outcome.version)

    assert done is not None
    assert present(ground) == ONE | {"c": "c3"}


def test_after_such_a_version_the_next_is_of_everything_again(ground: Ground) -> None:
    ground.saver.options["capture__max_files"] = 2
    ground.saver.save("before_command", only=(b"c",), created_by="auto")
    ground.put("c", "c3")
    ground.saver.save("before_command", only=(b"c",), created_by="auto")
    ground.saver.options["capture__max_files"] = 200
    ground.put("c", "c4")
    outcome = ground.saver.save("before_command", only=(b"c",), created_by="auto")

    assert texts(ground, outcome.version) == ONE | {"c": "c4"}


def test_before_a_restore_of_one_path_edits_elsewhere_are_saved_too(ground: Ground) -> None:
    """The folder is at its newest version, and edited since."""
    ground.put("a", "a1")
    ground.put("b", "b1")
    first = ground.save()
    ground.put("a", "a2")
    second = ground.save()
    ground.put("b", "edited")
    ground.put("new", "new")

    ground.restore(first, "a")
    ground.restore(second + 1)

    assert (ground.root / "a").read_text() == "a2"
    assert (ground.root / "b").read_text() == "edited" and (ground.root / "new").read_text() == "new"
