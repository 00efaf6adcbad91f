"""The parts of the HTTP server by themselves: the token's file, the guard in front, the port; and a missing extra."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keepfast.cli.root import run
from keepfast.mcp.http import TokenGuard, application, listen, token_in
from keepfast.mcp.server import build
from keepfast.model.errors import Failed
from keepfast.present.environment import Environment
from tests.equipment.box import Box

from .agent import access


def test_a_token_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new/token"

    first = token_in(str(path))

    assert len(first) > 40
    assert token_in(str(path)) == first
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_token_file_that_is_a_link_or_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")

    for path in (tmp_path / "link", tmp_path):
        with pytest.raises(Failed, match="cannot be used"):
            token_in(str(path))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("header", "passes"), [(b"Bearer right", True), (b"Bearer wrong", False), (b"right", False), (b"", False)]
)
def test_the_guard_lets_the_token_through_and_nothing_else(header: bytes, passes: bool) -> None:
    met: list[str] = []
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        met.append(scope["type"])

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    guard = TokenGuard(app, "right")
    asyncio.run(guard({"type": "http", "headers": [(b"authorization", header)]}, None, send))
    asyncio.run(guard({"type": "lifespan"}, None, send))

    assert met == (["http", "lifespan"] if passes else ["lifespan"])
    assert [message.get("status") for message in sent] == ([] if passes else [401, None])


def test_only_loopback_listens_and_a_taken_port_is_a_sentence(saved_box: Box) -> None:
    listening = listen(0)
    try:
        host, port = listening.getsockname()
        assert host == "127.0.0.1"
        assert application(build(access(saved_box)), port) is not None
        with pytest.raises(Failed, match="cannot be used"):
            listen(port)
    finally:
        listening.close()


def test_without_the_extra_the_command_says_how_to_get_it(
    saved_box: Box, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved_box.project)
    environment = Environment({name.encode(): value.encode() for name, value in saved_box.variables.items()})
    calls: list[Any] = []

    def missing(name: str, *arguments: object) -> int:
        calls.extend([name, *arguments])
        raise ModuleNotFoundError("No module named 'mcp'", name="mcp")

    assert run(["mcp"], environment, lambda: saved_box.now, missing) == 1
    assert "pip install '.[mcp]'" in capsys.readouterr().err
    assert calls[0] == "mcp"
    assert calls[1].cwd == str(saved_box.project).encode()
    assert run(["mcp"], environment, lambda: saved_box.now) == 1
