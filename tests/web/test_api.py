"""The HTTP API: every operation of its document succeeds, and what is wrong is answered with a sentence."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from typing import Any

from keepfast.app.checkpoint import Engine
from keepfast.web.api import document
from keepfast.web.operations import OPERATIONS
from tests.web.served import Served, request


def test_every_operation_of_the_document_is_served(served: Served) -> None:
    """Asked without anything it is at least known: no 404 for the address, no 405, no 5xx."""
    answers = {}
    for operation in OPERATIONS:
        path = operation.path.format(
            workspace=served.saver.workspace, reference="v1", task="task_0123456789", prompt="q_1"
        )
        served.gate.buckets.clear()
        answer = served.ask(operation.method, path, {} if operation.method != "GET" else None)
        answers[operation.id] = answer.status
        assert answer.json()["success"] is (answer.status == 200), operation.id

    assert {name: status for name, status in answers.items() if status >= 500 or status == 405} == {}
    assert document(OPERATIONS)["paths"].keys() == {operation.path for operation in OPERATIONS}


def test_a_workspace_is_looked_at_saved_and_brought_back(served: Served) -> None:
    one = f"/api/workspaces/{served.saver.workspace}"
    (served.root / "new.txt").write_text("changed\n")
    saved = served.ask("POST", f"{one}/checkpoints", {"message": "by the API", "tags": ["x"]}).json()["data"]
    listed = served.ask("GET", f"{one}/checkpoints?limit=2").json()["data"]
    shown = served.ask("GET", f"{one}/checkpoints/v2").json()["data"]
    diff = served.ask("GET", f"{one}/diff?old=v1&new=v2&path=src/main.py").json()["data"]
    preview = served.ask("POST", f"{one}/preview", {"reference": "v1"}).json()["data"]
    done = served.ask("POST", f"{one}/restore", {"reference": "v1", "agreed": preview["digest"]}).json()["data"]
    back = served.ask("POST", f"{one}/undo", {}).json()["data"]

    assert saved["message"] == "by the API"
    assert [row["version"] for row in listed] == ["v3", "v2"]
    assert shown["changed"] == 2
    assert [line["kind"] for line in diff["file"]["hunks"][0]["lines"]] == [" ", "-", "+"]
    assert done["restored"] and back["restored"]
    assert (served.root / "new.txt").read_text() == "changed\n"


def test_what_was_left_out_and_is_missing_is_named_by_api_and_page(served: Served) -> None:
    one = f"/api/workspaces/{served.saver.workspace}"
    (served.root / "node_modules" / "a").mkdir(parents=True)
    (served.root / "package.json").write_text("{}")
    served.ask("POST", f"{one}/checkpoints", {"message": "with dependencies"})
    there = served.ask("POST", f"{one}/preview", {"reference": "v3"}).json()["data"]
    (served.root / "node_modules" / "a").rmdir()
    (served.root / "node_modules").rmdir()
    preview = served.ask("POST", f"{one}/preview", {"reference": "v3"}).json()["data"]
    done = served.ask("POST", f"{one}/restore", {"reference": "v3", "agreed": preview["digest"]}).json()["data"]
    refused = served.ask("POST", f"{one}/preview", {"reference": "v3", "paths": ["node_modules"]})
    page = served.ask("GET", f"/w/{served.saver.workspace}/restore?reference=v3").body.decode()

    assert there["missing"] == []
    assert [(path["path"], path["command"]) for path in preview["missing"]] == [("node_modules", "npm install")]
    assert (done["restored"], done["missing"]) == (False, preview["missing"])
    assert refused.status == 404
    assert "node_modules" in page
    assert "Everything is as it was then" not in page


def test_pins_names_history_search_and_forgetting(served: Served) -> None:
    one = f"/api/workspaces/{served.saver.workspace}"
    label = served.ask("PATCH", f"{one}/checkpoints/v1", {"pinned": True, "name": "good"}).json()["data"]
    refused = served.ask("POST", f"{one}/forget", {"references": ["v1"]})
    served.ask("PATCH", f"{one}/checkpoints/v1", {"pinned": False, "name": ""})
    gone = served.ask("POST", f"{one}/forget", {"references": ["v1"]})
    missing = served.ask("GET", f"{one}/checkpoints/v1")
    history = served.ask("GET", f"{one}/history?path=src/main.py").json()["data"]
    found = served.ask("GET", "/api/search?text=main").json()["data"]
    file = served.ask("GET", f"{one}/checkpoints/v2/file?path=src/main.py").json()["data"]

    assert (label["pinned"], label["name"]) == (True, "good")
    assert (refused.status, refused.json()["kind"]) == (409, "conflict")
    assert (gone.status, missing.status) == (200, 404)
    assert [state["version"] for state in history] == ["v2"]
    assert found[0]["path"] == "src/main.py"
    assert file["text"] == "def main():\n    return 2\n"


def test_tasks_are_made_shown_and_ended(served: Served) -> None:
    folder = served.base / "task"
    folder.mkdir()
    task = {"brief": "Do it.", "workspace": str(folder), "agent": {"command": ["true"]}, "start": False}
    made = served.ask("POST", "/api/tasks", task).json()["data"]
    address = f"/api/tasks/{made['id']}"
    started = served.ask("POST", f"{address}/execute", {}).json()["data"]
    paused = served.ask("POST", f"{address}/pause", {}).json()["data"]
    wrong = served.ask("POST", f"{address}/retry", {})
    secret = served.ask("POST", f"{address}/secret", {"name": "KEY", "value": "hush-hush-hush"}).json()["data"]
    ended = served.ask("DELETE", address).json()["data"]
    listed = served.ask("GET", "/api/tasks").json()["data"]

    assert (made["status"], started["status"], paused["hold"]["kind"]) == ("draft", "pending", "user_pause")
    assert wrong.status == 409 and not wrong.json()["success"]
    assert "hush-hush-hush" not in json.dumps(secret)
    assert (ended["status"], ended["archived"]) == ("cancelled", True)
    assert listed == []
    assert served.ask("GET", "/api/questions/pending").json()["data"] == []


def test_a_damaged_checkpoint_is_a_page_that_says_so(served: Served) -> None:
    for pack in (served.base / "store" / "packs").rglob("*"):
        if pack.is_file():
            pack.write_bytes(b"\0" * pack.stat().st_size)
    workspace = served.saver.workspace
    page = served.ask("GET", f"/w/{workspace}/v/v2")
    answer = served.ask("GET", f"/api/workspaces/{workspace}/checkpoints/v2")

    assert page.status == answer.status == 500
    assert answer.json()["kind"] == "damaged"
    assert b"Stored data is damaged" in page.body
    assert b"<code>keepfast verify --repair</code>" in page.body


def test_large_and_binary_differences_are_measured_not_shown(served: Served) -> None:
    (served.root / "large.txt").write_text("line\n" * 1_000_000)
    (served.root / "binary").write_bytes(bytes(range(256)) * 10)
    served.saver.save("manual")
    base = f"/w/{served.saver.workspace}/diff?old=v2&new=v3&path="

    assert b"too large" in served.ask("GET", base + "large.txt").body
    assert b"binary" in served.ask("GET", base + "binary").body


def test_fifty_listeners_hear_everything_in_order(served: Served) -> None:
    heard: list[list[int]] = [[] for _ in range(50)]
    ready = threading.Barrier(51)

    def listen(mine: list[int]) -> None:
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        headers = {"Host": served.host, "Authorization": f"Bearer {served.session}"}
        connection.request("GET", f"/api/stream?since={served.web_database.last_sequence()}", headers=headers)
        answer = connection.getresponse()
        ready.wait()
        while len(mine) < 20:
            line = answer.readline()
            if line.startswith(b"data: "):
                mine.append(json.loads(line[6:])["sequence"])
        connection.close()

    threads = [threading.Thread(target=listen, args=(mine,), daemon=True) for mine in heard]
    served.gate.buckets.clear()
    for thread in threads:
        thread.start()
    ready.wait(60)
    time.sleep(0.2)
    for number in range(20):
        served.site.stream.publish("notice", served.saver.workspace, {"number": number})
    for thread in threads:
        thread.join(60)

    assert all(mine == heard[0] and len(mine) == 20 for mine in heard)
    assert heard[0] == sorted(heard[0])


def test_a_silent_stream_beats(served: Served) -> None:
    """Proxies and browsers end a connection on which nothing comes."""
    import http.client

    served.site.stream.beat = 0.05
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    headers = {"Host": served.host, "Authorization": f"Bearer {served.session}"}
    connection.request("GET", f"/api/stream?since={served.web_database.last_sequence()}", headers=headers)
    answer = connection.getresponse()
    lines = [answer.readline() for _ in range(6)]
    connection.close()

    assert lines == [b"retry: 1000\n", b"\n", *[b": beat\n", b"\n"] * 2]


def test_what_was_missed_is_told(served: Served) -> None:
    before = served.web_database.last_sequence()
    for number in range(3):
        served.site.stream.publish("notice", "", {"number": number})
    missed: Any = served.ask("GET", f"/api/events?since={before}").json()

    assert [event["data"]["number"] for event in missed["data"]] == [0, 1, 2]
    assert missed["last"] == before + 3


def test_what_happens_while_a_page_is_made_is_told_to_it(served: Served) -> None:
    build = served.site.build

    def busy() -> Any:
        served.site.stream.publish("checkpoint_created", "elsewhere", {})
        return build()

    before = served.web_database.last_sequence()
    served.site.build = busy
    page = served.ask("GET", "/").body.decode()

    assert served.web_database.last_sequence() > before
    assert f'data-last="{before}"' in page


def test_a_watch_that_fails_goes_on(served: Served) -> None:
    stream, calls = served.site.stream, []

    def broken() -> Engine:
        calls.append(1)
        raise sqlite3.OperationalError("database is locked")

    build, stream.build = stream.build, broken
    while not calls:
        time.sleep(0.05)
    stream.build = build
    before = served.web_database.last_sequence()
    (served.root / "x").write_text("x")
    served.saver.save("manual", message="after the trouble")
    end = time.monotonic() + 30
    while served.web_database.last_sequence() == before and time.monotonic() < end:
        time.sleep(0.05)

    assert served.web_database.last_sequence() > before


def test_a_checkpoint_by_another_process_becomes_an_event(served: Served) -> None:
    served.site.stream.poll()
    before = served.web_database.last_sequence()
    (served.root / "x").write_text("x")
    served.saver.save("manual", message="elsewhere")
    served.site.stream.poll()

    told = [event for event in served.web_database.events_since(before) if event.type == "checkpoint_created"]
    assert [event.data["message"] for event in told] == ["elsewhere"]


def test_a_request_without_end_is_ended(served: Served) -> None:
    answer = request(served.port, "GET", "/api/workspaces", None, {"Host": served.host, "Authorization": "Bearer"})

    assert answer.status == 401
