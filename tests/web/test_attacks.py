"""Attacks on the page: each is refused and changes nothing, its honest twin succeeds, and no check can go unnoticed."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from keepfast.web.access import BURST
from keepfast.web.connection import fault_in
from keepfast.web.sessions import VIEWER
from tests.web.attacks import ATTACKS, FORM, SAVE, Attack, as_role, posts, saves, with_host
from tests.web.served import Answer, Served


def test_there_are_enough_attacks() -> None:
    assert len(ATTACKS) >= 150


def test_every_attack_is_refused_and_changes_nothing(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    session = served.session
    before = served.digest()
    got_in, broke = [], []
    for attack in ATTACKS:
        served.gate.buckets.clear()
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
        "our form": served.ask("POST", served.at(f"/w/{served.saver.workspace}/save"),
                               f"message=x&_token={served.token()}".encode(), bare=True,
                               headers={**served.browser(), "Content-Type": FORM, "X-Keepfast-Token": ""}),
        "a file": served.ask("GET", f"{path}/v2/file?path=src/main.py"),
        "our style": served.ask("GET", "/static/keepfast.css", bare=True),
        "both halves": served.ask("GET", served.at("/"), bare=True, headers={"Cookie": served.cookie()}),
        "a navigation from elsewhere": served.ask("GET", served.at("/"), bare=True, headers={
            **served.browser(), "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Origin": served.origin}),
        "a viewer looks": as_role(VIEWER, "GET", "/api/workspaces/WS/checkpoints", {})(served),
        "the document": served.ask("GET", "/api/openapi.json"),
    }  # fmt: skip

    assert {name: answer.status for name, answer in twins.items() if answer.status >= 400} == {}


def test_a_ticket_works_once(served: Served) -> None:
    ticket = served.web_database.create_ticket("viewer")

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
    ticket = served.web_database.create_ticket("operator")
    answer = served.ask("POST", "/session", {"ticket": ticket}, bare=True, headers={"Cookie": "keepfast_session=mine"})
    fresh = answer.json()["data"]["session"]
    assert fresh != "mine"
    left = served.ask("POST", "/leave", {}, headers={"Authorization": f"Bearer {fresh}"})

    assert left.status == 303
    assert served.ask("GET", "/api/workspaces", headers={"Authorization": f"Bearer {fresh}"}).status == 401


def test_too_many_requests_are_slowed_down(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst passes, then it is enough; the gate's clock stands still, so that a slow machine is told the same."""
    now = served.gate.clock()
    monkeypatch.setattr(served.gate, "clock", lambda: now)
    served.gate.buckets.clear()
    answers = [served.ask("GET", "/api/nothing").status for _ in range(int(BURST) + 1)]
    served.gate.buckets.clear()

    assert answers == [404] * int(BURST) + [429]


def test_no_answer_lets_another_page_in(served: Served) -> None:
    """W10, W14: no CORS header, no framing, no referrer for others, no cache, on any answer."""
    for answer in (served.ask("GET", "/"), served.ask("GET", "/api/workspaces"), served.ask("GET", "/nothing"),
                   served.ask("GET", "/", bare=True), served.ask("GET", "/static/keepfast.js")):  # fmt: skip
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


@pytest.mark.parametrize("before", ["", "GET /api/workspaces"], ids=["alone", "behind another request"])
@pytest.mark.parametrize(
    "folded", ["Transfer-Encoding:\r\n chunked", "Transfer-Encoding:\r\n\tchunked", "X-Other: a\r\n b"]
)
def test_a_header_that_goes_on_in_another_line_is_refused(served: Served, folded: str, before: str) -> None:
    """What stands before us may not take the second line for a part of the header."""
    head = f"Host: {served.host}\r\nAuthorization: Bearer {served.session}\r\n"
    text = f"{before} HTTP/1.1\r\n{head}\r\n" if before else ""
    length = "" if "chunked" in folded else "Content-Length: 12\r\n"
    text += f"POST {saves(served)} HTTP/1.1\r\n{head}Content-Type: application/json\r\n{length}{folded}\r\n\r\n"
    text += "2\r\n{}\r\n0\r\n\r\n"
    was = served.digest()
    answer = b""
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(text.encode())
        while part := connection.recv(65536):
            answer += part

    statuses = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == ([200, 400] if before else [400])
    assert served.digest() == was


ODD_HEADS = {
    "equal lengths twice": "POST AT HTTP/1.1\r\nHEADContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "equal lengths in one line": "POST AT HTTP/1.1\r\nHEADContent-Length: 2, 2\r\n\r\n{}",
    "a length in capitals": "POST AT HTTP/1.1\r\nHEADcontent-length: 2\r\nCONTENT-LENGTH: 2\r\n\r\n{}",
    "no version": "GET /api/workspaces\r\n\r\n",
    "no version, with headers": "GET /api/workspaces\r\nHEAD\r\n",
    "version 0.9": "GET /api/workspaces HTTP/0.9\r\nHEAD\r\n",
    "bare line ends": "POST AT HTTP/1.1\nHEADContent-Length: 2\n\n{}",
    "one bare line end": "POST AT HTTP/1.1\r\nHEADX-Other: a\nContent-Length: 2\r\n\r\n{}",
    "a bare end of the head": "POST AT HTTP/1.1\r\nHEADContent-Length: 2\r\n\n{}",
    "a bare CR": "POST AT HTTP/1.1\r\nHEADX-Other: a\rContent-Length: 2\r\n\r\n",
    "a blank before the colon": "POST AT HTTP/1.1\r\nHEADContent-Length : 2\r\n\r\n{}",
    "a tab before the colon": "POST AT HTTP/1.1\r\nHEADX-Other\t: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a header before all others goes on": "POST AT HTTP/1.1\r\n Host: a\r\nHEADContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("before", ["", "GET /api/workspaces HTTP/1.1\r\nHEAD\r\n"], ids=["alone", "behind another"])
@pytest.mark.parametrize("name", ODD_HEADS)
def test_a_head_that_others_may_read_otherwise_is_refused_and_the_connection_ends(
    served: Served, name: str, before: str
) -> None:
    head = f"Host: {served.host}\r\nAuthorization: Bearer {served.session}\r\nContent-Type: application/json\r\n"
    follows = f"GET /api/workspaces HTTP/1.1\r\n{head}\r\n"
    text = (before + ODD_HEADS[name] + follows).replace("HEAD", head).replace("AT HTTP", f"{saves(served)} HTTP")
    was = served.digest()
    answer = b""
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(text.encode())
        while part := connection.recv(65536):
            answer += part

    statuses = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == ([200, 400] if before else [400])
    assert served.digest() == was


def test_a_head_is_judged_up_to_its_end() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"

    assert fault_in(head + b"a\n b\nContent-Length: 1\nContent-Length: 1\n") == ""
    assert [fault_in(head[:end]) for end in range(len(head)) if fault_in(head[:end])] == []


def test_the_ticket_is_for_its_owner_alone(tmp_path: Path) -> None:
    """W18, W19: 0600 in 0700, and a link in its place is not followed."""
    from tests.web.served import Program

    home = tmp_path / "home"
    target = tmp_path / "elsewhere"
    folder = home / ".local/share/keepfast/web"
    folder.mkdir(parents=True)
    (home / "project").mkdir()
    target.write_text("untouched")
    (folder / "ticket").symlink_to(target)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    subprocess.run(
        [sys.executable, "-m", "keepfast", "init"],
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
    words = [sys.executable, "-m", "keepfast", "serve", "--no-open", "--port", "0", "--host", host]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert "Other machines can reach" in done.stderr
