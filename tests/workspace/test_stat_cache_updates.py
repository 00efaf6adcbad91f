"""After a save of some paths the stat cache still speaks for all others, and a little is added to it in place of all."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from keepfast.app.workspace_lock import Folder
from keepfast.workspace import stat_cache as cache
from keepfast.workspace.stat_cache import MAX_RENEWALS
from tests.equipment.saver import Saver

ONLY = (b"folder", b"folder/one")


@pytest.fixture
def saver(tmp_path: Path) -> Saver:
    root = tmp_path / "work"
    (root / "folder").mkdir(parents=True)
    for name in ("folder/one", "folder/two", "three"):
        (root / name).write_text(name)
        os.utime(root / name, ns=(0, 0))
    made = Saver(root, tmp_path / "store")
    made.save()
    return made


def changed_files(saver: Saver) -> set[bytes]:
    """What the check would have read again."""
    known = cache.load(str(saver.cache()))
    assert known is not None
    root = os.open(saver.root, os.O_RDONLY)
    try:
        files, _ = cache.check(known, root)
        again, _ = cache.check(known, root, accelerated=False)
    finally:
        os.close(root)
    assert list(files) == list(again)
    return {known.names()[number] for number in files}


def settled(saver: Saver) -> None:
    """Until no file is so new that it is looked at again for that alone."""
    for _ in range(1000):
        saver.save("manual")
        if not changed_files(saver):
            return
        time.sleep(0.02)
    pytest.fail("the clock of this file system does not move")


def test_all_others_hold_and_the_saved_ones_are_looked_at_again(saver: Saver) -> None:
    settled(saver)
    before = saver.cache().read_bytes()
    (saver.root / "folder/one").write_text("changed")

    saver.save("manual", only=ONLY)

    after = saver.cache().read_bytes()
    assert after.startswith(before) and len(before) < len(after) < len(before) + 2000
    assert changed_files(saver) == {b"one"}


def test_the_next_save_believes_it_and_sees_what_changed_since(saver: Saver) -> None:
    settled(saver)
    (saver.root / "folder/one").write_text("changed")
    saver.save("manual", only=ONLY)

    assert saver.save().status == "unchanged"
    (saver.root / "folder/two").write_text("changed too")
    assert saver.save().version
    assert saver.read("folder/two") == b"changed too"


def test_a_path_that_it_does_not_know_is_found_gone_all_the_same(saver: Saver) -> None:
    settled(saver)
    (saver.root / "new").write_text("new")
    saver.save("manual", only=(b"new",))
    assert saver.read("new") == b"new"
    (saver.root / "new").unlink()

    saver.save()

    assert b"new" not in saver.state()


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_renewal_that_is_not_whole_is_not_believed(saver: Saver, cut: int) -> None:
    settled(saver)
    known = cache.load(str(saver.cache()))
    (saver.root / "folder/one").write_text("changed")
    saver.save("manual", only=ONLY)
    raw = saver.cache().read_bytes()
    saver.cache().write_bytes(raw[:-cut])

    torn = cache.load(str(saver.cache()))

    assert known is not None and torn is not None and torn.identity == known.identity
    (saver.root / "three").write_text("more")
    saver.save()
    assert saver.read("three") == b"more" and saver.read("folder/one") == b"changed"


def test_many_renewals_are_followed_by_a_look_at_everything(saver: Saver) -> None:
    settled(saver)
    for number in range(300):
        (saver.root / "folder/one").write_text(f"{number}")
        saver.save("manual", only=ONLY)

    assert saver.cache().stat().st_size < 100_000 + MAX_RENEWALS
    saver.save()
    assert saver.read("folder/one") == b"299"


def test_what_is_recorded_without_a_version_leaves_the_cache_as_good_as_it_was(saver: Saver) -> None:
    settled(saver)
    engine = saver.engine()
    try:
        with Folder(engine, os.fsencode(saver.root), saver.workspace) as folder:
            assert folder.fresh() is not None
            folder.recording(
                lambda: engine.repository().commit(saver.workspace, lambda tx, row: [{"r": "restore", "target": 1}])
            )
            folder._cache = None
            assert folder.fresh() is not None
        assert changed_files(saver) == set()
    finally:
        engine.close()


def test_a_cache_of_an_older_version_is_not_made_newer_by_what_is_recorded(saver: Saver) -> None:
    settled(saver)
    old = saver.cache().read_bytes()
    (saver.root / "three").write_text("changed")
    saver.save("manual")
    saver.cache().write_bytes(old)
    engine = saver.engine()
    try:
        with Folder(engine, os.fsencode(saver.root), saver.workspace) as folder:
            folder.recording(
                lambda: engine.repository().commit(saver.workspace, lambda tx, row: [{"r": "restore", "target": 1}])
            )
            assert folder.fresh() is None
    finally:
        engine.close()
    assert saver.cache().read_bytes() == old


def test_what_went_with_a_folder_and_comes_back_just_as_it_was_is_saved_again(saver: Saver, tmp_path: Path) -> None:
    deep = saver.root / "folder/deep"
    deep.mkdir()
    (deep / "four").write_text("four")
    settled(saver)
    (saver.root / "folder").rename(tmp_path / "away")
    saver.save(only=(b"folder",))
    assert b"folder/deep/four" not in saver.state()
    (tmp_path / "away").rename(saver.root / "folder")  # files and folders in it have the times and inodes that they had

    saver.save()

    assert {b"folder/one", b"folder/deep", b"folder/deep/four"} <= saver.state().keys()
