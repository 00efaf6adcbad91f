"""The steps of a run made durable by DBOS: one short workflow per attempt. Only the supervisor imports this.

The rows of DBOS can be lost without harm: every step checks our own rows for whether it was done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event as Flag
from threading import Lock
from typing import Any, ClassVar

from dbos import DBOS, DBOSConfig, SetWorkflowID
from dbos._serialization import DBOSPortableJSONSerializer
from sqlalchemy import create_engine, event

from keepfast.model.steps import step
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.scheduler import observation, runs
from keepfast.runner.scheduler.attempts import log_trouble
from keepfast.runner.scheduler.conclusion import settle

VERSION = "1"
"""The version of the workflow's steps. Workflows of another version are cancelled and started again from our rows."""
THREADS = 256
NAME = "keepfast-supervisor"


class _Here:
    """The state of the one supervisor of this process: DBOS registers functions, not objects."""

    runtime: Runtime | None = None
    halt = Flag()
    active: ClassVar[set[str]] = set()
    lock = Lock()


def _ground() -> Runtime:
    assert _Here.runtime is not None
    return _Here.runtime


class StepFailed(Exception):
    """A step failed; the reason is in the task's log."""


@contextmanager
def _logged(run: str) -> Iterator[None]:
    """Log the error of a step ourselves, redacted, and hide it from DBOS, which would store it unredacted."""
    try:
        yield
    except Exception as error:
        log_trouble(_ground(), run, error)
        raise StepFailed("the task's log says why") from None


@DBOS.step(name="baseline")
def _baseline(run: str) -> None:
    with _logged(run):
        runs.baseline(_ground(), run)
        step("run:baseline")


@DBOS.step(name="spawn")
def _spawn(run: str) -> None:
    with _logged(run):
        runs.spawn(_ground(), run)


@DBOS.step(name="observe")
def _observe(run: str) -> bool:
    with _logged(run):
        done = observation.observe(_ground(), run, _Here.halt)
        step("run:observed")
        return done


@DBOS.step(name="settle")
def _settle(run: str) -> None:
    with _logged(run):
        settle(_ground(), run)


@DBOS.workflow(name="run", max_recovery_attempts=None)
def _run(run: str) -> str:
    # DBOS may recover a workflow at launch while reconcile has started another for the same run: one of them is enough.
    with _Here.lock:
        if run in _Here.active:
            return "elsewhere"
        _Here.active.add(run)
    try:
        _baseline(run)
        _spawn(run)
        if not _observe(run):
            return "halted"
        _settle(run)
        return "settled"
    except StepFailed:
        return "trouble"
    except Exception as error:
        log_trouble(_ground(), run, error)
        return "trouble"
    finally:
        with _Here.lock:
            _Here.active.discard(run)


class Durable:
    """Workflows on DBOS: SQLite beside our tables, or PostgreSQL where the settings give its address."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        _Here.runtime, _Here.halt = runtime, Flag()
        _Here.active = set()
        config: DBOSConfig = {
            "name": NAME,
            "application_version": VERSION,
            "executor_id": runtime.host,
            "serializer": DBOSPortableJSONSerializer(),
            "run_migrations": True,
            "max_executor_threads": THREADS,
            "log_level": "ERROR",
            "enable_otlp": False,
        }
        if runtime.options.database:
            config["system_database_url"] = runtime.options.database.replace("postgres://", "postgresql://", 1)
        else:
            path = runtime.folder + "/workflows.db"
            config["system_database_url"] = f"sqlite:///{path}"
            config["system_database_engine"] = _engine(path)
        self.dbos = DBOS(config=config)
        DBOS.launch()
        self._cancel_foreign()

    def start(self, run: str) -> None:
        if self.is_busy(run):
            return
        # An interrupted workflow keeps its id: the same run continues in a new one, with the same steps.
        with SetWorkflowID(f"run:{run}:{os.urandom(4).hex()}"):
            DBOS.start_workflow(_run, run)

    def is_busy(self, run: str) -> bool:
        with _Here.lock:
            return run in _Here.active

    def close(self) -> None:
        _Here.halt.set()
        DBOS.destroy(workflow_completion_timeout_sec=10)
        _Here.runtime = None

    def _cancel_foreign(self) -> None:
        """Cancel workflows of another version, which would stay pending for ever; reconcile takes over their runs."""
        for status in DBOS.list_workflows(status=["PENDING", "ENQUEUED"], load_input=False, load_output=False):
            if status.app_version != VERSION:
                DBOS.cancel_workflow(status.workflow_id)


def _engine(path: str) -> Any:
    """Open SQLite with the settings of our own tables: DBOS' default journal loses acknowledged rows at a power cut."""
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 30})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: object) -> None:
        connection.isolation_level = "IMMEDIATE"
        for line in ("busy_timeout=30000", "journal_mode=TRUNCATE", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {line}")
        os.chmod(path, 0o600)

    return engine
