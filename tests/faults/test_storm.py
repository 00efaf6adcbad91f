"""Many writers in one workspace, killed at random: whatever any of them was told is saved, is saved."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from keepfast.store.maintenance.verify import verify
from keepfast.workspace.marker import identity

from .audit import compact_patiently, leftovers, open_engine
from .stage import Stage, report

WRITERS = 4
SECONDS, SECONDS_IN_SAMPLE = 600, 12


@pytest.mark.timeout(3600)
def test_a_storm_of_kills_loses_nothing(folder: Path, campaign: bool) -> None:
    stage = Stage(folder)
    (stage.work / "beginning.txt").write_text("so that there is a first version\n")
    stage.ask("save")
    storm = _Storm(stage)

    storm.rage(SECONDS if campaign else SECONDS_IN_SAMPLE)

    report(f"storm of {storm.kills} kills, {len(storm.acknowledged)} acknowledgements", storm.look())


class _Storm:
    def __init__(self, stage: Stage) -> None:
        self.stage, self.random = stage, Random(7)
        self.kills = self.started = 0
        self.acknowledged: list[tuple[str, int, int]] = []
        self.errors: list[str] = []

    def rage(self, seconds: float) -> None:
        """Keep the writers running; each is killed at some moment of its life, and followed by another."""
        end = time.monotonic() + seconds
        alive = {slot: self._start(slot) for slot in range(WRITERS)}
        deaths = {slot: self._death() for slot in alive}
        try:
            while time.monotonic() < end:
                slot = min(deaths, key=lambda slot: deaths[slot])
                time.sleep(max(0.0, deaths[slot] - time.monotonic()))
                self._kill(alive[slot])
                alive[slot], deaths[slot] = self._start(slot), self._death()
        finally:
            for process in alive.values():
                self._kill(process)

    def _start(self, slot: int) -> subprocess.Popen[str]:
        self.started += 1
        command = self.stage.driver_command(
            "storm", "--writer", f"writer-{slot}", "--first", 1000 * self.started, "--count", 900
        )
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _death(self) -> float:
        return time.monotonic() + self.random.uniform(0.1, 0.8)

    def _kill(self, process: subprocess.Popen[str]) -> None:
        os.kill(process.pid, signal.SIGKILL)
        self.kills += 1
        out, err = process.communicate()
        if err:
            self.errors.append(f"a writer said: {err[-300:]}")
        for line in out.splitlines():
            if line.startswith("ACK "):
                _, writer, number, version = line.split()
                self.acknowledged.append((writer, int(number), int(version)))

    def look(self) -> list[str]:
        engine, findings = open_engine(self.stage.config), list(self.errors)
        repository, workspace = engine.repository(), identity(str(self.stage.work).encode())
        assert workspace is not None
        repository.workspace(workspace)
        for writer, number, version in self.acknowledged:
            path, wanted = f"{writer}.txt".encode(), f"{writer} {number}\n".encode()
            if version:
                entry = repository.ledger.at(workspace, version, path)
                stored = [] if entry is None else [repository.contents.load(entry.content)]
            else:  # somebody else's save had it already
                history = repository.ledger.history(workspace, path)
                stored = [
                    repository.contents.load(entry.content) for _, _, entry in history if entry.size == len(wanted)
                ]
            if wanted not in stored:
                findings.append(f"lost: {writer} was told that {number} is in v{version}")
        store = str(self.stage.store)
        findings += [problem.text for problem in verify(repository, store).problems]
        compact_patiently(repository, store)
        findings += [f"left behind: {name}" for name in leftovers(self.stage.store)]
        engine.close()
        if not self.acknowledged:
            findings.append("nothing was acknowledged at all")
        return findings
