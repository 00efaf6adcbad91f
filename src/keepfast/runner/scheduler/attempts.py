"""Execution of the steps of a run: the port `Workflows`, and `Threads`, which needs no workflow engine."""

from __future__ import annotations

from threading import Event as Flag
from threading import Thread
from typing import Protocol

from keepfast.model.errors import KeepfastError
from keepfast.model.steps import step
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.scheduler import observation, runs
from keepfast.runner.scheduler.conclusion import settle


class Workflows(Protocol):
    """Carries out the steps of runs. See `Threads` here and `Durable` in `workflows.py`."""

    def start(self, run: str) -> None:
        """Start or continue a run, at most once at the same time."""

    def is_busy(self, run: str) -> bool: ...

    def close(self) -> None:
        """Stop observing; agents live on."""


def carry_out(runtime: Runtime, run: str, halt: Flag) -> None:
    """Carry out all steps of a run in order; each skips itself if it was done before."""
    runs.baseline(runtime, run)
    step("run:baseline")
    runs.spawn(runtime, run)
    if observation.observe(runtime, run, halt):
        step("run:observed")
        settle(runtime, run)


class Threads:
    """Workflows without an engine: a thread per run. `Supervisor.reconcile` takes over interrupted ones."""

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
    """Log the error of a step, one that is a bug with its class; reconcile tries again."""
    expected = isinstance(error, KeepfastError | OSError)
    why = str(error) if expected else f"{type(error).__name__}: {error}"
    try:
        with runtime.tables.write() as tables:
            tables.log(tables.run(run).task, runtime.now(), "trouble", {"error": why}, run)
    except KeepfastError:
        runtime.problem = why  # the disk may be full
