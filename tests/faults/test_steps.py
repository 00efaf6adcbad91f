"""A process killed at any named step of any write loses nothing that was acknowledged."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from .stage import Stage, report
from .workload import LARGE, MANY

SAMPLE = 4
"""Points of each scenario in the short run."""


class Scenario:
    """A command on a prepared store. `mend` is what a person runs next if the command was cut off."""

    def __init__(
        self,
        prepare: Callable[[Stage], None],
        command: str,
        *arguments: object,
        extra: str = "",
        forgets: frozenset[int] = frozenset(),
        mend: str = "",
    ) -> None:
        self.prepare, self.command, self.arguments = prepare, command, arguments
        self.extra, self.forgets, self.mend = extra, forgets, mend


def _nothing(stage: Stage) -> None:
    stage.put(1)


def _a_few(stage: Stage) -> None:
    stage.saved(3)
    stage.put(4)


def _many(stage: Stage) -> None:
    stage.saved(7)


def _many_forgotten(stage: Stage) -> None:
    stage.saved(8)
    stage.ask("forget", "--versions", "1,2,3,5")
    stage.acknowledged -= {1, 2, 3, 5}


def _damaged_ledger(stage: Stage) -> None:
    stage.saved(5)
    with open(stage.store / "ledger.db", "r+b") as file:
        file.write(b"no database at all" * 100)


def _damaged_pack(stage: Stage) -> None:
    """The newest version's pack: its contents are still on disk, its document follows from the ledger."""
    stage.saved(5)
    newest = max((stage.store / "packs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    _flip(newest, 30)


def _damaged_log(stage: Stage) -> None:
    stage.saved(5)
    (log,) = (path for path in (stage.store / "log").iterdir() if path.name != "store.log")
    _flip(log, log.stat().st_size // 2)


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 16
    path.write_bytes(data)


SCENARIOS = {
    "first save": Scenario(_nothing, "save"),
    "save": Scenario(_a_few, "save"),
    "save of a large file": Scenario(_a_few, "save", extra=LARGE),
    "save of many files": Scenario(_a_few, "save", extra=MANY),
    "forget": Scenario(_many, "forget", "--versions", "2,3,7", forgets=frozenset({2, 3, 7})),
    "compaction": Scenario(_many_forgotten, "compact"),
    "rebuild": Scenario(_many_forgotten, "rebuild"),
    "rebuild of a damaged ledger": Scenario(_damaged_ledger, "rebuild", mend="rebuild"),
    "repair of a pack": Scenario(_damaged_pack, "repair", mend="repair"),
    "repair of a log": Scenario(_damaged_log, "repair", mend="repair"),
    "repair of a ledger": Scenario(_damaged_ledger, "repair", mend="repair"),
}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_any_step_nothing_acknowledged_is_lost(name: str, folder: Path, campaign: bool) -> None:
    scenario = SCENARIOS[name]
    stage = Stage(folder, extra=scenario.extra)
    scenario.prepare(stage)
    stage.keep()
    points = _points(stage, scenario)
    chosen = points if campaign else _sample(points)

    findings = [finding for step, number in chosen for finding in _kill_at(stage, scenario, step, number)]

    report(f"{name} killed at {len(chosen)} of {len(points)} steps", findings)


def _points(stage: Stage, scenario: Scenario) -> list[tuple[str, int]]:
    """Every (step, occurrence) of one undisturbed run, whose result must be good as well."""
    listing = stage.folder / "steps"
    stage.ask(scenario.command, *scenario.arguments, "--steps", listing)
    report(f"{scenario.command}, undisturbed", stage.audit(_survivors(stage, scenario), scenario.forgets))
    seen: Counter[str] = Counter()
    points = []
    for step in listing.read_text().split():
        seen[step] += 1
        points.append((step, seen[step]))
    return points


def _kill_at(stage: Stage, scenario: Scenario, step: str, number: int) -> list[str]:
    stage.reset()
    stage.put(len(stage.acknowledged) + 1 if scenario.command == "save" else max(stage.acknowledged))
    killed = stage.driver(scenario.command, *scenario.arguments, "--kill", f"{step}:{number}")
    if killed.returncode != -signal.SIGKILL:
        return [f"{step} {number}: not killed, but ended with {killed.returncode}: {killed.stderr}"]
    if scenario.mend:
        mended = stage.driver(scenario.mend)
        if mended.returncode:
            return [f"{step} {number}: {scenario.mend} ended with {mended.returncode}: {mended.stderr}"]
    findings = stage.audit(_survivors(stage, scenario))
    return [f"{step} {number}: {finding}" for finding in findings]


def _survivors(stage: Stage, scenario: Scenario) -> set[int]:
    """Versions that must load whether or not the command got through."""
    return stage.acknowledged - scenario.forgets


def _sample(points: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return points if len(points) <= SAMPLE else sorted(Random(len(points)).sample(points, SAMPLE))
