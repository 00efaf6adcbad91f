"""An agent's output on its way to a file: whole lines, bounded, without the secrets that it was given, and without others."""

from __future__ import annotations

import os
from time import sleep

from keepfast.runner.process.redaction import Lines
from keepfast.runner.process.spellings import forms

LONGEST = 8 << 20
"""A longer line is cut."""
CUT = b"[line cut by keepfast]\n"
MARK = b"[secret]"
APART = 100_000_000
"""Nanoseconds between two notes of when lines came."""
MOST_OWED, LOOKS = 1 << 20, 60
"""So much that a full disk had no room for is kept, and for so many seconds it is tried again after the agent has ended."""


class Stream:
    """One output of the agent on its way to a file: whole lines, secrets stripped, bounded.

    Beside the file lies another, `….times`, a line for each part: the offset of its first byte, and when it was written.
    """

    def __init__(self, path: str, secrets: list[str], most: int) -> None:
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.times = os.open(path + ".times", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.noted_at = 0
        self.forms = forms(secrets)
        self.lines = Lines()
        self.rest = b""
        self.cutting = False
        self.left = most
        self.owed = b""
        """What a full disk had no room for; the end of it is what matters most."""

    def write(self, part: bytes) -> None:
        if self.cutting:
            _, end, part = part.partition(b"\n")
            if not end:
                return
            self.cutting = False
        lines, newline, self.rest = (self.rest + part).rpartition(b"\n")
        if newline:
            self._put(lines + newline)
        if len(self.rest) > LONGEST:
            self.rest, self.cutting = b"", True
            self._put(CUT)

    def close(self) -> None:
        if self.rest:
            self._put(self.rest + b"\n")
            self.rest = b""
        for _ in range(LOOKS):
            if not self.owed:
                break
            sleep(1.0)
            self._pay()
        if self.fd >= 0:
            os.close(self.fd)
            os.close(self.times)
            self.fd = self.times = -1

    def _put(self, data: bytes) -> None:
        for form in self.forms:
            if form in data:
                data = data.replace(form, MARK)
        data = self.lines.clean(data)
        if len(data) > self.left:
            data, self.left = (CUT, 0) if self.left > 0 else (b"", 0)
        self.left -= len(data)
        self.owed += data
        self._pay()
        if len(self.owed) > MOST_OWED:
            self.owed = CUT + self.owed[-MOST_OWED:].partition(b"\n")[2]

    def _pay(self) -> None:
        """Write what is owed. A full disk costs lines of the log at the worst, never the agent."""
        try:
            while self.owed:
                count = os.write(self.fd, self.owed)
                self.owed = self.owed[count:]
                self._note(count)
        except OSError:
            pass

    def _note(self, count: int) -> None:
        """Say when the last bytes were written: the file itself knows."""
        seen = os.fstat(self.fd)
        if abs(seen.st_mtime_ns - self.noted_at) >= APART:
            self.noted_at = seen.st_mtime_ns
            os.write(self.times, f"{seen.st_size - count} {seen.st_mtime_ns}\n".encode())
