"""Finds the local user at the other end of a connection, on Linux."""

from __future__ import annotations

import os
import socket
import struct
import sys
from errno import ENOENT
from ipaddress import IPv4Address, IPv6Address, ip_address

Address = tuple[str, int]
Host = IPv4Address | IPv6Address

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
ESTABLISHED = 1
LOCAL, REMOTE, STATE, USER = 1, 2, 3, 7
"""Columns of these tables."""
NOBODY = -1
"""The user id of a local connection whose user is hidden, or that has ended. It is not trusted."""

# linux/sock_diag.h and linux/inet_diag.h: one socket is asked for by its two ends.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLMSG_ERROR = 4, 20, 1, 2
HEADER = struct.Struct("=LHHLL")
REQUEST = struct.Struct("=BBBxL")
ENDS = struct.Struct("!HH16s16s")
ANY_INTERFACE_AND_COOKIE = struct.pack("=LLL", 0, 0xFFFFFFFF, 0xFFFFFFFF)
ANSWER = struct.Struct("=BBBB48sLLLLL")
"""Family, state, timer, retransmissions; ends, interface and cookie; expiry, both queues, user, inode."""
ANSWER_SECONDS = 1.0


class LocalUsers:
    """The local users of open connections, by the address of the other end.

    A user is looked up when a request needs it, and once for a connection. Requests without a session or a ticket need none: so
    many connections of somebody who has neither cost no look-up.
    """

    def __init__(self) -> None:
        self._server_of: dict[Address, Address] = {}
        self._user_of: dict[Address, int | None] = {}

    def add(self, client: Address, server: Address) -> None:
        self._server_of[client] = server

    def remove(self, client: Address) -> None:
        self._server_of.pop(client, None)
        self._user_of.pop(client, None)

    def of(self, client: Address | None) -> int | None:
        if client is None or client not in self._server_of:
            return None
        if client not in self._user_of:
            self._user_of[client] = user_of(client, self._server_of[client])
        return self._user_of[client]

    def is_another(self, client: Address | None) -> bool:
        """Return whether the connection belongs to another local user than the one who runs the page."""
        user = self.of(client)
        return user is not None and user != os.geteuid()


def user_of(client: Address, server: Address) -> int | None:
    """Return the id of the user who owns the socket `client`; None for other machines and other systems than Linux.

    NOBODY: a local connection of which the kernel lists only our end, or that has ended.
    """
    hosts = _plain(client), _plain(server)
    if hosts[0] is None or hosts[1] is None or sys.platform != "linux":
        return None
    theirs, ours = (hosts[0], client[1]), (hosts[1], server[1])
    user: int | None
    try:
        user = _asked_user(theirs, ours)
    except OSError:
        user = _listed_user(theirs, ours)
    return None if user == NOBODY and not hosts[0].is_loopback else user


def _asked_user(local: tuple[Host, int], remote: tuple[Host, int]) -> int:
    """Ask the kernel about one socket: the cost does not depend on how many there are.

    Raises `OSError` if this kernel does not answer such questions.
    """
    row = _ask(local, remote)
    if row is None and _ask(remote, local) is None:
        # The connection has ended, or the kernel lacks the module: it gives the same error for both.
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT))
    # A socket that its owner has closed is listed as root's.
    return row[1] if row is not None and row[0] == ESTABLISHED else NOBODY


def _ask(local: tuple[Host, int], remote: tuple[Host, int]) -> tuple[int, int] | None:
    """Return state and user of the socket with these ends; None if there is none."""
    family = socket.AF_INET if local[0].version == 4 else socket.AF_INET6
    ends = ENDS.pack(local[1], remote[1], local[0].packed, remote[0].packed)
    body = REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends + ANY_INTERFACE_AND_COOKIE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(ANSWER_SECONDS)
        kernel.sendall(HEADER.pack(HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0) + body)
        answer = kernel.recv(8192)
    kind = HEADER.unpack_from(answer)[1]
    if kind == NLMSG_ERROR:
        number = -int.from_bytes(answer[HEADER.size : HEADER.size + 4], sys.byteorder, signed=True)
        if number == ENOENT:
            return None
        raise OSError(number, os.strerror(number))
    if kind != SOCK_DIAG_BY_FAMILY or len(answer) < HEADER.size + ANSWER.size:
        raise OSError("The answer is none about a socket.")
    _, state, _, _, found, _, _, _, user, _ = ANSWER.unpack_from(answer, HEADER.size)
    # In place of a connection that has ended, the kernel may name a socket that listens at the same port.
    return (state, user) if found[:4] == ends[:4] else (0, NOBODY)


def _listed_user(local: tuple[Host, int], remote: tuple[Host, int]) -> int | None:
    """Look for the socket in the tables of all sockets, which takes longer the more there are."""
    theirs, port, is_listed = _forms(local, remote), f":{remote[1]:04X}", False
    for path in TABLES:
        try:
            with open(path, encoding="ascii") as table:
                for line in table:
                    words = line.split()
                    # A socket that its owner has closed is listed as root's.
                    if tuple(words[LOCAL : REMOTE + 1]) in theirs and int(words[STATE], 16) == ESTABLISHED:
                        return int(words[USER])
                    # The socket that listens has our port, too, and stays when a connection has ended.
                    is_listed = is_listed or words[LOCAL].endswith(port)
        except (OSError, ValueError, IndexError):
            pass
    return NOBODY if is_listed else None


def _plain(address: Address) -> Host | None:
    """Return the host, IPv4 if it is an IPv4-mapped address; None if the text is no address."""
    try:
        host = ip_address(address[0].partition("%")[0])
    except ValueError:
        return None
    return host.ipv4_mapped or host if isinstance(host, IPv6Address) else host


def _forms(local: tuple[Host, int], remote: tuple[Host, int]) -> set[tuple[str, str]]:
    """Return both ends as the tables may write them: an IPv6 socket may be connected to an IPv4 address."""
    short = [host.packed for host, _ in (local, remote)]
    long = [b"\0" * 10 + b"\xff\xff" + packed if len(packed) == 4 else packed for packed in short]
    return {(_form(ends[0], local[1]), _form(ends[1], remote[1])) for ends in (short, long)}


def _form(packed: bytes, port: int) -> str:
    """Return an address as the kernel writes it: 32-bit words in native byte order."""
    words = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
    return "".join([f"{word:08X}" for word in words]) + f":{port:04X}"


users = LocalUsers()
"""The registry of this process."""
