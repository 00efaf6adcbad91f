"""What `keepfast doctor` finds, for the health page: the program is asked, and its answer serves for a minute."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

KEPT = 60.0
PATIENCE = 60
ELSEWHERE = frozenset(("workspace", "git"))
"""Checks of the folder that somebody stands in; a page stands in none."""


class Doctor:
    """`find()` may be called from any thread; `clock` counts seconds."""

    def __init__(self, variables: Mapping[bytes, bytes], home: bytes, clock: Callable[[], float]) -> None:
        self.variables, self.home, self.clock = dict(variables), home, clock
        self._lock, self._found, self._at = threading.Lock(), list[dict[str, Any]](), -KEPT

    def find(self) -> list[dict[str, Any]]:
        """Name, level (fine, note, problem), text and advice of each check."""
        with self._lock:
            if self.clock() - self._at >= KEPT:
                self._found, self._at = self._ask(), self.clock()
            return self._found

    def _ask(self) -> list[dict[str, Any]]:
        words = [sys.executable, "-m", "keepfast", "doctor", "--json"]
        try:
            done = subprocess.run(
                words,
                cwd=self.home,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
            )
            checks = json.loads(done.stdout)["checks"]
            return [one for one in checks if one["name"] not in ELSEWHERE]
        except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
            return [
                {
                    "name": "doctor",
                    "level": "problem",
                    "text": f"It could not be asked: {type(error).__name__}.",
                    "advice": "",
                }
            ]
