"""People are told: by real commands, real servers and a real terminal; and nothing about it can hurt a task."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import pytest

from keepfast.runner.notify import notify
from keepfast.runner.scheduler.attempts import Threads
from keepfast.runner.scheduler.supervisor import Supervisor
from tests.faults.supervisor.test_kills import PROGRAM
from tests.runner.place import DONE, Place

KEY = "sk-ant-api03-" + "Zx9Qw3Er5Ty7Ui1Op2As4Df6Gh8Jk0" * 3
ASK = {
    "say": "[USER_QUESTION]\nquestion: Which database?\noptions:\n - 포스트그레스\n - SQLite, the small; one\n[/USER_QUESTION]"
}


class Server:
    """A loopback server that keeps what it is sent. As ntfy it publishes JSON, and answers polls of a topic."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []
        self.codes: list[int] = []
        """What it answers, in order; 200 when they are used up."""
        self.hangs = Event()
        self.hangs.set()
        lock, server = Lock(), self

        class Conversation(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"]))
                with lock:
                    server.got.append((self.path, text))
                    code = server.codes.pop(0) if server.codes else 200
                server.hangs.wait(120)
                self._answer(code, b"{}")

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                path = parts.path.removesuffix("/json")
                since = parse_qs(parts.query)["since"][0]
                with lock:
                    found = [(f"m{number}", text) for number, (where, text) in enumerate(server.got) if where == path]
                names = [name for name, _ in found]
                if since in names:
                    found = found[names.index(since) + 1 :]
                lines = [json.dumps({"id": name, "event": "message", "message": text.decode()}) for name, text in found]
                self._answer(200, "\n".join(lines).encode())

            def _answer(self, code: int, text: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *words: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Conversation)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def bodies(self, path: str = "/hook") -> list[dict[str, Any]]:
        return [json.loads(text) for where, text in list(self.got) if where == path]

    def close(self) -> None:
        self.hangs.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "RETRY_SECONDS", (0.05, 0.05, 0.05))
    monkeypatch.setattr(notify, "FETCH_SECONDS", 0.1)


def set_up(place: Place, **options: Any) -> None:
    place.close()
    place.__init__(place.base, place.options.but(**options))  # type: ignore[misc]


def supervise(place: Place, until: Any = None) -> None:
    """As `place.supervise`, and what is being sent comes to its end."""
    workflows = Threads(place.runtime)
    supervisor = Supervisor(place.runtime, workflows)
    try:
        end = time.monotonic() + 90
        while True:
            supervisor.tick()
            supervisor.notices.close()
            if until is None and not supervisor.is_waiting():
                supervisor.tick()  # what came since the last one is told, too
                return
            if until is not None and until():
                return
            assert time.monotonic() < end, place.explain()
            time.sleep(0.02)
    finally:
        workflows.close()
        supervisor.notices.close()


def all_sent(place: Place) -> Any:
    """There were notices, and none is left."""

    def is_so() -> bool:
        sent = [row["sent_at"] for row in place.runtime.tables.all("SELECT sent_at FROM notice")]
        return bool(sent) and all(sent)

    return is_so


def test_a_webhook_is_told_of_a_question(place: Place, server: Server) -> None:
    set_up(place, notify_webhook=server.url + "/hook")
    task = place.task([ASK], [DONE])
    supervise(place)

    [told] = server.bodies()
    [prompt] = place.tasks.views.inbox()
    assert (told["kind"], told["task"], told["prompt"]) == ("question", task.id, prompt["id"])
    assert "Which database?" in told["text"]
    assert told["options"] == ["포스트그레스", "SQLite, the small; one"]


def test_a_command_is_run_with_the_notice(place: Place) -> None:
    program = place.base / "tell.sh"
    program.write_text('#!/bin/sh\ncat >> "$HOME/told"; env > "$HOME/environment"\n')
    program.chmod(0o755)
    place.variables["SECRET_OF_OURS"] = "never-passed-on"
    set_up(place, notify_command=[str(program)])
    place.variables["SECRET_OF_OURS"] = "never-passed-on"
    task = place.task([ASK])
    supervise(place)

    assert json.loads((place.home / "told").read_text())["task"] == task.id
    environment = (place.home / "environment").read_text()
    assert "KEEPFAST_NOTICE_KIND=question" in environment
    assert "never-passed-on" not in environment


def test_a_button_of_ntfy_answers_the_question(place: Place, server: Server) -> None:
    set_up(place, notify_ntfy=server.url + "/my-tasks")
    task = place.task([ASK], [DONE])
    supervise(place)
    [published] = server.bodies("/")
    assert (published["topic"], published["priority"]) == ("my-tasks", 4)
    assert [action["label"] for action in published["actions"]] == ["포스트그레스", "SQLite, the small; one"]

    press(published["actions"][1])
    supervise(place, lambda: place.state(task) == ("done", ""))

    assert "The answer: SQLite, the small; one" in place.told()[1]
    [prompt] = place.runtime.tables.prompts("task = ?", task.id)
    assert prompt.answered_by == "ntfy"


def press(action: dict[str, Any]) -> None:
    """What the application does when a button is pressed."""
    assert (action["action"], action["method"]) == ("http", "POST")
    with urlopen(Request(action["url"], data=action["body"].encode(), method="POST"), timeout=10):
        pass


