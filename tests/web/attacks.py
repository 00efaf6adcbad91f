"""What may be tried against the page: requests that must be refused, by the attack's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keepfast.web.sessions import APPROVER, VIEWER
from tests.web.served import Answer, Served

SAVE = {"message": "made by an attack"}
FORM = "application/x-www-form-urlencoded"


class Attack(NamedTuple):
    """What is sent, and which checks it must get past; `changes` if it would make a checkpoint where it got in."""

    name: str
    send: Callable[[Served], Answer]


def saves(served: Served) -> str:
    return f"/api/workspaces/{served.saver.workspace}/checkpoints"


def posts(**headers: str | None) -> Callable[[Served], Answer]:
    """A save from a browser with our cookie, with some headers otherwise; None leaves one out."""

    def send(served: Served) -> Answer:
        sent = served.browser()
        for name, value in headers.items():
            key = name.replace("_", "-")
            sent = {had: text for had, text in sent.items() if had.lower() != key.lower()}
            if value is not None:
                sent[key] = value.replace("PORT", str(served.port)).replace("HOST", served.host)
        return served.ask("POST", served.at(saves(served)), SAVE, bare=True, headers=sent)

    return send


def with_host(host: str) -> Callable[[Served], Answer]:
    def send(served: Served) -> Answer:
        headers = {"Host": host.replace("PORT", str(served.port)), "Authorization": f"Bearer {served.session}"}
        return served.ask("POST", saves(served), SAVE, bare=True, headers=headers)

    return send


def form(kind: str, body: bytes) -> Callable[[Served], Answer]:
    """What a foreign page's form can send: our cookie goes along, nothing else of ours does."""

    def send(served: Served) -> Answer:
        headers = {"Host": served.host, "Cookie": served.cookie(), "Content-Type": kind,
                   "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}  # fmt: skip
        return served.ask("POST", served.at(f"/w/{served.saver.workspace}/save"), body, bare=True, headers=headers)

    return send


def half(path: str, folder: bool, cookie: bool) -> Callable[[Served], Answer]:
    """What somebody sends who got hold of one half of a session."""

    def send(served: Served) -> Answer:
        at = path.replace("WS", served.saver.workspace)
        headers = {"Cookie": served.cookie()} if cookie else {}
        return served.ask("GET", served.at(at) if folder else at, bare=True, headers=headers)

    return send


def whole_as_cookie(path: str) -> Callable[[Served], Answer]:
    def send(served: Served) -> Answer:
        at = path.replace("WS", served.saver.workspace)
        return served.ask("GET", at, bare=True, headers={"Cookie": f"keepfast_session={served.session}"})

    return send


def mixed(served: Served) -> Answer:
    """The folder of one session with the cookie of another."""
    other = served.web_database.create_session("operator", "somebody else")
    answer = served.ask("GET", served.at("/", other), bare=True, headers={"Cookie": served.cookie()})
    visitor = served.web_database.visitor(other)
    assert visitor is not None
    served.web_database.end_session(visitor)
    return answer


def reads(path: str, **headers: str) -> Callable[[Served], Answer]:
    def send(served: Served) -> Answer:
        sent = {name.replace("_", "-"): value.replace("HOST", served.host) for name, value in headers.items()}
        return served.ask("GET", path.replace("WS", served.saver.workspace), bare=True, headers=sent)

    return send


def method(name: str, **headers: str) -> Callable[[Served], Answer]:
    def send(served: Served) -> Answer:
        sent = {key.replace("_", "-"): value for key, value in headers.items()}
        return served.ask(name, saves(served), SAVE if name not in ("TRACE", "HEAD") else None, headers=sent)

    return send


def as_role(role: str, verb: str, path: str, body: dict[str, Any]) -> Callable[[Served], Answer]:
    def send(served: Served) -> Answer:
        session = served.web_database.create_session(role, "somebody else")
        answer = served.ask(verb, path.replace("WS", served.saver.workspace), body if verb != "GET" else None,
                            headers={"Authorization": f"Bearer {session}"})  # fmt: skip
        visitor = served.web_database.visitor(session)
        assert visitor is not None
        served.web_database.end_session(visitor)
        return answer

    return send


READ = ("/api/workspaces", "/api/workspaces/WS", "/api/workspaces/WS/status", "/api/workspaces/WS/checkpoints",
        "/api/workspaces/WS/checkpoints/v1", "/api/workspaces/WS/diff?old=v1", "/api/search?text=a", "/api/storage",
        "/api/events", "/api/stream", "/api/openapi.json", "/api/workspaces/WS/history?path=new.txt",
        "/api/workspaces/WS/checkpoints/v2/file?path=new.txt", "/", "/w/WS", "/w/WS/v/v1", "/w/WS/diff?old=v1&new=v2",
        "/w/WS/restore?reference=v1", "/search?text=a", "/storage", "/health")  # fmt: skip
HOSTS = ("evil.example", "evil.example:PORT", "127.0.0.1:PORT", "localhost:PORT", "[::1]:PORT", "2130706433:PORT",
         "0x7f000001:PORT", "hf-test.localhost", "hf-test.localhost.:PORT", "HF-TEST.localhost:PORT:80",
         "hf-test.localhost:PORT.evil.example", "evil.hf-test.localhost:PORT", "0.0.0.0:PORT", "127.1:PORT", "",
         "hf-test.localhost:1")  # fmt: skip
ORIGINS = ("http://evil.example", "null", "https://HOST", "http://localhost:PORT", "http://127.0.0.1:PORT",
           "http://hf-test.localhost", "http://hf-test.localhost:1", "http://HOST.evil.example", "http://evil.HOST",
           "file://", "http://HOST/", " http://HOST x")  # fmt: skip
OPERATOR_ONLY: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", "/api/workspaces/WS/checkpoints", SAVE),
    ("PATCH", "/api/workspaces/WS/checkpoints/v1", {"pinned": True}),
    ("POST", "/api/workspaces/WS/forget", {"references": ["v1"]}),
    ("POST", "/api/workspaces/WS/restore", {"reference": "v1"}),
    ("POST", "/api/workspaces/WS/undo", {}),
    ("POST", "/api/workspaces/WS/redo", {}),
    ("POST", "/api/workspaces/WS/finish", {}),
    ("POST", "/api/workspaces/WS/fork", {"reference": "v1", "folder": "/tmp/never-made"}),
    ("POST", "/w/WS/save", {}),
    ("POST", "/w/WS/v/v1/forget", {}),
)
PATHS = ("../../../etc/passwd", "/etc/passwd", "src/../../x", "./new.txt", "src//main.py", "new.txt%00.png", "..%2f..%2fetc",
         "base64:Ly4uL2V0Yw==", "%2e%2e/x", ".")  # fmt: skip
