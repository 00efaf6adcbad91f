"""The page's door as settings open it: further names, how long somebody stays in, and who shares a cookie with whom."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from keepfast.model.errors import Failed
from keepfast.web.server import listen
from tests.web import chromium
from tests.web.served import PATIENCE, Answer, Program, Served, request

SETTINGS = {"web": {"allowed_hosts": ["https://page.example.org", "desk.example.org"], "session_days": 3}}


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    (home / ".config/keepfast").mkdir(parents=True)
    (home / ".config/keepfast/config.json").write_text(json.dumps(SETTINGS))
    made = Program.__new__(Program)
    made.home, made.port = home, 0
    made.run("init", cwd=home / "project")
    made.start()
    yield made
    made.stop()


def enter(program: Program, host: str) -> Answer:
    ticket = program.run("serve", "--link").strip().partition("#")[2]
    body = json.dumps({"ticket": ticket}).encode()
    return request(program.port, "POST", "/session", body, {"Host": host, "Content-Type": "application/json"})


def test_further_names_are_answered_each_with_its_own_origin_and_cookie(program: Program) -> None:
    behind, beside = "page.example.org", f"desk.example.org:{program.port}"
    through_proxy, direct, other = (
        enter(program, behind),
        enter(program, beside),
        enter(program, "elsewhere.example.org"),
    )
    session = {"Authorization": f"Bearer {json.loads(direct.body)['data']['session']}"}
    page = request(
        program.port, "GET", "/api/workspaces", None, {"Host": behind, "Origin": f"https://{behind}", **session}
    )
    wrong = request(
        program.port, "GET", "/api/workspaces", None, {"Host": behind, "Origin": f"http://{behind}", **session}
    )

    assert (through_proxy.status, direct.status, other.status) == (200, 200, 421)
    assert (page.status, wrong.status) == (200, 403)
    assert through_proxy.headers["set-cookie"].startswith("__Host-keepfast_session=")
    assert "Secure" in through_proxy.headers["set-cookie"]
    assert direct.headers["set-cookie"].startswith("keepfast_session=")
    assert f"Max-Age={3 * 86_400}" in direct.headers["set-cookie"]


@pytest.mark.parametrize(
    "settings",
    [{"allowed_hosts": ["localhost"]}, {"allowed_hosts": ["127.0.0.1"]}, {"allowed_hosts": ["https://a.example/path"]},
     {"trusted_proxy": ["127.0.0.1"], "proxy_header": "X-User", "proxy_users": ["ann"]}, {"proxy_header": "X-User"}],
)  # fmt: skip
def test_settings_that_would_leave_a_door_open_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    (tmp_path / ".config/keepfast").mkdir(parents=True)
    (tmp_path / ".config/keepfast/config.json").write_text(json.dumps({"web": settings}))
    words = [sys.executable, "-m", "keepfast", "serve", "--no-open", "--no-tasks", "--port", "0"]
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert "web." in done.stderr


LOOPBACK = ("localhost", "LOCALHOST", "127.0.0.1", "[::1]")


@pytest.mark.parametrize("name", LOOPBACK)
def test_whoever_may_know_is_led_from_a_shared_name_to_the_pages_own(served: Served, name: str) -> None:
    ticket, host = served.web_database.create_ticket("viewer"), {"Host": f"{name}:{served.port}"}
    by_ticket = served.ask("GET", f"/search?text=a%20b&ticket={ticket}", bare=True, headers=host)
    by_session = served.ask("GET", "/storage", bare=True, headers={**host, "Authorization": f"Bearer {served.session}"})
    by_cookie = served.ask("GET", served.at("/"), bare=True, headers={**host, "Cookie": served.cookie()})

    assert (by_ticket.status, by_session.status, by_cookie.status) == (307, 307, 307)
    assert by_ticket.headers["location"] == f"{served.origin}/search?text=a+b#{ticket}"
    assert by_session.headers["location"] == f"{served.origin}/storage"
    assert by_cookie.headers["location"] == served.origin + served.at("/")
    assert served.web_database.exchange_ticket(ticket, "it was not used up") is not None


@pytest.mark.parametrize("name", [*LOOPBACK, "evil.example"])
@pytest.mark.parametrize("path", ["/", "/w/x", "/api/workspaces", "/static/keepfast.css", "/?ticket=wrong"])
def test_others_on_this_machine_are_not_told_the_pages_own_name(served: Served, name: str, path: str) -> None:
    answer = served.ask("GET", path, bare=True, headers={"Host": f"{name}:{served.port}"})

    assert answer.status == (421 if name == "evil.example" else 401)
    assert b"hf-test" not in answer.body
    assert not [value for value in answer.headers.values() if "hf-test" in value]
    if name != "evil.example" and path in ("/", "/w/x"):
        assert answer.headers["content-type"].startswith("text/html")
        assert b"keepfast serve --link" in answer.body


def test_nothing_is_changed_by_a_shared_name(served: Served) -> None:
    headers = {"Host": f"localhost:{served.port}", "Authorization": f"Bearer {served.session}"}
    path = f"/api/workspaces/{served.saver.workspace}/checkpoints"

    assert served.ask("POST", path, {"message": "no"}, bare=True, headers=headers).status == 421


class Neighbour:
    """Another program of this machine that serves a page; it remembers what browsers send it."""

    def __init__(self) -> None:
        seen: list[dict[str, str]] = []

        class Remembering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.seen = seen
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Remembering)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_another_port_of_this_machine_is_not_sent_our_cookie(program: Program) -> None:
    """W23: cookies do not tell ports apart, names do. The same browser that is signed in here visits the neighbour."""
    try:
        chromium.program()
    except chromium.Unavailable as why:
        pytest.skip(f"NO BROWSER TESTS: {why}")
    neighbour = Neighbour()
    names = ("127.0.0.1", "localhost", "hf-0123456789.localhost")
    try:
        with chromium.browser() as browser:
            browsing = browser.new_context()
            page = browsing.new_page()
            page.goto(program.address)
            page.wait_for_selector("#workspaces")
            assert [one["name"] for one in browsing.cookies()] == ["keepfast_session"]
            for name in names:
                page.goto(f"http://{name}:{neighbour.port}/")
            seen, neighbour.seen[:] = list(neighbour.seen), []
            # The twin: a cookie that lived at 127.0.0.1 would have been sent.
            browsing.add_cookies(
                [{"name": "keepfast_session", "value": "x", "url": f"http://127.0.0.1:{program.port}"}]
            )
            page.goto(f"http://127.0.0.1:{neighbour.port}/")
    finally:
        neighbour.close()

    assert len([one for one in seen if "host" in one]) >= len(names)
    assert [one for one in seen if "cookie" in one or program.host in one.get("referer", "")] == []
    assert [one for one in neighbour.seen if "keepfast_session" in one.get("cookie", "")]


def test_there_is_no_link_where_no_page_runs(program: Program) -> None:
    """Somebody else may have its port, and would be sent the ticket."""
    program.stop()
    with pytest.raises(subprocess.CalledProcessError):
        program.run("serve", "--link")
    program.start()

    assert program.run("serve", "--link").startswith(program.origin)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_link_leads_to_a_server_that_lives(program: Program, how: int) -> None:
    other = Program(program.home)
    both = program.run("serve", "--link").partition("/#")[0]
    other.stop(how)
    one = program.run("serve", "--link").partition("/#")[0]

    assert both == other.origin
    assert one == program.origin


@pytest.fixture
def six() -> Iterator[socket.socket]:
    """A port that another program has at the IPv6 loopback address."""
    if not has_ipv6():
        pytest.skip("this machine has no IPv6")
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::1", 0))
        taken.listen()
        yield taken


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_the_page_has_every_address_that_its_name_may_mean(program: Program) -> None:
    """A browser may ask at either one. Whoever else had the other would be sent the ticket."""
    for address in ("127.0.0.1", "::1") if has_ipv6() else ("127.0.0.1",):
        with socket.create_connection((address, program.port), timeout=PATIENCE) as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nHost: {program.host}\r\n\r\n".encode())

            assert connection.recv(12).endswith(b"401")


def test_a_port_that_somebody_has_at_the_other_address_is_not_used(six: socket.socket) -> None:
    with pytest.raises(Failed):
        listen("127.0.0.1", six.getsockname()[1])


def test_any_port_is_one_that_is_free_at_both_addresses() -> None:
    ours = listen("127.0.0.1", 0)

    assert len({one.getsockname()[1] for one in ours}) == 1
    assert len(ours) == 1 + has_ipv6()
    for one in ours:
        one.close()
