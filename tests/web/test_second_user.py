"""Somebody else who uses this machine: what they can read, ask and lead a browser to lets them in nowhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web import chromium
from tests.web.attacks import READ
from tests.web.served import PATIENCE, Program, Served

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="Only root can be somebody else.")

BECOME = f"""
import encodings.idna, email.parser, glob, http.client, http.server, json, os, socketserver, sys
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
"""
"""Python itself may lie where nobody else can read: all that is needed of it is loaded first."""
ASKS = """
import http.client, json, sys
port, asked = int(sys.argv[1]), json.loads(sys.stdin.read())
for path, headers in asked:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    told = answer.read().decode("utf-8", "replace") if "stream" not in path or answer.status != 200 else ""
    print(json.dumps([answer.status, str(answer.getheaders()) + told]))
    connection.close()
"""
LOOKS = """
import glob, json, sys
found = []
for path in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ"):
    try:
        found.append(open(path, "rb").read().decode("utf-8", "replace"))
    except OSError:
        pass
opened = []
for path in sys.argv[1:]:
    try:
        opened.append(open(path).read())
    except OSError:
        pass
print(json.dumps([found, opened]))
"""
NEIGHBOUR = """
import http.client, json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
port, host = int(sys.argv[1]), sys.argv[2]
class Replaying(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Set-Cookie", "keepfast_session=tossed; Path=/")
        self.end_headers()
        got = []
        for path in {self.path, "/", "/api/workspaces"}:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", path, headers={**dict(self.headers), "Host": host})
            got.append(connection.getresponse().status)
        print(json.dumps([self.path, {name.lower(): value for name, value in self.headers.items()}, got]), flush=True)
    def log_message(self, *_): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Replaying)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def as_nobody(code: str, *words: str, given: str = "") -> Any:
    done = subprocess.run([sys.executable, "-I", "-c", BECOME + code, *words], input=given, capture_output=True,
                          text=True, cwd="/", env={}, timeout=PATIENCE * 4)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def asks(served: Served, asked: list[tuple[str, dict[str, str]]]) -> list[tuple[int, str]]:
    return [(status, told) for status, told in as_nobody(ASKS, str(served.port), given=json.dumps(asked))]


def test_half_a_session_lets_somebody_else_in_nowhere(served: Served) -> None:
    paths = [path.replace("WS", served.saver.workspace) for path in READ]
    host, cookie = {"Host": served.host}, {"Host": served.host, "Cookie": served.cookie()}
    folder = served.at("")
    other = "/~" + "0" * 32
    asked = [
        *[(path, cookie) for path in paths],
        *[(folder + path, host) for path in paths],
        *[(other + path, cookie) for path in paths],
        *[(folder + path, {**host, "Cookie": f"keepfast_session={folder[2:]}"}) for path in paths],
        *[(path, {**host, "Cookie": f"keepfast_session={served.session}"}) for path in paths],
        *[(path, {**host, "Authorization": f"Bearer {half}"}) for path in paths
          for half in (folder[2:], served.cookie().partition("=")[2])],
    ]  # fmt: skip
    answers = asks(served, asked)

    assert [(path, status) for (path, _), (status, _) in zip(asked, answers, strict=True) if status != 401] == []
    assert not [told for _, told in answers if served.token() in told]
    # The twin: with both halves they would be in.
    assert [status for status, _ in asks(served, [(f"{folder}/", cookie)])] == [200]


SIGNS_IN = """
import http.client, json, sys
port, host, ticket = int(sys.argv[1]), sys.argv[2], sys.argv[3]
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
connection.request("POST", "/session", json.dumps({"ticket": ticket}), {"Host": host, "Content-Type": "application/json"})
print(json.dumps(connection.getresponse().status))
"""


def test_a_ticket_that_somebody_else_got_hold_of_lets_them_in_nowhere(served: Served) -> None:
    """It is not used up by that, either."""
    ticket = served.web_database.create_ticket("operator")

    assert as_nobody(SIGNS_IN, str(served.port), served.host, ticket) == [401]
    assert served.ask("POST", "/session", {"ticket": ticket}, bare=True).status == 200


def test_a_session_that_somebody_else_got_hold_of_lets_them_in_nowhere(served: Served) -> None:
    """They may have had our port while we were away, when a page that was still open asked there."""
    ticket = served.web_database.create_ticket("operator")
    answer = served.ask("POST", "/session", {"ticket": ticket}, bare=True)
    session = json.loads(answer.body)["data"]["session"]
    paths = [path.replace("WS", served.saver.workspace) for path in READ]
    host = {"Host": served.host}
    asked = [
        *[(path, {**host, "Authorization": f"Bearer {session}"}) for path in paths],
        *[(served.at(path, session), {**host, "Cookie": served.cookie(session)}) for path in paths],
    ]
    answers = asks(served, asked)

    assert [(path, status) for (path, _), (status, _) in zip(asked, answers, strict=True) if status != 401] == []
    assert served.ask("GET", "/api/workspaces", bare=True, headers=asked[0][1]).status == 200
    assert any("another user" in row.outcome for row in served.web_database.audit_rows(200))


