"""Attacks on the page: each is refused and changes nothing, its honest twin succeeds, and no check can go unnoticed."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.frontends.web import gate
from holdfast.frontends.web.book import APPROVER, VIEWER
from holdfast.frontends.web.gate import Gate
from web.served import Answer, Served

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
        return served.ask("POST", saves(served), SAVE, bare=True, headers=sent)

    return send


def with_host(host: str) -> Callable[[Served], Answer]:
    def send(served: Served) -> Answer:
        headers = {"Host": host.replace("PORT", str(served.port)), "Authorization": f"Bearer {served.session}"}
        return served.ask("POST", saves(served), SAVE, bare=True, headers=headers)

    return send


def form(kind: str, body: bytes) -> Callable[[Served], Answer]:
    """What a foreign page's form can send: our cookie goes along, nothing else of ours does."""

    def send(served: Served) -> Answer:
        headers = {"Host": served.host, "Cookie": f"holdfast_session={served.session}", "Content-Type": kind,
                   "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}  # fmt: skip
        return served.ask("POST", f"/w/{served.saver.workspace}/save", body, bare=True, headers=headers)

    return send


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
        session = served.book.enter(role, "somebody else")
        answer = served.ask(verb, path.replace("WS", served.saver.workspace), body,
                            headers={"Authorization": f"Bearer {session}"})  # fmt: skip
        visitor = served.book.visitor(session)
        assert visitor is not None
        served.book.leave(visitor)
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
STATICS = ("/static/../book.py", "/static/%2e%2e/book.py", "/static/..%2fbook.py", "/static//etc/passwd", "/static/holdfast.css/..",
           "/static/.hidden", "/static/%00")  # fmt: skip

ATTACKS = [
    *[Attack(f"W1 no session: {path}", reads(path)) for path in READ],
    *[Attack(f"W2 wrong session: {path}", reads(path, Authorization="Bearer guessed")) for path in READ[:12]],
    Attack("W2 empty bearer", reads("/api/workspaces", Authorization="Bearer ")),
    Attack("W2 basic instead", reads("/api/workspaces", Authorization="Basic b3BlcmF0b3I6")),
    Attack("W2 cookie of another name", reads("/api/workspaces", Cookie="session=x")),
    Attack("W2 broken cookie", reads("/api/workspaces", Cookie="holdfast_session=;;;=;\x00")),
    *[Attack(f"W3 W4 origin {origin}", posts(Origin=origin)) for origin in ORIGINS],
    Attack("W5 cookie without origin", posts(Origin=None)),
    Attack("W5 no origin, no token", posts(Origin=None, X_Holdfast_Token=None)),
    *[Attack(f"W6 W7 host {host!r}", with_host(host)) for host in HOSTS],
    Attack("W8 form, urlencoded", form(FORM, b"message=x")),
    Attack("W8 form, text", form("text/plain", b'{"message":"x"}')),
    Attack("W8 form, multipart", form("multipart/form-data; boundary=a", b"--a--")),
    Attack("W8 form with a guessed token", form(FORM, b"message=x&_token=" + b"0" * 64)),
    Attack("W8 no token", posts(X_Holdfast_Token=None)),
    Attack("W8 wrong token", posts(X_Holdfast_Token="0" * 64)),
    Attack("W8 token with other letters", posts(X_Holdfast_Token="é" * 64)),
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


def test_there_are_enough_attacks() -> None:
    assert len(ATTACKS) >= 150


def test_every_attack_is_refused_and_changes_nothing(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    session = served.session
    before = served.digest()
    got_in, broke = [], []
    for attack in ATTACKS:
        if served.site.gate is not None:
            served.site.gate.buckets.clear()
        answer = attack.send(served)
        if answer.status < 400 and not _is_empty_refusal(attack, answer):
            got_in.append((attack.name, answer.status, answer.body[:100]))
        if answer.status >= 500:
            broke.append((attack.name, answer.status, answer.body[:200]))

    assert got_in == []
    assert broke == []
    assert served.session == session
    assert served.digest() == before
    with capsys.disabled():
        print(f"\n{len(ATTACKS)} attacks refused")


def _is_empty_refusal(attack: Attack, answer: Answer) -> bool:
    # Reading by HEAD is harmless where GET is allowed.
    return attack.name == "W20 HEAD" and answer.body == b""


def test_the_honest_twin_of_each_attack_succeeds(served: Served) -> None:
    path = saves(served)
    twins = {
        "with a session": served.ask("GET", "/api/workspaces"),
        "from our page": posts()(served),
        "by a program without origin": served.ask("POST", path, SAVE),
        "our host": with_host(served.host)(served),
        "our form": served.ask("POST", f"/w/{served.saver.workspace}/save", f"message=x&_token={served.token()}".encode(),
                               bare=True, headers={**served.browser(), "Content-Type": FORM, "X-Holdfast-Token": ""}),
        "a file": served.ask("GET", f"{path}/v2/file?path=src/main.py"),
        "our style": served.ask("GET", "/static/holdfast.css", bare=True),
        "a navigation from elsewhere": served.ask("GET", "/", bare=True, headers={
            **served.browser(), "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Origin": served.origin}),
        "a viewer looks": as_role(VIEWER, "GET", "/api/workspaces/WS/checkpoints", {})(served),
        "the document": served.ask("GET", "/api/openapi.json"),
    }  # fmt: skip

    assert {name: answer.status for name, answer in twins.items() if answer.status >= 400} == {}


def test_a_gate_without_its_checks_is_noticed(tmp_path: Path) -> None:
    """Each check is taken out in turn; some attack must then get in."""

    class NoPlace(Gate):
        def _check_place(self, scope: Any, headers: dict[str, str]) -> None: ...

    class NoToken(Gate):
        def _check_visitor(self, scope: Any, headers: dict[str, str]) -> None:
            scope["holdfast.visitor"] = self.book.visitor(gate._bearer(headers) or gate._cookie(headers, False))

    class Anybody(Gate):
        def _visitor(self, session: str) -> Any:
            return self.book.visitor(self.everybody)

        everybody = ""

    for number, mutant in enumerate((NoPlace, NoToken, Anybody)):
        served = Served(tmp_path / str(number), gate=mutant)
        if isinstance(served.site.gate, Anybody):
            served.site.gate.everybody = served.session
        try:
            served.saver.save("manual")
            got_in = []
            for attack in ATTACKS:
                assert served.site.gate is not None
                served.site.gate.buckets.clear()
                if attack.name.startswith("W9 cross-site read") or "stream" in attack.name:
                    continue  # a stream that is let in never ends
                if attack.send(served).status < 400 and attack.name != "W20 HEAD":
                    got_in.append(attack.name)
        finally:
            served.close()

        assert got_in, mutant.__name__


def test_a_ticket_works_once(served: Served) -> None:
    ticket = served.book.ticket("viewer")

    first = served.ask("POST", "/session", {"ticket": ticket}, bare=True)
    second = served.ask("POST", "/session", {"ticket": ticket}, bare=True)

    assert (first.status, second.status) == (200, 401)
    assert first.json()["data"]["role"] == "viewer"
    assert "HttpOnly" in first.headers["set-cookie"]
    assert "Domain" not in first.headers["set-cookie"]


def test_wrong_tickets_are_counted(served: Served) -> None:
    answers = [served.ask("POST", "/session", {"ticket": f"guess {number}"}, bare=True).status for number in range(12)]

    assert answers[:10] == [401] * 10
    assert answers[10:] == [429, 429]


def test_a_session_is_fresh_and_ends_when_it_is_left(served: Served) -> None:
    """W17: a session that the visitor brings along is not adopted, and leaving ends it everywhere."""
    ticket = served.book.ticket("operator")
    answer = served.ask("POST", "/session", {"ticket": ticket}, bare=True, headers={"Cookie": "holdfast_session=mine"})
    fresh = answer.json()["data"]["session"]
    assert fresh != "mine"
    left = served.ask("POST", "/leave", {}, headers={"Authorization": f"Bearer {fresh}"})

    assert left.status == 303
    assert served.ask("GET", "/api/workspaces", headers={"Authorization": f"Bearer {fresh}"}).status == 401


def test_too_many_requests_are_slowed_down(served: Served) -> None:
    assert served.site.gate is not None
    served.site.gate.buckets.clear()
    answers = {served.ask("GET", "/api/nothing").status for _ in range(700)}

    assert 429 in answers


def test_no_answer_lets_another_page_in(served: Served) -> None:
    """W10, W14: no CORS header, no framing, no referrer for others, no cache, on any answer."""
    for answer in (served.ask("GET", "/"), served.ask("GET", "/api/workspaces"), served.ask("GET", "/nothing"),
                   served.ask("GET", "/", bare=True), served.ask("GET", "/static/holdfast.js")):  # fmt: skip
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_names_and_contents_are_text(served: Served) -> None:
    """W13: markup and escape sequences in names, messages and contents are shown, not done."""
    (served.root / "<img src=x onerror=alert(1)>.txt").write_text("<script>alert(1)</script>\x1b[31mred\u202e\n")
    served.saver.save("manual", message='<b onclick="x">bold</b>\x1b]0;title\x07')
    workspace = served.saver.workspace
    pages = [served.ask("GET", path).body.decode() for path in (
        "/", f"/w/{workspace}", f"/w/{workspace}/v/v3", f"/w/{workspace}/v/v3/tree", "/search?text=bold",
        f"/w/{workspace}/diff?old=v2&new=v3&path=%3Cimg%20src=x%20onerror=alert(1)%3E.txt",
        f"/w/{workspace}/v/v3/file?path=%3Cimg%20src=x%20onerror=alert(1)%3E.txt")]  # fmt: skip

    for page in pages:
        assert "<img src=x" not in page
        assert "<script>alert" not in page
        assert "<b onclick" not in page
        assert "\x1b" not in page
        assert "\u202e" not in page
    assert "&lt;script&gt;" in pages[5]


def test_two_lengths_are_refused(served: Served) -> None:
    """W21: a request that two readers would cut differently."""
    text = (
        f"POST {saves(served)} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.session}\r\n"
        "Content-Type: application/json\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        f"POST {saves(served)} HTTP/1.1\r\nHost: {served.host}\r\nContent-Length: 2\r\n\r\n{{}}"
    )
    before = served.digest()
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(text.encode())
        answer = connection.recv(65536)

    assert b" 400 " in answer.split(b"\r\n")[0]
    assert served.digest() == before


def test_the_ticket_is_for_its_owner_alone(tmp_path: Path) -> None:
    """W18, W19: 0600 in 0700, and a link in its place is not followed."""
    from web.served import Program

    home = tmp_path / "home"
    target = tmp_path / "elsewhere"
    folder = home / ".local/share/holdfast/web"
    folder.mkdir(parents=True)
    (home / "project").mkdir()
    target.write_text("untouched")
    (folder / "ticket").symlink_to(target)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    subprocess.run(
        [sys.executable, "-m", "holdfast", "init"],
        cwd=home / "project",
        env=environment,
        check=True,
        capture_output=True,
    )
    program = Program(home)
    try:
        modes = [stat.S_IMODE((folder / name).lstat().st_mode) for name in ("ticket", "book.db", ".")]
    finally:
        program.stop()

    assert modes == [0o600, 0o600, 0o700]
    assert target.read_text() == "untouched"
    assert not (folder / "ticket").is_symlink()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_other_addresses_need_a_certificate_and_a_password(tmp_path: Path, host: str) -> None:
    """W16."""
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    words = [sys.executable, "-m", "holdfast", "serve", "--no-open", "--port", "0", "--host", host]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert "can be reached from other machines" in done.stderr
