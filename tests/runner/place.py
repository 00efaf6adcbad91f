"""A supervisor of its own for each test: fresh folders, a scripted agent, times in fractions of seconds."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keepfast.app.wiring import build
from keepfast.runner.actions import taskfile
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.tasks import Tasks
from keepfast.runner.domain.options import Options
from keepfast.runner.domain.records import Task
from keepfast.runner.scheduler.attempts import Threads
from keepfast.runner.scheduler.supervisor import Supervisor
from keepfast.settings import Settings
from tests.equipment.folders import written

AGENT = Path(__file__).parents[2] / "tools" / "scripted_agent.py"
QUICK = Options(
    tick=0.2, reconcile=0.5, backoff_first=0.2, backoff_longest=1, limit_jitter_least=0, limit_jitter_most=0, stagger=0.1,
    stop_grace=1, pause_grace=1, concurrency=4, notify_bell=False,
)  # fmt: skip
PHASE = {"name": "Only", "prompt": "", "verify": "", "review": False}


def say_phase(number: int) -> dict[str, str]:
    return {"say": f"=== PHASE {number} COMPLETE ===\nReady for review."}


DONE = {"say": "=== CUSTOM TASK COMPLETE ===\nSummary: all of it"}


class Place:
    """Folders, tables, tasks; `supervise` runs the supervisor in this process until nothing goes on by itself."""

    def __init__(self, base: Path, options: Options = QUICK) -> None:
        self.base = base.resolve()
        self.home, self.data = self.base / "home", self.base / "data"
        for folder in (self.home, self.data):
            folder.mkdir(exist_ok=True)
        self.options = options
        self.variables = {"HOME": str(self.home), "PATH": os.environ["PATH"], "TZ": "UTC", "LANG": "C.UTF-8"}
        self.ahead = 0
        self.runtime = self.make_runtime()
        self.tasks = Tasks(self.runtime)

    def make_runtime(self) -> Runtime:
        settings = Settings()
        home = os.fsencode(self.home)
        return Runtime(
            str(self.data / "supervisor"),
            self.options,
            self.now,
            self.variables,
            lambda: build(settings, str(self.data), home, self.now),
            folders=written(self.home)[1:],
        )

    def now(self) -> int:
        return time.time_ns() + self.ahead

    def close(self) -> None:
        self.runtime.close()

    def shown(self, task: Task) -> Any:
        """Return everything about a task as JSON."""
        return self.tasks.views.show(task.id)

    def lose_database(self) -> None:
        """The database is gone, and another is made; what lies in the workspaces stays."""
        self.close()
        if self.options.database:
            from tests.equipment import postgres

            postgres.sweep(self.options.database)
        for path in (self.data / "supervisor").glob("*.db*"):
            path.unlink()
        self.runtime = self.make_runtime()
        self.tasks = Tasks(self.runtime)

    # Tasks

    def workspace(self, name: str = "work") -> Path:
        folder = self.base / name
        folder.mkdir(exist_ok=True)
        return folder

    def agent(self, name: str, *turns: list[dict[str, Any]]) -> dict[str, Any]:
        """An agent that plays these turns, one per start."""
        script = self.base / f"{name}.script.json"
        script.write_text(json.dumps({"turns": turns}))
        return {"command": [sys.executable, str(AGENT), str(script), str(self.base / f"{name}.journal")]}

    def task(self, *turns: list[dict[str, Any]], name: str = "work", start: bool = True, **keys: Any) -> Task:
        spec = {"brief": "Do it.", "workspace": str(self.workspace(name)), "agent": self.agent(name, *turns), **keys}
        return self.tasks.new(taskfile.check(spec, str(self.base)), start=start)

    def journal(self, name: str = "work") -> list[str]:
        path = self.base / f"{name}.journal"
        return path.read_text().splitlines() if path.exists() else []

    def told(self, name: str = "work") -> list[str]:
        """What the agent was given on standard input, start by start."""
        return [json.loads(line) for line in (self.base / f"{name}.journal.told").read_text().splitlines()]

    # The supervisor

    def supervise(self, until: Callable[[], bool] | None = None, seconds: float = 60) -> None:
        """Run until nothing goes on without a person, or `until` says so."""
        workflows = Threads(self.runtime)
        supervisor = Supervisor(self.runtime, workflows)
        try:
            supervisor.reconcile()
            end = time.monotonic() + seconds
            while True:
                supervisor.tick()
                if until is not None and until():
                    return
                if until is None and not supervisor.is_waiting():
                    return
                assert time.monotonic() < end, self.explain()
                if time.monotonic() - supervisor._reconciled > self.options.reconcile:
                    supervisor.reconcile()
                time.sleep(0.05)
        finally:
            workflows.close()

    def state(self, task: Task) -> tuple[str, str]:
        row = self.runtime.tables.task(task.id)
        return tuple(self.runtime.tables.state(row))  # type: ignore[return-value]

    def holds(self, task: Task, kind: str) -> Callable[[], bool]:
        return lambda: self.state(task)[1] == kind

    def events(self, task: Task) -> list[str]:
        return [event["type"] for event in self.tasks.views.log(task.id)]

    def outcomes(self, task: Task) -> list[str]:
        return [run.outcome for run in self.runtime.tables.runs("task = ?", task.id)]

    def reasons(self, task: Task) -> list[str]:
        rows = self.runtime.tables.all(
            "SELECT reason FROM checkpoint WHERE task = ? ORDER BY made_at, version", task.id
        )
        return [row["reason"] for row in rows]

    def __str__(self) -> str:
        return self.explain()

    __repr__ = __str__

    def explain(self) -> str:
        tasks = [(task["id"], task["state"], task["hold"], task["reason"]) for task in self.tasks.views.listing()]
        rows = self.runtime.tables.all("SELECT * FROM event ORDER BY sequence DESC LIMIT 15")
        return f"{tasks}\n" + "\n".join([f"{row['type']} {row['facts']}" for row in rows])
