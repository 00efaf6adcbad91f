"""No check of the server can go unnoticed: each probe finds the server sound, and finds the one without its check out."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import socket
import stat
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from keepfast.model.errors import Failed, Usage
from tests.web.attacks import FORM, SAVE, as_role, form, half, mixed, posts, reads, saves, whole_as_cookie, with_host
from tests.web.mutants import MUTANTS, Mutant, world
from tests.web.served import ELSEWHERE, HUNG_UP, PATIENCE, PROXY, Served

Probe = Callable[[Served], bool]
DAY = 86_400 * 10**9
PASSWORD = "correct horse battery"
SAMPLE = 4
"""One mutant in so many is looked for in every run."""
POLICY = {
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'", "font-src 'self'",
    "manifest-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
}  # fmt: skip
HEADERS = {
    "x-content-type-options": "nosniff", "x-frame-options": "DENY", "referrer-policy": "same-origin", "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}  # fmt: skip


def answered(status: int, send: Callable[[Served], Any]) -> Probe:
    """The request is answered with exactly this."""
    return lambda served: bool(send(served).status == status)


def knock(
    served: Served,
    *,
    method: str = "GET",
    path: str = "/x",
    kind: str = "http",
    client: str = "127.0.0.1",
    headers: tuple[tuple[str, str], ...] = (),
    receive: Callable[[], Any] | None = None,
    times: int = 1,
) -> list[Any]:
    """What the gate alone does, before an application that lets everything pass: a status, or what else it sent."""
    module, sent = served.world.access, list[Any]()

    async def passes(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def nothing() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] != "http.response.body":
            sent.append(message.get("status", message["type"]))

    made = module.Gate(
        passes, served.web_database, served.gate.origins, served.site._refuse, lambda: 0.0, served.gate.proxy
    )
    raw = [(b"host", served.host.encode())] + [(name.encode(), value.encode()) for name, value in headers]
    scope = {"type": kind, "method": method, "path": path, "headers": raw, "client": (client, 1), "query_string": b"",
             "server": ("x", 1), "scheme": "http", "root_path": ""}  # fmt: skip

    async def knocks() -> None:
        for _ in range(times):
            await asyncio.wait_for(made(dict(scope), receive or nothing, send), 5)

    asyncio.run(knocks())
    return sent


def signed(served: Served) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {served.session}"),)


def slow(served: Served) -> bool:
    async def never() -> Any:
        await asyncio.sleep(60)

    had, served.world.access.BODY_SECONDS = served.world.access.BODY_SECONDS, 0.05
    try:
        return knock(served, method="POST", receive=never, headers=signed(served)) == [408]
    except TimeoutError:
        return False
    finally:
        served.world.access.BODY_SECONDS = had


def crowded(served: Served) -> bool:
    had, served.world.access.MAX_AT_ONCE = served.world.access.MAX_AT_ONCE, 0
    try:
        return knock(served, headers=signed(served)) == [503]
    finally:
        served.world.access.MAX_AT_ONCE = had


def streams(served: Served) -> bool:
    had, served.world.app.MAX_STREAMS = served.world.app.MAX_STREAMS, 0
    try:
        return begins(served, "/api/stream", {"Authorization": f"Bearer {served.session}"}) == 503
    finally:
        served.world.app.MAX_STREAMS = had


def begins(served: Served, path: str, headers: dict[str, str]) -> int:
    """The status of an answer that may never end."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers={"Host": served.host, **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def silent(served: Served) -> bool:
    with hurry(served), socket.create_connection(("127.0.0.1", served.port), timeout=3) as caller:
        return is_ended(caller)


@contextmanager
def hurry(served: Served, strangers: int = 100, visitors: int = 300) -> Iterator[None]:
    limits, had = served.world.connection, dict(vars(served.world.connection))
    limits.HEAD_SECONDS = limits.TAKE_SECONDS = 0.2
    limits.MAX_STRANGERS, limits.MAX_SIGNED_IN, limits.SETTLE_SECONDS = strangers, visitors, 0.1
    try:
        yield
    finally:
        vars(limits).update(had)


