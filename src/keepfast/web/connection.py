"""One HTTP connection: deadlines for each step, and limits on how many connections a peer may hold."""

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

MAX_UNREAD = 16 << 10
"""Bytes of an incomplete head, if the server's configuration names no limit."""
HEAD_SECONDS = 10
"""From the start of the connection, or the first byte of a request, to the end of the request's head."""
TAKE_SECONDS = 30
"""How long a client may read nothing of an answer."""
MAX_STRANGERS, MAX_NEWCOMERS, MAX_SIGNED_IN = 100, 400, 300
"""Limits on connections without a session, the same including new ones, and connections with a session.

Together well below the 1,024 files that a process may have open. Connections without a session never displace those with one.
"""
SETTLE_SECONDS = 0.5
"""Seconds for a new connection to send its first request; before that it is not closed to make room for others."""


class Framing(h11.Connection):
    """h11's reading of requests, except that a chunked body ends with CRLF and nothing else.

    The library takes a bare line feed and trailers there: a proxy may parse these differently.
    """

    _tail = b""
    """The bytes that are not parsed yet, and at least two before them."""

    def receive_data(self, data: bytes) -> None:
        super().receive_data(data)
        self._tail = (self._tail + data)[-len(self.trailing_data[0]) - 2 :]

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.EndOfMessage) and self._is_chunked:
            end = len(self._tail) - len(self.trailing_data[0])
            if event.headers or self._tail[end - 2 : end] != b"\r\n":
                raise h11.RemoteProtocolError("A chunked body does not end with CRLF.")
        elif isinstance(event, h11.Request):
            self._is_chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        return event

    _is_chunked = False


class Connection(H11Protocol):
    """uvicorn's HTTP/1.1 with deadlines within a request; the library has one only between requests."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self.conn = Framing(h11.SERVER, self.config.h11_max_incomplete_event_size or MAX_UNREAD)

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
            # The first bytes of another request: the library has just stopped its keep-alive timer.
            self._set_deadline("head", HEAD_SECONDS)

    def handle_events(self) -> None:
        if self.conn.their_state is h11.IDLE and (fault := fault_in(self.conn.trailing_data[0])):
            self.send_400_response(fault)
            return
        super().handle_events()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with 400, if nothing was answered yet. A request still in work on the connection is cancelled."""
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
        """Whether a request is being answered. `Gate` limits how long its body may take."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def owner(self) -> str:
        """The visitor of the last request, or else the peer."""
        visitor = self.visitor
        return visitor.hash if visitor is not None else self.peer

    @property
    def visitor(self) -> Any:
        """The visitor of the last request; requests for static files are not authenticated and do not change it."""
        return self.scope.get("keepfast.visitor", self._last) if self.scope is not None else None

    def end(self) -> None:
        """Close the connection at once, whatever is still to be sent."""
        if self.transport is not None:
            self.transport.abort()

    def _make_room(self) -> None:
        if len(self.connections) <= min(MAX_STRANGERS, MAX_SIGNED_IN, MAX_NEWCOMERS):
            return
        ours = [one for one in self.connections if isinstance(one, Connection)]
        while surplus := connection_to_close([one for one in ours if not one.transport.is_closing()], self.loop.time()):
            surplus.end()

    def _has_begun(self) -> bool:
        """Return whether the start of the next request arrived with the last one."""
        return bool(self.conn.trailing_data[0])

    def _set_deadline(self, name: str, seconds: float) -> None:
        self._clear_deadline(name)
        self._deadlines[name] = self.loop.call_later(seconds, self.end)

    def _clear_deadline(self, name: str) -> None:
        deadline = self._deadlines.pop(name, None)
        if deadline is not None:
            deadline.cancel()


def fault_in(data: bytes) -> str:
    """Return what is wrong with a request's head, as far as it has arrived; empty if nothing is.

    The library accepts these heads, but a proxy may parse them differently: that would allow request smuggling.
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
    """Return the connection to close if there are too many: the oldest of the owner who has most."""
    crowd = [one for one in connections if one.visitor is None]
    if len(crowd) <= MAX_NEWCOMERS:
        crowd = [one for one in crowd if one.connected_at <= now - SETTLE_SECONDS]
        if len(crowd) <= MAX_STRANGERS:
            crowd = [one for one in connections if one.visitor is not None]
            if len(crowd) <= MAX_SIGNED_IN:
                return None
    owned = Counter(one.owner for one in crowd)
    return min(crowd, key=lambda one: (-owned[one.owner], one.connected_at))
