"""Which user of this machine has the other end of a connection, where the kernel tells."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Address = tuple[str, int]

TABLES = {socket.AF_INET: "/proc/net/tcp", socket.AF_INET6: "/proc/net/tcp6"}
ESTABLISHED = "01"
LOCAL, REMOTE, STATE, USER = 1, 2, 3, 7
"""Columns of these tables."""


class LocalUsers:
    """The users of the connections that are open, by the address of the other end."""

    def __init__(self) -> None:
        self._known: dict[Address, int] = {}

    def add(self, client: Address, server: Address) -> None:
        user = user_of(client, server)
        if user is not None:
            self._known[client] = user

    def remove(self, client: Address) -> None:
        self._known.pop(client, None)

    def of(self, client: Address | None) -> int | None:
        return self._known.get(client) if client is not None else None

    def is_another(self, client: Address | None) -> bool:
        """Is it somebody else on this machine than the user who runs the page?"""
        user = self.of(client)
        return user is not None and user != os.geteuid()


def user_of(client: Address, server: Address) -> int | None:
    """Return the id of the user whose socket `client` is; None for another machine, or where nobody tells."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    try:
        wanted = [_form(family, *client), _form(family, *server)]
        with open(TABLES[family], encoding="ascii") as table:
            for line in table:
                words = line.split()
                # A socket that its owner has closed belongs to nobody, and shows as root's.
                if words[LOCAL : REMOTE + 1] == wanted and words[STATE] == ESTABLISHED:
                    return int(words[USER])
    except (OSError, ValueError, IndexError):
        pass
    return None


def _form(family: socket.AddressFamily, host: str, port: int) -> str:
    """An address as the kernel writes it: words of 32 bits in the machine's own order."""
    packed = socket.inet_pton(family, host)
    words = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
    return "".join([f"{word:08X}" for word in words]) + f":{port:04X}"


users = LocalUsers()
"""Of this process."""
