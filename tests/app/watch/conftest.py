"""Fixtures of the tests of watching: a project, and real watchers of it that end with the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.equipment.box import SOURCE, Box

PATIENCE = 60.0


class Watcher:
    """`keepfast watch --json` in a process of its own."""

    def __init__(self, box: Box, words: Sequence[str], before: Sequence[str], path: str) -> None:
        self.log = box.base / f"watch-{time.monotonic_ns()}"
        with open(self.log, "wb") as file:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "keepfast", "watch", "--json", *words],
                cwd=box.project,
                env={**box.variables, "PYTHONPATH": f"{path}{os.pathsep}{SOURCE}" if path else str(SOURCE)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def said(self) -> list[dict[str, Any]]:
        """The lines so far; an error comes in several and stands by itself."""
        lines = self.log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith('{"event"') and line.endswith("\n")]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.said() if line["event"] == kind]

    def versions(self) -> list[str]:
        return [line["checkpoint"]["version"] for line in self.events("saved")]

    def until(self, claim: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not claim():
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A protected project with one checkpoint."""
    box = Box(tmp_path)
    box.now = time.time_ns()
    assert box.call("init").code == 0
    box.put("src/a.py", "one\n")
    box.save()
    return box


@pytest.fixture
def watch(box: Box) -> Iterator[Callable[..., Watcher]]:
    """Starts a watcher and waits until it watches."""
    started: list[Watcher] = []

    def start(*words: str, before: Sequence[str] = (), path: str = "") -> Watcher:
        quick = ("--settle", "0.3", "--at-most", "1")
        started.append(Watcher(box, words or quick, before, path))
        started[-1].until(lambda: bool(started[-1].events("watching")) or started[-1].process.poll() is not None)
        return started[-1]

    yield start
    for watcher in started:
        if watcher.process.poll() is None:
            watcher.process.kill()
        watcher.process.wait()
