"""The ancestors of this process, read from /proc; none on macOS."""

from __future__ import annotations

from os import O_CLOEXEC, O_NOFOLLOW, O_RDONLY, close, getppid, read, readlink
from os import open as open_fd

MAX_BYTES, MAX_ANCESTORS = 4096, 256
SHELLS = ("sh", "dash", "bash", "zsh", "ksh", "ash", "busybox")


def ancestors() -> list[int]:
    """Return the ids of our ancestor processes, nearest first; none if the system has no /proc."""
    processes: list[int] = []
    process = getppid()
    while process > 0 and len(processes) < MAX_ANCESTORS:
        fields = read_start(f"/proc/{process}/stat").rpartition(b")")[2].split()
        if len(fields) < 2:
            break
        processes.append(process)
        process = int(fields[1])
    return processes


def nearest_program() -> int:
    """Return the nearest ancestor that is not a shell: for a hook started by a launcher, the client. 0 if unknown."""
    for process in ancestors():
        try:
            program = readlink(f"/proc/{process}/exe")
        except OSError:
            return 0
        if program.rpartition("/")[2] not in SHELLS:
            return process
    return 0


def read_start(path: str) -> bytes:
    """Return the first bytes of a file; empty if it cannot be read."""
    try:
        fd = open_fd(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
    except OSError:
        return b""
    try:
        return read(fd, MAX_BYTES)
    except OSError:
        return b""
    finally:
        close(fd)
