"""A store on a full disk is never stuck: what is forgotten is gone, its space comes back, and exit codes say what happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from keepfast.store.reserve import reserve_size
from tests.equipment.box import SOURCE, Box, Result

from .disks import formatted, needs, tmpfs
from .tracing import needs_strace

DISKS = {
    "tmpfs": lambda folder: tmpfs(folder, "size=5m"),
    "ext4": lambda folder: formatted(folder, "ext4", 7),
}
FEW, MANY = 20, 600
"""Files that each save changes: of few the packs fill the disk, of many the ledger."""


class Desk:
    """Commands in a home of their own, with the store on a small disk."""

    def __init__(self, folder: Path, disk: Path) -> None:
        self.disk, self.store, self.box = disk, disk / "store", Box(folder / "box")
        self.work = self.box.project
        self.box.config.parent.mkdir(parents=True)
        settings = {"store": {"url": str(self.store)}, "retention": {"keep_last": 100_000}}
        self.box.config.write_text(json.dumps(settings))
        self.chance = Random(7)
        assert self.run("init").code == 0

    def run(self, *words: str) -> Result:
        done = self.box.call(*words)
        assert "should not happen" not in done.out + done.err
        return done

    def change(self, files: int, size: int = 40) -> None:
        for number in range(files):
            (self.work / f"d{number % 7}").mkdir(exist_ok=True)
            (self.work / f"d{number % 7}/{number}.txt").write_bytes(self.chance.randbytes(size).hex().encode())

    def fill(self, files: int, size: int = 40) -> int:
        """Save until the disk is full; return how many versions there are."""
        for number in range(1, 500):
            self.change(files, size)
            done = self.run("save", "-m", f"state {number}")
            if done.code:
                assert done.code == 1
                assert self.kind("save", "-m", "once more") == "disk_full"
                return number - 1
        raise AssertionError("the disk did not fill up")

    def kind(self, *words: str) -> str:
        return str(json.loads(self.run(*words, "--json").out)["error"]["kind"])

    def versions(self) -> set[int]:
        return {int(row["version"][1:]) for row in json.loads(self.run("list", "--json", "--limit", "0").out)}

    def stuff(self) -> None:
        """Take every byte that is left, as another program would."""
        with open(self.disk / "other", "ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def fill_with_changes(self) -> None:
        """Save until the disk is full, each time with a tenth of 100 files changed."""
        for number in range(100):
            path = self.work / f"{number}"
            if not path.exists():
                path.write_bytes(self.chance.randbytes(120_000))
        for _ in range(500):
            for number in self.chance.sample(range(100), 10):
                (self.work / f"{number}").write_bytes(self.chance.randbytes(120_000))
            if self.run("save").code:
                return
        raise AssertionError("the disk did not fill up")

    def used(self) -> int:
        return sum(path.stat().st_size for path in (self.store / "packs").iterdir())

    def look(self) -> None:
        """Looking works however full the disk is, and finds nothing wrong."""
        for words in (["list"], ["show"], ["status"], ["verify"], ["search", "state"]):
            done = self.run(*words)
            assert done.code == 0, (words, done.out, done.err)

    def save(self) -> None:
        self.change(3)
        done = self.run("save")
        assert done.code == 0, done.err


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest, folder: Path) -> Iterator[Path]:
    with DISKS[request.param](folder / "disk") as mount:
        yield mount


@needs("mount", "mkfs.ext4", "losetup")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("files", "size"), [(FEW, 30_000), (MANY, 40)])
def test_the_older_half_of_a_full_store_goes_and_so_does_its_space(
    folder: Path, disk: Path, files: int, size: int
) -> None:
    desk = Desk(folder, disk)
    last = desk.fill(files, size)
    desk.stuff()
    assert (desk.store / "reserve").stat().st_size >= reserve_size(str(desk.store))
    half = last // 2

    done = desk.run("forget", "-y", "--json", *[f"v{version}" for version in range(1, half + 1)])

    assert done.code in (0, 15), done.err
    assert (done.code == 15) == (json.loads(done.out)["not_compacted"] is not None)
    assert desk.versions() == set(range(half + 1, last + 1))
    assert (desk.store / "reserve").exists()
    desk.look()
    assert desk.run("forget", "-y", f"v{half + 1}").code in (0, 15)
    assert desk.run("forget", "-y", *[f"v{version}" for version in desk.versions() - {last}]).code == 0
    assert desk.run("compact").code == 0
    assert desk.versions() == {last}
    assert (desk.store / "reserve").stat().st_size >= reserve_size(str(desk.store))
    (desk.disk / "other").unlink()
    desk.save()
    desk.look()


@needs("mount")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("disk", ["tmpfs"], indirect=True)
def test_a_full_store_can_be_purged(folder: Path, disk: Path) -> None:
    desk = Desk(folder, disk)
    desk.fill(MANY)
    desk.stuff()

    done = desk.run("purge", "-y", "--json")

    assert done.code == 0, done.out + done.err
    assert json.loads(done.out)["bytes_after"] == 0
    assert not list((desk.store / "packs").iterdir())
    (desk.disk / "other").unlink()
    assert desk.run("init").code == 0
    desk.save()
    desk.look()


@needs("mount")
@pytest.mark.timeout(600)
def test_a_failed_save_takes_no_room(folder: Path) -> None:
    """A pack that got its name before the ledger had no room for its rows must not stay."""
    with tmpfs(folder / "disk", "size=5m") as mount:
        desk = Desk(folder, mount)
        desk.fill(MANY)
        packs, free = sorted((desk.store / "packs").iterdir()), os.statvfs(mount).f_bfree
        for _ in range(3):
            desk.change(MANY)
            assert desk.run("save").code == 1

        assert sorted((desk.store / "packs").iterdir()) == packs
        assert not list((desk.store / "tmp").iterdir())
        assert os.statvfs(mount).f_bfree >= free - 2


@needs("mount")
def test_the_reserve_is_renewed_before_a_save_takes_room(folder: Path) -> None:
    with tmpfs(folder / "disk", "size=5m") as mount:
        desk = Desk(folder, mount)
        desk.save()
        (desk.store / "reserve").unlink()
        desk.save()
        assert (desk.store / "reserve").stat().st_size >= reserve_size(str(desk.store))

        (desk.store / "reserve").unlink()
        desk.stuff()
        with open(desk.disk / "other", "r+b") as file:  # room for the save, not for the reserve
            file.truncate((desk.disk / "other").stat().st_size - (600 << 10))
        desk.change(3)
        assert desk.kind("save") == "disk_full"
        assert desk.versions() == {1, 2}


@needs("mount")
@pytest.mark.timeout(600)
def test_what_cannot_be_compacted_is_forgotten_all_the_same_and_has_an_exit_code(folder: Path) -> None:
    """One pack of which most lives: to write it anew takes more room than there is."""
    with tmpfs(folder / "disk", "size=2g") as mount:
        desk = Desk(folder, mount)
        (desk.work / "large").write_bytes(Random(1).randbytes(7 << 20 >> 1))
        (desk.work / "other").write_bytes(Random(2).randbytes(2 << 20))
        desk.save()
        (desk.work / "other").write_bytes(b"small")
        desk.save()
        # As if the store had been copied to a smaller disk: its packs are larger than any that would be made there.
        subprocess.run(["mount", "-o", "remount,size=10m", str(mount)], check=True)
        desk.stuff()

        done = desk.run("forget", "-y", "v1", "--json")

        assert done.code == 15
        assert json.loads(done.out)["not_compacted"]["message"]
        assert json.loads(done.out)["compaction"] is None
        assert desk.versions() == {2}
        assert desk.run("compact").code == 15
        assert desk.run("compact", "--everything").code == 15
        assert desk.kind("compact") == "not_compacted"
        desk.look()
        (desk.disk / "other").unlink()
        assert desk.run("compact").code == 0
        assert sum(path.stat().st_size for path in (desk.store / "packs").iterdir()) < 4 << 20
        desk.save()


@needs("mount")
@pytest.mark.timeout(600)
def test_on_a_small_disk_little_that_is_not_needed_comes_back_too(folder: Path) -> None:
    """Packs are small there: of what is still needed no more must be written anew than there is room for."""
    with tmpfs(folder / "disk", "size=12m") as mount:
        desk = Desk(folder, mount)
        for number in range(12):
            (desk.work / f"{number}").write_bytes(Random(number).randbytes(600_000))
        desk.save()
        for number in range(2):
            (desk.work / f"{number}").write_bytes(Random(20 + number).randbytes(500_000))
        desk.save()
        before = desk.used()

        done = desk.run("forget", "-y", "v1", "--json")

        assert done.code == 0
        given_back = json.loads(done.out)["compaction"]["bytes_given_back"]
        assert given_back > 1_000_000
        assert desk.used() <= before - given_back
        assert desk.run("compact", "--everything").code == 0
        desk.look()


@needs("mount")
@pytest.mark.timeout(600)
def test_a_disk_that_fills_again_and_again_is_never_stuck(folder: Path) -> None:
    """Each version changes some of the files, so that every pack is needed a little by those that stay."""
    with tmpfs(folder / "disk", "size=40m") as mount:
        desk = Desk(folder, mount)
        for count in (9, 6, 3, 3):
            desk.fill_with_changes()
            versions = sorted(desk.versions())[:-1]
            chosen = versions[::2][:count]

            done = desk.run("forget", "-y", "--json", *[f"v{version}" for version in chosen])

            assert done.code == 0, done.out
            assert json.loads(done.out)["compaction"]["bytes_given_back"] > 0
            assert desk.run("compact").code == 0
            desk.save()
            assert desk.run("verify").code == 0


@needs("mount")
@pytest.mark.timeout(600)
def test_without_the_reserve_nobody_is_sent_to_forget(folder: Path) -> None:
    with tmpfs(folder / "disk", "size=5m") as mount:
        desk = Desk(folder, mount)
        desk.save()
        desk.save()
        (desk.store / "reserve").unlink()
        for cache in desk.store.glob("workspaces/*/cache"):
            cache.unlink()
        desk.stuff()
        for words in (["save"], ["pin", "v1"], ["forget", "-y", "v1"]):
            done = desk.run(*words, "--json")
            assert done.code == 1
            error = json.loads(done.out)["error"]
            assert error["kind"] == "disk_full"
            assert "`keepfast forget`" not in error["hint"]
            assert "Free 2 MB" in error["hint"]
        assert desk.versions() == {1, 2}
        (mount / "other").unlink()
        assert desk.run("forget", "-y", "v1").code == 0
        desk.look()


@needs("mount")
@pytest.mark.timeout(600)
def test_without_the_reserve_what_can_be_made_again_makes_room(folder: Path) -> None:
    with tmpfs(folder / "disk", "size=9m") as mount:
        desk = Desk(folder, mount)
        desk.change(4000)
        assert desk.run("save").code == 0
        desk.save()
        (desk.store / "reserve").unlink()
        desk.stuff()
        assert list(desk.store.glob("workspaces/*/cache"))

        done = desk.run("forget", "-y", "v1")

        assert done.code in (0, 15), done.err
        assert desk.versions() == {2}
        (mount / "other").unlink()
        desk.save()
        desk.look()


@needs("mount")
@pytest.mark.timeout(600)
def test_an_import_into_a_full_store_changes_nothing_and_leaves_nothing(folder: Path) -> None:
    with tmpfs(folder / "disk", "size=5m") as mount:
        desk = Desk(folder, mount)
        desk.change(FEW, 30_000)
        desk.save()
        bundle = str(folder / "bundle.keepfast")
        assert desk.run("export", "--all", bundle).code == 0
        last = desk.fill(FEW, 30_000)
        desk.stuff()
        before = desk.versions()

        done = desk.run("import", "--here", bundle, "--json")

        assert (done.code, desk.versions()) in ((1, before), (0, before))
        assert not list((desk.store / "tmp").iterdir())
        assert desk.run("forget", "-y", *[f"v{version}" for version in range(2, last)]).code == 0
        desk.look()


@needs("mount")
@pytest.mark.timeout(600)
def test_whatever_is_tried_on_a_full_disk_changes_nothing_or_all_of_it(folder: Path) -> None:
    with tmpfs(folder / "disk", "size=5m") as mount:
        desk = Desk(folder, mount)
        (desk.work / "a").write_text("one")
        desk.save()
        (desk.work / "a").write_text("two")
        desk.save()
        (desk.work / "a").write_text("three")
        desk.stuff()
        for words in (
            ["save"], ["save", "--auto"], ["restore", "v1", "-y"], ["pin", "v1"], ["name", "v1", "x"], ["rebuild"],
            ["export", "--all", str(mount / "bundle")], ["fork", "v1", str(mount / "fork")],
        ):  # fmt: skip
            done = desk.run(*words)
            assert done.code == 1, (words, done)
            assert (desk.work / "a").read_text() == "three"
            assert desk.versions() == {1, 2}
            assert not list((desk.store / "tmp").iterdir()), words
            assert sorted(path.name for path in mount.iterdir()) == ["other", "store"], words
        assert not json.loads(desk.run("list", "--json").out)[-1]["pinned"]
        assert desk.run("verify", "--repair").code == 0
        desk.look()
        assert desk.run("forget", "-y", "v1").code == 0
        (mount / "other").unlink()
        assert desk.run("restore", "v2", "-y").code == 0
        assert (desk.work / "a").read_text() == "two"
        assert desk.run("undo", "-y").code == 0
        assert (desk.work / "a").read_text() == "three"
        desk.look()


@needs("mount")
def test_one_who_gives_space_back_has_the_reserve_for_himself(folder: Path) -> None:
    """A save that comes meanwhile must not take the room that the reserve has just made."""
    from keepfast.model.errors import DiskFull
    from keepfast.store.reserve import ensure_reserve, with_reserve

    desk = Desk(folder, folder / "disk")
    desk.save()
    calls: list[bool] = []

    def work() -> None:
        calls.append((desk.store / "reserve").exists())
        if len(calls) == 1:
            raise DiskFull("full")
        with pytest.raises(DiskFull):
            ensure_reserve(str(desk.store))

    with_reserve(str(desk.store), "Testing", work)

    assert calls == [True, False]
    assert (desk.store / "reserve").stat().st_size >= reserve_size(str(desk.store))


@needs_strace
@pytest.mark.timeout(900)
@pytest.mark.parametrize("call", ["pwrite64", "write", "fsync", "ftruncate", "rename", "unlink"])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_an_error_while_forgetting_is_told_truly(folder: Path, call: str, error: str) -> None:
    """Exit 0: forgotten and compacted; 15: forgotten; 1: nothing was. And afterwards everything works again."""
    desk = Desk(folder, folder / "disk")
    for _ in range(6):
        desk.change(FEW)
        assert desk.run("save").code == 0
    living = desk.versions()
    for when in ("1", "2+", "4+"):
        version = min(living)

        code, said = _forget_with_fault(desk, version, call, f"error={error}:when={when}")

        assert code in (0, 1, 15), said
        assert "Traceback" not in said
        now = desk.versions()
        assert now == (living if code == 1 else living - {version}), (when, code, said)
        living = now
        assert desk.run("verify").code == 0
    assert desk.run("compact").code == 0
    assert desk.run("forget", "-y", f"v{min(living)}").code == 0
    desk.save()
    desk.look()


def _forget_with_fault(desk: Desk, version: int, call: str, fault: str) -> tuple[int, str]:
    """Run the real program; the fault meets only what it does to the store."""
    names = ["ledger.db", "ledger.db-journal", "reserve", "packs", "tmp", "format"]
    paths = [desk.store / name for name in names] + list((desk.store / "log").iterdir())
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    for path in paths:
        command += ["-P", str(path)]
    command += ["-e", f"inject={call}:{fault}", sys.executable, "-m", "keepfast", "forget", "-y", f"v{version}"]
    done = subprocess.run(
        command, cwd=desk.work, env={**desk.box.variables, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr
