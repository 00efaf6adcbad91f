"""One supervisor at a time: a kernel lock that ends with its holder, in a file with its process id and its current problem."""

from __future__ import annotations

import fcntl
import os

from keepfast.model.errors import Busy
from keepfast.runner.process.shims import is_locked

SIZE = 1024
"""The file always has this size: overwriting works on a full disk."""


class SupervisorLock:
    """The supervisor's lock, held as long as it runs. Raises `Busy` if another one runs."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.fd = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(self.fd, 32, 0).decode("ascii", "replace").split("\n")[0].strip()
            os.close(self.fd)
            raise Busy(
                f"A supervisor is already running (process {who or 'unknown'}).",
                "One supervisor is enough for all tasks.",
            ) from None
        self.note("")

    def note(self, problem: str) -> None:
        """Write the supervisor's current problem, for `supervisor_problem`; empty if there is none."""
        text = f"{os.getpid()}\n{' '.join(problem.split())}".encode()[: SIZE - 1]
        os.pwrite(self.fd, text.ljust(SIZE - 1) + b"\n", 0)

    def close(self) -> None:
        os.close(self.fd)


def supervisor_problem(folder: str) -> str | None:
    """Return the current problem of this folder's supervisor; empty if there is none, None if no supervisor runs."""
    path = f"{folder}/lock"
    if not is_locked(path):
        return None
    try:
        with open(path, "rb") as file:
            return file.read(SIZE).decode("utf-8", "replace").partition("\n")[2].strip()
    except OSError:
        return ""
