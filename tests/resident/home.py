"""A home with installed hooks, run by the command in the client's settings, and its resident."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keepfast.app.wiring import build
from keepfast.present import resident
from keepfast.present.environment import Environment, now_ns
from keepfast.present.resident import ResidentState
from keepfast.resident import address
from keepfast.settings import load
from keepfast.state import pending_events as pending
from keepfast.state import workers
from keepfast.store.rows import CheckpointRow, Query
from tests.equipment.residents import end_resident

SESSION = "11111111-2222-4333-8444-555555555555"


class Home:
    """One user with a protected project. Each hook is started as the client starts it."""

    def __init__(self, base: Path) -> None:
        self.base, self.home, self.project = base, base / "home", base / "project"
        for folder in (self.home, self.project):
            folder.mkdir(parents=True, exist_ok=True)
        self.data = self.home / ".local/share/keepfast"
        self.variables = {"HOME": str(self.home), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
        self.calls = 0

    @property
    def environment(self) -> Environment:
        folders = (str(self.home), str(self.home / ".config"), str(self.home / ".local/share"))
        return Environment({key.encode(): value.encode() for key, value in self.variables.items()}, folders)

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "keepfast", *words],
            cwd=options.pop("cwd", self.project),
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=60,
            **options,
        )

    def install(self) -> None:
        done = self.run("install", "claude")
        assert done.returncode == 0, done.stderr

    def command(self, event: str) -> str:
        settings = json.loads((self.home / ".claude/settings.json").read_text())
        return str(settings["hooks"][event][0]["hooks"][0]["command"])

    def payload(self, event: str, **fields: Any) -> bytes:
        common = {"session_id": SESSION, "transcript_path": "", "cwd": str(self.project), "hook_event_name": event}
        return json.dumps({**common, **fields}).encode()

    def hook(self, event: str, /, **fields: Any) -> subprocess.CompletedProcess[bytes]:
        done = self.send(event, self.payload(event, **fields))
        assert done.returncode == 0, done.stderr
        return done

    def send(
        self, event: str, payload: bytes, cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["/bin/sh", "-c", self.command(event)],
            input=payload,
            capture_output=True,
            cwd=cwd or self.project,
            env={**self.variables, "CLAUDE_PID": "4242", **variables},
            timeout=60,
        )

    def begin(self) -> None:
        """Start a session, and save its baseline."""
        self.hook("SessionStart", source="startup")
        self.settle()

    def tool(self, tool: str, work: Callable[[], object], session: str = SESSION, **given: Any) -> str:
        """Call a tool that does this work; return what the agent is told of it."""
        self.calls += 1
        fields = {"tool_name": tool, "tool_use_id": f"toolu_{self.calls}", "tool_input": given, "session_id": session}
        self.hook("PreToolUse", **fields)
        work()
        done = self.hook("PostToolUse", tool_response={}, **fields)
        return json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"] if done.stdout else ""

    # The resident

    def start(self) -> ResidentState:
        resident.start(self.environment)
        seen = resident.await_start(self.environment)
        assert seen.facts is not None, seen
        return seen

    def state(self) -> ResidentState:
        return resident.state(self.environment)

    def answered(self) -> int:
        return int((self.state().facts or {"answered": -1})["answered"])

    def declined(self) -> dict[str, int]:
        return dict((self.state().facts or {})["declined"])

    def stop(self) -> None:
        """End the resident of this home, whatever state it is in."""
        end_resident(self.home)
        wait(lambda: not address.is_held(str(self.data)))

    # The store

    def checkpoints(self) -> list[CheckpointRow]:
        """Return all of them, oldest first, once nothing is pending."""
        self.settle()
        environment = self.environment
        engine = build(load(environment.config, {}, hook=True), environment.data, environment.home, now_ns)
        try:
            workspace = self.workspace()
            return list(engine.repository().find(Query(workspace=workspace, limit=1000)))[::-1]
        finally:
            engine.close()

    def header(self, row: CheckpointRow) -> dict[str, Any]:
        environment = self.environment
        engine = build(load(environment.config, {}, hook=True), environment.data, environment.home, now_ns)
        try:
            return engine.repository().document(row)[0].members
        finally:
            engine.close()

    def workspace(self) -> str:
        marker = json.loads((self.project / ".keepfast/workspace.json").read_text())
        return str(marker["id"])

    def settle(self) -> None:
        folder = str(self.data / "store/workspaces" / self.workspace())
        wait(lambda: not pending.names(folder) and workers.running_worker(folder, workers.HOOKS) is None)


def wait(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def is_running(process: int) -> bool:
    """Return whether the process has not ended yet; a zombie has."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
