"""Who is at the other end of a connection: only the same user, who sees the same folders, is served."""

from __future__ import annotations

import os
import socket
import struct
import sys

CREDENTIALS = struct.Struct("3i")
"""Process, user and group of `SO_PEERCRED`."""
NAMESPACES = "mnt", "user"


class Stranger(Exception):
    """The peer is not served; the text says why."""


def peer_process(connection: socket.socket) -> int:
    """Return the id of the process at the other end; 0 if the system does not tell."""
    if not sys.platform.startswith("linux"):
        return 0
    return int(CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))[0])


def check_peer(connection: socket.socket) -> None:
    """Raise `Stranger` unless the peer is this user's and lives in our namespaces."""
    if not sys.platform.startswith("linux"):
        return  # the socket lies in a folder that only its user can enter; there are no namespaces
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    process, user, _ = CREDENTIALS.unpack(raw)
    if user != os.geteuid():
        raise Stranger("another user")
    if process <= 0:
        raise Stranger("another process namespace")
    try:
        for name in NAMESPACES:
            if os.readlink(f"/proc/{process}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}"):
                raise Stranger(f"another {name} namespace")
        if not os.path.samestat(os.stat(f"/proc/{process}/root"), os.stat("/")):
            raise Stranger("another root folder")
    except OSError as error:
        raise Stranger(f"its namespaces cannot be compared: {error.strerror}") from None


def check_folder(descriptor: int, path: bytes) -> None:
    """Raise `Stranger` unless the path leads to the folder behind the descriptor."""
    try:
        same = os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError as error:
        raise Stranger(f"its current folder cannot be compared: {error.strerror}") from None
    if not same:
        raise Stranger("its current folder is another one here")
