"""Whose a connection is: the kernel's answer about one socket, and its tables of all."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from keepfast.web import local_users

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Only Linux tells it.")
WAYS = {"asked": "_asked_user", "listed": "_listed_user"}
Ends = tuple[tuple[str, int], tuple[str, int]]


@contextmanager
def connected(host: str, listening: str) -> Iterator[tuple[socket.socket, socket.socket, Ends]]:
    """A connection to `host` of a server at `listening`: both of its sockets, and the ends as the server sees them."""
    family = socket.AF_INET6 if ":" in listening else socket.AF_INET
    try:
        server = socket.create_server((listening, 0), family=family)
    except OSError:
        pytest.skip(f"no {listening} here")
    with server, socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as client:
        client.connect((host, server.getsockname()[1]))
        accepted, _ = server.accept()
        with accepted:
            yield client, accepted, (accepted.getpeername()[:2], accepted.getsockname()[:2])


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    ("host", "listening"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::ffff:127.0.0.1", "127.0.0.1")]
)
def test_both_ways_name_the_user_of_an_open_connection_alone(
    host: str, listening: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in {*WAYS.values()} - {way}:
        monkeypatch.setattr(local_users, other, refuse)
    with connected(host, listening) as (client, _, ends):
        client_user = local_users.user_of(*ends)
        client.close()
        closed_user = local_users.user_of(*ends)

    assert (client_user, closed_user) == (os.getuid(), local_users.NOBODY)


def refuse(*_: object) -> int:
    raise OSError("This kernel does not answer.")


def test_a_connection_that_has_ended_is_nobodys() -> None:
    """A ticket that was sent over it is not used up, though nothing tells whose it was."""
    with connected("127.0.0.1", "127.0.0.1") as (client, accepted, ends):
        accepted.close()
        client.close()

        assert local_users.user_of(*ends) == local_users.NOBODY


def test_an_open_connection_is_asked_about_without_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_users, "_listed_user", lambda *_: pytest.fail("It read the tables."))
    with connected("127.0.0.1", "127.0.0.1") as (_, _, ends):
        assert local_users.user_of(*ends) == os.getuid()


def test_other_machines_have_no_local_user() -> None:
    assert local_users.user_of(("192.0.2.1", 4000), ("192.0.2.2", 80)) is None
    assert local_users.user_of(("?", 0), ("127.0.0.1", 80)) is None
