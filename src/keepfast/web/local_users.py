"""Finds the local user at the other end of a connection, on Linux."""

from __future__ import annotations

import os
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Address = tuple[str, int]

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
ESTABLISHED = "01"
LOCAL, REMOTE, STATE, USER = 1, 2, 3, 7
"""Columns of these tables."""
NOBODY = -1
"""The user id of a local connection whose user is hidden."""


class LocalUsers:
    """The local users of open connections, by the address of the other end."""

    def __init__(self) -> None:
        self._user_of: dict[Address, int] = {}

    def add(self, client: Address, server: Address) -> None:
        user = user_of(client, server)
        if user is not None:
            self._user_of[client] = user

    def remove(self, client: Address) -> None:
        self._user_of.pop(client, None)

    def of(self, client: Address | None) -> int | None:
        return self._user_of.get(client) if client is not None else None

    def is_another(self, client: Address | None) -> bool:
        """Return whether the connection belongs to another local user than the one who runs the page."""
        user = self.of(client)
        return user is not None and user != os.geteuid()


def user_of(client: Address, server: Address) -> int | None:
    """Return the id of the user who owns the socket `client`; None for other machines and other systems than Linux.

    NOBODY: a local connection of which the kernel lists only our end. It is not trusted.
    """
    theirs, ours = _forms(client, server), _forms(server, client)
    is_listed = False
    for path in TABLES:
        try:
            with open(path, encoding="ascii") as table:
                for line in table:
                    words = line.split()
                    ends = tuple(words[LOCAL : REMOTE + 1])
                    # A socket that its owner has closed is listed as root's.
                    if ends in theirs and words[STATE] == ESTABLISHED:
                        return int(words[USER])
                    is_listed = is_listed or ends in ours
        except (OSError, ValueError, IndexError):
            pass
    return NOBODY if is_listed and _is_loopback(client[0]) else None


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _forms(local: Address, remote: Address) -> set[tuple[str, str]]:
    """Return both ends as the tables may write them: an IPv6 socket may be connected to an IPv4 address."""
    try:
        plain = [ip_address(host) for host, _ in (local, remote)]
    except ValueError:
        return set()
    short = [(one.ipv4_mapped or one) if isinstance(one, IPv6Address) else one for one in plain]
    long = [
        IPv6Address(b"\0" * 10 + b"\xff\xff" + one.packed) if isinstance(one, IPv4Address) else one for one in short
    ]
    ports = local[1], remote[1]
    return {(_form(ends[0].packed, ports[0]), _form(ends[1].packed, ports[1])) for ends in (short, long)}


def _form(packed: bytes, port: int) -> str:
    """Return an address as the kernel writes it: 32-bit words in native byte order."""
    words = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
    return "".join([f"{word:08X}" for word in words]) + f":{port:04X}"


users = LocalUsers()
"""The registry of this process."""
