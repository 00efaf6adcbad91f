"""End the resident of a home that a test made, whatever state it is in."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def end_resident(home: Path) -> None:
    """Kill the resident whose home folder this is. Only the command line of a process counts, never a file that a test wrote."""
    own = os.fsencode(str(home))
    for process in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if words[-2:-1] == [b"resident"] and own in words:
                os.kill(process, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue
