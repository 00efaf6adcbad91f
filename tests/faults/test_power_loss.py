"""Power may fail at any moment: what was acknowledged is there afterwards; and planted bugs do not go unnoticed."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from .disks import missing, needs
from .powerloss import MARK, Disk, crashes, read_log, recording, revived
from .stage import Stage, listed, report
from .workload import MANY

SIZES = {"ext4": 32, "btrfs": 128, "xfs": 320}
POINTS, POINTS_IN_SAMPLE = 200, 12
ROWS, KEEPFAST = "the ledger's own rows", "keepfast"
MUTANTS = {
    "packs_unsynced": KEEPFAST,
    "records_unsynced": KEEPFAST,
    "ledger_normal": ROWS,
    "acknowledged_before_commit": ROWS,
    "acknowledged_before_record": KEEPFAST,
}
"""Where a planted bug must show. What only the ledger loses, keepfast adopts again from the logs."""

pytestmark = [
    needs("mount", "losetup", "mkfs.ext4", "fusermount3"),
    pytest.mark.skipif(importlib.util.find_spec("mfusepy") is None, reason="mfusepy is missing (pip install mfusepy)"),
]


class Trial:
    """A workload on a recorded disk, and the judgement of what is left of it after crashes."""

    def __init__(self, folder: Path, kind: str = "ext4", extra: str = "") -> None:
        self.folder, self.kind, self.extra = folder, kind, extra
        self.points = self.broken = self.unmountable = 0
        self.rows_lost: list[str] = []
        """Level 1: rows of acknowledged versions that the ledger itself has lost, before anything is adopted."""
        self.lost: list[str] = []
        """Level 2: what keepfast cannot give back or finds wrong."""

    def record(self, workload: Callable[[Stage, Disk], None]) -> None:
        with recording(self.folder, self.kind, SIZES[self.kind]) as disk:
            workload(self._stage(), disk)

    def judge(self, points: int, seed: int, since: str = "START") -> None:
        """Crash at that many points after this mark and look."""
        entries = read_log(self.folder / "log")
        assert sum(entry.kind == MARK for entry in entries) > 5, "the workload acknowledged nothing"
        for crash in crashes(entries, SIZES[self.kind], points, Random(seed), since):
            self.points += 1
            what = f"crash at {crash.at} ({crash.mode} of {crash.in_flight} in flight)"
            with revived(crash, self.folder, self.kind) as mounted:
                if not mounted:
                    self.unmountable += 1
                    continue
                self._look(what, crash.marks)

    def _look(self, what: str, marks: list[str]) -> None:
        # Each crash is a world of its own: one in which no store was made yet has not used the store of another one.
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        stage = self._stage()
        acknowledged, hidden = promised(marks)
        if acknowledged:
            rows = stage.driver("rows")
            gone = acknowledged - set(json.loads(rows.stdout)) if rows.returncode == 0 else acknowledged
            if gone:
                self.rows_lost.append(
                    f"{what}: rows of {sorted(gone)} (exit code {rows.returncode}) {rows.stderr[-200:]}"
                )
        findings = stage.audit(acknowledged, hidden, thorough=False)
        self.broken += bool(findings)
        self.lost += [f"{what}: {finding}" for finding in findings]

    def _stage(self) -> Stage:
        """The workspace is on the same disk: it loses its unsynced files as well, and must still be known."""
        mount = self.folder / "mount"
        return Stage(self.folder, extra=self.extra, store=mount / "store", work=mount / "work")

    def __str__(self) -> str:
        counts = f"{len(self.rows_lost)} lost rows, {self.broken} broke promises, {self.unmountable} are unmountable"
        return f"{self.kind}, {self.points} crashes, of which {counts}"


def promised(marks: list[str]) -> tuple[set[int], set[int]]:
    """Versions that must load, and versions that must stay hidden, after these marks.

    From `FORGET v` on nothing is promised about v, until `FORGOT v`.
    """
    acknowledged, hidden = set[int](), set[int]()
    for mark in marks:
        word, _, rest = mark.partition(" ")
        versions = {int(part) for part in rest.split(",") if part}
        if word == "ACK":
            acknowledged |= versions
        elif word == "FORGET":
            acknowledged -= versions
        elif word == "FORGOT":
            hidden |= versions
    return acknowledged, hidden


def _hooks(stage: Stage, disk: Disk) -> None:
    """Every save is a hook process of its own, as an agent starts it, the first one included."""
    for number in range(1, 16):
        stage.put(number)
        done = stage.hook()
        assert done.returncode == 0, done.stderr
        disk.mark(f"ACK {number}")


def _upkeep(stage: Stage, disk: Disk) -> None:
    """Saves, forgetting and compaction take turns."""
    for number in range(1, 16):
        stage.put(number)
        done = stage.hook()
        assert done.returncode == 0, done.stderr
        disk.mark(f"ACK {number}")
        if number % 4 == 0:
            old = {number - 3, number - 2}
            disk.mark(f"FORGET {listed(old)}")
            stage.ask("forget", "--versions", listed(old))
            disk.mark(f"FORGOT {listed(old)}")
            stage.ask("compact")


def _planted(mutant: str, saves: int) -> Callable[[Stage, Disk], None]:
    """The first version is made by the real thing; then one long-lived process with the bug in it."""

    def workload(stage: Stage, disk: Disk) -> None:
        stage.put(1)
        assert stage.hook().returncode == 0
        disk.mark("ACK 1")
        planted = ["--mutant", mutant] if mutant else []
        stage.ask("saves", "--first", 2, "--count", saves, "--mark", disk.mark_file, *planted)

    return workload


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("workload", "extra"),
    [(_hooks, ""), (_hooks, MANY), (_upkeep, ""), (_planted("", 20), "")],
    ids=["hooks", "many files", "upkeep", "one process"],
)
def test_no_acknowledged_checkpoint_is_lost_to_a_power_cut(
    workload: Callable[[Stage, Disk], None], extra: str, folder: Path, campaign: bool
) -> None:
    trial = Trial(folder, extra=extra)
    trial.record(workload)

    trial.judge(POINTS if campaign else POINTS_IN_SAMPLE // 3, seed=1)

    report(str(trial), trial.rows_lost + trial.lost)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["btrfs", "xfs"])
def test_no_acknowledged_checkpoint_is_lost_on_other_file_systems(kind: str, folder: Path, campaign: bool) -> None:
    if not campaign:
        pytest.skip("part of the campaign only")
    if missing(f"mkfs.{kind}"):
        pytest.skip(missing(f"mkfs.{kind}"))
    trial = Trial(folder, kind)
    trial.record(_upkeep)

    trial.judge(60, seed=2)

    report(str(trial), trial.rows_lost + trial.lost)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_bug_is_caught(mutant: str, folder: Path, campaign: bool) -> None:
    """A harness that cannot fail proves nothing."""
    trial = Trial(folder)
    trial.record(_planted(mutant, 20))

    trial.judge(60 if campaign else 10, seed=3)

    print(f"{mutant}: {trial}")
    assert trial.rows_lost if MUTANTS[mutant] == ROWS else trial.lost
