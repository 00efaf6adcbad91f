"""A save that is killed, or told of an error, at any of its system calls leaves a whole store behind."""

from __future__ import annotations

import signal
from pathlib import Path
from random import Random

import pytest

from .stage import Finished, Stage, report
from .tracing import CHANGING, READING, SYNCING, Call, after_start, inject, needs_strace, trace

KILLS_IN_SAMPLE, ERRORS_IN_SAMPLE = 12, 16

SPACE = ("write", "pwrite64", "fsync", "fdatasync", "rename", "ftruncate", "mkdir", "openat")
ERRORS: dict[str, tuple[str, ...]] = {
    "EIO": CHANGING + READING,
    "ENOSPC": SPACE,
    "EDQUOT": SPACE,
    "EROFS": ("rename", "ftruncate", "unlink", "mkdir", "utimensat", "openat"),
    "EMFILE": ("openat",),
}  # fmt: skip
"""Which call can fail with which error."""


def _nothing(stage: Stage) -> None:
    stage.put(1)


def _a_few(stage: Stage) -> None:
    stage.saved(3)
    stage.put(4)


PREPARE = {"first save": _nothing, "save": _a_few}


class Series:
    """One save, traced once and then repeated with a fault at each of its calls."""

    def __init__(self, folder: Path, name: str) -> None:
        self.stage = Stage(folder)
        PREPARE[name](self.stage)
        self.number = len(self.stage.acknowledged) + 1
        self.stage.keep()
        # Once before: what a hook keeps of its settings is written the first time only, and would be counted.
        self.stage.hook()
        self.stage.reset()
        self.stage.put(self.number)
        calls, done = trace(self.stage.hook_command(), folder / "trace")
        assert done.returncode == 0, done.stderr
        self.calls = after_start(calls, folder)
        self.told = 0
        """Saves that ended with an error and said so."""

    def concerns(self, call: Call, error: str) -> bool:
        """Can this call meet this error? Reading counts if it is ours: what the interpreter loads is not our subject."""
        ours = any(path.startswith(str(self.stage.folder)) for path in call.paths())
        return call.changes or error == "EMFILE" or (error == "EIO" and ours)

    def kill_at(self, call: Call) -> list[str]:
        done = self._run(call, f"signal=KILL:when={call.number}")
        if done.returncode not in (-signal.SIGKILL, 128 + signal.SIGKILL):
            return [f"not killed, but ended with {done.returncode}"]
        return self.stage.audit()

    def fail_at(self, call: Call, error: str, *, persistent: bool) -> list[str]:
        """Clear error or success, and a whole store."""
        done = self._run(call, f"error={error}:when={call.number}{'+' if persistent else ''}")
        findings = []
        self.told += done.returncode == 1
        if done.returncode not in (0, 1):
            findings.append(f"exit code {done.returncode}")
        if "Traceback" in done.stderr or done.stderr.count("\n") > 1:
            findings.append(f"more than a sentence: {done.stderr!r}")
        # With every write failing there is nowhere left to say why.
        if done.returncode == 1 and not done.stderr and not (persistent and call.name == "write"):
            findings.append("failed without a word")
        return findings + self.stage.audit(lenient=self.number, thorough=False)

    def _run(self, call: Call, fault: str) -> Finished:
        self.stage.reset()
        self.stage.put(self.number)
        return inject(self.stage.hook_command(), call, fault)


@needs_strace
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PREPARE)
def test_killed_at_any_system_call_nothing_acknowledged_is_lost(name: str, folder: Path, campaign: bool) -> None:
    series = Series(folder, name)
    points = [call for call in series.calls if call.changes]
    chosen = points if campaign else Random(1).sample(points, KILLS_IN_SAMPLE)

    findings = []
    for call in chosen:
        findings += _told(f"{call.name} {call.number}", series.kill_at(call))

    report(f"{name} killed at {len(chosen)} of {len(points)} system calls", findings)


@needs_strace
@pytest.mark.timeout(10800)
@pytest.mark.parametrize("name", PREPARE)
def test_an_error_at_any_system_call_is_told_or_survived(name: str, folder: Path, campaign: bool) -> None:
    series = Series(folder, name)
    points = [
        (call, error, persistent)
        for call in series.calls
        for error, names in ERRORS.items()
        if call.name in names and series.concerns(call, error)
        for persistent in (False, True)
    ]
    chosen = points if campaign else Random(2).sample(points, ERRORS_IN_SAMPLE)

    findings = []
    for call, error, persistent in chosen:
        where = f"{error} at {call.name} {call.number}{' and later' if persistent else ''} ({call.text[:120]})"
        findings += _told(where, series.fail_at(call, error, persistent=persistent))

    report(f"{name} with {len(chosen)} of {len(points)} errors injected, {series.told} of them told", findings)
    assert series.told, "no error got through: nothing was injected"


@needs_strace
@pytest.mark.timeout(600)
def test_a_save_is_there_exactly_if_it_did_not_fail_at_a_sync(folder: Path) -> None:
    """SQLite can fail when all is durable, and only its journal is to be emptied yet: then the save has succeeded."""
    series = Series(folder, "save")
    log = next((series.stage.base / "log").glob("*.log")).name
    points = [call for call in series.calls if call.name in SYNCING]

    findings = []
    for call in points:
        done = series._run(call, f"error=EIO:when={call.number}")
        is_there = (series.stage.store / "log" / log).stat().st_size > (series.stage.base / "log" / log).stat().st_size
        findings += [f"{call.text}: {done.returncode}"] if is_there == bool(done.returncode) else []

    assert any("ledger.db-journal" in call.text for call in points)
    assert not findings


def _told(where: str, findings: list[str]) -> list[str]:
    """Print findings at once: a campaign takes long."""
    for finding in findings:
        print(f"{where}: {finding}", flush=True)
    return [f"{where}: {finding}" for finding in findings]
