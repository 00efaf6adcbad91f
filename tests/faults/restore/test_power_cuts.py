"""Power may fail during a restore, a forgetting or a compaction: either end can be reached, and nothing kept is lost."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.equipment.trees import disk
from tests.faults.disks import needs
from tests.faults.powerloss import Crash, Disk, crashes, read_log, recording, revived
from tests.faults.stage import Stage, listed, report
from tests.faults.test_power_loss import SIZES, Trial

from .series import Series

KIND = "ext4"
POINTS, POINTS_IN_SAMPLE = 100, 6

pytestmark = [
    needs("mount", "losetup", "mkfs.ext4", "fusermount3"),
    pytest.mark.skipif(importlib.util.find_spec("mfusepy") is None, reason="mfusepy is missing (pip install mfusepy)"),
    pytest.mark.timeout(3600),
]


class Cuts:
    """A restore on a recorded disk, and what is left of it when the power goes."""

    def __init__(self, folder: Path, *bugs: str) -> None:
        self.folder, self.tried, self.unmountable = folder, 0, 0
        with recording(folder, KIND, SIZES[KIND]) as recorded:
            self.series = Series(folder, root=recorded.mount / "work", store=recorded.mount / "store")
            os.sync()  # what was on disk before is there after any cut
            recorded.mark("READY")
            self.series.ask("restore", *bugs)
            recorded.mark("RESTORED")
            assert disk(self.series.root) == self.series.target
            self.series.ask("undo", *[word for word in bugs if word != "--unsynced"])
            recorded.mark("UNDONE")
            assert disk(self.series.root) == self.series.before

    def findings(self, points: int) -> list[str]:
        found: list[str] = []
        for crash in crashes(read_log(self.folder / "log"), SIZES[KIND], points, Random(5), "READY"):
            with revived(crash, self.folder, KIND) as mounted:
                self.tried += 1
                self.unmountable += not mounted
                what = f"cut at {crash.at} ({crash.mode} of {crash.in_flight} in flight)"
                found += [f"{what}: {text}" for text in (self._judge(crash) if mounted else [])]
        return found

    def _judge(self, crash: Crash) -> list[str]:
        series = self.series
        if "UNDONE" in crash.marks:
            return self._must_be(series.before, "undone")
        if "RESTORED" in crash.marks:
            # Between the two either end is right, and what was cut off is the undo: its ends are the other way round.
            turned = series.target, series.before
            series.before, series.target = turned
            try:
                return series.findings()
            finally:
                series.target, series.before = turned
        return series.findings()

    def _must_be(self, goal: dict[bytes, tuple[str, int, bytes]], word: str) -> list[str]:
        now = disk(self.series.root)
        found = [] if now == goal else [f"said to be {word}, and is not: {self.series.odd(now, goal)}"]
        return found if self.series.ask("status") is None else [*found, f"{word}, and there still is a journal"]


@pytest.mark.parametrize("few", [0, 1000], ids=["file system", "one by one"])
def test_a_restore_that_lost_power_can_be_finished_and_taken_back(few: int, folder: Path, campaign: bool) -> None:
    """Many files are made durable by a sync of their file system, few one by one."""
    cuts = Cuts(folder, "--few", str(few))

    findings = cuts.findings(POINTS if campaign else POINTS_IN_SAMPLE)

    report(
        f"restore and undo, synced {'one by one' if few else 'at once'}, {cuts.tried} power cuts, {cuts.unmountable} unmountable",
        findings,
    )


def test_a_restore_that_does_not_sync_is_caught(folder: Path, campaign: bool) -> None:
    """A harness that cannot fail proves nothing."""
    cuts = Cuts(folder, "--unsynced")

    findings = cuts.findings(40 if campaign else 8)

    print(f"a restore without syncs, {cuts.tried} power cuts: {len(findings)} findings")
    assert findings


SAVES = 12
OLD = range(1, 9)


def _saved(stage: Stage, recorded: Disk) -> None:
    for number in range(1, SAVES + 1):
        stage.put(number)
        assert stage.hook().returncode == 0
        recorded.mark(f"ACK {number}")


def _forgetting(*bugs: str) -> Callable[[Stage, Disk], None]:
    def workload(stage: Stage, recorded: Disk) -> None:
        _saved(stage, recorded)
        recorded.mark("READY")
        for number in OLD:
            recorded.mark(f"FORGET {number}")
            stage.ask("forget", "--versions", listed({number}), *bugs)
            recorded.mark(f"FORGOT {number}")

    return workload


def _compacting(*bugs: str) -> Callable[[Stage, Disk], None]:
    def workload(stage: Stage, recorded: Disk) -> None:
        _saved(stage, recorded)
        recorded.mark(f"FORGET {listed(OLD)}")
        stage.ask("forget", "--versions", listed(OLD))
        recorded.mark(f"FORGOT {listed(OLD)}")
        recorded.mark("READY")
        stage.ask("compact", *bugs)
        recorded.mark("COMPACTED")

    return workload


WORKLOADS = {"forgetting": _forgetting, "compaction": _compacting}
BUGS = {"forgetting": "records_unsynced", "compaction": "packs_unsynced"}


@pytest.mark.parametrize("work", WORKLOADS)
def test_what_is_kept_survives_a_power_cut_during(work: str, folder: Path, campaign: bool) -> None:
    trial = Trial(folder)
    trial.record(WORKLOADS[work]())

    trial.judge(POINTS if campaign else POINTS_IN_SAMPLE // 2, seed=6, since="READY")

    report(f"{work}: {trial}", trial.lost)


@pytest.mark.parametrize("work", WORKLOADS)
def test_a_sync_left_out_is_caught_in(work: str, folder: Path, campaign: bool) -> None:
    trial = Trial(folder)
    trial.record(WORKLOADS[work]("--mutant", BUGS[work]))

    trial.judge(60 if campaign else 8, seed=7, since="READY")

    print(f"{work} without a sync: {trial}")
    assert trial.lost
