"""A disk that fails during a restore: a clear sentence, and the tree can be brought to either end."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from keepfast.model.errors import DiskFull
from tests.app.restore.conftest import Points
from tests.app.restore.ground import Ground
from tests.equipment.trees import disk
from tests.faults.disks import needs, tmpfs
from tests.faults.stage import report
from tests.faults.tracing import WRITING, Call, needs_strace

from .series import CHANGING, READING, Series

SAMPLE = 14
MAKING = (
    "write",
    "pwrite64",
    "renameat2",
    "mkdirat",
    "linkat",
    "symlinkat",
    "fsync",
    "fdatasync",
    "syncfs",
    "ftruncate",
)
ERRORS: dict[str, tuple[str, ...]] = {
    "EIO": (*CHANGING, *READING),
    "ENOSPC": (*MAKING, "openat", "rename"),
    "EROFS": ("renameat2", "unlinkat", "mkdirat", "linkat", "symlinkat", "fchmod", "openat", "rename"),
    "EMFILE": ("openat", "openat2"),
    "EINVAL": ("renameat2",),
    "ENOSYS": ("renameat2", "openat2", "syncfs"),
}
"""Which call can fail with which error; the last two are how a system says that it does not have the call."""


@needs_strace
@pytest.mark.timeout(10800)
def test_an_error_at_any_system_call_is_told_and_either_end_can_be_reached(folder: Path, points: Points) -> None:
    series = Series(folder)
    possible = [
        (call, error, persistent)
        for call in series.calls(*dict.fromkeys((*CHANGING, *READING)))
        for error, names in ERRORS.items()
        if call.name in names and _may_fail(call, error)
        for persistent in (False, True)
    ]
    findings = []
    for call, error, persistent in points.of(possible, SAMPLE):
        done = series.disturbed(call, f"error={error}:when={call.number}{'+' if persistent else ''}")
        where = f"{error} at {call.name} {call.number}{'+' if persistent else ''} {call.text[:90]}"
        quiet = persistent and call.name == "write"  # then nothing can be said either, and Python ends with 120
        if done.returncode not in (0, 1) and not quiet:
            findings.append(f"{where}: exit code {done.returncode}")
        if "Traceback" in done.stderr or done.stderr.count("\n") > 1:
            findings.append(f"{where}: more than a sentence: {done.stderr[-600:]!r}")
        if done.returncode == 1 and not done.stderr and not quiet:
            findings.append(f"{where}: failed without a word")
        if done.returncode == 0 and disk(series.root) != series.target and '"kept": []' in done.stdout:
            findings.append(f"{where}: said to be done, and is not: {series.odd(disk(series.root), series.target)}")
        if done.returncode:
            unread = error == "EIO" and call.name == "readlinkat"
            findings += [f"{where}: {text}" for text in series.findings(unread)]

    report(f"restore with {points.tried} of {len(possible)} errors injected", findings)


@needs_strace
def test_a_link_that_the_safety_checkpoint_cannot_read_is_left_and_named(folder: Path) -> None:
    """Without it in a checkpoint no undo could bring it back."""
    series, met = Series(folder, fast=True), 0
    for call in series.calls("readlinkat"):
        done = series.disturbed(call, f"error=EIO:when={call.number}+")
        if done.returncode:
            met += 1
            assert series.findings(unread=True) == [], call
        else:
            assert disk(series.root) == series.target or '"kept": []' not in done.stdout, call
    assert met


def _may_fail(call: Call, error: str) -> bool:
    # What the interpreter and SQLite read is not ours; a text that cannot be printed is nobody's loss.
    # So are shared libraries that cannot be loaded: the command line makes a sentence of that, the child of these tests does not.
    if any(part in call.text for part in ("/lib/python", "/src/keepfast", "/ld.so.cache", ".so.", '.so"')):
        return False
    if call.name in ("read", "fstat", "newfstatat", "fcntl", "getdents64", "pread64"):
        return "/work/" in call.text and "/.keepfast/workspace.json" not in call.text
    if error in ("EROFS", "ENOSPC") and call.name == "openat":
        return WRITING.search(call.text) is not None
    return not call.text.startswith(("1<", "2<"))


@needs("mount")
def test_a_restore_that_has_no_room_is_refused_before_anything_is_touched(folder: Path) -> None:
    (folder / "work").mkdir()
    with tmpfs(folder / "work", "size=3m"):
        ground = Ground(folder)
        ground.put("big", os.urandom(2 << 20))
        ground.put("a", "old\n")
        ground.save()
        (ground.root / "big").unlink()
        ground.put("a", "new\n")
        ground.put("full", os.urandom((2 << 20) + (1 << 19)))
        ground.save()
        before, version = disk(ground.root), ground.saver.version()

        with pytest.raises(DiskFull, match="MB") as told:
            ground.restore(1, "big", "a")

        assert "Nothing was changed" in told.value.hint
        assert disk(ground.root) == before
        assert ground.saver.version() == version
        assert ground.restorer().cut_off() is None
        ground.restore(1)  # the whole: what is deleted makes room
        assert (ground.root / "big").stat().st_size == 2 << 20
        ground.close()


@needs("mount")
def test_a_disk_that_fills_up_during_a_restore_leaves_both_ways_open(folder: Path) -> None:
    """The journal is in the store, on another disk; what others write meanwhile takes the room."""
    (folder / "work").mkdir()
    with tmpfs(folder / "work", "size=4m"):
        ground = Ground(folder)
        for number in range(6):
            ground.put(f"file{number}", os.urandom(200_000))
        ground.save()
        target = disk(ground.root)
        for number in range(6):
            (ground.root / f"file{number}").unlink()
        before = disk(ground.root)

        def fill(preview: object) -> bool:
            return True

        restoring = ground.restorer()
        filler = ground.root / ".keepfast/filler"
        room = os.statvfs(ground.root)
        from keepfast.model import steps

        def observe(name: str) -> None:
            if name == "restore:journal":
                filler.write_bytes(bytes(room.f_bavail * room.f_frsize - 500_000))

        steps.observer = observe
        try:
            with pytest.raises(DiskFull, match="full"):
                restoring.restore(restoring._checkpoint(1), ask=fill)
        finally:
            steps.observer = None
        assert disk(ground.root) == before
        assert ground.restorer().cut_off() is None  # nothing was touched yet: there is nothing to take back
        filler.unlink()
        ground.restore(1)
        assert disk(ground.root) == target
        ground.close()


@needs("mount")
def test_too_few_inodes_are_noticed_before_anything_is_touched(folder: Path) -> None:
    (folder / "work").mkdir()
    with tmpfs(folder / "work", "size=8m,nr_inodes=60"):
        ground = Ground(folder)
        for number in range(30):
            ground.put(f"file{number}", "old\n")
        ground.save()
        for number in range(30):
            (ground.root / f"file{number}").unlink()
        for number in range(25):
            ground.put(f"other/file{number}", "other\n")
        ground.save()
        before = disk(ground.root)

        with pytest.raises(DiskFull, match="files"):
            ground.restore(1, *[f"file{number}" for number in range(30)])

        assert disk(ground.root) == before
        assert errno.ENOSPC
        ground.close()
