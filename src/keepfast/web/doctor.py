"""The results of `keepfast doctor` for the health page, cached for a minute."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

CACHE_SECONDS = 60.0
TIMEOUT_SECONDS = 60
ELSEWHERE = frozenset(("workspace", "git"))
"""Checks of the current folder, which a server does not have."""


class DoctorCheck(NamedTuple):
    """The result of one check. `level`: fine, note or problem."""

    name: str
    level: str
    text: str
    advice: str


class Doctor:
    """`find()` may be called from any thread; `clock` counts seconds."""

    def __init__(self, variables: Mapping[bytes, bytes], home: bytes, clock: Callable[[], float]) -> None:
        self.variables, self.home, self.clock = dict(variables), home, clock
        self._lock, self._checks, self._at = threading.Lock(), list[DoctorCheck](), -CACHE_SECONDS

    def find(self) -> list[DoctorCheck]:
        """Return all checks, at most a minute old."""
        with self._lock:
            if self.clock() - self._at >= CACHE_SECONDS:
                self._checks, self._at = self._run_doctor(), self.clock()
            return self._checks

    def _run_doctor(self) -> list[DoctorCheck]:
        words = [sys.executable, "-m", "keepfast", "doctor", "--json"]
        try:
            done = subprocess.run(
                words,
                cwd=self.home,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT_SECONDS,
            )
            checks = json.loads(done.stdout)["checks"]
            rows = [DoctorCheck(one["name"], one["level"], one["text"], one["advice"]) for one in checks]
            return [one for one in rows if one.name not in ELSEWHERE]
        except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
            return [DoctorCheck("doctor", "problem", f"`keepfast doctor` failed: {type(error).__name__}.", "")]
