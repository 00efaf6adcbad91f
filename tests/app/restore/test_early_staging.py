"""A large restore writes new contents while its safety checkpoint is made; whatever comes of that, nothing of it is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keepfast.app import restore_execution
from keepfast.app.restore_execution import EarlyStaging
from keepfast.model.errors import Damaged, Failed, KeepfastError
from keepfast.model.restore_plan import Plan
from keepfast.workspace import free_space as room
from tests.equipment.trees import disk

from .child import command
from .ground import Ground, at, staging_left

FILES = 40


@pytest.fixture(params=[True, False], ids=["compiled", "python"])
def ground(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """A workspace with 40 files in the folder `d`, which was saved and is not there any more, and one that was changed."""
    monkeypatch.setattr(restore_execution, "MIN_STEPS_TO_STAGE_EARLY", 20)
    made = Ground(folder, capture__accelerator=request.param)
    for number in range(FILES):
        made.put(f"d/part{number % 3}/file{number}", f"content {number}\n" * number)
    made.put("d/large", os.urandom(6 << 20))
    made.put("changed", "as it was\n")
    made.save()
    yield made
    made.close()


@pytest.fixture
def saved(ground: Ground) -> object:
    saved = disk(ground.root)
    shutil.rmtree(ground.root / "d")
    ground.put("changed", "by somebody\n")
    return saved


def fail(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def test_it_is_begun_before_the_safety_checkpoint_is_there_and_nobody_sees_it(ground: Ground, saved: object) -> None:
    seen: list[tuple[int, object, bool]] = []
    before = disk(ground.root)

    def look() -> None:
        seen.append((len(staging_left(ground.root)), disk(ground.root) == before, (ground.root / "d").exists()))

    with at("save:committed", look):
        ground.restore(1)

    assert seen == [(1, True, False)]
    assert disk(ground.root) == saved and not staging_left(ground.root)


def test_where_the_safety_checkpoint_may_need_the_room_it_is_not_begun(
    ground: Ground, saved: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ground.root / "mine").write_bytes(os.urandom(3 << 20))
    block, left = os.statvfs(ground.root).f_frsize, [0]

    class Disk:
        """What the file system says, but for what is free."""

        def __init__(self, root: int) -> None:
            self.f_frsize, self.f_files, self.f_bavail = block, 0, left[0] // block

    monkeypatch.setattr(room, "fstatvfs", Disk)
    seen: list[int] = []
    with at("save:committed", lambda: seen.append(len(staging_left(ground.root)))):
        for left[0] in (18 << 20, 24 << 20):  # 6 MB are to be written, 3 MB to be saved
            ground.restore(1)
            ground.undo()

    assert seen[::2] == [0, 1]


def test_undone_it_is_as_before(ground: Ground, saved: object) -> None:
    before = disk(ground.root)
    ground.restore(1)
    ground.undo()
    assert disk(ground.root) == before
    ground.redo()
    assert disk(ground.root) == saved and not staging_left(ground.root)


@pytest.mark.parametrize(
    "error", [Failed("no"), OSError(28, "full"), KeyboardInterrupt()], ids=["said", "full", "interrupt"]
)
@pytest.mark.parametrize("step", ["save:scanned", "save:read", "restore:safe"])
def test_without_a_safety_checkpoint_nothing_is_changed_and_nothing_is_left(
    ground: Ground, saved: object, error: BaseException, step: str
) -> None:
    before = disk(ground.root)
    with at(step, fail(error)), pytest.raises((Failed, KeyboardInterrupt, KeepfastError)):
        ground.restore(1)
    assert disk(ground.root) == before and not staging_left(ground.root)
    assert ground.restorer().cut_off() is None

    ground.restore(1)

    assert disk(ground.root) == saved


def test_a_plan_that_does_not_hold_any_more_is_made_again(ground: Ground, saved: object) -> None:
    def put(_: object) -> bool:
        ground.put("d/part1/mine", "made after the preview\n")
        ground.put("d/part1/file4", "made after the preview, too\n")
        return True

    restoring = ground.restorer()
    restored = restoring.restore(restoring._checkpoint(1), conflicts="theirs", ask=put)

    assert restored is not None and not restored.applied.untouched
    assert disk(ground.root) == saved and not staging_left(ground.root)
    before = ground.saver.state(restored.before)
    assert {b"d/part1/mine", b"d/part1/file4"} <= before.keys()


def test_a_content_that_is_damaged_stops_it_before_anything_is_changed(ground: Ground, saved: object) -> None:
    before = disk(ground.root)
    ground.close()
    for pack in Path(ground.saver.store, "packs").iterdir():
        data = bytearray(pack.read_bytes())
        data[20] ^= 1
        pack.chmod(0o600)
        pack.write_bytes(data)

    with pytest.raises(Damaged):
        ground.restore(1)

    assert disk(ground.root) == before and not staging_left(ground.root)
    assert ground.restorer().cut_off() is None


def test_where_there_is_no_thread_it_is_done_afterwards(
    ground: Ground, saved: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    ground.restore(1)
    assert disk(ground.root) == saved and not staging_left(ground.root)


def test_killed_before_the_journal_it_leaves_what_the_next_one_sweeps(ground: Ground, saved: object) -> None:
    before = disk(ground.root)
    ground.close()
    words = ("restore", ground.root, ground.saver.store, "--many", 20, "--fast", "--kill", "restore:safe:1")
    killed = subprocess.run(command(*words), capture_output=True, timeout=90, check=False)

    assert killed.returncode == -signal.SIGKILL, killed
    assert disk(ground.root) == before and len(staging_left(ground.root)) == 1
    assert ground.restorer().cut_off() is None

    ground.restore(1)

    assert disk(ground.root) == saved and not staging_left(ground.root)


class Told:
    """Stands for what was begun, and notes that it was given up."""

    given_up = False

    def clean_up(self) -> None:
        self.given_up = True


def test_what_was_begun_goes_on_for_its_own_plan_and_folder_only(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    here, other, again = (os.open(path, os.O_RDONLY) for path in (tmp_path, tmp_path / "other", tmp_path))
    plan, told = Plan(), Told()
    try:
        assert EarlyStaging(plan, here, told).take(plan, again) is told and not told.given_up  # type: ignore[arg-type,comparison-overlap]
        for another, root in ((Plan(), again), (plan, other)):
            told = Told()
            begun = EarlyStaging(plan, here, told)  # type: ignore[arg-type]
            assert begun.take(another, root) is None and told.given_up
            assert begun.take(plan, again) is None
        assert EarlyStaging(plan).take(plan, here) is None
    finally:
        for fd in (here, other, again):
            os.close(fd)