def is_ended(caller: socket.socket, trickle: bytes = b"") -> bool:
    """Does the server hang up within three seconds, though a byte comes now and then?"""
    caller.settimeout(0.05)
    for _ in range(60):
        try:
            if not caller.recv(65536):
                return True
            if trickle:
                caller.sendall(trickle)
        except TimeoutError:
            if trickle:
                caller.sendall(trickle)
        except ConnectionError:
            return True
    return False


def greet(served: Served, caller: socket.socket, session: str = "", more: bytes = b"") -> None:
    """One request that is answered, and what comes along with it."""
    text = f"GET /api/openapi.json HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {session or served.session}\r\n\r\n"
    caller.sendall(text.encode() + more)
    got = b""
    while not got.endswith(b"}"):
        part = caller.recv(65536)
        if not part:
            raise ConnectionError("cut off")
        got += part


def second_head(served: Served) -> bool:
    with hurry(served), socket.create_connection(("127.0.0.1", served.port), timeout=3) as caller:
        greet(served, caller)
        caller.sendall(b"GET / HTTP/1.1\r\nX:")
        return is_ended(caller, b"x")


def head_behind(served: Served) -> bool:
    with hurry(served), socket.create_connection(("127.0.0.1", served.port), timeout=3) as caller:
        greet(served, caller, more=b"GET / HTTP/1.1\r\nX:")
        return is_ended(caller)


def untaken(served: Served) -> bool:
    (served.root / "large.txt").write_text("x" * (12 << 20))
    served.saver.save("manual")
    text = f"GET {saves(served)}/latest/file?path=large.txt HTTP/1.1\r\nHost: {served.host}\r\n"
    with hurry(served), socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        caller.connect(("127.0.0.1", served.port))
        caller.sendall(f"{text}Authorization: Bearer {served.session}\r\n\r\n".encode())
        for _ in range(200):
            time.sleep(0.05)
            flows = [one.transport.is_closing() for one in served.server.server_state.connections]
            if not flows:
                return True
    return False


def crowd(served: Served) -> bool:
    with hurry(served, strangers=5), ExitStack() as open_ones:
        served.world.connection.HEAD_SECONDS = 60
        callers = [open_ones.enter_context(socket.create_connection(("127.0.0.1", served.port))) for _ in range(10)]
        return is_ended(callers[0])


def greedy(served: Served) -> bool:
    """Somebody who takes all connections loses their own; another's, though older, stays."""
    session = served.web_database.create_session("viewer", "somebody greedy")
    with hurry(served, visitors=6), ExitStack() as open_ones:
        mine = open_ones.enter_context(socket.create_connection(("127.0.0.1", served.port)))
        greet(served, mine)
        theirs = [open_ones.enter_context(socket.create_connection(("127.0.0.1", served.port))) for _ in range(1)]
        greet(served, theirs[0], session)
        for _ in range(8):
            theirs.append(open_ones.enter_context(socket.create_connection(("127.0.0.1", served.port))))
            greet(served, theirs[-1], session)
        if not is_ended(theirs[0]):
            return False
        greet(served, mine)
        return True


def busy(served: Served) -> bool:
    """Somebody who has too much done at once is told so; others are not."""
    had, served.world.access.MAX_PER_CLIENT = served.world.access.MAX_PER_CLIENT, 1
    other = {"Authorization": f"Bearer {served.web_database.create_session('viewer', 'somebody else')}"}
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    try:
        connection.request(
            "GET", "/api/stream", headers={"Host": served.host, "Authorization": f"Bearer {served.session}"}
        )
        listens = connection.getresponse().status
        statuses = [
            served.ask("GET", "/api/workspaces").status,
            served.ask("GET", "/api/workspaces", headers=other).status,
        ]
    finally:
        connection.close()
        served.world.access.MAX_PER_CLIENT = had
    return [listens, *statuses] == [200, 503, 200]


def one_by_one(served: Served) -> bool:
    had, served.world.access.MAX_PER_CLIENT = served.world.access.MAX_PER_CLIENT, 2
    try:
        return [served.ask("GET", "/api/openapi.json").status for _ in range(4)] == [200] * 4
    finally:
        served.world.access.MAX_PER_CLIENT = had


