"""Where the resident is found: the lock file that it holds, which names its process and its socket."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass

from keepfast.fsutil.durable import make_folders, write_all
from keepfast.resident.protocol import MAGIC

FOLDER, LOCK, SOCKET, LOG = "/resident", "/lock", "/socket", "/log"
MAX_SOCKET_PATH = 100
"""The system allows 107 bytes, on some systems 103."""
MAX_LOCK_BYTES = 1024


@dataclass(frozen=True)
class Address:
    """What the lock file says."""

    process: int
    socket: str


def folder_of(data: str) -> str:
    """Return the resident's folder in keepfast's data folder."""
    return data + FOLDER


def read(data: str) -> Address | None:
    """Return the address in the lock file; None if there is none. Whether the process still runs is another question."""
    try:
        fd = os.open(folder_of(data) + LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(fd, MAX_LOCK_BYTES)
    except OSError:
        return None
    finally:
        os.close(fd)
    lines = text.split(b"\n")
    if len(lines) < 4 or lines[0] != MAGIC or not lines[1].isdigit():
        return None
    return Address(int(lines[1]), os.fsdecode(lines[2]))


def is_held(data: str) -> bool:
    """Return whether a process holds the lock."""
    try:
        fd = os.open(folder_of(data) + LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


class HeldLock:
    """The lock of the one resident. It ends with the process."""

    def __init__(self, data: str, fd: int) -> None:
        self.data, self.fd = data, fd

    @classmethod
    def take(cls, data: str) -> HeldLock | None:
        """Return the lock; None if another process holds it. Raises `OSError`."""
        make_folders(folder_of(data))
        os.chmod(folder_of(data), 0o700)
        path = folder_of(data) + LOCK
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o600)
        except IsADirectoryError:
            os.rmdir(path)  # somebody's mistake; one that is not empty is left to them
            fd = os.open(path, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return cls(data, fd)

    def publish(self, socket: str) -> None:
        """Write the address into the lock file; before that, clients find an old one where nobody listens."""
        text = MAGIC + b"\n" + str(os.getpid()).encode() + b"\n" + os.fsencode(socket) + b"\n"
        os.ftruncate(self.fd, 0)
        os.lseek(self.fd, 0, os.SEEK_SET)
        write_all(self.fd, text)

    def is_in_place(self) -> bool:
        """Return whether clients still find this very file."""
        try:
            seen = os.stat(folder_of(self.data) + LOCK, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(seen, os.fstat(self.fd))

    def release(self) -> None:
        """Empty the file, so that clients need not try the socket, and let go of the lock."""
        try:
            os.ftruncate(self.fd, 0)
        except OSError:
            pass  # they will find that nobody listens
        os.close(self.fd)
