"""The interactive client in a tmux session that nobody else sees: type, press keys, wait for what is on the screen."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
import uuid
from types import TracebackType

import pytest

from tests.equipment import programs

from .bench import Bench

PROMPT = r"(?m)^\s*[❯>]"
"""The line on which the client waits for a prompt."""
ATTEMPTS = 5


class Terminal:
    """One interactive client; ends with the `with` block."""

    def __init__(
        self, bench: Bench, *arguments: str, program: tuple[str, ...] = (), columns: int = 160, lines: int = 50
    ) -> None:
        if programs.find("tmux", "tmux") is None:
            pytest.skip("THE INTERACTIVE CLIENT WAS NOT TESTED: tmux is not installed, and cannot be here.")
        self._bench = bench
        self._server = f"keepfast-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        variables = [f"{name}={value}" for name, value in bench.environment().items()]
        client = shlex.join(["env", "-i", *variables, *(program or (str(bench.client.path),)), *arguments])
        self._tmux(
            *("-f", "/dev/null", "new-session", "-d", "-s", "client", "-x", str(columns), "-y", str(lines)),
            *("-c", str(bench.project), f"{client}; echo ENDED=$?; sleep 600"),
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._tmux("kill-server")

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "client")

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", "-t", "client", *keys)

    def type(self, text: str) -> None:
        """Type and press Enter; again, where a busy client took the key for a part of what was typed."""
        self._tmux("send-keys", "-t", "client", "-l", text)
        self.wait(re.escape(text))
        for _ in range(ATTEMPTS):
            time.sleep(0.5)  # the client tells typing from pasting by the time between keys
            self.press("Enter")
            time.sleep(1.0)
            if text not in self._last_prompt():
                return

    def _last_prompt(self) -> str:
        lines = re.findall(PROMPT + ".*", self.screen())
        return lines[-1] if lines else ""

    def wait(self, pattern: str, seconds: float = 90) -> str:
        """The screen, once the pattern is on it. Fails with what is there instead."""
        until = time.monotonic() + seconds
        while True:
            screen = self.screen()
            if re.search(pattern, screen):
                return screen
            if time.monotonic() > until:
                raise AssertionError(f"{pattern!r} did not come up:\n{screen}")
            time.sleep(0.1)

    def _tmux(self, *arguments: str) -> str:
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self._bench.home), "LANG": "C.UTF-8"}
        done = subprocess.run(
            ["tmux", "-L", self._server, *arguments],
            capture_output=True,
            text=True,
            env={**environment, "TERM": "xterm-256color"},
        )
        return done.stdout
