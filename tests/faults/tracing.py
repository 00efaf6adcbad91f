"""What strace shows of a process, and faults that it injects into one."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from .stage import Finished, run

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing (Debian: strace)")

CHANGING = (
    "write", "pwrite64", "fsync", "fdatasync", "rename", "ftruncate", "unlink", "mkdir", "link", "utimensat", "flock",
    "openat",
)  # fmt: skip
"""Calls that change something that outlives the process, or wait to; of `openat` only those that may write."""
SYNCING = ("fsync", "fdatasync")
"""What they promise holds from their end on."""
READING = ("read", "pread64", "newfstatat", "getdents64", "fcntl")
WRITING = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC)")
LINE = re.compile(r"(?:(\d+) +)?(\w+)\((.*)")
RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>")


class Call(NamedTuple):
    """One system call: its name, the how-many-th of that name, and the rest of the line."""

    name: str
    number: int
    text: str

    @property
    def changes(self) -> bool:
        return self.name in CHANGING and (self.name != "openat" or WRITING.search(self.text) is not None)

    def paths(self) -> list[str]:
        """Paths of descriptors and arguments, in the order of the line."""
        return [one or other for one, other in re.findall(r'\d+<(/[^>]*)>|"(/[^"]*)"', self.text)]

    def renamed(self) -> tuple[str, str]:
        """The old and the new name, of a rename."""
        old, new = self.paths()[:2]
        return old, new


def trace(command: list[str], log: Path, *injected: str) -> tuple[list[Call], Finished]:
    """Run a command; return every file-related call, with paths for descriptors."""
    names = ",".join((*CHANGING, *READING, "close"))
    done = run(["strace", "-f", "-qq", "-y", "-s", "40", "-o", str(log), "-e", f"trace={names}", *injected, *command])
    return parse(log.read_text(errors="replace")), done


def parse(text: str) -> list[Call]:
    """Return the calls in a log of strace, in order: that of their begin, and of their end where others come between."""
    seen: Counter[str] = Counter()
    calls = []
    begun: dict[tuple[str, str], Call] = {}
    for line in text.splitlines():
        found, resumed = LINE.match(line), RESUMED.match(line)
        if found:
            seen[found[2]] += 1
            call = Call(found[2], seen[found[2]], found[3])
            if call.name in SYNCING and line.endswith("<unfinished ...>"):
                begun[found[1], call.name] = call
            else:
                calls.append(call)
        elif resumed and resumed[2] in SYNCING:
            calls += [call for call in [begun.pop((resumed[1], resumed[2]), None)] if call is not None]
    return calls


def after_start(calls: list[Call], folder: Path) -> list[Call]:
    """Calls from the first one on that concerns our folder: before, the interpreter starts."""
    first = next(at for at, call in enumerate(calls) if any(path.startswith(str(folder)) for path in call.paths()))
    return calls[first:]


def inject(command: list[str], call: Call, fault: str, timeout: float = 120) -> Finished:
    """Run a command with a fault at one call; `fault` is strace's: `signal=KILL:when=3`, `error=EIO:when=3+`.

    `when=` counts calls of one name, so a point is a name and a number. `--seccomp-bpf` must not be used: strace 6.1
    then injects nothing and says nothing.
    """
    injected = ["-e", f"trace={call.name}", "-e", f"inject={call.name}:{fault}"]
    return run(["strace", "-f", "-qq", "-o", os.devnull, *injected, *command], timeout)
