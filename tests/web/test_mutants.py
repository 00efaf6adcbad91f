"""No check of the server can go unnoticed: each probe finds the server sound, and finds the one without its check out."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import Failed, Usage
from web.attacks import FORM, SAVE, as_role, form, posts, reads, saves, with_host
from web.mutants import MUTANTS, Mutant, world
from web.served import ELSEWHERE, HUNG_UP, PATIENCE, PROXY, Served

Probe = Callable[[Served], bool]
DAY = 86_400 * 10**9
PASSWORD = "correct horse battery"
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
    module, sent = served.world.gate, list[Any]()

    async def passes(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def nothing() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] != "http.response.body":
            sent.append(message.get("status", message["type"]))

    made = module.Gate(passes, served.book, served.gate.origins, served.site._refuse, lambda: 0.0, served.gate.proxy)
    raw = [(b"host", served.host.encode())] + [(name.encode(), value.encode()) for name, value in headers]
    scope = {"type": kind, "method": method, "path": path, "headers": raw, "client": (client, 1), "query_string": b"",
             "server": ("x", 1), "scheme": "http", "root_path": ""}  # fmt: skip

    async def knocks() -> None:
        for _ in range(times):
            await asyncio.wait_for(made(dict(scope), receive or nothing, send), 5)

    asyncio.run(knocks())
    return sent


def slow(served: Served) -> bool:
    async def never() -> Any:
        await asyncio.sleep(60)

    had, served.world.gate.BODY_SECONDS = served.world.gate.BODY_SECONDS, 0.05
    try:
        return knock(served, method="POST", receive=never) == [408]
    except TimeoutError:
        return False
    finally:
        served.world.gate.BODY_SECONDS = had


def crowded(served: Served) -> bool:
    had, served.world.gate.MOST_AT_ONCE = served.world.gate.MOST_AT_ONCE, 0
    try:
        return knock(served, headers=(("authorization", f"Bearer {served.session}"),)) == [503]
    finally:
        served.world.gate.MOST_AT_ONCE = had


def streams(served: Served) -> bool:
    had, served.world.app.MOST_STREAMS = served.world.app.MOST_STREAMS, 0
    try:
        return begins(served, "/api/stream", {"Authorization": f"Bearer {served.session}"}) == 503
    finally:
        served.world.app.MOST_STREAMS = had


def begins(served: Served, path: str, headers: dict[str, str]) -> int:
    """The status of an answer that may never end."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers={"Host": served.host, **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def silent(served: Served) -> bool:
    had, served.world.server.HEAD_SECONDS = served.world.server.HEAD_SECONDS, 0.1
    try:
        with socket.create_connection(("127.0.0.1", served.port), timeout=3) as caller:
            caller.sendall(b"GET / HTTP/1.1\r\nHost:")
            return caller.recv(1) == b""
    except TimeoutError:
        return False
    finally:
        served.world.server.HEAD_SECONDS = had


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
    return served.ask("POST", saves(served), body, bare=True, headers=headers).status in (413, HUNG_UP)


def another_token(served: Served) -> bool:
    other = served.book.enter("operator", "somebody else")
    return answered(403, posts(X_Holdfast_Token=served.token(other)))(served)


def ticket(served: Served, value: str, **headers: str) -> Any:
    return served.ask("POST", "/session", {"ticket": value}, bare=True, headers={"Host": served.host, **headers})


def twice(served: Served) -> bool:
    value = served.book.ticket("viewer")
    return [ticket(served, value).status for _ in range(2)] == [200, 401]


def no_password(served: Served) -> bool:
    had, served.site.password = served.site.password, lambda: ""
    try:
        return bool(ticket(served, "").status == 401)
    finally:
        served.site.password = had


@contextmanager
def later(served: Served, by: int) -> Iterator[None]:
    clock = served.book.clock
    served.book.clock = lambda: clock() + by
    try:
        yield
    finally:
        served.book.clock = clock


def old_ticket(served: Served) -> bool:
    value = served.book.ticket("viewer")
    with later(served, DAY):
        return bool(ticket(served, value).status == 401)


def old_session(served: Served) -> bool:
    with later(served, 31 * DAY):
        return served.ask("GET", "/api/workspaces").status == 401


def left(served: Served) -> bool:
    session = {"Authorization": f"Bearer {served.book.enter('viewer', 'somebody')}"}
    before = served.ask("GET", "/api/workspaces", headers=session).status
    served.ask("POST", "/leave", {}, headers=session)
    return (before, served.ask("GET", "/api/workspaces", headers=session).status) == (200, 401)


def brought(served: Served) -> bool:
    answer = ticket(served, served.book.ticket("viewer"), Cookie=f"holdfast_session={served.session}")
    return bool(answer.json()["data"]["session"] != served.session)


def hashed(served: Served) -> bool:
    value = served.book.ticket("viewer")
    text = (served.base / "web/book.db").read_bytes()
    return served.session.encode() not in text and value.encode() not in text


