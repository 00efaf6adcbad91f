"""A full disk: one clear sentence, nothing lost, and a way out that works on the full disk."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from .disks import formatted, needs, tmpfs
from .stage import Stage, listed, report
from .workload import BALLAST

ROUNDS = 10
"""Times that the disk is filled and freed again, in the campaign."""
DISKS = {
    "tmpfs": lambda folder: tmpfs(folder, "size=6m"),
    "tmpfs with few inodes": lambda folder: tmpfs(folder, "size=64m,nr_inodes=40"),
    "ext4": lambda folder: formatted(folder, "ext4", 16),
}


@needs("mount", "mkfs.ext4", "losetup")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", DISKS)
def test_a_full_disk_is_told_in_a_sentence_and_forget_frees_it(name: str, folder: Path, campaign: bool) -> None:
    disk: AbstractContextManager[Path] = DISKS[name](folder / "disk")
    with disk as mount:
        filling = _Filling(Stage(folder, extra=BALLAST, store=mount / "store"))
        for _ in range(ROUNDS if campaign else 2):
            filling.fill()
            filling.free()

    report(f"{name}, filled with {filling.saves} saves in {filling.rounds} rounds", filling.findings)


class _Filling:
    """Saves until the disk is full, forgets, compacts, and saves again."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.findings = stage, list[str]()
        self.number = self.saves = self.rounds = 0

    def fill(self) -> None:
        """Every save brings its own random bytes; the one that fails must say so and change nothing."""
        stage = self.stage
        for _ in range(2000):
            self.number += 1
            stage.put(self.number)
            done = stage.hook()
            if done.returncode:
                break
            self.saves += 1
            stage.acknowledged.add(self.number)
        else:
            raise AssertionError("the disk did not fill up")
        self.number -= 1
        self.rounds += 1
        if done.returncode != 1 or "full" not in done.stderr or done.stderr.count("\n") != 1:
            self._find(f"the failing save ended with {done.returncode} and said {done.stderr!r}")

    def free(self) -> None:
        stage = self.stage
        self._look("while full")
        keep = set(sorted(stage.acknowledged)[-2:])
        forgotten = stage.acknowledged - keep
        done = stage.driver("forget", "--versions", listed(forgotten))
        if done.returncode:
            self._find(f"forget on the full disk: {done.stderr}")
            return
        stage.acknowledged = keep
        self._look("after forget")
        done = stage.driver("compact")
        if done.returncode:
            self._find(f"compaction on the full disk: {done.stderr}")
            return
        if not (stage.store / "reserve").exists():
            self._find("the reserve was not made again")
        for finding in stage.audit():
            self._find(f"after compaction: {finding}")
        self.number = max(stage.acknowledged) + 1  # the audit has saved once
        stage.acknowledged.add(self.number)

    def _look(self, when: str) -> None:
        for finding in self.stage.audit(saving=False):
            self._find(f"{when}: {finding}")

    def _find(self, text: str) -> None:
        self.findings.append(f"round {self.rounds}: {text}")