def stranger_body(length: int) -> Probe:
    """A stranger who says that so much will come, and sends nothing, is answered at once."""

    def probe(served: Served) -> bool:
        with socket.create_connection(("127.0.0.1", served.port), timeout=3) as caller:
            head = f"POST {saves(served)} HTTP/1.1\r\nHost: {served.host}\r\nContent-Length: {length}\r\n\r\n"
            caller.sendall(head.encode())
            return caller.recv(12) == b"HTTP/1.1 401"

    return probe


def follows(asked: str) -> Callable[[Served], bool]:
    """What follows a refused request on its connection is not answered."""

    def probe(served: Served) -> bool:
        signed_in = f"Host: {served.host}\r\nAuthorization: Bearer {served.session}\r\n"
        refused = asked.replace("SESSION", served.session).replace("HOST", served.host)
        with socket.create_connection(("127.0.0.1", served.port), timeout=3) as caller:
            caller.sendall(f"{refused}GET /api/workspaces HTTP/1.1\r\n{signed_in}\r\n".encode())
            got = b""
            try:
                while part := caller.recv(65536):
                    got += part
            except (TimeoutError, ConnectionError):
                pass
        return got.count(b"HTTP/1.1 ") == 1

    return probe


def refuses_head(asked: str) -> Callable[[Served], bool]:
    """A head that other programs may read otherwise is refused, and what follows it is not answered."""

    def probe(served: Served) -> bool:
        head = f"Host: {served.host}\r\nAuthorization: Bearer {served.session}\r\n"
        with socket.create_connection(("127.0.0.1", served.port), timeout=3) as caller:
            caller.sendall(asked.replace("HEAD", head).encode())
            got = b""
            try:
                while part := caller.recv(65536):
                    got += part
            except (TimeoutError, ConnectionError):
                pass
        return got.startswith(b"HTTP/1.1 400 ") and got.count(b"HTTP/1.1 ") == 1

    return probe


def sealed(served: Served) -> list[str]:
    """Addresses that lead to a file which was sealed when it came: the file, and the lines of it that are new or gone."""
    (served.root / ".env").write_text("TOKEN=hunter2hunter2\n")
    served.saver.save("manual", message="sealed")
    first = served.saver.version()
    (served.root / ".env").unlink()
    served.saver.save("manual", message="gone")
    at = served.saver.workspace
    return [
        f"/api/workspaces/{at}/checkpoints/v{first}/file?path=.env", f"/w/{at}/v/v{first}/file?path=.env",
        f"/api/workspaces/{at}/diff?old=v1&new=v{first}&path=.env", f"/w/{at}/diff?old=v1&new=v{first}&path=.env",
        f"/api/workspaces/{at}/diff?old=v{first}&new=v{first + 1}&path=.env",
    ]  # fmt: skip


def closed(served: Served) -> bool:
    answers = [served.ask("GET", path) for path in sealed(served)[:4]]
    return all(one.status == 200 and b"hunter2" not in one.body for one in answers)


def closed_when_gone(served: Served) -> bool:
    answer = served.ask("GET", sealed(served)[4])
    return answer.status == 200 and b"hunter2" not in answer.body


def viewer_opens(served: Served) -> bool:
    answers = [as_role("viewer", "GET", f"{path}&sealed=true", {})(served) for path in sealed(served)]
    return [one.status for one in answers] == [403] * 5


def opening_recorded(served: Served) -> bool:
    paths = sealed(served)
    shown = [b"hunter2" in served.ask("GET", f"{path}&sealed=true").body for path in paths]
    rows = [one.target for one in served.web_database.audit_rows(20) if one.action == "OPEN"]
    return shown == [True] * 5 and len(rows) >= 5 and {row.partition("?path=")[2] for row in rows} == {".env"}


def after_guesses(right: Callable[[Served], str], status: int) -> Probe:
    def probe(served: Served) -> bool:
        value = right(served)
        for number in range(12):
            ticket(served, f"guess {number}")
        return bool(ticket(served, value).status == status)

    return probe


def other_guesses(served: Served) -> bool:
    scopes = [{"client": (address, 1)} for address in ("192.0.2.1", "192.0.2.2")]
    for _ in range(10):
        served.gate.count_wrong_guess(scopes[0])
    return [served.gate.may_guess(scope) for scope in scopes] == [False, True]


def large_head(served: Served) -> bool:
    """A head that never ends is not waited for: the caller is answered or cut off before it has sent 4 MiB."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as caller:
        try:
            caller.sendall(b"GET / HTTP/1.1\r\nX-Filler: ")
            for _ in range(64):
                caller.sendall(b"x" * (64 << 10))
            caller.settimeout(2)
            return caller.recv(64)[:12] in (b"HTTP/1.1 400", b"")
        except TimeoutError:
            return False
        except ConnectionError:
            return True


def chunked(served: Served) -> bool:
    headers = {**served.browser(), "Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    body = b"200000\r\n" + b" " * (2 << 20) + b"\r\n0\r\n\r\n"
    return served.ask("POST", served.at(saves(served)), body, bare=True, headers=headers).status in (413, HUNG_UP)


def another_token(served: Served) -> bool:
    other = served.web_database.create_session("operator", "somebody else")
    return answered(403, posts(X_Keepfast_Token=served.token(other)))(served)


def ticket(served: Served, value: str, **headers: str) -> Any:
    return served.ask("POST", "/session", {"ticket": value}, bare=True, headers={"Host": served.host, **headers})


def twice(served: Served) -> bool:
    value = served.web_database.create_ticket("viewer")
    return [ticket(served, value).status for _ in range(2)] == [200, 401]


def no_password(served: Served) -> bool:
    had, served.site.password = served.site.password, lambda: ""
    try:
        return bool(ticket(served, "").status == 401)
    finally:
        served.site.password = had


@contextmanager
def later(served: Served, by: int) -> Iterator[None]:
    clock = served.web_database.clock
    served.web_database.clock = lambda: clock() + by
    try:
        yield
    finally:
        served.web_database.clock = clock


def old_ticket(served: Served) -> bool:
    value = served.web_database.create_ticket("viewer")
    with later(served, DAY):
        return bool(ticket(served, value).status == 401)


def by_loopback(served: Served, path: str) -> Any:
    return served.ask("GET", path, bare=True, headers={"Host": f"localhost:{served.port}"})


def old_ticket_by_loopback(served: Served) -> bool:
    value = served.web_database.create_ticket("viewer")
    with later(served, DAY):
        return bool(by_loopback(served, f"/?ticket={value}").status == 401)


def guesses_by_loopback(served: Served) -> bool:
    return bool([by_loopback(served, f"/?ticket=wrong{number}").status for number in range(11)][-1] == 429)


def old_session(served: Served) -> bool:
    with later(served, 31 * DAY):
        return served.ask("GET", "/api/workspaces").status == 401


def left(served: Served) -> bool:
    session = {"Authorization": f"Bearer {served.web_database.create_session('viewer', 'somebody')}"}
    before = served.ask("GET", "/api/workspaces", headers=session).status
    served.ask("POST", "/leave", {}, headers=session)
    return (before, served.ask("GET", "/api/workspaces", headers=session).status) == (200, 401)


def brought(served: Served) -> bool:
    answer = ticket(served, served.web_database.create_ticket("viewer"), Cookie=served.cookie())
    return bool(answer.json()["data"]["session"] not in (served.session, served.cookie().partition("=")[2]))


def hashed(served: Served) -> bool:
    value = served.web_database.create_ticket("viewer")
    text = (served.base / "web/book.db").read_bytes()
    return served.session.encode() not in text and value.encode() not in text


def send_with_headers(served: Served, refused: bool = False) -> bool:
    answers = [served.ask("GET", "/", headers={"Host": "evil.example"})] if refused else [
        served.ask("GET", "/"), served.ask("GET", "/api/workspaces"), served.ask("GET", "/nothing")]  # fmt: skip
    for answer in answers:
        if {name: answer.headers.get(name) for name in HEADERS} != HEADERS:
            return False
        if set(answer.headers["content-security-policy"].split("; ")) != POLICY:
            return False
    return True


def cookie(served: Served) -> bool:
    answer = ticket(served, served.web_database.create_ticket("viewer"))
    said, folder = answer.headers["set-cookie"].lower(), answer.json()["data"]["folder"]
    return "httponly" in said and "samesite=lax" in said and f"path={folder};" in said and "domain" not in said


def untold_cookie(served: Served) -> bool:
    """Neither half tells anything of the other."""
    data = ticket(served, served.web_database.create_ticket("viewer"))
    value = data.headers["set-cookie"].partition("=")[2].partition(";")[0]
    folder = data.json()["data"]["folder"]
    return len(folder) == 34 and len(value) > 40 and folder[2:] not in value


def by_halves(served: Served) -> bool:
    answers = [send(served).status for send in (half("/w/WS", True, True), half("/w/WS", False, True), half("/w/WS", True, False),
                                                whole_as_cookie("/w/WS"), mixed)]  # fmt: skip
    return answers == [200] + [401] * 4


def tossed(served: Served) -> bool:
    """Another port can set a cookie of our name for the whole host; ours is sent before it."""
    headers = {"Cookie": f"{served.cookie()}; keepfast_session=x"}
    return served.ask("GET", served.at("/"), bare=True, headers=headers).status == 200


def leads_within(served: Served) -> bool:
    """Every link and form of a page stays in the folder of its session."""
    page = served.ask("GET", served.at("/"), bare=True, headers={"Cookie": served.cookie()}).body.decode()
    found = re.findall(r' (?:href|action)="(/[^"]*)"', page)
    return len(found) > 8 and all(one.startswith((served.at("/"), "/static/")) for one in found)


def opened_file(served: Served) -> bool:
    """What the browser is started with tells neither ticket nor name, and the file is its owner's."""
    told, mask, had = list[str](), os.umask(0), webbrowser.open

    def starts(url: str, new: int = 0, autoraise: bool = True) -> bool:
        told.append(url)
        return True

    webbrowser.open = starts
    try:
        served.world.server._announce(served.web_database, served.origin, {"open": True})
    finally:
        webbrowser.open = had
        os.umask(mask)
    file = served.base / "web/open.html"
    value = (served.base / "web/ticket").read_text().strip()
    return told == [file.as_uri()] and stat.S_IMODE(file.lstat().st_mode) == 0o600 and value in file.read_text()


