"""End the resident of a home that a test made, whatever state it is in."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

BEGINNING_SECONDS = 1.0
"""A resident that was asked to start may be seen only after so long."""


def end_resident(home: Path, begun: float = 0.0) -> None:
    """Kill the resident whose home folder this is; `begun`: when it was asked to start.

    Only the command line of a process counts, never a file that a test wrote.
    """
    while not _kill(os.fsencode(str(home))) and 0 <= time.time() - begun < BEGINNING_SECONDS:
        time.sleep(0.05)


def _kill(home: bytes) -> bool:
    killed = False
    for process in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if words[-2:-1] == [b"resident"] and home in words:
                os.kill(process, signal.SIGKILL)
                killed = True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return killed
