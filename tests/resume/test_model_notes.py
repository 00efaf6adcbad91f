"""What a model is shown, what it may answer, and how that joins our own notes."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from keepfast.agents.transcript import read
from keepfast.model.errors import Failed
from keepfast.resume import extractor as notes
from keepfast.resume import model_client
from keepfast.resume.model_answer import Extract, checked, join, mark
from keepfast.resume.model_prompt import MAX_RECORD_CHARACTERS, render_record
from keepfast.secrets.redaction import redact
from tests.clients.claude.endpoint import Endpoint, Reply, call, say, use
from tests.equipment.sessions import Session

KEY = "AKIA" + "Q3EGRXPLM7ZKNV2A"
GOOD = {"current_task": "Cart totals", "next_steps": ["Round"], "decisions": ["Decimal"], "blockers": ["No spec"]}


def session() -> Session:
    made = Session(files={"shop/cart.py": "CONTENT = 1\n" * 40})
    made.asked(f"Fix the totals of the cart. The key is {KEY}.")
    made.read("shop/cart.py")
    made.edit("shop/cart.py", "CONTENT = 1\n", "CONTENT = 2\n")
    made.run("pytest -q", "E assert 1 == 2\n1 failed", failed=True)
    made.said("The totals are rounded now.")
    return made


def record(made: Session) -> str:
    return render_record(read(made.bytes()), redact)


def test_the_record_says_what_was_said_and_done_without_secrets_and_file_contents() -> None:
    text = record(session())

    assert "USER: Fix the totals of the cart." in text and "AGENT: The totals are rounded now." in text
    assert "[edited /home/ann/shop/shop/cart.py]" in text and "assert 1 == 2" in text
    assert KEY not in text and "CONTENT" not in text
    assert text.startswith("<record ") and text.endswith(">")


def test_a_long_session_is_cut_in_the_middle() -> None:
    made = session()
    for number in range(200):
        made.asked(f"prompt {number} " + "word " * 300)

    text = record(made)

    assert len(text) < MAX_RECORD_CHARACTERS + 200
    assert "Fix the totals" in text and "prompt 199" in text and "prompt 20 " not in text


def test_nothing_said_is_nothing_shown() -> None:
    assert record(Session()) == ""


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([], "not a JSON object"),
        ({}, "the answer is empty"),
        ({"current_task": 3}, "current_task is not a string"),
        ({"next_steps": "one"}, "next_steps is not a list"),
        ({"decisions": [{"a": 1}]}, "decisions is not a list"),
        ({"blockers": None}, "blockers is not a list"),
    ],
)
def test_an_answer_of_another_form_is_refused(answer: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        checked(answer)


def test_an_answer_is_bounded_and_free_of_hidden_characters() -> None:
    found = checked({"current_task": "a\u202e\nb" + "x" * 5000, "next_steps": ["", *["step"] * 90], "more": 1})

    assert found.current_task.startswith("a b") and len(found.current_task) == 300
    assert len(found.next_steps) == 8
    assert Extract.from_json(found.to_json()) == found
    assert Extract.from_json({"current_task": 1}) is None and Extract.from_json(None) is None


def test_what_the_agent_stated_comes_first_then_the_model_then_our_rules() -> None:
    taken = notes.take(read(session().bytes()))
    inferred = list(taken.blockers)

    joined = join(taken, checked(GOOD, by="a model", prompt=mark(taken.prompts)))

    assert joined.current_task == "Cart totals" and joined.next_steps == ["Round"]
    assert joined.decisions[0] == "Decimal"
    assert joined.blockers == [*inferred, "No spec"]

    made = session()
    made.call(
        "mcp__keepfast__checkpoint_save",
        {"summary": "Mine", "current_task": "Mine", "next_steps": ["Own"], "decisions": ["First"]},
    )
    stated = notes.take(read(made.bytes()))
    joined = join(stated, checked(GOOD, prompt=mark(stated.prompts)))
    assert (joined.current_task, joined.next_steps) == ("Mine", ["Own"])
    assert joined.decisions[0] == "First" and "Decimal" in joined.decisions


def test_after_a_new_prompt_only_decisions_of_the_old_reading_hold() -> None:
    made = session()
    old = mark(notes.take(read(made.bytes())).prompts)
    made.asked("Now write the documentation of the cart.")
    taken = notes.take(read(made.bytes()))

    joined = join(taken, checked(GOOD, prompt=old))

    assert joined.current_task == "Now write the documentation of the cart." and "Round" not in joined.next_steps
    assert "Decimal" in joined.decisions and "No spec" not in joined.blockers
    assert join(taken, None) is taken


# By a command


def script(tmp_path: Path, body: str) -> list[str]:
    path = tmp_path / "answer.py"
    path.write_text(f"import json, os, sys, time\ngiven = sys.stdin.read()\n{body}\n")
    return [sys.executable, str(path)]


def ask(words: list[str], seconds: float = 30) -> Any:
    return model_client.command("<record>", words, home="/nowhere", seconds=seconds)


def test_a_command_is_given_record_and_form_and_answers_json(tmp_path: Path) -> None:
    words = script(
        tmp_path,
        "assert '<record>' in given and '\"next_steps\"' in given\n"
        "print('Here you are:\\n```json\\n' + json.dumps({'current_task': str(sorted(os.environ))}) + '\\n```')",
    )

    task = ask(words)["current_task"]

    assert "HOME" in task and "ANTHROPIC" not in task and "PYTHON" not in task


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("print('nothing of use')", "not JSON"),
        ("sys.exit(3)", "exit code 3"),
        ("print('x' * 1_000_000)", "larger than 256 KB"),
        ("print('[' * 100_000 + '{' * 100_000 + '}')", "not JSON"),
    ],
)
def test_a_bad_answer_of_a_command_is_a_sentence(tmp_path: Path, body: str, why: str) -> None:
    with pytest.raises(Failed, match=why):
        ask(script(tmp_path, body))


@pytest.mark.parametrize("rest", ["wait", "exec >&-; wait"])
def test_a_command_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path, rest: str) -> None:
    started = tmp_path / "started"

    with pytest.raises(Failed, match=r"no answer within 5 s"):
        ask(["/bin/sh", "-c", f"sleep 600 >/dev/null & echo $! > {started}; {rest}"], seconds=5)

    state = Path("/proc", started.read_text().strip(), "stat")
    end = time.monotonic() + 60
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end, "what the command started goes on"
        time.sleep(0.02)


def test_a_command_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(Failed, match="cannot be started"):
        ask(["/nowhere/at/all"])
    with pytest.raises(Failed, match="empty"):
        ask([])


# Over HTTP


@pytest.fixture
def endpoint() -> Any:
    made = Endpoint()
    yield made
    made.close()


def over_http(endpoint: Endpoint, *replies: Reply, seconds: float = 30) -> Any:
    endpoint.script(*replies)
    return model_client.anthropic("<record>", key="made-up", seconds=seconds, url=endpoint.url, model="small")


def test_a_model_is_asked_for_one_call_of_one_tool(endpoint: Endpoint) -> None:
    answer = over_http(endpoint, call(use("notes", **GOOD)))

    assert answer == GOOD
    (request,) = endpoint.requests
    assert request.body["tool_choice"] == {"type": "tool", "name": "notes"} and request.body["model"] == "small"
    assert request.texts() == "<record>" and "x-api-key" in request.headers


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (say("I would rather not."), "no notes"),
        (call(use("notes", **GOOD), stop_reason="max_tokens"), "no notes"),
        (Reply(status=529), "answered 529"),
        (Reply(status=401), "answered 401"),
        (Reply(drop="before"), "cannot be reached"),
        (call(use("notes", current_task="x" * 1_000_000)), "larger than 256 KB"),
    ],
)
def test_a_bad_answer_over_http_is_a_sentence(endpoint: Endpoint, reply: Reply, why: str) -> None:
    with pytest.raises(Failed, match=why):
        over_http(endpoint, reply)


def test_an_endpoint_that_does_not_answer_in_time_is_left(endpoint: Endpoint) -> None:
    with pytest.raises(Failed, match=r"no answer within 0\.5 s"):
        over_http(endpoint, say("late", delay=20), seconds=0.5)


def test_a_conversation_leaves_this_machine_encrypted_or_not_at_all() -> None:
    with pytest.raises(Failed, match="not https"):
        model_client.anthropic("<record>", key="made-up", seconds=5, url="http://192.0.2.1")


def test_a_key_is_taken_from_a_file_of_the_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("sk-made-up\n")
    path.chmod(0o600)
    assert model_client.key_in(str(path)) == "sk-made-up"

    path.chmod(0o644)
    with pytest.raises(Failed, match="Other users can read"):
        model_client.key_in(str(path))
    path.chmod(0o600)
    path.write_text("two words\n")
    with pytest.raises(Failed, match="does not contain a valid key"):
        model_client.key_in(str(path))
    for gone, why in (("", "not set"), (str(tmp_path / "gone"), "cannot be read")):
        with pytest.raises(Failed, match=why):
            model_client.key_in(gone)
