"""A folder that is not there comes back as a whole: built aside, put in place at once, and taken apart if it must be."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.model.errors import Damaged
from tests.equipment.trees import disk

from .ground import Ground, aside, at, staging_left

FILES = 24


class Wide(Ground):
    """A workspace whose folder `d`, with folders and files in it, was saved and is not there any more."""

    def __init__(self, folder: Path, accelerated: bool) -> None:
        super().__init__(folder, capture__accelerator=accelerated)
        for number in range(FILES):
            self.put(f"d/part{number % 3}/file{number}", f"content {number}\n", [0o644, 0o600, 0o4755][number % 3])
        self.put("d-beside", "sorted between d and what lies in it\n")
        (self.root / "d/part1/link").symlink_to("file1")
        os.link(self.root / "d/part2/file2", self.root / "d/linked")
        (self.root / "d/part0").chmod(0o555)
        (self.root / "d/part1").chmod(0o2711)
        self.saved = disk(self.root)
        self.save()
        shutil.rmtree(self.root / "d")


@pytest.fixture(params=[True, False], ids=["compiled", "python"])
def wide(request: pytest.FixtureRequest, folder: Path) -> Iterator[Wide]:
    made = Wide(folder, request.param)
    yield made
    made.close()


def test_it_appears_with_all_its_plain_files_in_it(wide: Wide) -> None:
    seen: list[set[str]] = []

    def look() -> None:
        seen.append({path.name for path in wide.root.glob("d/*/file*") if path.read_text().startswith("content")})

    with at("restore:folders", look):
        done = wide.restore(1)

    # A file with two names, like a link, is put in place by itself.
    assert seen == [{f"file{number}" for number in range(FILES) if number != 2}]
    assert done is not None and not done.applied.untouched
    assert disk(wide.root) == wide.saved
    assert (wide.root / "d/linked").samefile(wide.root / "d/part2/file2")
    assert not staging_left(wide.root)


def test_with_recorded_times_it_has_them(wide: Wide) -> None:
    times = {path: row.mtime for path, row in wide.saver.state(1).items() if row.kind == "f"}

    wide.restore(1, mtimes=True)

    assert {path: os.stat(os.fsencode(wide.root) + b"/" + path).st_mtime_ns for path in times} == times


def test_somebody_who_makes_the_folder_meanwhile_keeps_what_is_in_it(wide: Wide) -> None:
    def make() -> None:
        wide.put("d/part1/mine", "theirs\n")
        wide.put("d/part1/file4", "theirs too\n")

    with at("restore:deleted", make):
        done = wide.restore(1)

    now = disk(wide.root)
    assert done is not None and [path for path, _ in done.applied.untouched] == [b"d/part1/file4"]
    assert now.pop(b"d/part1/mine")[2] == b"theirs\n"
    assert now.pop(b"d/part1/file4")[2] == b"theirs too\n"
    assert now == {path: row for path, row in wide.saved.items() if path != b"d/part1/file4"}
    assert not staging_left(wide.root) and not aside(wide.root)


def test_a_link_in_its_place_leads_nothing_outside(wide: Wide) -> None:
    outside = wide.root.parent / "outside"
    outside.mkdir()

    with at("restore:deleted", lambda: (wide.root / "d").symlink_to(outside)):
        done = wide.restore(1)

    assert not list(outside.iterdir())
    assert (wide.root / "d").is_symlink()
    assert done is not None and len(done.applied.untouched) >= FILES
    assert not staging_left(wide.root)


def test_a_link_in_the_staging_folder_leads_nothing_outside(wide: Wide) -> None:
    """Whoever reaches into our own folder may spoil his own tree, and no other."""
    outside = wide.root.parent / "outside"
    outside.mkdir()

    def swap() -> None:
        for built in wide.root.glob(".keepfast/restore-*/n*"):
            if built.is_dir():
                built.rename(built.with_name("77"))
                built.symlink_to(outside)

    with at("restore:staged-synced", swap):
        wide.restore(1)

    assert not list(outside.iterdir())
    assert (wide.root / "d").is_symlink() or not (wide.root / "d").exists()


def test_a_name_that_is_too_long_to_be_built_comes_back_all_the_same(wide: Wide) -> None:
    deep = os.open(wide.root, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("n" * 240, dir_fd=deep)
        inside = os.open("n" * 240, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inside
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=deep))
    os.close(deep)
    for number in range(FILES):
        wide.put("n" * 240 + f"/file{number}", "x")
    saved = disk(wide.root)
    version = wide.save()
    shutil.rmtree(wide.root / ("n" * 240))

    wide.restore(version)

    assert disk(wide.root) == saved


def test_large_files_and_many_folders_appear_with_it(wide: Wide) -> None:
    """What is stored in parts is written by two threads, and so are many folders made."""
    chance = random.Random(4)
    for number in range(3):
        wide.put(f"large/part{number}/file", chance.randbytes((4 << 20) + 1000 * (number + 1)), 0o640)
    for number in range(150):
        wide.put(f"large/many{number}/deep/file", f"{number}\n")
    wide.restore(1, "d")
    wide.save()
    saved = disk(wide.root)
    shutil.rmtree(wide.root / "large")
    seen: list[int] = []

    with at("restore:folders", lambda: seen.append(len(list(wide.root.glob("large/**/file"))))):
        done = wide.restore(wide.saver.version())

    assert seen == [153]
    assert done is not None and not done.applied.untouched
    assert disk(wide.root) == saved
    assert not staging_left(wide.root)


def test_a_large_file_that_is_damaged_stops_it_before_anything_is_touched(wide: Wide) -> None:
    for number in range(2):
        wide.put(f"large/file{number}", random.Random(number).randbytes(5 << 20))
    wide.save()
    shutil.rmtree(wide.root / "large")
    before = disk(wide.root)
    packs = sorted((wide.root.parent / "store").rglob("*.pack"), key=lambda path: path.stat().st_size)
    data = bytearray(packs[-1].read_bytes())
    data[len(data) // 2] ^= 1
    packs[-1].chmod(0o600)
    packs[-1].write_bytes(data)

    with pytest.raises(Damaged):
        wide.restore(wide.saver.version())

    assert disk(wide.root) == before
    assert wide.restorer().cut_off() is None
    assert not staging_left(wide.root)