def secure_cookie(served: Served) -> bool:
    said = ticket(served, served.web_database.create_ticket("viewer"), Host=ELSEWHERE).headers["set-cookie"]
    return said.startswith("__Host-") and "secure" in said.lower()


def guesses(served: Served) -> bool:
    return [ticket(served, f"guess {number}").status for number in range(12)] == [401] * 10 + [429] * 2


def by_proxy(user: str, client: str = PROXY, **more: str) -> Callable[[Served], int]:
    def send(served: Served) -> int:
        headers = (("x-remote-user", user), *[(name.replace("_", "-").lower(), value) for name, value in more.items()])
        return _visitor(served, client, headers)

    return send


def _visitor(served: Served, client: str, headers: tuple[tuple[str, str], ...]) -> int:
    """200 if somebody is there, 401 if nobody is."""
    seen = list[Any]()

    async def looks(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["keepfast.visitor"])

    async def drop(message: Any) -> None:
        if "status" in message:
            seen.append(message["status"])

    gate = served.world.access
    made = gate.Gate(
        looks, served.web_database, served.gate.origins, served.site._refuse, lambda: 0.0, served.gate.proxy
    )
    raw = [(b"host", served.host.encode()), *[(name.encode(), value.encode()) for name, value in headers]]
    scope = {"type": "http", "method": "GET", "path": "/api/workspaces", "headers": raw, "client": (client, 1), "query_string": b"",
             "server": ("x", 1), "scheme": "http", "root_path": ""}  # fmt: skip
    asyncio.run(made(scope, _nothing, drop))
    return int(seen[0]) if isinstance(seen[0], int) else 401 if seen[0] is None else 200


async def _nothing() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


def settings_refused(call: Callable[[Any], Any]) -> Probe:
    def probe(served: Served) -> bool:
        try:
            call(served.world.server)
        except Usage:
            return True
        return False

    return probe


def proxy_options(**changed: Any) -> dict[str, Any]:
    return {"trusted_proxy": [PROXY], "proxy_header": "X-Remote-User", "proxy_users": ["ann:operator"], **changed}


def door(secure: bool, password: str = "", mode: int = 0o600) -> Probe:
    def probe(served: Served) -> bool:
        file = served.base / "password"
        file.write_text(password)
        file.chmod(mode)
        call = settings_refused(
            lambda server: server._refuse_unprotected("0.0.0.0", secure, None, {"password_file": str(file)})
        )
        return call(served)

    return probe


