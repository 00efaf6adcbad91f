"""A fresh home, a project and the scripted model: everything that a run of the real client needs, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.equipment.residents import end_resident

from .client import Client
from .endpoint import Endpoint, Reply, Rule

KEY = "made-up-key-0123456789"
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
}
PATIENCE = 120
RECORDER = Path(__file__).with_name("recorder.py")


class Turn(NamedTuple):
    """What a headless run said, and how it ended."""

    code: int
    events: list[dict[str, Any]]
    out: str
    err: str

    @property
    def session(self) -> str:
        return next((str(event["session_id"]) for event in self.events if event.get("session_id")), "")

    @property
    def result(self) -> dict[str, Any]:
        return next((event for event in reversed(self.events) if event.get("type") == "result"), {})


class Bench:
    """One home with one project. The client is started with an environment that is written out here, whole."""

    def __init__(self, base: Path, client: Client, *, project: str = "project", git: bool = True) -> None:
        self.base, self.client = base, client
        self.home, self.project, self.bin = base / "home", base / project, base / "bin"
        for folder in (self.home / ".claude", self.project, self.bin):
            folder.mkdir(parents=True, exist_ok=True)
        self.variables: dict[str, str] = {}
        self.endpoint = Endpoint()
        self._launcher()
        self._onboarded()
        if git:
            self._git_project()

    def close(self) -> None:
        self.endpoint.close()
        end_resident(self.home)

    def move(self, name: str) -> None:
        """From now on another project of the same user is worked in."""
        self.project = self.base / name
        self.project.mkdir()
        self._onboarded()
        self._git_project()

    # The model

    def script(self, *steps: Reply, rules: list[Rule] | None = None) -> None:
        self.endpoint.script(*steps, rules=rules or [])

    # The client

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self.endpoint.url,
            "IS_SANDBOX": "1",  # as root, the client does not skip permissions without it
            "REC_DIR": str(self.base),
            **QUIET,
            **self.variables,
        }

    def run(self, prompt: str, *arguments: str, timeout: float = PATIENCE, answer: str | None = None) -> Turn:
        """One headless run to its end. `answer` goes to standard input."""
        done = subprocess.run(
            self.command(prompt, *arguments),
            env=self.environment(),
            cwd=self.project,
            input=answer or "",
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Turn(done.returncode, _events(done.stdout), done.stdout, done.stderr)

    def start(self, prompt: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A headless run that the test ends by itself."""
        return subprocess.Popen(
            self.command(prompt, *arguments),
            env=self.environment(),
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def command(self, prompt: str, *arguments: str) -> list[str]:
        stream = ["--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions"]
        return [str(self.client.path), "-p", prompt, *stream, *arguments]

    def claude(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Any other command of the client."""
        return subprocess.run(
            [self.client.path, *arguments],
            env=self.environment(),
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def path(self, name: str) -> str:
        return str(self.project / name)

    def transcripts(self) -> list[Path]:
        """Those of main conversations, oldest first."""
        found = (self.home / ".claude" / "projects").glob("*/*.jsonl")
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)

    # keepfast

    def keepfast(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.bin / "keepfast", *arguments],
            env={**self.environment(), "NO_COLOR": "1"},
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if check and done.returncode:
            raise AssertionError(f"keepfast {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def checkpoints(self) -> list[dict[str, Any]]:
        """Newest first; none where nobody protects the project yet."""
        listed = self.keepfast("list", "--json", "--limit", "1000", check=False)
        return list(json.loads(listed.stdout)) if listed.returncode == 0 else []

    def settle(self) -> list[dict[str, Any]]:
        """Wait until nothing is pending any more; return the checkpoints, newest first."""
        waiting = self.home / ".local/share/keepfast/store/workspaces"
        assert self.wait_for(lambda: not list(waiting.glob("*/pending/*"))), "events stay pending"
        return self.checkpoints()

    def unsaved(self) -> list[str]:
        """Paths that differ from the newest checkpoint."""
        return [change["path"] for change in json.loads(self.keepfast("status", "--json").stdout)["changes"]]

    def wait_for(self, found: Callable[[], Any], seconds: float = 90) -> Any:
        """Ask until there is something: what a detached worker makes comes when it comes."""
        until = time.monotonic() + seconds
        while True:
            value = found()
            if value or time.monotonic() > until:
                return value
            time.sleep(0.1)

    # Settings of the client

    @property
    def settings_path(self) -> Path:
        return self.home / ".claude" / "settings.json"

    def settings(self, value: Mapping[str, Any]) -> None:
        self.settings_path.write_text(json.dumps(value, indent=2))

    def record(self, *events: str) -> None:
        """Let the recorder run at these events, beside the hooks that are there."""
        settings = json.loads(self.settings_path.read_text()) if self.settings_path.exists() else {}
        for event in events:
            entry = {"type": "command", "command": f"/usr/bin/python3 {str(RECORDER)!r} {event}", "timeout": 10}
            settings.setdefault("hooks", {}).setdefault(event, []).append({"hooks": [entry]})
        self.settings(settings)

    def recorded(self, event: str = "") -> list[dict[str, Any]]:
        """Payloads that the recorder was given, in order."""
        try:
            lines = (self.base / "events.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if not event or entry["hook_event_name"] == event]

    # Set-up

    def put(self, path: str, text: str | bytes) -> Path:
        target = self.project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        return target

    def _launcher(self) -> None:
        script = self.bin / "keepfast"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m keepfast "$@"\n')
        script.chmod(0o755)

    def _onboarded(self) -> None:
        """The answers to the questions that the interactive client asks in a fresh home."""
        trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True, "allowedTools": []}
        answers = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "numStartups": 3,
            "bypassPermissionsModeAccepted": True,
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
            "projects": {str(self.project): trusted},
        }
        (self.home / ".claude.json").write_text(json.dumps(answers))

    def _git_project(self) -> None:
        (self.project / "README.md").write_text("hello\n")
        identity = ["-c", "user.name=dev", "-c", "user.email=dev@example.invalid"]
        for command in (["init", "-q", "-b", "main", "."], ["add", "."], [*identity, "commit", "-qm", "begin"]):
            subprocess.run(
                ["git", *command],
                cwd=self.project,
                check=True,
                env={"PATH": "/usr/bin:/bin", "HOME": str(self.home), "GIT_CONFIG_GLOBAL": "/dev/null"},
            )


def end(process: subprocess.Popen[bytes], how: int = signal.SIGKILL) -> int:
    """End a client that the test started, and wait for it."""
    os.kill(process.pid, how)
    return process.wait(timeout=30)


def _events(out: str) -> list[dict[str, Any]]:
    events = []
    for line in out.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events
