"""A process that takes a lock and is stopped while it has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOLDER = """
import fcntl, os, signal, sqlite3, sys
if sys.argv[1].endswith(".db"):
    ledger = sqlite3.connect(sys.argv[1], isolation_level=None)
    ledger.execute("BEGIN EXCLUSIVE")
else:
    descriptor = os.open(sys.argv[1], os.O_RDONLY | (0 if os.path.isdir(sys.argv[1]) else os.O_CREAT))
    fcntl.flock(descriptor, fcntl.LOCK_EX)
print(flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextmanager
def held(path: Path) -> Iterator[int]:
    """A lock is held by a process that was stopped while it had it."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield holder.pid
        finally:
            holder.kill()
