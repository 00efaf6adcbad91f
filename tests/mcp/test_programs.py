"""The server as programs of others see it: the inspector, the conformance suite, and clients over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.equipment.box import SOURCE, Box

from .npm_programs import run

HERE = Path(__file__).parent
FORM = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}},
}


@contextmanager
def started(box: Box, *words: str) -> Iterator[tuple[str, list[str]]]:
    """A server's process; its address and what else it said first."""
    process = subprocess.Popen(
        [sys.executable, *words],
        env={**box.variables, "PYTHONPATH": str(SOURCE)},
        cwd=box.project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), address
        yield address, [] if "-m" not in words else [process.stdout.readline().strip()]
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def inspect(box: Box, *words: str) -> Any:
    """What the inspector's command line prints for one method."""
    program = [sys.executable, "-P", "-m", "keepfast", "-C", str(box.project), "mcp"]
    done = run("mcp-inspector", "--cli", *program, *words, home=box.home, cwd=box.home)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_inspector_lists_and_calls(saved_box: Box) -> None:
    tools = inspect(saved_box, "--method", "tools/list")["tools"]
    called = inspect(
        saved_box,
        "--method",
        "tools/call",
        "--tool-name",
        "checkpoint_save",
        "--tool-arg",
        "summary=from the inspector",
    )

    assert {tool["name"] for tool in tools} >= {"checkpoint_save", "recall", "checkpoint_configure"}
    assert called["structuredContent"]["checkpoint"]["version"] == "v4"
    assert saved_box.call("list", "--json").json()[0]["message"] == "from the inspector"


def test_the_conformance_suite_finds_nothing_but_what_is_not_offered(saved_box: Box, tmp_path: Path) -> None:
    with started(saved_box, str(HERE / "open_server.py"), str(saved_box.home), str(saved_box.project)) as (address, _):
        baseline = ["--expected-failures", str(HERE / "expected-failures.yml")]
        done = run("conformance", "server", "--url", address, *baseline, home=saved_box.home, cwd=tmp_path)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    for scenario in ("server-initialize", "ping", "tools-list", "tools-call-error", "resources-read-text"):
        assert f"✓ {scenario}" in done.stdout
    assert "✓ dns-rebinding-protection" in done.stdout


def ask(address: str, headers: dict[str, str], message: dict[str, Any] = HELLO) -> tuple[int, str]:
    request = Request(address, json.dumps(message).encode(), {**FORM, **headers}, method="POST")
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_over_http_only_the_token_opens_and_only_our_own_name(saved_box: Box) -> None:
    token_file = saved_box.home / ".local/share/keepfast/mcp.token"
    with started(saved_box, "-m", "keepfast", "mcp", "--http", "--port", "0") as (address, banner):
        token = token_file.read_text().strip()
        credentials = {"Authorization": f"Bearer {token}"}
        answers = {
            "right": ask(address, credentials)[0],
            "none": ask(address, {})[0],
            "wrong": ask(address, {"Authorization": "Bearer " + "x" * len(token)})[0],
            "half": ask(address, {"Authorization": f"Bearer {token[:-1]}"})[0],
            "other name": ask(address, {**credentials, "Host": "evil.example"})[0],
            "other page": ask(address, {**credentials, "Origin": "http://evil.example"})[0],
        }
        initialized = ask(address, credentials)[1]

    assert banner == [f"The token is in {token_file}."]
    assert token_file.stat().st_mode & 0o777 == 0o600
    assert answers == {"right": 200, "none": 401, "wrong": 401, "half": 401, "other name": 421, "other page": 403}
    assert "keepfast saves checkpoints" in initialized


def test_a_token_that_others_may_read_or_guess_is_refused(saved_box: Box) -> None:
    for content, mode, message in (("x" * 40, 0o644, "Other users can read"), ("guess", 0o600, "too short")):
        token = saved_box.home / "token"
        token.write_text(content)
        token.chmod(mode)
        refused = saved_box.run("mcp", "--http", "--port", "0", "--token-file", str(token))
        assert refused.code == 1
        assert message in refused.err
        assert content not in refused.err


@pytest.mark.parametrize("words", [["--port", "1"], ["--token-file", "x"], ["--http", "--port", "70000"]])
def test_flags_that_do_not_fit_are_refused(saved_box: Box, words: list[str]) -> None:
    assert saved_box.run("mcp", *words).code == 2


def test_a_taken_port_is_a_sentence(saved_box: Box) -> None:
    with started(saved_box, "-m", "keepfast", "mcp", "--http", "--port", "0") as (address, _):
        port = address.rpartition(":")[2].partition("/")[0]
        refused = saved_box.run("mcp", "--http", "--port", port)

    assert refused.code == 1
    assert "--port" in refused.err


def test_broken_settings_stop_the_start_with_a_sentence(saved_box: Box) -> None:
    saved_box.config.parent.mkdir(parents=True, exist_ok=True)
    saved_box.config.write_text('{"capture": {"max_files": -1}}')

    refused = saved_box.run("mcp")

    assert refused.code == 2
    assert "capture.max_files" in refused.err
    assert refused.out == ""