def test_nobody_else_is_told_the_name(served: Served) -> None:
    hosts = ("localhost", "127.0.0.1", "[::1]", "evil.example", "", "hf-.localhost", "*.localhost", "0.0.0.0")
    asked = [
        (path, {"Host": host + port})
        for host in hosts
        for port in ("", f":{served.port}")
        for path in ("/", "/api/workspaces", "/static/keepfast.js", "/?ticket=wrong", served.at("/"))
    ] + [("/", {})]
    answers = asks(served, asked)

    assert [status for status, _ in answers if status < 400] == []
    assert [one for one in answers if "hf-test" in one[1]] == []


def test_nobody_else_is_told_the_name_for_a_ticket_or_a_session_that_they_got_hold_of(served: Served) -> None:
    """Whoever runs the page is, with the same."""
    ticket = served.web_database.create_ticket("operator")
    asked = [
        (path, {"Host": host + port, **more})
        for host in ("localhost", "127.0.0.1", "[::1]")
        for port in ("", f":{served.port}")
        for path, more in (
            (f"/?ticket={ticket}", {}),
            ("/", {"Authorization": f"Bearer {served.session}"}),
            (served.at("/"), {"Cookie": served.cookie()}),
        )
    ]
    answers = asks(served, asked)
    ours = [served.ask("GET", path, bare=True, headers=headers) for path, headers in asked]

    assert {status for status, _ in answers} == {401}
    assert [one for one in answers if "hf-test" in one[1]] == []
    assert {(one.status, "hf-test" in one.headers["location"]) for one in ours} == {(307, True)}


@pytest.fixture
def home() -> Iterator[Path]:
    """A home folder that others may enter, as most are."""
    made = Path(tempfile.mkdtemp(prefix="keepfast-home-"))
    made.chmod(0o755)
    (made / "project").mkdir()
    yield made
    shutil.rmtree(made)


def test_what_starts_the_browser_tells_somebody_else_nothing(home: Path) -> None:
    script, started = home / "browser", home / "started"
    script.write_text(f'#!/bin/sh\necho "$@" > {started}.new\nmv {started}.new {started}\nexec sleep 60\n')
    script.chmod(0o755)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "BROWSER": f"{script} %s &", "DISPLAY": ":0"}
    subprocess.run([sys.executable, "-m", "keepfast", "init"], cwd=home / "project", env=environment, check=True,
                   capture_output=True)  # fmt: skip
    words = [sys.executable, "-m", "keepfast", "serve", "--port", "0"]
    program = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert program.stdout is not None
        address = program.stdout.readline().split()[-1]
        end = time.monotonic() + PATIENCE
        while not started.exists() and time.monotonic() < end:
            time.sleep(0.05)
        argument = started.read_text().strip()
        folder = home / ".local/share/keepfast/web"
        files = [str(folder / name) for name in ("open.html", "ticket", "book.db")]
        [[seen, opened]] = as_nobody(LOOKS, *files)
    finally:
        os.killpg(program.pid, 15)
        program.wait(PATIENCE)

    origin, _, ticket = address.partition("/#")
    name = origin.partition("://")[2].partition(":")[0]
    assert argument == (folder / "open.html").as_uri()
    assert address in (folder / "open.html").read_text()
    assert [one for one in seen if str(started) in one or "open.html" in one], "what all may read was not looked at"
    assert [one for one in seen if ticket in one or name in one] == []
    assert opened == []


def test_a_neighbour_at_another_port_can_use_nothing_that_a_browser_brings(home: Path) -> None:
    """They know the name, and lead the browser that is signed in to their own port of it."""
    try:
        chromium.program()
    except chromium.Unavailable as why:
        pytest.skip(f"NO BROWSER TESTS: {why}")
    made = Program.__new__(Program)
    made.home, made.port = home, 0
    made.run("init", cwd=home / "project")
    made.start()
    words = [sys.executable, "-I", "-c", BECOME + NEIGHBOUR, str(made.port), made.host]
    neighbour = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd="/", env={})
    try:
        assert neighbour.stdout is not None
        port = int(neighbour.stdout.readline())
        name = made.host.partition(":")[0]
        paths = ["/", "/api/workspaces", "/~" + "0" * 32 + "/", "/static/x"]
        with chromium.browser() as browser:
            page = browser.new_context().new_page()
            page.goto(made.address)
            page.wait_for_selector("#workspaces")
            home_address = page.url
            for path in paths:
                page.goto(f"http://{name}:{port}{path}")
            # The browser is still signed in, though the neighbour has set a cookie of our name.
            answer = page.goto(home_address)
            assert answer is not None and answer.status == 200
            page.goto(f"{made.origin}/health")
            page.wait_for_selector("#main section")
            assert page.url == f"{home_address}health"
        neighbour.terminate()
        seen = [json.loads(line) for line in neighbour.stdout]
    finally:
        neighbour.kill()
        neighbour.communicate(timeout=PATIENCE)
        made.stop()

    assert {path for path, _, _ in seen} >= set(paths)
    folder = home_address.removeprefix(made.origin).strip("/")
    assert [status for _, _, got in seen for status in got if status < 400] == []
    assert [one for one in seen if folder in json.dumps(one)] == []
    # All that came along is what the neighbour had set itself.
    assert {headers.get("cookie", "keepfast_session=tossed") for _, headers, _ in seen} == {"keepfast_session=tossed"}
