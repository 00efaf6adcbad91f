"""The page through a tunnel: another port of this machine leads to it, and its own name is asked for."""

from __future__ import annotations

import socket
import threading

from tests.web.served import Served, request


def tunnel(target: int) -> tuple[socket.socket, int]:
    """What `ssh -L` does: whatever comes in at one port goes to another."""
    door = socket.create_server(("127.0.0.1", 0))

    def carry(source: socket.socket, goal: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                goal.sendall(data)
            goal.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def accept() -> None:
        while True:
            try:
                come, _ = door.accept()
            except OSError:
                return
            go = socket.create_connection(("127.0.0.1", target))
            threading.Thread(target=carry, args=(come, go), daemon=True).start()
            threading.Thread(target=carry, args=(go, come), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return door, door.getsockname()[1]


def test_the_recipe_of_the_guide_works(served: Served) -> None:
    door, port = tunnel(served.port)
    try:
        ticket = served.web_database.create_ticket("approver")
        headers = {"Host": served.host, "Content-Type": "application/json"}
        entered = request(port, "POST", "/session", f'{{"ticket": "{ticket}"}}'.encode(), headers)
        cookie = entered.headers["set-cookie"].split(";")[0]
        folder = entered.json()["data"]["folder"]
        page = request(port, "GET", f"{folder}/", None, {"Host": served.host, "Cookie": cookie})
        shared = request(port, "GET", f"{folder}/", None, {"Host": f"127.0.0.1:{port}", "Cookie": cookie})
        stranger = request(port, "GET", "/", None, {"Host": f"127.0.0.1:{port}"})
        other = request(port, "GET", "/", None, {"Host": f"page.example.org:{port}", "Cookie": cookie})
    finally:
        door.close()

    assert (entered.status, page.status) == (200, 200)
    assert b"approver" in page.body
    assert (shared.status, stranger.status, other.status) == (307, 401, 421)
    # With the port of the page, not the tunnel's: the guide has the same at both ends.
    assert shared.headers["location"] == f"http://{served.host}{folder}/"
    assert served.host.encode() not in stranger.body + other.body
