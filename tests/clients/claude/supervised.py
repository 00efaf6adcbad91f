"""A supervisor whose agent is the real client on a bench."""

from __future__ import annotations

from typing import Any

from keepfast.runner.actions import taskfile
from keepfast.runner.domain.options import Options
from keepfast.runner.domain.records import Task
from tests.runner.place import QUICK, Place

from .bench import Bench
from .endpoint import Reply, call, say, use

DONE = say("=== CUSTOM TASK COMPLETE ===\nSummary: all")


class ClientPlace(Place):
    """A supervisor whose agent is the real client on a bench."""

    def __init__(self, bench: Bench, options: Options = QUICK) -> None:
        self.bench = bench
        super().__init__(bench.base, options.but(stop_grace=5, pause_grace=20))
        self.variables.update(bench.environment(), CLAUDE_CODE_MAX_RETRIES="1")

    def client(self) -> dict[str, Any]:
        return {"kind": "claude", "command": [str(self.bench.client.path)], "permission_mode": "bypassPermissions"}

    def ask(self, start: bool = True, **keys: Any) -> Task:
        spec = {"brief": "Do the work.", "workspace": str(self.bench.project), "agent": self.client(), **keys}
        return self.tasks.new(taskfile.check(spec, str(self.base)), start=start)

    def requests(self) -> int:
        return len(self.bench.endpoint.main_requests())

    def last_request(self) -> str:
        return self.bench.endpoint.main_requests()[-1].texts()


def bash(command: str, **options: Any) -> Reply:
    return call(use("Bash", command=command, description="work"), **options)