def ticket_file(served: Served) -> bool:
    mask = os.umask(0)
    try:
        served.world.server._announce(served.web_database, served.origin, {})
    finally:
        os.umask(mask)
    return stat.S_IMODE((served.base / "web/ticket").lstat().st_mode) == 0o600


def book_modes(served: Served) -> bool:
    mask = os.umask(0)
    try:
        served.world.sessions.WebDatabase(str(served.base / "another"), lambda: 0).close()
    finally:
        os.umask(mask)
    modes = [stat.S_IMODE((served.base / "another" / name).lstat().st_mode) for name in (".", "book.db")]
    return modes == [0o700, 0o600]


def linked_book(served: Served) -> bool:
    folder = served.base / "linked"
    folder.mkdir()
    (folder / "book.db").symlink_to(served.base / "victim")
    return _no_book(served, folder) and not (served.base / "victim").exists()


def linked_folder(served: Served) -> bool:
    (served.base / "target").mkdir()
    (served.base / "as-link").symlink_to(served.base / "target")
    return _no_book(served, served.base / "as-link")


def _no_book(served: Served, folder: Path) -> bool:
    try:
        served.world.sessions.WebDatabase(str(folder), lambda: 0).close()
    except Failed:
        return True
    return False


def quoted(content: str, sign: str, path: str) -> Probe:
    def probe(served: Served) -> bool:
        (served.root / "<b>\x1b.txt").write_text(content)
        served.saver.save("manual", message="<b>bold</b>\x1b")
        page = served.ask("GET", path.replace("WS", served.saver.workspace))
        return page.status == 200 and sign.encode() not in page.body

    return probe


def audited(served: Served) -> bool:
    posts()(served)
    ticket(served, "wrong")
    found = {(one.action, one.target.rpartition("/")[2], one.outcome) for one in served.web_database.audit_rows(10)}
    return found >= {("POST", "checkpoints", "done"), ("POST", "session", "refused")}


def way_back(served: Served) -> bool:
    body = b"language=ko&back=//evil.example/&_token=" + served.token().encode()
    headers = {**served.browser(), "Content-Type": FORM}
    answer = served.ask("POST", served.at("/language"), body, bare=True, headers=headers)
    return (answer.status, answer.headers.get("location")) == (303, served.at("/"))


def with_file(path: str) -> Probe:
    return lambda served: served.ask("GET", f"{saves(served)}/v1/file?path={path}").status == 400


BEARER = ("authorization", "Bearer x")


def by_another_user(served: Served) -> bool:
    """A session that was made for another user of this machine is none here, and one of our own is."""
    theirs, ours = [served.web_database.create_session("operator", "x", os.getuid() + more) for more in (1, 0)]
    asked = [reads("/api/workspaces", Authorization=f"Bearer {one}")(served).status for one in (theirs, ours)]
    return asked == [401, 200] or not Path("/proc/net/tcp").exists()


def user_is_noted(served: Served) -> bool:
    ticket = served.web_database.create_ticket("viewer")
    answer = served.ask("POST", "/session", {"ticket": ticket}, bare=True)
    visitor = served.web_database.visitor(json.loads(answer.body)["data"]["session"])
    return visitor is not None and (visitor.user == os.getuid() or not Path("/proc/net/tcp").exists())


def closed_is_nobodys(served: Served) -> bool:
    """The socket of somebody who has closed it shows as root's."""
    if not Path("/proc/net/tcp").exists():
        return True
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
        names = connection.getpeername(), connection.getsockname()
        known = served.world.local_users.user_of(*names)
        client.close()
        with connection:
            after = served.world.local_users.user_of(*names)
    return known == os.getuid() and after in (None, served.world.local_users.NOBODY)


