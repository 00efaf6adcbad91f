"""One connection to the page: nobody is waited for without end, and nobody takes the room of all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from keepfast.web.access import peer_at
from keepfast.web.local_users import users

if TYPE_CHECKING:
    import asyncio

HEAD_SECONDS = 10
"""From the first byte of a request, or the beginning of the connection, to the end of the request's head."""
TAKE_SECONDS = 30
"""How long a reader may take nothing at all of an answer."""
MOST_STRANGERS, MOST_NEWCOMERS, MOST_OF_VISITORS = 100, 400, 300
"""Connections on which nobody has signed in, the same with those who have just come, and those of visitors.

Together well below the 1,024 files that a process may have open. Strangers never take the room of visitors.
"""
SETTLE_SECONDS = 0.5
"""Whoever signs in with a first request is a stranger until it is here: so long nobody has to make room for others."""


class Connection(H11Protocol):
    """HTTP/1.1 as the library speaks it, which limits how long it waits between requests but not within one."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadlines: dict[str, asyncio.TimerHandle] = {}
        self.connected_at = self.loop.time()
        self._set_deadline("head", HEAD_SECONDS)
        self._last: Any = None
        self.peer = peer_at(self.client[0] if self.client else "?")
        if self.client and self.server and self.server[1] is not None:
            users.add(self.client, (self.server[0], self.server[1]))
        self._make_room()
        self._deadlines["settle"] = self.loop.call_later(SETTLE_SECONDS, self._make_room)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_at_work:
            self._clear_deadline("head")
        elif "head" not in self._deadlines:
            # The first bytes of another request: the library has just stopped its own clock.
            self._set_deadline("head", HEAD_SECONDS)

    def handle_events(self) -> None:
        if self.conn.their_state is h11.IDLE and (fault := fault_in(self.conn.trailing_data[0])):
            self.send_400_response(fault)
            return
        super().handle_events()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, if nothing was answered yet. A request that came before it on the way is given up."""
        if self.cycle is not None and self.is_at_work:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        self._last = self.visitor
        super().on_response_complete()
        if self.transport.is_closing():
            self._set_deadline("take", TAKE_SECONDS)
        elif not self.is_at_work and self._has_begun():
            self._set_deadline("head", HEAD_SECONDS)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._set_deadline("take", TAKE_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set_deadline("take", TAKE_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._clear_deadline("take")

    def connection_lost(self, exc: Exception | None) -> None:
        for name in list(self._deadlines):
            self._clear_deadline(name)
        if self.client:
            users.remove(self.client)
        super().connection_lost(exc)

    @property
    def is_at_work(self) -> bool:
        """Is a request being answered? The gate sees to it that its body comes in time."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def owner(self) -> str:
        """Who has this connection: the visitor of its last request, or else the peer."""
        visitor = self.visitor
        return visitor.hash if visitor is not None else self.peer

    @property
    def visitor(self) -> Any:
        """Who asked last; for a file of the page's own nobody is asked who they are."""
        return self.scope.get("keepfast.visitor", self._last) if self.scope is not None else None

    def end(self) -> None:
        """Hang up, whatever is still to be sent."""
        if self.transport is not None:
            self.transport.abort()

    def _make_room(self) -> None:
        ours = [one for one in self.connections if isinstance(one, Connection)]
        while surplus := connection_to_close([one for one in ours if not one.transport.is_closing()], self.loop.time()):
            surplus.end()

    def _has_begun(self) -> bool:
        """Did something of the next request come along with the last one?"""
        return bool(self.conn.trailing_data[0])

    def _set_deadline(self, name: str, seconds: float) -> None:
        self._clear_deadline(name)
        self._deadlines[name] = self.loop.call_later(seconds, self.end)

    def _clear_deadline(self, name: str) -> None:
        deadline = self._deadlines.pop(name, None)
        if deadline is not None:
            deadline.cancel()


def fault_in(data: bytes) -> str:
    """What is wrong with a request's head, as far as it is here; empty if nothing is.

    The library reads these heads, but programs before us may read them otherwise, and cut requests in another place.
    """
    at, lengths, is_first = 0, 0, True
    while (end := data.find(b"\n", at)) >= 0:
        line, at = data[at:end], end + 1
        if line[-1:] != b"\r" or b"\r" in line[:-1]:
            return "A line does not end with CRLF."
        line = line[:-1]
        if not line:
            break
        if line[:1] in (b" ", b"\t"):
            return "Folded headers are not allowed."
        name, _, value = line.partition(b":")
        if not is_first and name[-1:] in (b" ", b"\t"):
            return "Space between a header's name and its colon."
        if name.lower() == b"content-length":
            lengths += 1 + value.count(b",")
        if is_first and line[-9:] not in (b" HTTP/1.1", b" HTTP/1.0"):
            return "Unsupported HTTP version."
        is_first = False
    return "Duplicate Content-Length." if lengths > 1 else ""


def connection_to_close(connections: Collection[Connection], now: float) -> Connection | None:
    """The connection that must make room, if there are too many: the oldest of whoever has most of them."""
    crowd = [one for one in connections if one.visitor is None]
    if len(crowd) <= MOST_NEWCOMERS:
        crowd = [one for one in crowd if one.connected_at <= now - SETTLE_SECONDS]
        if len(crowd) <= MOST_STRANGERS:
            crowd = [one for one in connections if one.visitor is not None]
            if len(crowd) <= MOST_OF_VISITORS:
                return None
    owned = Counter(one.owner for one in crowd)
    return min(crowd, key=lambda one: (-owned[one.owner], one.connected_at))
