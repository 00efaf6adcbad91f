"""A server of its own for each test: in this process over a real socket, or as the real program."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.scheduler.service import make_runtime
from keepfast.web import access as gate
from keepfast.web import app, server, sessions
from tests.equipment.postgres import dump
from tests.equipment.saver import Saver

PATIENCE = 30
HUNG_UP = 444
"""The server closed the connection without a word, which refuses as well as any other answer."""


TRUE = SimpleNamespace(app=app, access=gate, server=server, sessions=sessions)
"""The server's modules as they are; tests of tests serve others."""
ELSEWHERE = "page.example"
"""A name that a proxy before us shows to browsers."""
PROXY = "192.0.2.9"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """A site on loopback with one workspace; `session` is an operator's."""

    def __init__(self, base: Path, *, world: Any = TRUE, password: str = "", database: str = "") -> None:
        self.base, self.world, self.database = base, world, database
        self.root = base / "project"
        self.root.mkdir(parents=True)
        self.saver = Saver(self.root, base / "store", supervisor__database=database)
        self.web_database = world.sessions.WebDatabase(str(base / "web"), time.time_ns)
        self.site = world.app.Site(
            self.web_database, self.saver.engine, time.time_ns, self.ground, lambda: password, str(base / "config.json"),
            home=str(base),
        )  # fmt: skip
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.host = f"hf-test.localhost:{self.port}"
        self.origin = f"http://{self.host}"
        origins = {self.host: self.origin, ELSEWHERE: f"https://{ELSEWHERE}"}
        proxy = world.access.Proxy(frozenset({PROXY}), "x-remote-user", {"ann": "operator", "bob": "viewer"})
        self.gate = self.site.application(origins, proxy, world.access.Gate)
        self.server = world.server.Server(world.server.configured(self.gate), self.site)
        self.thread = threading.Thread(target=self.server.run, args=([listening],), daemon=True)
        self.thread.start()
        end = time.monotonic() + PATIENCE
        while not self.server.started and time.monotonic() < end:
            time.sleep(0.01)
        self.session = self.web_database.create_session("operator", "a test")

    def ground(self) -> Runtime:
        return make_runtime(
            self.saver.settings(), str(self.base), self.saver.home, time.time_ns, {"PATH": os.environ["PATH"]}
        )

    def close(self) -> None:
        self.site.stream.stop()
        self.server.should_exit = True
        self.thread.join(PATIENCE)
        self.site.stream.wait()
        self.web_database.close()

    def token(self, session: str = "") -> str:
        visitor = self.web_database.visitor(session or self.session)
        assert visitor is not None
        return str(self.web_database.form_token(visitor))

    def ask(
        self, method: str, path: str, body: Any = None, *, bare: bool = False, headers: dict[str, str] | None = None
    ) -> Answer:
        """As a program would with its session; `bare` sends nothing but what is given."""
        sent = {} if bare else {"Host": self.host, "Authorization": f"Bearer {self.session}"}
        data = body
        if isinstance(body, dict):
            data = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        sent.update(headers or {})
        return request(self.port, method, path, data, {"Host": self.host, **sent})

    def at(self, path: str, session: str = "") -> str:
        """The address of a page in the folder of its session, where a browser asks for it."""
        return "/~" + (session or self.session).partition(".")[0] + path

    def cookie(self, session: str = "") -> str:
        """The other half of a session."""
        return "keepfast_session=" + (session or self.session).partition(".")[2]

    def browser(self, session: str = "") -> dict[str, str]:
        """The headers of our own page in a browser, which asks in the folder of its session."""
        return {
            "Host": self.host, "Origin": self.origin, "Cookie": self.cookie(session),
            "Sec-Fetch-Site": "same-origin", "X-Keepfast-Token": self.token(session),
        }  # fmt: skip

    def digest(self) -> str:
        """Of everything that an attack could have changed: the project, the store, all rows of tasks, and who may come in."""
        total = hashlib.sha256()
        for folder in (self.root, self.base / "store"):
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.name not in ("lock", "cache", "notices"):
                    total.update(f"{path.relative_to(self.base)}\0".encode())
                    total.update(path.read_bytes())
        for path in sorted((self.base / "supervisor").glob("*.db")):
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as tables:
                total.update("\n".join(tables.iterdump()).encode())
        if self.database:
            total.update("\n".join(dump(self.database)).encode())
        with closing(sqlite3.connect(f"file:{self.base}/web/book.db?mode=ro", uri=True)) as connection:
            for wanted in ("hash, role FROM session", "hash FROM ticket"):
                total.update(repr(connection.execute(f"SELECT {wanted} ORDER BY hash").fetchall()).encode())
        return total.hexdigest()


def request(port: int, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value.encode("latin-1", "replace"))
        if body is not None and "Content-Length" not in headers and "Transfer-Encoding" not in headers:
            connection.putheader("Content-Length", str(len(body)))
        try:
            connection.endheaders(body)
        except ConnectionError:
            pass  # refused before all of it was sent: the answer may be there all the same
        try:
            answer = connection.getresponse()
        except ConnectionError:
            return Answer(HUNG_UP, {}, b"")
        try:
            content = answer.read()
        except ConnectionError:
            content = b""
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, content)
    finally:
        connection.close()


class Program:
    """`keepfast serve` as a person starts it."""

    def __init__(self, home: Path, port: int = 0) -> None:
        self.home, self.port = home, port
        self.start()

    def start(self) -> None:
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        words = [sys.executable, "-m", "keepfast", "serve", "--no-open", "--port", str(self.port)]
        self.process = subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        said, found = "", None
        for line in self.process.stdout:  # where another one runs tasks, that is said first
            said += line
            found = re.search(r"(http://([^/]+):(\d+))/#(\S+)", line)
            if found is not None:
                break
        assert found is not None, said
        self.origin, self.port, self.ticket = found[1], int(found[3]), found[4]
        self.host = f"{found[2]}:{found[3]}"

    @property
    def address(self) -> str:
        return f"{self.origin}/#{self.ticket}"

    def run(self, *words: str, cwd: Path | None = None) -> str:
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        done = subprocess.run([sys.executable, "-m", "keepfast", *words], env=environment, cwd=cwd, capture_output=True,
                              text=True, check=True, timeout=PATIENCE)  # fmt: skip
        return done.stdout

    def stop(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code