STATICS = ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/static/keepfast.css/..",
           "/static/.hidden", "/static/%00")  # fmt: skip

ATTACKS = [
    *[Attack(f"W1 no session: {path}", reads(path)) for path in READ],
    *[Attack(f"W2 wrong session: {path}", reads(path, Authorization="Bearer guessed")) for path in READ[:12]],
    Attack("W2 empty bearer", reads("/api/workspaces", Authorization="Bearer ")),
    Attack("W2 basic instead", reads("/api/workspaces", Authorization="Basic b3BlcmF0b3I6")),
    Attack("W2 cookie of another name", reads("/api/workspaces", Cookie="session=x")),
    Attack("W2 broken cookie", reads("/api/workspaces", Cookie="keepfast_session=;;;=;\x00")),
    *[Attack(f"W24 the cookie alone: {path}", half(path, False, True)) for path in READ],
    *[Attack(f"W24 the folder alone: {path}", half(path, True, False)) for path in READ],
    *[Attack(f"W24 both as a cookie: {path}", whole_as_cookie(path)) for path in READ],
    Attack("W24 halves of two sessions", mixed),
    *[Attack(f"W3 W4 origin {origin}", posts(Origin=origin)) for origin in ORIGINS],
    Attack("W5 cookie without origin", posts(Origin=None)),
    Attack("W5 no origin, no token", posts(Origin=None, X_Keepfast_Token=None)),
    *[Attack(f"W6 W7 host {host!r}", with_host(host)) for host in HOSTS],
    Attack("W8 form, urlencoded", form(FORM, b"message=x")),
    Attack("W8 form, text", form("text/plain", b'{"message":"x"}')),
    Attack("W8 form, multipart", form("multipart/form-data; boundary=a", b"--a--")),
    Attack("W8 form with a guessed token", form(FORM, b"message=x&_token=" + b"0" * 64)),
    Attack("W8 no token", posts(X_Keepfast_Token=None)),
    Attack("W8 wrong token", posts(X_Keepfast_Token="0" * 64)),
    Attack("W8 token with other letters", posts(X_Keepfast_Token="é" * 64)),
    *[Attack(f"W9 {site} read of the stream", reads("/api/stream", Sec_Fetch_Site=site, Sec_Fetch_Mode="cors", Cookie="x"))
      for site in ("cross-site", "same-site")],
    *[Attack(f"W9 sent from {site}", posts(Sec_Fetch_Site=site)) for site in ("cross-site", "same-site", "weird")],
    Attack("W9 websocket", reads("/api/stream", Connection="Upgrade", Upgrade="websocket", Sec_WebSocket_Version="13",
                                 Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==", Origin="http://evil.example")),
    Attack("W10 preflight", method("OPTIONS", Origin="http://evil.example", Access_Control_Request_Method="POST")),
    Attack("W11 session in the address", lambda served: served.ask("GET", f"/api/workspaces?session={served.session}", bare=True)),
    Attack("W11 ticket in the address", lambda served: served.ask("GET", f"/?ticket={served.session}", bare=True)),
    *[Attack(f"W12 {path}", lambda served, path=path: served.ask(  # type: ignore[misc]
        "GET", f"/api/workspaces/{served.saver.workspace}/checkpoints/v2/file?path={path}")) for path in PATHS],
    *[Attack(f"W12 {path}", lambda served, path=path: served.ask("GET", path)) for path in STATICS],  # type: ignore[misc]
    Attack("W15 large body", lambda served: served.ask("POST", saves(served), {"message": "x" * (2 << 20)})),
    Attack("W15 length that lies", lambda served: served.ask("POST", saves(served), b"{}", headers={
        "Content-Type": "application/json", "Content-Length": "99999999999"})),
    Attack("W15 length that is none", lambda served: served.ask("POST", saves(served), b"{}", headers={"Content-Length": "-1"})),
    Attack("W15 large head", reads("/api/workspaces", X_Filler="x" * (64 << 10))),
    *[Attack(f"W20 {name}", method(name)) for name in ("TRACE", "PUT", "CONNECT", "PROPFIND", "FOO", "HEAD")],
    Attack("W20 override", lambda served: served.ask("GET", saves(served) + "?_method=POST", headers={
        "X-HTTP-Method-Override": "POST"})),
    *[Attack(f"roles: a {role} may not {verb} {path}", as_role(role, verb, path, body))
      for role in (VIEWER, APPROVER) for verb, path, body in OPERATOR_ONLY],
    *[Attack(f"input: {body!r}", lambda served, body=body: served.ask("POST", saves(served), body, headers={  # type: ignore[misc]
        "Content-Type": "application/json"}))
      for body in (b"[]", b"{", b"1", b'{"message":1}', b'{"unknown":"x"}', b'{"tags":"x"}', b'{"tags":[1]}', b'{"pinned":"yes"}',
                   b"[" * 50_000, b'{"message":"' + b"x" * 3000 + b'"}', b"\xff\xfe")],
    *[Attack(f"unknown: {path}", lambda served, path=path: served.ask("GET", path))  # type: ignore[misc]
      for path in ("/api/workspaces/" + "0" * 32, "/api/workspaces/../../x", "/w/" + "0" * 32, "/nothing", "/api/nothing",
                   "/api/workspaces/WS", "/api/search", "/api/search?text=", "/api/search?text=a&limit=0",
                   "/api/search?text=a&limit=x")],
]  # fmt: skip
