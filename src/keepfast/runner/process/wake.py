"""Wake the supervisor by a datagram to its socket. Nothing depends on it: the next tick comes anyway."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

NAME = "wake"
MAX_SOCKET_PATH_BYTES = 100
"""A path of a Unix socket has at most 108 bytes; longer ones are reached through the folder's descriptor."""


def wake(folder: str) -> None:
    """Wake the supervisor, if one listens."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, _Place(folder) as path:
        sender.setblocking(False)
        sender.sendto(b"!", path)


class WakeListener:
    """The supervisor's end of the socket. `wait` returns early when it is woken."""

    def __init__(self, folder: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with _Place(folder) as path:
            with suppress(FileNotFoundError):
                os.unlink(f"{folder}/{NAME}")
            self.socket.bind(path)
        os.chmod(f"{folder}/{NAME}", 0o600)

    def wait(self, seconds: float) -> bool:
        """Wait at most this long; return whether it was woken."""
        self.socket.settimeout(max(seconds, 0.001))
        try:
            self.socket.recv(16)
        except (TimeoutError, OSError):
            return False
        self.socket.setblocking(False)
        with suppress(OSError):
            while self.socket.recv(16):
                pass
        return True

    def close(self) -> None:
        self.socket.close()


class _Place:
    """A path to the socket that is short enough for the kernel."""

    def __init__(self, folder: str) -> None:
        self.folder, self.fd = folder, -1

    def __enter__(self) -> str:
        path = f"{self.folder}/{NAME}"
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
            return path
        self.fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self.fd}/{NAME}"

    def __exit__(self, *_: object) -> None:
        if self.fd >= 0:
            os.close(self.fd)