def test_only_our_own_buttons_answer(place: Place, server: Server) -> None:
    set_up(place, notify_ntfy=server.url + "/my-tasks")
    task = place.task([ASK], [DONE])
    supervise(place)
    [published] = server.bodies("/")
    offered = json.loads(published["actions"][0]["body"])
    forged = [
        {**offered, "option": 1}, {**offered, "code": "0" * 64}, {"prompt": offered["prompt"], "option": 0},
        {**offered, "option": "drop"}, [], "text", {**offered, "prompt": task.id},
    ]  # fmt: skip
    for body in forged:
        press({**published["actions"][0], "body": json.dumps(body)})
    before = len(server.got)
    workflows = Threads(place.runtime)
    supervisor = Supervisor(place.runtime, workflows)
    for _ in range(3):
        supervisor.notices._fetched = 0.0
        supervisor.notices.tick()
        supervisor.notices.close()

    assert len(server.got) == before
    assert place.state(task) == ("active", "question")
    press(published["actions"][0])
    supervise(place, lambda: place.state(task) == ("done", ""))
    assert "The answer: 포스트그레스" in place.told()[1]


def test_a_secret_is_told_to_nobody(place: Place, server: Server) -> None:
    program = place.base / "tell.sh"
    program.write_text('#!/bin/sh\ncat >> "$HOME/told"; env >> "$HOME/told"\n')
    program.chmod(0o755)
    set_up(place, notify_webhook=server.url + "/hook", notify_ntfy=server.url + "/topic", notify_command=[str(program)])
    place.task([{"say": f"[USER_QUESTION]\nquestion: Is {KEY} right?\noptions:\n - {KEY}\n - no\n[/USER_QUESTION]"}])
    supervise(place, all_sent(place))

    assert len(server.got) == 2
    for _, text in server.got:
        assert KEY not in text.decode()
        assert b"redacted" in text
    assert KEY not in (place.home / "told").read_text()


def test_what_fails_is_tried_again_and_what_went_is_not_repeated(place: Place, server: Server) -> None:
    program = place.base / "tell.sh"
    program.write_text('#!/bin/sh\necho told >> "$HOME/told"\n')
    program.chmod(0o755)
    set_up(place, notify_webhook=server.url + "/hook", notify_command=[str(program)])
    server.codes = [500, 503]
    place.task([ASK])
    supervise(place, all_sent(place))

    assert len(server.bodies()) == 3
    assert len({told["id"] for told in server.bodies()}) == 1, "the id tells whoever is told twice"
    assert (place.home / "told").read_text() == "told\n"


@pytest.mark.parametrize(
    "options",
    [
        {"notify_command": ["no-such-program"]},
        {"notify_command": ["false"]},
        {"notify_webhook": "http://127.0.0.1:1/hook"},
        {"notify_ntfy": "http://127.0.0.1:1/topic"},
        {"notify_webhook": "http://[broken"},
    ],
    ids=str,
)
def test_a_way_that_never_works_hurts_no_task_and_is_logged_once(place: Place, options: dict[str, Any]) -> None:
    set_up(place, **options)
    task = place.task([DONE])
    supervise(place, lambda: "notice_failed" in place.events(task))
    supervise(place)

    assert place.state(task) == ("done", "")
    assert place.events(task).count("notice_failed") == 1


def test_a_server_that_hangs_holds_up_nothing(place: Place, server: Server) -> None:
    set_up(place, notify_webhook=server.url + "/hook")
    server.hangs.clear()
    first = place.task([ASK], name="one")
    workflows = Threads(place.runtime)
    supervisor = Supervisor(place.runtime, workflows)
    end = time.monotonic() + 90
    while not server.got:
        supervisor.tick()
        assert time.monotonic() < end
    second = place.task([DONE], name="two")
    while place.state(second) != ("done", ""):
        supervisor.tick()
        assert time.monotonic() < end, place.explain()
    workflows.close()

    assert len(server.got) == 1
    assert not place.runtime.tables.all("SELECT 1 AS one FROM notice WHERE sent_at > 0"), "it still hangs"
    assert place.state(first) == ("active", "question")
    server.hangs.set()
    supervisor.notices.close()


def test_nobody_is_told_in_quiet_hours_and_everything_is_made_up_for(place: Place, server: Server) -> None:
    now = datetime.fromtimestamp(place.now() / 1e9, UTC)
    hours = f"{now - timedelta(hours=1):%H:%M}-{now + timedelta(hours=2):%H:%M}"
    set_up(place, notify_webhook=server.url + "/hook", quiet_hours=hours, question_timeout=86_400)
    task = place.task([ASK], name="one")
    answered = place.task([ASK], name="two")
    supervise(place)
    assert server.got == []
    [prompt] = [one for one in place.tasks.views.inbox() if one["task"] == answered.id]
    place.tasks.answers.answer(prompt["id"], "1")
    place.tasks.pause(answered.id)

    place.ahead = 3 * 3600 * 1_000_000_000
    supervise(place, all_sent(place))

    assert [told["task"] for told in server.bodies()] == [task.id], (
        "what was answered in the meantime is not asked again"
    )


def test_the_terminal_rings_when_a_person_is_needed(place: Place) -> None:
    place.task([ASK])
    (place.base / "options.json").write_text(json.dumps({"notify_bell": True}))
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(place.base), "never", "1", "threads", place.options.database],
        env={"PATH": os.environ["PATH"]}, stderr=theirs, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs)
    heard = b""
    end = time.monotonic() + 90
    while child.poll() is None and time.monotonic() < end:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                heard += os.read(ours, 1024)
            except OSError:
                break
    os.close(ours)

    assert child.wait(30) == 0
    assert heard == b"\a"


def test_the_next_supervisor_does_not_tell_it_again(place: Place, server: Server) -> None:
    set_up(place, notify_webhook=server.url + "/hook")
    place.task([ASK])
    supervise(place)

    supervise(place)

    assert len(server.bodies()) == 1
