"""The tools of a supervised agent, called over MCP as its client does: what was called counts like what is said in blocks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from keepfast.runner.domain.protocol import Block
from keepfast.runner.process.agent_tools import TOOLS
from keepfast.runner.process.drivers import TOOL_NAMES
from keepfast.runner.process.output import PlainOutput


class Server:
    """A real one on standard streams, and the folder of its run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-m", "keepfast.runner.process.agent_tools", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={},
        )  # fmt: skip

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.count += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self.count, "method": method, "params": parameters}).encode())
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == self.count
        return dict(answer)

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        result = self.ask("tools/call", name=tool, arguments=arguments)["result"]
        return result["content"][0]["text"], result["isError"]

    def heard(self) -> PlainOutput:
        """What the supervisor reads in the run's journal."""
        output = PlainOutput(time.time(), UTC)
        journal = self.folder / "tools.jsonl"
        for line in journal.read_bytes().splitlines() if journal.exists() else []:
            output.feed_call(line)
        return output

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0, "it ends with its client"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


def test_a_client_finds_every_tool_with_its_arguments(server: Server) -> None:
    begun = server.ask("initialize", protocolVersion="2025-06-18", capabilities={})["result"]
    listed = server.ask("tools/list")["result"]["tools"]

    assert begun["protocolVersion"] == "2025-06-18"
    assert tuple(sorted(tool["name"] for tool in listed)) == tuple(sorted(TOOL_NAMES)) == tuple(sorted(TOOLS))
    for tool in listed:
        assert tool["description"]
        assert set(tool["inputSchema"]["required"]) <= set(tool["inputSchema"]["properties"])


@pytest.mark.parametrize(
    ("name", "arguments", "block", "field"),
    [
        ("phase_complete", {"phase": 2, "evidence": "all of it"}, "PHASE_COMPLETE", ("phase", "2")),
        ("ask_user", {"question": "Which?", "options": ["a", "b"]}, "USER_QUESTION", ("question", "Which?")),
        ("request_secret", {"name": "API_KEY"}, "DEPENDENCY_REQUEST", ("type", "env_variable")),
        ("report_error", {"type": "fatal", "message": "no way"}, "ERROR", ("recovery", "checkpoint_and_fail")),
    ],
)  # fmt: skip
def test_what_is_called_is_what_the_block_says(
    server: Server, name: str, arguments: dict[str, Any], block: str, field: tuple[str, str]
) -> None:
    text, refused = server.call(name, arguments)

    assert not refused, text
    assert "End your turn" in text, "nobody answers within the turn"
    [heard] = server.heard().blocks
    assert isinstance(heard, Block)
    assert heard.name == block
    assert heard.fields[field[0]] == field[1]


def test_progress_is_shown_and_ends_nothing(server: Server) -> None:
    assert server.call("report_progress", {"step": "writing tests", "percent": 40}) == ("Recorded. Go on.", False)

    output = server.heard()
    assert (output.step, output.fraction, output.blocks) == ("writing tests", 0.4, [])


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("no_such_tool", {}, "There is no tool 'no_such_tool'"),
        ("ask_user", {"question": "x", "urgent": True}, "There is no argument 'urgent'"),
        ("ask_user", {}, "question"),
        ("report_error", {"type": "sad", "message": "x"}, "type"),
        ("request_secret", {"name": "not a name"}, "name"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_answered_with_what_is_wrong_and_counts_for_nothing(
    server: Server, name: str, arguments: dict[str, Any], said: str
) -> None:
    text, refused = server.call(name, arguments)

    assert refused
    assert said in text
    assert server.heard().blocks == []


def test_garbage_ends_no_server(server: Server) -> None:
    for line in (b"", b"{", b"[]", b"null", b'{"method": "tools/call"}', b"\xff\xfe", b"[" * 100_000):
        server.send(line)

    assert "error" in server.ask("no/such/method")
    assert "error" in server.ask("tools/call", name="ask_user", arguments=[1, 2])
    assert "error" in server.ask("tools/call", name="ask_user", arguments="question")
    assert not server.call("ask_user", {"question": "Still there?"})[1]
