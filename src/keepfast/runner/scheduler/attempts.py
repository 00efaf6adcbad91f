"""Whoever carries out the steps of run attempts: the port, and threads that need no engine."""

from __future__ import annotations

from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from keepfast.model.errors import KeepfastError
from keepfast.model.steps import step
from keepfast.runner.scheduler import observation, runs
from keepfast.runner.scheduler.conclusion import settle

if TYPE_CHECKING:
    from keepfast.runner.actions.runtime import Runtime


class Workflows(Protocol):
    """Whoever carries out the steps of runs."""

    def start(self, run: str) -> None:
        """Begin, or go on with, a run; at most one at a time for the same run."""

    def is_busy(self, run: str) -> bool: ...

    def close(self) -> None:
        """Stop observing; agents live on."""


def carry_out(runtime: Runtime, run: str, halt: Flag) -> None:
    """All steps of a run attempt, in order; each skips itself if it was done."""
    runs.baseline(runtime, run)
    step("run:baseline")
    runs.spawn(runtime, run)
    if observation.observe(runtime, run, halt):
        step("run:observed")
        settle(runtime, run)


class Threads:
    """Workflows without any engine: a thread per run. What is cut off is found again by `reconcile`."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.halt = runtime, Flag()
        self.threads: dict[str, Thread] = {}
        self.done: Flag = Flag()

    def start(self, run: str) -> None:
        if self.is_busy(run):
            return
        thread = Thread(target=self._run, args=(run,), name=run, daemon=True)
        self.threads[run] = thread
        thread.start()

    def is_busy(self, run: str) -> bool:
        thread = self.threads.get(run)
        return thread is not None and thread.is_alive()

    def close(self) -> None:
        self.halt.set()
        for thread in list(self.threads.values()):
            thread.join(10)

    def _run(self, run: str) -> None:
        try:
            carry_out(self.runtime, run, self.halt)
        except Exception as error:
            log_trouble(self.runtime, run, error)
        finally:
            self.threads.pop(run, None)


def log_trouble(runtime: Runtime, run: str, error: Exception) -> None:
    """What a step could not do is kept in the log, a fault of ours with its name; reconcile tries again."""
    expected = isinstance(error, KeepfastError | OSError)
    why = str(error) if expected else f"{type(error).__name__}: {error}"
    try:
        with runtime.tables.write() as tables:
            tables.log(tables.run(run).task, runtime.now(), "trouble", {"error": why}, run)
    except KeepfastError:
        runtime.trouble = why  # there is no room even for that
