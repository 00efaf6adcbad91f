"""The equipment itself: the real client runs against the script, sees nothing of this machine, and is recorded."""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.request import Request as Outgoing
from urllib.request import urlopen

import pytest

from .bench import Bench
from .client import Client
from .endpoint import Endpoint, Rule, call, say, use
from .terminal import PROMPT, Terminal


def test_a_headless_run_plays_the_script(bench: Bench, client: Client) -> None:
    bench.record("SessionStart", "PreToolUse", "Stop")
    bench.script(call(use("Bash", command="echo two > b.txt", description="write")), say("All done."))

    turn = bench.run("write b.txt")

    assert turn.code == 0 and turn.result["result"] == "All done."
    assert (bench.project / "b.txt").read_text() == "two\n"
    assert [entry["hook_event_name"] for entry in bench.recorded()] == ["SessionStart", "PreToolUse", "Stop"]
    assert {entry["session_id"] for entry in bench.recorded()} == {turn.session}
    assert "write b.txt" in bench.endpoint.main_requests()[0].texts()
    assert len(bench.transcripts()) == 1


def test_the_interactive_client_runs_in_a_terminal(bench: Bench) -> None:
    bench.record("Stop")
    bench.script(say("Hello from the script."))

    with Terminal(bench) as terminal:
        terminal.wait(PROMPT)
        terminal.type("hello")
        terminal.wait("Hello from the script")

        assert bench.wait_for(lambda: bench.recorded("Stop"))


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


def post(endpoint: Endpoint, **body: object) -> str:
    sent = Outgoing(endpoint.url + "/v1/messages", json.dumps(body).encode(), {"content-type": "application/json"})
    with urlopen(sent, timeout=10) as answer:
        return str(answer.read().decode())


def test_rules_come_before_steps_and_requests_without_tools_use_none(endpoint: Endpoint) -> None:
    endpoint.script(say("first"), say("second"), rules=[Rule([say("caught")], last="special")])
    tools = [{"name": "Bash"}]

    def ask(text: str, **more: object) -> str:
        answer = json.loads(post(endpoint, messages=[{"role": "user", "content": text}], **more))
        return str(answer["content"][0]["text"])

    assert ask("plain", tools=tools) == "first"
    assert ask("special", tools=tools) == "caught"
    assert ask("title?") == "ok"
    assert ask("special", tools=tools) == "second"
    assert ask("more", tools=tools) == "Done."
    assert len(endpoint.requests) == 5
    endpoint.close()


def test_an_error_has_its_status_and_its_relative_times(endpoint: Endpoint) -> None:
    endpoint.script(
        say("", status=429, error={"message": "slow down"}, headers={"retry-after": "7", "x-reset": "+60"}),
    )

    with pytest.raises(HTTPError) as raised:
        post(endpoint, messages=[], tools=[{}])

    answer = raised.value
    assert (answer.code, answer.headers["retry-after"]) == (429, "7")
    assert answer.headers["x-reset"].startswith("20") and answer.headers["x-reset"].endswith("Z")
    assert json.loads(answer.read())["error"] == {"type": "rate_limit_error", "message": "slow down"}
    endpoint.close()
