"""A checkpoint that failed does not stand in the way of the next attempt; its failure is told once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from keepfast.agents.base import Reply
from keepfast.agents.claude import hooks as claude_code
from keepfast.app.wiring import build
from keepfast.present.environment import Environment, now_ns
from keepfast.settings import load

from .background import Inline, attending
from .ground import Ground

SECOND = 1_000_000_000


class Client:
    """A client whose hooks run in this process, at the time that the test says."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.now = ground, now_ns()

    def answer(self, name: str, **fields: Any) -> Reply:
        payload = json.dumps(self.ground.payload(name, **fields)).encode()
        environment = Environment({key.encode(): value.encode() for key, value in self.ground.variables.items()})
        engine = build(load(environment.config, {}, hook=True), environment.data, environment.home, lambda: self.now)
        found = attending(engine, claude_code.read(payload, {}))
        try:
            return found.answer()
        finally:
            found.close()

    def tool(self) -> Reply:
        return self.answer("PreToolUse", tool_name="Read", tool_input={"file_path": "x"}, tool_use_id="toolu_1")

    def later(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


@pytest.fixture
def client(started: Ground) -> Client:
    for number in range(5):
        (started.project / f"{number}").write_text("x")
    fails(started)
    return Client(started)


def fails(ground: Ground) -> None:
    """The settings allow fewer files than there are."""
    ground.configure(capture={"max_files": 1}, budget={"tokens": 100_000})


def works(ground: Ground) -> None:
    ground.configure(budget={"tokens": 100_000})


@pytest.mark.parametrize(("tokens", "trigger"), [(72_000, "auto_70"), (82_000, "auto_80"), (91_000, "auto_90")])
def test_the_next_call_after_a_failure_and_a_short_rest_tries_again(client: Client, tokens: int, trigger: str) -> None:
    client.ground.answers(tokens)
    client.tool()
    works(client.ground)

    client.later(5)
    client.tool()
    resting = client.ground.triggers()
    client.later(20)
    client.tool()

    assert (resting, client.ground.triggers()) == (["session_start"], ["session_start", trigger])
    client.later(200)
    client.tool()
    assert client.ground.triggers() == ["session_start", trigger]  # one that exists rests for five minutes


@pytest.mark.parametrize("tokens", [72_000, 82_000, 91_000])
def test_a_failure_is_told_once_and_the_success_after_it_too(client: Client, tokens: int) -> None:
    client.ground.answers(tokens)
    first = client.tool()
    said = []
    for _ in range(3):
        client.later(21)
        said.append(client.tool())
    works(client.ground)
    client.later(21)
    done = client.tool()

    assert first.budget or first.failed
    assert [(one.budget, one.failed, one.agent_text) for one in said] == [("", "", "")] * 3
    assert bool(done.checkpoint) == (tokens > 80_000)


def test_a_saving_process_that_was_ended_is_a_failure_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    works(client.ground)
    client.ground.answers(82_000)
    with monkeypatch.context() as patch:
        patch.setattr(Inline, "attempt", lambda *_: b"")
        client.tool()
    client.later(20)

    assert client.tool().checkpoint


def test_a_compaction_that_could_not_be_saved_for_is_tried_again(client: Client) -> None:
    first = client.answer("PreCompact", trigger="auto")
    works(client.ground)
    client.later(20)
    client.answer("PreCompact", trigger="auto")

    assert first.failed
    assert client.ground.triggers() == ["session_start", "before_compact"]


def test_an_error_that_could_not_be_saved_for_is_tried_again(client: Client) -> None:
    client.answer("StopFailure", error="rate_limit")
    works(client.ground)
    client.later(20)
    client.answer("StopFailure", error="rate_limit")

    assert client.ground.triggers() == ["session_start", "rate_limit"]


def test_the_sentence_of_a_failure_ends_once(client: Client) -> None:
    client.ground.answers(82_000)

    said = client.tool()

    assert said.budget and said.budget in said.agent_text
    assert ".." not in said.agent_text


# What `status` is left of a failure: the name of the checkpoint that is missing, and whether anybody was told.


def left(ground: Ground) -> list[tuple[str, str, bool]]:
    command = [str(Path(sys.executable).parent / "keepfast"), "status", "--json"]
    done = subprocess.run(command, env=ground.variables, cwd=ground.project, capture_output=True, check=True)
    return [(one["kind"], one["trigger"], one["told"]) for one in json.loads(done.stdout)["notices"]]


@pytest.mark.parametrize(("tokens", "trigger"), [(72_000, "auto_70"), (91_000, "auto_90")])
def test_a_failure_that_was_told_is_one_notice_that_says_so(client: Client, tokens: int, trigger: str) -> None:
    client.ground.answers(tokens)
    for _ in range(3):
        client.tool()
        client.later(21)

    assert left(client.ground) == [("failed", trigger, True)]


def test_a_failure_of_the_worker_was_told_to_nobody(client: Client) -> None:
    client.answer("Stop")

    assert left(client.ground) == [("failed", "turn", False)]


def test_a_compaction_that_failed_was_told(client: Client) -> None:
    client.answer("PreCompact", trigger="auto")

    assert left(client.ground) == [("failed", "before_compact", True)]


def test_a_failure_after_the_deadline_was_told_to_nobody(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.ground.configure(capture={"max_files": 1}, budget={"tokens": 100_000}, hooks={"before_command_deadline": 1})
    client.ground.answers(82_000)

    def attempt(_: Inline, work: Any, seconds: float) -> None:
        time.sleep(seconds)
        work()

    monkeypatch.setattr(Inline, "attempt", attempt)
    client.tool()

    assert left(client.ground) == [("failed", "auto_80", False)]


@pytest.mark.parametrize(("tokens", "expected"), [(50_000, []), (82_000, [("failed", "auto_80", False)])])
def test_a_budget_that_was_crossed_while_the_store_was_away_is_known_after_its_return(
    started: Ground, tokens: int, expected: list[tuple[str, str, bool]]
) -> None:
    works(started)
    started.answers(tokens)
    store = Path(started.engine.place.path)
    away = store.rename(store.with_name("away"))

    for _ in range(2):
        assert started.tool("Read", file_path="x") == {}
    away.rename(store)

    assert left(started) == expected


def test_a_turn_that_ended_while_the_store_was_away_was_told_by_its_name(started: Ground) -> None:
    store = Path(started.engine.place.path)
    away = store.rename(store.with_name("away"))

    done = started.hook("Stop")
    away.rename(store)

    assert (done.returncode, bool(done.stderr)) == (1, True)
    assert left(started) == [("failed", "turn", True)]


def test_a_notice_of_before_says_nothing_of_who_was_told(started: Ground) -> None:
    with (started.folder / "notices").open("a") as file:
        file.write(json.dumps({"at": now_ns(), "kind": "failed", "trigger": "turn", "text": "x"}) + "\n")

    assert left(started) == [("failed", "turn", False)]
