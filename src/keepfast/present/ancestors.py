"""The processes above this one, as far as the system tells of them; macOS does not."""

from __future__ import annotations

from posix import O_CLOEXEC, O_NOFOLLOW, O_RDONLY, close, getppid, read, readlink
from posix import open as open_fd

MOST, HIGHEST = 4096, 256
SHELLS = ("sh", "dash", "bash", "zsh", "ksh", "ash", "busybox")


def ancestors() -> list[int]:
    """The processes above us, nearest first; none where the system does not tell."""
    found: list[int] = []
    process = getppid()
    while process > 0 and len(found) < HIGHEST:
        said = content(f"/proc/{process}/stat").rpartition(b")")[2].split()
        if len(said) < 2:
            break
        found.append(process)
        process = int(said[1])
    return found


def program_above() -> int:
    """The nearest process above us that is no shell: the client of a hook that a launcher started. 0 where nobody knows."""
    for process in ancestors():
        try:
            program = readlink(f"/proc/{process}/exe")
        except OSError:
            return 0
        if program.rpartition("/")[2] not in SHELLS:
            return process
    return 0


def content(path: str) -> bytes:
    """The beginning of a small file; empty if it cannot be read."""
    try:
        fd = open_fd(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
    except OSError:
        return b""
    try:
        return read(fd, MOST)
    except OSError:
        return b""
    finally:
        close(fd)