def dressed(served: Served, refused: bool = False) -> bool:
    answers = [served.ask("GET", "/", headers={"Host": "evil.example"})] if refused else [
        served.ask("GET", "/"), served.ask("GET", "/api/workspaces"), served.ask("GET", "/nothing")]  # fmt: skip
    for answer in answers:
        if {name: answer.headers.get(name) for name in HEADERS} != HEADERS:
            return False
        if set(answer.headers["content-security-policy"].split("; ")) != POLICY:
            return False
    return True


def cookie(served: Served) -> bool:
    said = ticket(served, served.book.ticket("viewer")).headers["set-cookie"].lower()
    return "httponly" in said and "samesite=lax" in said and "path=/" in said and "domain" not in said


def secure_cookie(served: Served) -> bool:
    said = ticket(served, served.book.ticket("viewer"), Host=ELSEWHERE).headers["set-cookie"]
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
        seen.append(scope["holdfast.visitor"])

    async def drop(message: Any) -> None:
        if "status" in message:
            seen.append(message["status"])

    gate = served.world.gate
    made = gate.Gate(looks, served.book, served.gate.origins, served.site._refuse, lambda: 0.0, served.gate.proxy)
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
            lambda server: server._refuse_open_door("0.0.0.0", secure, None, {"password_file": str(file)})
        )
        return call(served)

    return probe


def ticket_file(served: Served) -> bool:
    mask = os.umask(0)
    try:
        served.world.server._announce(served.book, served.origin, {})
    finally:
        os.umask(mask)
    return stat.S_IMODE((served.base / "web/ticket").lstat().st_mode) == 0o600


def book_modes(served: Served) -> bool:
    mask = os.umask(0)
    try:
        served.world.book.Book(str(served.base / "another"), lambda: 0).close()
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
        served.world.book.Book(str(folder), lambda: 0).close()
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
    found = {(one["action"], one["target"].rpartition("/")[2], one["outcome"]) for one in served.book.audited(10)}
    return found >= {("POST", "checkpoints", "done"), ("POST", "session", "refused")}


def way_back(served: Served) -> bool:
    body = b"language=ko&back=//evil.example/&_token=" + served.token().encode()
    answer = served.ask("POST", "/language", body, bare=True, headers={**served.browser(), "Content-Type": FORM})
    return (answer.status, answer.headers.get("location")) == (303, "/")


def with_file(path: str) -> Probe:
    return lambda served: served.ask("GET", f"{saves(served)}/v1/file?path={path}").status == 400


BEARER = ("authorization", "Bearer x")
PROBES: dict[str, Probe] = {
    "methods": lambda served: knock(served, method="PUT") == [405],
    "foreign host": answered(421, with_host("evil.example")),
    "cross-site request": answered(403, posts(Sec_Fetch_Site="cross-site")),
    "cross-site form": answered(403, posts(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")),
    "foreign origin": answered(403, posts(Origin="http://evil.example")),
    "cookie without origin": answered(403, posts(Origin=None)),
    "websocket": lambda served: knock(served, kind="websocket") == ["websocket.close"],
    "two origins": lambda served: knock(served, headers=(("origin", "http://evil.example"), ("origin", served.origin))) == [400],
    "two lengths": lambda served: knock(served, headers=(("content-length", "1"), ("transfer-encoding", "chunked"))) == [400],
    "nobody reads": answered(401, reads("/api/workspaces")),
    "nobody sees a page": answered(401, reads("/w/WS")),
    "nobody asks for events": answered(401, reads("/api/events")),
    "nobody listens": lambda served: begins(served, "/api/stream", {}) == 401,
    "nobody reads the document": answered(401, reads("/api/openapi.json")),
    "nobody posts": lambda served: knock(served, method="POST", headers=(BEARER,)) == [401],
    "no token": answered(403, posts(X_Holdfast_Token=None)),
    "another's token": another_token,
    "a viewer saves": answered(403, as_role("viewer", "POST", "/api/workspaces/WS/checkpoints", SAVE)),
    "a viewer saves by form": answered(403, as_role("viewer", "POST", "/w/WS/save", {})),
    "a ticket twice": twice,
    "an old ticket": old_ticket,
    "an old session": old_session,
    "a session that was left": left,
    "a session brought along": brought,
    "what the book holds": hashed,
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
    "the book's folder": book_modes,
    "a link for a book": linked_book,
    "a link for a folder": linked_folder,
    "a length that lies": lambda served: knock(served, method="POST", headers=(("content-length", "2000000"),)) == [413],
    "a body without length": chunked,
    "a slow body": slow,
    "a text": answered(415, lambda served: served.ask("POST", saves(served), b"x", bare=True, headers={
        **served.browser(), "Content-Type": "text/plain"})),
    "a silent caller": silent,
    "a large head": large_head,
    "too many requests": lambda served: 429 in knock(served, times=310),
    "too many at once": crowded,
    "many wrong tickets": guesses,
    "too many streams": streams,
    "answers carry our headers": dressed,
    "refusals carry our headers": lambda served: dressed(served, refused=True),
    "the cookie": cookie,
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
def test_a_check_that_is_gone_is_noticed(tmp_path: Path, mutant: Mutant) -> None:
    with world(mutant) as parts:
        served = serve(tmp_path, parts)
        try:
            held = PROBES[mutant.probe](served)
        except Exception:
            held = False  # a server that no longer answers has been noticed as well
        finally:
            served.close()

    assert not held
