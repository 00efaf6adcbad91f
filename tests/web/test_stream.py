"""Who may no longer look hears nothing any more: a stream ends with the session that opened it."""

from __future__ import annotations

import http.client
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from keepfast.web.sessions import DAY
from tests.web.served import PATIENCE, Served

OUT_OF_TIME = "UPDATE session SET seen_at = 0 WHERE role = 'viewer'"
LESS_ALLOWED = "UPDATE session SET role = 'viewer' WHERE role = 'approver'"


@contextmanager
def listening(served: Served, session: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    try:
        headers = {"Host": served.host, "Authorization": f"Bearer {session}"}
        connection.request("GET", f"/api/stream?since={served.web_database.last_sequence()}", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.readline().startswith(b"retry")
        yield answer
    finally:
        connection.close()


def change(served: Served, statement: str) -> None:
    """As another server does that shares the database."""
    with closing(sqlite3.connect(f"{served.base}/web/book.db", timeout=PATIENCE)) as database, database:
        database.execute(statement)


def test_a_stream_ends_when_its_session_signs_out(served: Served) -> None:
    """At once, while nothing happens; the streams of others go on."""
    mine, others = (
        served.web_database.create_session("viewer", "who leaves"),
        served.web_database.create_session("viewer", "who stays"),
    )
    with listening(served, mine) as leaves, listening(served, others) as stays:
        left = served.ask("POST", "/leave", {}, bare=True, headers={"Authorization": f"Bearer {mine}"})
        rest = leaves.read()
        served.site.stream.publish("notice", "", {"text": "after"})
        heard = [stays.readline() for _ in range(3)]

    assert left.status == 303
    assert b"data:" not in rest
    assert b"after" in b"".join(heard)


@pytest.mark.parametrize(("role", "statement"), [("viewer", OUT_OF_TIME), ("approver", LESS_ALLOWED),
                                                 ("viewer", "DELETE FROM session WHERE role = 'viewer'")])  # fmt: skip
def test_a_stream_tells_nothing_after_its_session_has_changed(served: Served, role: str, statement: str) -> None:
    with listening(served, served.web_database.create_session(role, "somebody")) as answer:
        change(served, statement)
        served.site.stream.publish("notice", "", {"text": "not for them"})

        assert b"data:" not in answer.read()


def test_a_stream_ends_with_its_session_though_nothing_happens(served: Served) -> None:
    served.site.stream.stop()  # nobody looks what others do: nothing happens any more
    served.site.stream.wait()
    served.site.stream.beat = 0.1
    with listening(served, served.web_database.create_session("viewer", "somebody")) as answer:
        change(served, OUT_OF_TIME)

        assert b"data:" not in answer.read()


def test_listening_does_not_keep_a_session_alive(served: Served) -> None:
    session = served.web_database.create_session("viewer", "somebody")
    visitor = served.web_database.visitor(session)
    assert visitor is not None
    change(served, f"UPDATE session SET seen_at = seen_at - {DAY} WHERE role = 'viewer'")
    with closing(sqlite3.connect(f"{served.base}/web/book.db")) as database:
        before = database.execute("SELECT seen_at FROM session WHERE role = 'viewer'").fetchone()
        assert served.web_database.is_current(visitor)
        assert database.execute("SELECT seen_at FROM session WHERE role = 'viewer'").fetchone() == before


def test_who_comes_by_a_proxy_has_no_session_that_could_end(served: Served) -> None:
    """The proxy signs people in: their streams go on. Here it stands on this machine, which settings refuse."""
    assert served.gate.proxy is not None
    served.gate.proxy = served.gate.proxy._replace(addresses=frozenset({"127.0.0.1"}))
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    with closing(connection):
        headers = {"Host": served.host, "X-Remote-User": "bob"}
        connection.request("GET", f"/api/stream?since={served.web_database.last_sequence()}", headers=headers)
        answer = connection.getresponse()
        answer.readline()
        served.site.stream.publish("notice", "", {"text": "for them"})

        assert b"for them" in b"".join(answer.readline() for _ in range(3))