PROBES: dict[str, Probe] = {
    "another user of this machine": by_another_user,
    "who signed in is noted": user_is_noted,
    "a socket of nobody": closed_is_nobodys,
    "methods": lambda served: knock(served, method="PUT") == [405],
    "foreign host": answered(421, with_host("evil.example")),
    "a stranger by another name": lambda served: by_loopback(served, "/").status == 401,
    "a wrong ticket by another name": lambda served: by_loopback(served, "/?ticket=wrong").status == 401,
    "an old ticket by another name": old_ticket_by_loopback,
    "many wrong tickets by another name": guesses_by_loopback,
    "cross-site request": answered(403, posts(Sec_Fetch_Site="cross-site")),
    "cross-site form": answered(403, posts(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")),
    "foreign origin": answered(403, posts(Origin="http://evil.example")),
    "cookie without origin": answered(403, posts(Origin=None)),
    "websocket": lambda served: knock(served, kind="websocket") == ["websocket.close"],
    "two origins": lambda served: knock(served, headers=(("origin", "http://evil.example"), ("origin", served.origin))) == [400],
    "two lengths": lambda served: knock(served, method="POST", headers=(
        ("content-length", "1"), ("transfer-encoding", "chunked"), *signed(served))) == [400],
    "nobody reads": answered(401, reads("/api/workspaces")),
    "nobody sees a page": answered(401, reads("/w/WS")),
    "nobody asks for events": answered(401, reads("/api/events")),
    "nobody listens": lambda served: begins(served, "/api/stream", {}) == 401,
    "nobody reads the document": answered(401, reads("/api/openapi.json")),
    "nobody posts": lambda served: knock(served, method="POST", headers=(BEARER,)) == [401],
    "no token": answered(403, posts(X_Keepfast_Token=None)),
    "another's token": another_token,
    "a viewer saves": answered(403, as_role("viewer", "POST", "/api/workspaces/WS/checkpoints", SAVE)),
    "a viewer saves by form": answered(403, as_role("viewer", "POST", "/w/WS/save", {})),
    "a viewer opens what is sealed": viewer_opens,
    "what is sealed": closed,
    "what was sealed once": closed_when_gone,
    "opening is recorded": opening_recorded,
    "a ticket twice": twice,
    "an old ticket": old_ticket,
    "an old session": old_session,
    "a session that was left": left,
    "a session brought along": brought,
    "what the database holds": hashed,
    "the empty password": no_password,
    "a wrong password": lambda served: [ticket(served, text).status for text in (PASSWORD[:-1], PASSWORD)] == [401, 200],
    "a proxy that is none": lambda served: (by_proxy("ann", "192.0.2.10")(served), by_proxy("ann")(served)) == (401, 200),
    "a stranger by proxy": lambda served: (by_proxy("eve")(served), by_proxy("")(served)) == (401, 401),
    "a form through a proxy": lambda served: knock(served, method="POST", client=PROXY, headers=(
        ("x-remote-user", "ann"), ("origin", served.origin))) == [403],
    "two names by proxy": lambda served: by_proxy("eve", X_Remote_User="ann")(served) == 400,
    "a sender that lies": answered(401, reads("/api/workspaces", X_Forwarded_For=PROXY, X_Remote_User="ann")),
    "settings: a proxy on loopback": settings_refused(lambda server: server.proxy_of(proxy_options(trusted_proxy=["::1"]))),
    "settings: half a proxy": settings_refused(lambda server: server.proxy_of(proxy_options(trusted_proxy=[]))),
    "settings: a header of ours": settings_refused(lambda server: server.proxy_of(proxy_options(proxy_header="Host"))),
    "settings: a role that is none": settings_refused(lambda server: server.proxy_of(proxy_options(proxy_users=["ann:root"]))),
    "settings: a shared name": settings_refused(lambda server: server.further_origins(["127.0.0.2"], 1, False)),
    "settings: no name": settings_refused(lambda server: server.further_origins(["https://a/b"], 1, False)),
    "door: no certificate, no password": door(False),
    "door: no certificate": door(False, PASSWORD),
    "door: no password": door(True),
    "door: short password": door(True, "short"),
    "door: open password file": door(True, PASSWORD, 0o644),
    "the ticket's file": ticket_file,
    "the database's folder": book_modes,
    "a link for a database": linked_book,
    "a link for a folder": linked_folder,
    "a length that lies": lambda served: knock(served, method="POST", headers=(("content-length", "2000000"),)) == [413],
    "a body without length": chunked,
    "a slow body": slow,
    "a text": answered(415, lambda served: served.ask("POST", served.at(saves(served)), b"x", bare=True, headers={
        **served.browser(), "Content-Type": "text/plain"})),
    "a silent caller": silent,
    "a large head": large_head,
    "too many requests": lambda served: 429 in knock(served, times=310, headers=signed(served)),
    "too many of one": busy,
    "one by one": one_by_one,
    "a second head": second_head,
    "a head behind another": head_behind,
    "an answer that nobody takes": untaken,
    "a crowd of strangers": crowd,
    "a greedy visitor": greedy,
    "a stranger's slow body": stranger_body(2),
    "a stranger's large body": lambda served: ticket(served, "x" * (20 << 10)).status == 413,
    "a reader's body": lambda served: knock(served, headers=(("content-length", "1"),)) == [400],
    "a length twice": refuses_head(
        "POST /session HTTP/1.1\r\nHEADContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}"
    ),
    "a length and a list": refuses_head("POST /session HTTP/1.1\r\nHEADContent-Length: 2, 2\r\n\r\n{}"),
    "an old version": refuses_head("GET /api/workspaces HTTP/0.9\r\nHEAD\r\n"),
    "bare line ends": refuses_head("GET /api/workspaces HTTP/1.1\r\nX-Other: a\nHEAD\r\n"),
    "a header in two lines": refuses_head("GET /api/workspaces HTTP/1.1\r\nHEADX-Other: a\r\n b\r\n\r\n"),
    "what follows a refusal": follows("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer SESSION\r\n\r\n"),
    "what follows a stranger": follows("GET /api/workspaces HTTP/1.1\r\nHost: HOST\r\n\r\n"),
    "a right ticket after wrong ones": after_guesses(lambda served: served.web_database.create_ticket("viewer"), 200),
    "a right password after wrong ones": after_guesses(lambda served: PASSWORD, 429),
    "another peer's guesses": other_guesses,
    "too many at once": crowded,
    "many wrong tickets": guesses,
    "too many streams": streams,
    "answers carry our headers": send_with_headers,
    "refusals carry our headers": lambda served: send_with_headers(served, refused=True),
    "the cookie": cookie,
    "halves are strangers": untold_cookie,
    "both halves": by_halves,
    "a cookie that another port set": tossed,
    "links stay within": leads_within,
    "what a browser is started with": opened_file,
    "the cookie over TLS": secure_cookie,
    "the way back": way_back,
    "a file that is none of ours": answered(404, reads("/static/.hidden")),
    "markup in names": quoted("x", "<b>", "/w/WS/v/latest"),
    "signs in names": quoted("x", "\x1b", "/w/WS/v/latest"),
    "signs in contents": quoted("\x1b[31m", "\x1b", "/w/WS/v/latest/file?path=%3Cb%3E%1B.txt"),
    "paths that climb": with_file("../x"),
    "a field that is none": answered(400, lambda served: served.ask("POST", saves(served), {"by": "operator"})),
    "the audit trail": audited,
    "a foreign form": answered(403, form(FORM, b"message=x")),
}  # fmt: skip


def serve(base: Path, parts: Any) -> Served:
    made = Served(base, world=parts, password=PASSWORD)
    (made.root / "a.txt").write_text("a\n")
    made.saver.save("manual")
    return made


def test_the_server_as_it_is_passes_every_probe(tmp_path: Path) -> None:
    with world(None) as parts:
        served = serve(tmp_path, parts)
        try:
            wrong = []
            for name, probe in PROBES.items():
                served.gate.buckets.clear()
                served.gate.wrong.clear()
                if not probe(served):
                    wrong.append(name)
        finally:
            served.close()

    assert wrong == []


def test_every_probe_has_a_mutant_that_needs_it() -> None:
    assert {mutant.probe for mutant in MUTANTS} <= PROBES.keys()
    assert PROBES.keys() - {mutant.probe for mutant in MUTANTS} == {"a foreign form"}  # several checks refuse it


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.check for mutant in MUTANTS])
def test_a_check_that_is_gone_is_noticed(tmp_path: Path, mutant: Mutant, request: pytest.FixtureRequest) -> None:
    if MUTANTS.index(mutant) % SAMPLE and not request.config.getoption("campaign"):
        pytest.skip("one of the campaign's: `make campaign` runs them all")
    with world(mutant) as parts:
        served = serve(tmp_path, parts)
        try:
            held = PROBES[mutant.probe](served)
        except Exception:
            held = False  # a server that no longer answers has been noticed as well
        finally:
            served.close()

    assert not held
