"""A home, a project and a client's hooks, started as the client starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepfast
from keepfast.app.checkpoint import Engine
from keepfast.app.wiring import build
from keepfast.present.environment import FOLDERS, Environment, now_ns
from keepfast.settings import load
from keepfast.state import pending_events as pending
from keepfast.state import workers
from keepfast.store.rows import CheckpointRow, Query

LAUNCH = Path(keepfast.__file__).parent / "hook" / "launch.py"
PAYLOADS = Path(__file__).parent.parent / "data" / "payloads"
SESSION = "11111111-2222-4333-8444-555555555555"


class Ground:
    """One user's machine: everything below `base`."""

    def __init__(self, base: Path, git: bool = True, project: str = "project") -> None:
        self.base, self.home, self.project = base, base / "home", base / project
        self.home.mkdir(exist_ok=True)
        self.project.mkdir(exist_ok=True)
        if git:
            (self.project / ".git").mkdir()
            (self.project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        self.transcript = base / "transcript.jsonl"
        self.variables = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "CLAUDE_PID": "4242"}
        self.data = self.home / ".local/share"

    @property
    def folders(self) -> tuple[str, str, str]:
        return str(self.home), str(self.home / ".config"), str(self.data)

    @property
    def written(self) -> list[str]:
        return [FOLDERS, *self.folders]

    # The client

    def payload(self, name: str, **fields: Any) -> dict[str, Any]:
        common = {"session_id": SESSION, "transcript_path": str(self.transcript), "cwd": str(self.project)}
        return {**common, "hook_event_name": name, **fields}

    def hook(self, name: str, **fields: Any) -> subprocess.CompletedProcess[bytes]:
        return self.send(json.dumps(self.payload(name, **fields), ensure_ascii=False).encode())

    def send(self, payload: bytes, *options: str, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.command(*options),
            input=payload,
            capture_output=True,
            cwd=cwd or self.project,
            env=self.variables,
            timeout=60,
            check=False,
        )

    def command(self, *options: str) -> list[str]:
        return [sys.executable, "-I", "-S", "-B", str(LAUNCH), *self.written, "hook", "claude-code", *options]

    def tool(self, tool: str, fields: dict[str, Any] | None = None, /, **given: Any) -> dict[str, Any]:
        """What a PreToolUse answers, as the client reads it; empty for silence."""
        done = self.hook("PreToolUse", tool_name=tool, tool_input=given, tool_use_id="toolu_1", **(fields or {}))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout else {}

    def answers(self, *tokens: int, model: str = "claude-opus-5-5", **fields: Any) -> None:
        """Let the model answer with so many tokens in use."""
        with self.transcript.open("a") as file:
            for number, used in enumerate(tokens):
                usage = {"input_tokens": 3, "cache_read_input_tokens": used - 13, "output_tokens": 10}
                message = {"id": f"msg_{number}", "role": "assistant", "model": model, "content": [], "usage": usage}
                file.write(json.dumps({"type": "assistant", "isSidechain": False, "message": message, **fields}) + "\n")

    def configure(self, **sections: Any) -> None:
        place = self.home / ".config" / "keepfast"
        place.mkdir(parents=True, exist_ok=True)
        (place / "config.json").write_text(json.dumps(sections))

    # The store

    @property
    def engine(self) -> Engine:
        environment = Environment({key.encode(): value.encode() for key, value in self.variables.items()}, self.folders)
        return build(load(environment.config, {}, hook=True), environment.data, environment.home, now_ns)

    @property
    def workspace(self) -> str:
        found = self.engine.workspaces.locate(os.fsencode(self.project))
        assert found is not None, "the project is no workspace"
        return found[1]

    @property
    def folder(self) -> Path:
        return Path(self.engine.place.folder(self.workspace))

    def checkpoints(self) -> list[CheckpointRow]:
        """All of them, oldest first, once nothing is pending any more."""
        self.settle()
        engine = self.engine
        try:
            return list(engine.repository().ledger.find(Query(workspace=self.workspace, limit=1000)))[::-1]
        finally:
            engine.close()

    def triggers(self) -> list[str]:
        return [row.trigger for row in self.checkpoints()]

    def header(self, row: CheckpointRow) -> dict[str, Any]:
        engine = self.engine
        try:
            return engine.repository().document(row)[0].members
        finally:
            engine.close()

    def contents(self, row: CheckpointRow) -> dict[str, bytes]:
        """Path → content of every file of a checkpoint."""
        engine = self.engine
        try:
            repository = engine.repository()
            state = repository.ledger.state(row.workspace, row.version)
            return {
                entry.path.decode(): repository.contents.load(entry.content) for entry in state if entry.kind == "f"
            }
        finally:
            engine.close()

    def notices(self) -> list[str]:
        from keepfast.state.notices import read

        engine = self.engine
        found = read(engine.workspaces.notice_folders(os.fsencode(self.project), self.workspace))
        return [f"{notice.kind} ({notice.trigger}): {notice.text}" for notice in found]

    def settle(self, seconds: float = 20.0) -> None:
        folder = str(self.folder)
        wait(lambda: not pending.names(folder) and workers.running_worker(folder, workers.HOOKS) is None, seconds)


def wait(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
