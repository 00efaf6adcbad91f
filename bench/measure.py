"""Measuring: one command as a new process, its time and memory, and medians with their spread."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import TypeVar

LAUNCHER = [sys.executable, "-I", "-S", "-B", str(Path(__file__).with_name("launch.py"))]
TIMEOUT = 3600.0
# ru_maxrss counts kilobytes on Linux and bytes on macOS.
RSS_UNIT = 1 if sys.platform == "darwin" else 1024

Named = TypeVar("Named")


class Failed(Exception):
    """A measured command ended with an error; the text holds its last lines."""


@dataclass(frozen=True)
class Usage:
    """What one save used: seconds, bytes, and what the command said."""

    wall: float
    cpu: float
    rss: int
    output: str = ""

    def __add__(self, other: Usage) -> Usage:
        joined = self.output + other.output
        return Usage(self.wall + other.wall, self.cpu + other.cpu, max(self.rss, other.rss), joined)


@dataclass(frozen=True)
class Spread:
    """A median with its range and quartiles."""

    median: float
    low: float
    high: float
    first_quartile: float
    third_quartile: float


@dataclass(frozen=True)
class Summary:
    """All runs of one tool in one case."""

    runs: int
    wall: Spread
    cpu: Spread
    rss: int

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def run(command: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float = TIMEOUT) -> Usage:
    """Run the command as a new process and return what it and its children used.

    Children that detach themselves are not counted. Raises `Failed` on any exit code but 0 and after the timeout.
    """
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        raise Failed(f"`{command[0]}` is not installed.")
    shown = " ".join([os.path.basename(program), *command[1:3]])
    with tempfile.NamedTemporaryFile(prefix="bench-output-") as output:
        # A session of its own: an interrupt kills the command with all its children, never half of them.
        launcher = subprocess.Popen(
            [*LAUNCHER, output.name, program, *command[1:]],
            cwd=cwd,
            env=dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            report, problem = launcher.communicate(timeout=timeout)
        except BaseException as interruption:
            os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()
            if isinstance(interruption, subprocess.TimeoutExpired):
                raise Failed(f"`{shown}` did not end within {timeout:.0f} s.") from None
            raise
        said = Path(output.name).read_text(errors="replace")
    if launcher.returncode:
        raise Failed(f"`{shown}` could not be started: {problem.strip()[-300:]}")
    code, wall, cpu, rss = report.split()
    if int(code):
        raise Failed(f"`{shown}` ended with {code}: {' / '.join(said.strip().splitlines()[-4:])}")
    return Usage(float(wall), float(cpu), int(rss) * RSS_UNIT, said)


def summarise(usages: Sequence[Usage]) -> Summary:
    """Return medians with their spread; the memory is the highest of all runs."""
    walls = [usage.wall for usage in usages]
    cpus = [usage.cpu for usage in usages]
    return Summary(len(usages), spread(walls), spread(cpus), max(usage.rss for usage in usages))


def spread(values: Sequence[float]) -> Spread:
    if len(values) < 2:
        return Spread(values[0], values[0], values[0], values[0], values[0])
    first, _, third = quantiles(values, n=4, method="inclusive")
    return Spread(median(values), min(values), max(values), first, third)


def shuffled(items: Sequence[Named], chance: random.Random) -> list[Named]:
    """Return the items in a random order: each round of a case asks anew, so that no tool always follows another."""
    return chance.sample(list(items), len(items))


def interleave(
    actions: Mapping[str, Callable[[], Usage]], rounds: int, chance: random.Random
) -> Iterator[tuple[str, Usage]]:
    """Run every action once a round, in a new random order each time."""
    for _ in range(rounds):
        for name in shuffled(list(actions), chance):
            yield name, actions[name]()
