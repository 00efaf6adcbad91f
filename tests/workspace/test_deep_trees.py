"""Deep trees: what lies far down costs a few calls and little memory, and is judged as strictly as all else."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepfast.fsutil.descriptors import LONG
from keepfast.model.entry import FOLDER, Entry
from keepfast.model.errors import Damaged
from keepfast.model.restore_plan import refuse_crafted
from keepfast.workspace.apply_result import ApplyResult
from keepfast.workspace.capture import Capture
from keepfast.workspace.placement import Placement
from keepfast.workspace.selection import Chooser
from keepfast.workspace.system_calls import Folders, System
from tests.app.restore.ground import Ground

NAME = b"deepdeep"
LEVELS = 1200


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.close()


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    """A folder with so many levels below it."""
    top = os.open(tmp_path, os.O_RDONLY)
    fd = os.dup(top)
    for _ in range(LEVELS):
        os.mkdir(NAME, dir_fd=fd)
        inside = os.open(NAME, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inside
    os.mkdir(b"last", dir_fd=fd)
    os.symlink(b"last", b"link", dir_fd=fd)
    os.close(fd)
    yield top
    os.close(top)
    subprocess.run(["rm", "-rf", str(tmp_path / os.fsdecode(NAME))], check=True)  # deeper than Python recurses


class Counted:
    """The system's calls, and how many folders were opened by them."""

    def __init__(self, calls: Any) -> None:
        self.calls, self.opened = calls, 0

    def open_folder(self, root: int, path: bytes) -> int:
        self.opened += 1
        fd: int = self.calls.open_folder(root, path)
        return fd


@pytest.mark.parametrize("accelerated", [True, False])
def test_a_folder_far_down_is_opened_by_few_calls(root: int, accelerated: bool) -> None:
    system = System(accelerated)
    system._calls = counted = Counted(system._calls)
    path = b"/".join([NAME] * LEVELS + [b"last"])

    fd = system.open_folder(root, path)

    assert os.listdir(f"/proc/self/fd/{fd}") == []
    os.close(fd)
    assert 1 <= counted.opened <= len(path) // LONG + 2


@pytest.mark.parametrize("accelerated", [True, False])
def test_no_link_far_down_is_followed(root: int, accelerated: bool) -> None:
    system = System(accelerated)

    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        system.open_folder(root, b"/".join([NAME] * LEVELS + [b"link"]))
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        system.open_folder(root, b"/".join([NAME] * LEVELS + [b"link", b"more"]))


def test_what_is_open_on_the_way_down_is_closed_again(root: int) -> None:
    system, before = System(), len(os.listdir("/proc/self/fd"))

    os.close(system.open_folder(root, b"/".join([NAME] * LEVELS)))
    with pytest.raises(FileNotFoundError):
        system.open_folder(root, b"/".join([NAME] * LEVELS + [b"missing"] * 700))

    assert len(os.listdir("/proc/self/fd")) == before


def folder(path: bytes) -> Entry:
    return Entry(path, FOLDER, 0o755, 0, 0, 0, 0, b"", b"")


def test_judging_the_names_of_a_deep_tree_takes_no_more_memory_than_its_paths() -> None:
    """All parts of all paths would be half a million names."""
    entries = [folder(b"/".join([b"down"] * depth)) for depth in range(1, 1000)]
    tracemalloc.start()
    try:
        refuse_crafted(entries)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 8 * sum(len(entry.path) for entry in entries)


@pytest.mark.parametrize("above", [b"a" * 256 + b"/b", b"b/" + b"a" * 256, b"b/" + b"a" * 256 + b"/c"])
def test_a_name_that_is_too_long_is_refused_wherever_it_stands(above: bytes) -> None:
    refuse_crafted([folder(above.replace(b"a" * 256, b"a" * 255))])

    with pytest.raises(Damaged):
        refuse_crafted([folder(b"b"), folder(above)])


@pytest.mark.parametrize("gone", ["deep", "beside"])
def test_the_way_up_of_a_vanished_tree_is_gone_once(ground: Ground, gone: str) -> None:
    """Steps upwards of a save grow with the levels, not with their square; also if what vanished lies beside."""
    levels, steps = 200, 0
    for name in ("deep", "beside", "beside/more"):
        (ground.root / name).mkdir()
    folder = ground.root / "deep"
    for _ in range(levels):
        folder /= "d"
        folder.mkdir()
        (folder / "f").write_text("x")
    ground.save()
    subprocess.run(["rm", "-rf", str(ground.root / gone)], check=True)
    for here, _, files in os.walk(ground.root / "deep"):  # all of it is to be looked at
        for name in files:
            os.utime(os.path.join(here, name), ns=(1, 1))

    def count(frame: Any, event: str, called: Any) -> None:
        nonlocal steps
        steps += event == "c_call" and getattr(called, "__name__", "") == "rpartition"

    sys.setprofile(count)
    try:
        ground.save()
    finally:
        sys.setprofile(None)

    assert steps < 20 * levels


def test_folders_without_rows_are_made_however_many_there_are(tmp_path: Path) -> None:
    """A bundle may name one file below more folders than Python recurses."""
    path = b"/".join([b"d"] * LEVELS + [b"f"])
    (tmp_path / "tree").mkdir()
    root = os.open(tmp_path / "tree", os.O_RDONLY)
    system = System()
    placing = Placement(root, None, Folders(root, system), system, None, ApplyResult())  # type: ignore[arg-type]

    parent, last = placing.open_parent(path)

    os.close(os.open(last, os.O_CREAT | os.O_WRONLY, dir_fd=parent))
    placing.folders.close()
    folder = system.open_folder(root, path.rpartition(b"/")[0])
    assert os.listdir(f"/proc/self/fd/{folder}") == ["f"]
    os.close(folder)
    os.close(root)
    subprocess.run(["rm", "-rf", str(tmp_path / "tree")], check=True)


def test_excluded_folders_above_the_paths_of_a_deep_tree_are_asked_for_once(tmp_path: Path) -> None:
    asked: list[bytes] = []

    class Asked:
        def match(self, path: bytes, is_dir: bool) -> bool:
            asked.append(path)
            return path == b"a/out"

    chooser = Chooser(-1, Capture())
    chooser.exclude = Asked()  # type: ignore[assignment]
    paths = [b"/".join([b"d"] * count) for count in range(1, 300)]

    assert not any(chooser.excludes(path) for path in paths)
    assert len(asked) == len(set(asked)) == 298
    assert [chooser.excludes(path) for path in (b"a/out", b"a/out/x", b"a/out/x/y", b"a/in")] == [
        False,
        True,
        True,
        False,
    ]
