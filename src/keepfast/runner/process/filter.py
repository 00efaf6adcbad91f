"""Filter between an agent's output and its log file: whole lines, bounded in size, secrets redacted."""

from __future__ import annotations

import os
from time import sleep

from keepfast.runner.process.redaction import Lines
from keepfast.runner.process.spellings import forms

MAX_LINE_BYTES = 8 << 20
"""A longer line is cut."""
CUT = b"[line cut by keepfast]\n"
MARK = b"[secret]"
RECORD_INTERVAL = 100_000_000
"""Nanoseconds between two records of write times."""
MAX_UNWRITTEN_BYTES, RETRY_SECONDS = 1 << 20, 60
"""Bytes that are buffered while the disk is full, and seconds for which writing them is retried after the agent has ended."""


class OutputWriter:
    """Writes one output of the agent to a file: whole lines, secrets redacted, bounded in size.

    The file `….times` beside it has a line for each part: the offset of its first byte, and when it was written.
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
        self.unwritten = b""
        """Output that could not be written because the disk is full; if it is too long, its end is kept."""

    def write(self, part: bytes) -> None:
        if self.cutting:
            _, end, part = part.partition(b"\n")
            if not end:
                return
            self.cutting = False
        lines, newline, self.rest = (self.rest + part).rpartition(b"\n")
        if newline:
            self._put(lines + newline)
        if len(self.rest) > MAX_LINE_BYTES:
            self.rest, self.cutting = b"", True
            self._put(CUT)

    def close(self) -> None:
        if self.rest:
            self._put(self.rest + b"\n")
            self.rest = b""
        for _ in range(RETRY_SECONDS):
            if not self.unwritten:
                break
            sleep(1.0)
            self._write_out()
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
        self.unwritten += data
        self._write_out()
        if len(self.unwritten) > MAX_UNWRITTEN_BYTES:
            self.unwritten = CUT + self.unwritten[-MAX_UNWRITTEN_BYTES:].partition(b"\n")[2]

    def _write_out(self) -> None:
        """Write the buffered output. A full disk may cost lines of the log, but never stops the agent."""
        try:
            while self.unwritten:
                count = os.write(self.fd, self.unwritten)
                self.unwritten = self.unwritten[count:]
                self._note(count)
        except OSError:
            pass

    def _note(self, count: int) -> None:
        """Record when the last bytes were written, by the file's own time."""
        seen = os.fstat(self.fd)
        if abs(seen.st_mtime_ns - self.noted_at) >= RECORD_INTERVAL:
            self.noted_at = seen.st_mtime_ns
            os.write(self.times, f"{seen.st_size - count} {seen.st_mtime_ns}\n".encode())
