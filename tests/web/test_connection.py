"""Nobody holds the page up: heads, bodies and answers have their time, and nobody takes the room of all others."""

from __future__ import annotations

import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from keepfast.web import access as gate
from keepfast.web import connection, local_users, server
from keepfast.web import sessions as database
from tests.web.attacks import saves
from tests.web.served import PATIENCE, Served

LONG = 20
"""Seconds after which a connection that should have been ended counts as one that never is."""


@contextmanager
def call(served: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port), timeout=LONG) as caller:
        yield caller


def head(served: Served, path: str = "/", method: str = "GET", *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {served.host}", f"Authorization: Bearer {served.session}", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def answer(caller: socket.socket) -> bytes:
    """One whole answer that tells its length."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += _more(caller)
    start, _, body = got.partition(b"\r\n\r\n")
    length = int(start.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += _more(caller)
    return start


def _more(caller: socket.socket) -> bytes:
    found = caller.recv(65536)
    if not found:
        raise ConnectionError("It was cut off.")
    return found


def is_ended(caller: socket.socket, trickle: bytes = b"") -> bool:
    """Does the other side hang up, though we send a byte now and then?"""
    end = time.monotonic() + LONG
    caller.settimeout(0.05)
    while time.monotonic() < end:
        try:
            if not caller.recv(65536):
                return True
        except TimeoutError:
            if trickle:
                try:
                    caller.sendall(trickle)
                except ConnectionError:
                    return True
        except ConnectionError:
            return True
    return False


def comes_down_to(served: Served, most: int) -> bool:
    """Are there, soon, no more connections than that?"""
    end = time.monotonic() + LONG
    while len(served.server.server_state.connections) > most and time.monotonic() < end:
        time.sleep(0.05)
    return len(served.server.server_state.connections) <= most


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(connection, "TAKE_SECONDS", 0.5)
    monkeypatch.setattr(gate, "BODY_SECONDS", 0.5)


@pytest.mark.parametrize("trickle", [b"X", b"\r\n", b"X-More: 1\r\n"])
def test_a_second_head_that_trickles_in_is_not_waited_for(served: Served, hurried: None, trickle: bytes) -> None:
    with call(served) as caller:
        caller.sendall(head(served, "/api/workspaces"))
        assert b" 200 " in answer(caller)
        if trickle != b"\r\n":
            caller.sendall(b"GET / HTTP/1.1\r\n")

        assert is_ended(caller, trickle)


def test_a_second_head_that_came_with_the_first_is_not_waited_for(served: Served, hurried: None) -> None:
    with call(served) as caller:
        caller.sendall(head(served, "/api/workspaces") + b"GET / HTTP/1.1\r\nHo")
        assert b" 200 " in answer(caller)

        assert is_ended(caller)


@pytest.mark.parametrize("lengths", [["Content-Length: 50"], ["Transfer-Encoding: chunked"]])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_body_that_trickles_in_is_not_waited_for(
    served: Served, hurried: None, method: str, lengths: list[str]
) -> None:
    with call(served) as caller:
        caller.sendall(head(served, saves(served), method, "Content-Type: application/json", *lengths))

        assert is_ended(caller, b"0" if "Content" in lengths[0] else b"1\r\n{\r\n")


def test_a_stranger_is_refused_before_a_body_is_read(served: Served) -> None:
    """Nothing of the body is sent: who waits for it would wait for ever."""
    with call(served) as caller:
        caller.sendall(f"POST {saves(served)} HTTP/1.1\r\nHost: {served.host}\r\nContent-Length: 50\r\n\r\n".encode())

        assert b" 401 " in answer(caller)
        assert is_ended(caller)


def test_who_takes_nothing_of_an_answer_is_not_waited_for(served: Served, hurried: None) -> None:
    (served.root / "large.txt").write_text("x" * (12 << 20))
    served.saver.save("manual")
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        caller.settimeout(PATIENCE)
        caller.connect(("127.0.0.1", served.port))
        caller.sendall(head(served, f"{saves(served)}/latest/file?path=large.txt"))
        end = time.monotonic() + PATIENCE
        while not served.server.server_state.connections and time.monotonic() < end:
            time.sleep(0.01)
        while served.server.server_state.connections and time.monotonic() < end:
            time.sleep(0.05)

        assert not served.server.server_state.connections


@pytest.mark.parametrize(
    "lengths",
    [
        ["Content-Length: 4", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 4"],
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_follows_a_request_of_two_lengths_is_not_answered(served: Served, method: str, lengths: list[str]) -> None:
    before = served.digest()
    smuggled = head(served, saves(served), "POST", "Content-Type: application/json", "Content-Length: 2") + b"{}"
    with call(served) as caller:
        caller.sendall(head(served, saves(served), method, *lengths) + b"0\r\n\r\n" + smuggled)
        got = b""
        try:
            while part := caller.recv(65536):
                got += part
        except ConnectionError:
            pass

    assert got.startswith(b"HTTP/1.1 400 ")
    assert got.count(b"HTTP/1.1 ") == 1
    assert served.digest() == before


@pytest.mark.parametrize(
    "change",
    [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"},
     {"Content-Length": "9999999"}, {"Authorization": "Bearer wrong", "Content-Length": "2"}],
)  # fmt: skip
def test_a_connection_is_closed_when_its_request_is_refused(served: Served, change: dict[str, str]) -> None:
    headers = {"Host": served.host, "Authorization": f"Bearer {served.session}", **change}
    lines = [f"POST {saves(served)} HTTP/1.1", *[f"{name}: {value}" for name, value in headers.items()]]
    with call(served) as caller:
        caller.sendall("\r\n".join([*lines, "", ""]).encode() + head(served, "/api/workspaces"))
        got = b""
        try:
            while part := caller.recv(65536):
                got += part
        except ConnectionError:
            pass

    assert got.count(b"HTTP/1.1 ") == 1
    assert b" 4" in got.split(b"\r\n")[0]


CHUNKED_ENDS = {
    "a bare line feed": (b"0\r\n\n",), "a bare line feed that comes later": (b"0\r\n", b"\n"),
    "a bare line feed behind the size": (b"0\n\r\n",), "a trailer": (b"0\r\nX-More: 1\r\n\r\n",),
    "a trailer and bare line feeds": (b"0\r\nX-More: 1\n\n",), "a bare carriage return": (b"0\r\n\r\r\n",),
}  # fmt: skip


@pytest.mark.parametrize("name", CHUNKED_ENDS)
def test_what_follows_a_chunked_body_of_an_odd_end_is_not_answered(served: Served, name: str) -> None:
    """What stands before us may have taken it for a part of the body."""
    before = served.digest()
    sends = head(served, "/language", "POST", "Content-Type: application/json", "Transfer-Encoding: chunked")
    got = b""
    with call(served) as caller:
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        caller.sendall(sends + b"2\r\n{}\r\n")
        for part in CHUNKED_ENDS[name]:
            time.sleep(0.05)
            caller.sendall(part)
        try:
            caller.sendall(head(served, "/api/workspaces"))
            while more := caller.recv(65536):
                got += more
        except ConnectionError:
            pass

    assert got.startswith(b"HTTP/1.1 400 ")
    assert got.count(b"HTTP/1.1 ") == 1
    assert served.digest() == before


@pytest.mark.parametrize("parts", [(b"0\r\n\r\n",), (b"0\r", b"\n\r\n"), (b"0\r\n", b"\r\n"), (b"0\r\n\r", b"\n")])
def test_a_chunked_body_may_come_in_parts(served: Served, parts: tuple[bytes, ...]) -> None:
    sends = head(served, saves(served), "POST", "Content-Type: application/json", "Transfer-Encoding: chunked")
    with call(served) as caller:
        caller.sendall(head(served, "/api/workspaces") + sends + b"2\r\n{}\r\n")
        for part in parts:
            time.sleep(0.05)
            caller.sendall(part)
        caller.sendall(head(served, "/api/workspaces"))
        got = b""
        end = time.monotonic() + LONG
        while got.count(b"HTTP/1.1 ") < 3 and time.monotonic() < end:
            got += caller.recv(65536)

    assert got.count(b"HTTP/1.1 20") == 3


def test_strangers_who_crowd_the_door_keep_nobody_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_STRANGERS", 20)
    monkeypatch.setattr(connection, "SETTLE_SECONDS", 0.05)
    with ExitStack() as crowd:
        visitor = crowd.enter_context(call(served))
        visitor.sendall(head(served, "/api/workspaces"))
        assert b" 200 " in answer(visitor)
        strangers = [crowd.enter_context(call(served)) for _ in range(60)]
        for stranger in strangers:
            stranger.sendall(b"GET / HTTP/1.1\r\nHost:")

        assert served.ask("GET", "/api/workspaces").status == 200
        assert is_ended(strangers[0])
        assert comes_down_to(served, 21)
        visitor.sendall(head(served, "/api/workspaces"))
        assert b" 200 " in answer(visitor)


def test_a_visitor_with_many_connections_keeps_nobody_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_SIGNED_IN", 20)
    greedy = served.web_database.create_session("viewer", "somebody greedy")
    with ExitStack() as crowd:
        other = crowd.enter_context(call(served))
        other.sendall(head(served, "/api/workspaces"))
        assert b" 200 " in answer(other)
        for _ in range(40):
            one = crowd.enter_context(call(served))
            one.sendall(head(served, "/api/openapi.json").replace(served.session.encode(), greedy.encode()))
            assert b" 200 " in answer(one)

        assert comes_down_to(served, 20)
        other.sendall(head(served, "/api/workspaces"))
        assert b" 200 " in answer(other)


def test_wrong_tickets_of_others_do_not_refuse_a_right_one(served: Served) -> None:
    """Neither where it is exchanged nor where it only leads to the page's own name."""
    guesses = [served.ask("POST", "/session", {"ticket": f"guess {number}"}, bare=True) for number in range(15)]
    loopback = {"Host": f"localhost:{served.port}"}
    ticket = served.web_database.create_ticket("viewer")
    led = served.ask("GET", f"/?ticket={ticket}", bare=True, headers=loopback)
    entered = served.ask("POST", "/session", {"ticket": ticket}, bare=True)

    assert [one.status for one in guesses] == [401] * 10 + [429] * 5
    assert (led.status, entered.status) == (307, 200)


def test_a_flood_of_strangers_does_not_keep_a_ticket_from_its_page(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = served.gate.clock()
    monkeypatch.setattr(served.gate, "clock", lambda: now)
    flood = [served.ask("GET", "/", bare=True).status for _ in range(int(gate.BURST) + 20)]
    entered = served.ask("POST", "/session", {"ticket": served.web_database.create_ticket("viewer")}, bare=True)

    assert set(flood) == {401}
    assert entered.status == 200


def test_who_has_just_come_makes_no_room_for_a_burst_of_strangers(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first request is on its way when others come, from whatever address of this machine."""
    monkeypatch.setattr(connection, "MAX_STRANGERS", 5)
    monkeypatch.setattr(connection, "SETTLE_SECONDS", LONG)
    with ExitStack() as crowd:
        visitor = crowd.enter_context(call(served))
        for number in range(1, 41):
            address = f"127.0.{number}.1" if sys.platform == "linux" else "127.0.0.1"
            crowd.enter_context(socket.create_connection(("127.0.0.1", served.port), LONG, (address, 0)))
        assert served.ask("GET", "/api/workspaces").status == 200
        visitor.sendall(head(served, "/api/workspaces"))

        assert b" 200 " in answer(visitor)


def test_who_comes_and_goes_a_thousand_times_costs_no_look_up_and_keeps_nobody_out(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables of all sockets are long then: who reads them for every connection is busy for minutes."""
    asked: list[object] = []
    look_up = local_users.user_of

    def counted(*ends: tuple[str, int]) -> int | None:
        asked.append(ends)
        return look_up(*ends)

    monkeypatch.setattr(local_users, "user_of", counted)
    for wanted in (b"GET / HTTP/1.1\r\n\r\n", head(served).replace(served.session.encode(), b"wrong")) * 2:
        for _ in range(250):
            with call(served) as stranger:
                stranger.sendall(wanted)
    began = time.monotonic()
    statuses = {served.ask("GET", "/api/workspaces").status for _ in range(3)}

    assert statuses == {200}
    assert time.monotonic() - began < LONG
    assert len(asked) <= 3


def test_a_burst_is_accepted_in_parts_so_that_requests_are_read_between_them(served: Served) -> None:
    assert served.server.config.backlog < connection.MAX_NEWCOMERS // 4
    assert served.server.config.backlog < server.BACKLOG


def test_newcomers_have_their_limit_too(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_NEWCOMERS", 10)
    monkeypatch.setattr(connection, "SETTLE_SECONDS", LONG)
    with ExitStack() as crowd:
        callers = [crowd.enter_context(call(served)) for _ in range(15)]

        assert is_ended(callers[0])
        assert comes_down_to(served, 10)


def test_a_visitor_who_fetched_a_static_file_is_no_stranger(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_STRANGERS", 5)
    monkeypatch.setattr(connection, "SETTLE_SECONDS", 0.05)
    with ExitStack() as crowd:
        visitor = crowd.enter_context(call(served))
        for path in ("/api/workspaces", "/static/keepfast.js"):
            visitor.sendall(head(served, path))
            assert b" 200 " in answer(visitor)
        strangers = [crowd.enter_context(call(served)) for _ in range(20)]
        assert is_ended(strangers[0])
        assert comes_down_to(served, 6)
        visitor.sendall(head(served, "/api/workspaces"))

        assert b" 200 " in answer(visitor)


def test_all_addresses_of_this_machine_are_one_peer() -> None:
    own = ("127.0.0.1", "127.9.8.7", "::1", "::ffff:127.1.2.3")

    assert len({gate.peer_at(address) for address in own}) == 1
    assert len({gate.peer_at(address) for address in (*own, "192.0.2.1", "2001:db8::1")}) == 3


def test_wrong_tickets_do_not_push_what_was_opened_out_of_the_trail(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does what a viewer tries: everybody fills a share of their own."""
    monkeypatch.setattr(database, "MAX_AUDITED", 20)
    monkeypatch.setattr(database, "MAX_AUDITED_WITHOUT_SESSION", 10)
    people = {role: database.Visitor(role, "somebody", role) for role in database.ROLES}
    served.web_database.audit(people["operator"], "OPEN", "/x?path=.env", "done")
    served.web_database.audit(people["operator"], "POST", "/restore", "done")
    for _ in range(30):
        served.web_database.audit(None, "POST", "/session", "refused")
        served.web_database.audit(people["viewer"], "POST", "/restore", "A viewer may not do this.")
    for _ in range(19):
        served.web_database.audit(people["operator"], "POST", "/save", "done")
    rows = served.web_database.audit_rows(1000)
    kept = Counter((row.role, row.action) for row in rows)

    assert kept == {("", "POST"): 10, ("viewer", "POST"): 20, ("operator", "OPEN"): 1, ("operator", "POST"): 20}
    assert [row.target for row in rows if row.role == "operator"][-2:] == ["/restore", "/x?path=.env"]


def test_passwords_are_counted_for_each_peer() -> None:
    made = gate.Gate(None, None, {}, None, lambda: 0.0)  # type: ignore[arg-type]
    scopes = [{"client": (address, 1)} for address in ("192.0.2.1", "2001:db8::1", "2001:db8::2", "192.0.2.2")]
    for scope in scopes[:2]:
        for _ in range(gate.WRONG_PER_MINUTE):
            made.count_wrong_guess(scope)

    assert [made.may_guess(scope) for scope in scopes] == [False, False, False, True]


def test_a_visitor_whose_bodies_never_come_keeps_nobody_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MAX_AT_ONCE", 20)
    monkeypatch.setattr(gate, "MAX_PER_CLIENT", 10)
    greedy = served.web_database.create_session("viewer", "somebody greedy")
    waiting = head(served, "/language", "POST", "Content-Type: application/json", "Content-Length: 50")
    with ExitStack() as crowd:
        callers = [crowd.enter_context(call(served)) for _ in range(26)]
        for caller in callers:
            caller.sendall(waiting.replace(served.session.encode(), greedy.encode()))
        refused = [caller for caller in callers[10:] if b" 503 " in answer(caller)]

        assert len(refused) == 16
        assert served.ask("GET", "/api/workspaces").status == 200
        assert (
            served.ask("POST", "/session", {"ticket": served.web_database.create_ticket("viewer")}, bare=True).status
            == 200
        )


def test_strangers_whose_bodies_never_come_keep_nobody_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MAX_AT_ONCE", 5)
    waiting = f"POST /session HTTP/1.1\r\nHost: {served.host}\r\nContent-Length: 50\r\n\r\n".encode()
    with ExitStack() as crowd:
        for caller in [crowd.enter_context(call(served)) for _ in range(10)]:
            caller.sendall(waiting)

        assert served.ask("GET", "/api/workspaces").status == 200
        assert (
            served.ask("POST", "/session", {"ticket": served.web_database.create_ticket("viewer")}, bare=True).status
            == 200
        )


MALFORMED = (
    b"\x16\x03\x01 hello\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"GET / HTTP/9\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n LATER zz\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /session HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /session HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n LATER zz\r\n",
    b"POST / HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naa\r\n",
    b"GET /static/keepfast.js HTTP/1.1\r\nHost: HOST\r\n\r\n\x16\x03 hello\r\n\r\n",
)


@pytest.mark.parametrize("sent", MALFORMED)
def test_what_strangers_send_is_not_printed(served: Served, sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with call(served) as caller:
        for part in sent.replace(b"HOST", served.host.encode()).split(b" LATER "):
            caller.sendall(part)
            time.sleep(0.05)

        assert is_ended(caller)
    assert [one.getMessage() for one in caplog.records if one.name.startswith(("uvicorn", "asyncio"))] == []


@pytest.mark.parametrize(
    ("asked", "status"),
    [("GET /", 401), ("GET /storage", 401), ("GET /nothing", 404), ("GET /api/workspaces", 401), ("GET /api/stream", 401),
     ("GET /api/openapi.json", 401), ("GET /static/nothing.js", 404), ("PUT /", 405), ("POST /session", 401)],
)  # fmt: skip
def test_a_connection_ends_after_every_refusal_of_a_stranger(served: Served, asked: str, status: int) -> None:
    lines = [f"{asked} HTTP/1.1", f"Host: {served.host}", "Content-Length: 0", "", ""]
    with call(served) as caller:
        caller.sendall("\r\n".join(lines).encode() + head(served, "/api/workspaces"))
        got = b""
        try:
            while part := caller.recv(65536):
                got += part
        except ConnectionError:
            pass

    assert got.count(b"HTTP/1.1 ") == 1
    assert got.startswith(f"HTTP/1.1 {status} ".encode())


def test_a_visitor_who_asks_for_what_is_not_there_keeps_the_connection(served: Served) -> None:
    with call(served) as caller:
        for path, status in (("/nothing", b" 404 "), ("/api/workspaces", b" 200 ")):
            caller.sendall(head(served, path))
            assert status in answer(caller)
