"""What the real client knows when a task starts again: its history, that of a checkpoint, or a brief of it."""

from __future__ import annotations

import json

from keepfast.runner.actions import recovery
from keepfast.runner.domain.records import Task

from .endpoint import Reply, Rule, call, say, use
from .supervised import DONE, ClientPlace, bash

WORD = "the word is walnut"
FUNCTIONS = "".join([f"def function_{n}(value):\n    return value + {n}\n\n\n" for n in range(200)])
LIMITED = Reply(status=429, headers={"retry-after": "3600"})


def question(text: str) -> Reply:
    return call(use("mcp__keepfast__ask_user", question=text, options=["yes", "no"]))


def versions(here: ClientPlace, task: Task, reason: str) -> list[str]:
    """The task's checkpoints for this reason, the oldest first."""
    shown = here.tasks.views.show(task.id)["checkpoints"]
    return [one["version"] for one in reversed(shown) if one["reason"] == reason]


def asked_twice(here: ClientPlace) -> Task:
    """A task that says a word and asks, is answered, says another and asks again."""
    here.bench.script(
        bash("echo one > a.txt"), say(WORD), question("First?"), say("I wait."),
        bash("echo two > a.txt"), question("Second: is it hazelnut?"), say("I wait again."), DONE,
    )  # fmt: skip
    task = here.ask()
    here.supervise()
    here.tasks.answers.answer(task.id, "yes")
    here.supervise()
    assert here.state(task) == ("active", "question"), here
    return task


def test_a_checkpoint_of_a_task_holds_its_conversation_sealed(here: ClientPlace) -> None:
    here.bench.script(bash("echo one > a.txt"), say(f"{WORD}\n=== CUSTOM TASK COMPLETE ==="))
    task = here.ask()

    here.supervise()

    with here.runtime.engine() as engine:
        _, row = engine.workspaces.root(str(here.bench.project).encode())
        newest = engine.repository().ledger.checkpoint(row.id, row.version)
        assert newest is not None
        header = engine.repository().document(newest)[0].members
    assert header["conversation"]["session"] == here.runtime.tables.task(task.id).session
    assert header["tokens_used"] > 0 and header["task"] == task.id
    latest = json.loads((here.bench.project / ".checkpoints/latest.json").read_text())
    assert latest["conversationHistory"]["digest"] == header["conversation"]["content"]
    packs = [path for path in (here.data / "store").rglob("*") if path.is_file()]
    assert packs and not any(WORD.encode() in path.read_bytes() for path in packs)


def test_a_restored_task_goes_on_with_the_files_and_the_history_of_that_checkpoint(here: ClientPlace) -> None:
    task = asked_twice(here)
    first = versions(here, task, "question")[0]
    before = here.runtime.tables.task(task.id).session
    here.bench.script(DONE)

    here.tasks.restore(task.id, first)

    assert (here.bench.project / "a.txt").read_text() == "one\n"
    here.supervise()
    assert here.state(task) == ("done", ""), here
    seen = here.last_request()
    assert "Do the work." in seen and WORD in seen and "restored to checkpoint" in seen
    assert "hazelnut" not in seen and "I wait again." not in seen
    event = next(one for one in here.tasks.views.log(task.id) if one["type"] == "checkpoint_restored")
    assert event["success"] and event["messages_restored"] >= 4
    assert here.runtime.tables.task(task.id).session != before, "the session that went on is not touched"


def test_files_alone_come_back_and_a_fresh_session_is_told_that_checkpoint(here: ClientPlace) -> None:
    task = asked_twice(here)
    first = versions(here, task, "question")[0]
    here.bench.script(DONE)

    here.tasks.restore(task.id, first, conversation=False)
    here.supervise()

    seen = here.last_request()
    roles = [message["role"] for message in here.bench.endpoint.main_requests()[-1].messages]
    assert "assistant" not in roles, "nothing of the old conversation is in it"
    assert "# Task: Do the work." in seen and "Resumed from checkpoint" in seen
    assert "hazelnut" not in seen, "what came after that checkpoint is not told"


def test_a_fresh_session_edits_at_once_what_the_brief_names(here: ClientPlace) -> None:
    path = here.bench.put("big.py", FUNCTIONS)
    edit = use("Edit", file_path=str(path), old_string="value + 120\n", new_string="value * 120\n")
    here.bench.script(
        call(use("Read", file_path=str(path), offset=470, limit=40)),
        call(use("Edit", file_path=str(path), old_string="value + 118\n", new_string="value * 118\n")),
        LIMITED, call(edit), DONE,
    )  # fmt: skip
    task = here.ask(agent={**here.client(), "resume_with": "brief"})

    here.supervise()

    assert here.state(task) == ("done", ""), here
    assert "value * 120" in path.read_text()
    prompt = here.bench.endpoint.main_requests()[-2].texts()
    assert "def function_120" in prompt, "the client read the named lines by itself"
    results = json.dumps(here.bench.endpoint.main_requests()[-1].messages)
    assert "has not been read yet" not in results


def test_a_run_that_did_nothing_does_not_hide_what_was_done_before(here: ClientPlace) -> None:
    path = here.bench.put("a.py", "first = 1\n")
    here.bench.script(call(use("Read", file_path=str(path))), LIMITED, LIMITED, DONE)
    task = here.ask(agent={**here.client(), "resume_with": "brief"})

    here.supervise()

    assert here.outcomes(task) == ["limited", "limited", "complete"], here
    assert "first = 1" in here.last_request()


def test_what_the_brief_quotes_makes_the_client_read_nothing(here: ClientPlace) -> None:
    here.bench.put("notes.txt", "not to be read by mention\n")
    path = here.bench.put("a.py", "x = 1\n")
    here.bench.script(
        Reply("Next I look at @notes.txt and at @/etc/hostname", (use("Read", file_path=str(path)),)), LIMITED, DONE
    )
    here.ask(agent={**here.client(), "resume_with": "brief"})

    here.supervise()

    seen = here.bench.endpoint.main_requests()[-1].texts()
    assert "Next I look at '@notes.txt" in seen
    assert "not to be read by mention" not in seen


def test_a_conversation_that_no_longer_fits_is_left_behind(here: ClientPlace) -> None:
    full = Reply(status=400, error={"message": "prompt is too long: 210000 tokens > 200000 maximum"})
    # As long as that tool's result is in it, nothing fits, the client's own summary neither.
    here.bench.script(bash("echo one > a.txt"), DONE, rules=[Rule([full], anywhere='"tool_result"', endless=True)])
    task = here.ask()

    here.supervise()

    assert here.state(task) == ("done", ""), here
    sessions = [run.session for run in here.runtime.tables.runs("task = ?", task.id)]
    assert len(set(sessions)) == 2, "a fresh session takes over"
    assert "# Task: Do the work." in here.last_request() and "Resumed from checkpoint" in here.last_request()


def test_a_conversation_that_the_client_makes_shorter_goes_on(here: ClientPlace) -> None:
    full = Reply(status=400, error={"message": "prompt is too long: 210000 tokens > 200000 maximum"})
    here.bench.script(bash("echo one > a.txt"), full, *[DONE] * 9)
    task = here.ask()

    here.supervise()

    assert here.state(task) == ("done", ""), here
    assert here.outcomes(task) == ["complete"]


def test_a_full_conversation_is_not_resumed(here: ClientPlace) -> None:
    here.bench.script(bash("echo one > a.txt", usage={"cache_read_input_tokens": 900_000}), LIMITED, DONE)
    task = here.ask()

    here.supervise()

    assert here.state(task) == ("done", ""), here
    begun = [one for one in here.tasks.views.log(task.id) if one["type"] == "run_begun"]
    assert not begun[-1]["resumed"] and "% of the model's window" in begun[-1]["why"]


def test_how_full_it_is_is_told_after_each_request(here: ClientPlace) -> None:
    here.variables["CLAUDE_CODE_OAUTH_TOKEN"] = "sk-ant-oat01-made-up"
    here.variables.pop("ANTHROPIC_API_KEY")
    near = {
        "anthropic-ratelimit-unified-status": "allowed_warning",
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-5h-status": "allowed_warning",
        "anthropic-ratelimit-unified-5h-utilization": "0.93",
        "anthropic-ratelimit-unified-5h-reset": "@+3600",
        "anthropic-ratelimit-unified-reset": "@+3600",
    }
    here.bench.script(
        bash("echo one > a.txt", usage={"cache_read_input_tokens": 100_000}, headers=near),
        say("=== CUSTOM TASK COMPLETE ===", usage={"cache_read_input_tokens": 200_000}, headers=near),
    )
    task = here.ask()

    here.supervise()

    told = [one for one in here.tasks.views.log(task.id) if one["type"] == "context"]
    assert [one["request"] for one in told] == [1, 2], here
    assert [one["used"] // 1000 for one in told] == [100, 200]
    assert all(one["window"] > 200_000 and one["model"] for one in told)
    assert [one["percent"] == round(100 * one["used"] / one["window"], 1) for one in told] == [True, True]
    assert told[-1]["account"]["five_hour"]["used"] == 0.93
    assert told[-1]["account"]["five_hour"]["resetsAt"] > here.now() / 1e9


def test_a_conversation_lost_during_a_question_is_gone_on_with_from_its_checkpoint(here: ClientPlace) -> None:
    here.bench.script(bash("echo one > a.txt"), say(WORD), question("Shall I?"), say("I wait."), DONE)
    task = here.ask()
    here.supervise()
    assert here.state(task) == ("active", "question"), here
    for transcript in here.bench.transcripts():
        transcript.unlink()

    here.tasks.answers.answer(task.id, "yes")
    here.supervise()

    assert here.state(task) == ("done", ""), here
    assert WORD in here.last_request() and "I wait." in here.last_request()
    *_, asking, last = here.runtime.tables.runs("task = ?", task.id)
    assert last.resume and last.session != asking.session
    [event] = [one for one in here.tasks.views.log(task.id) if one["type"] == "checkpoint_restored"]
    assert event["success"] and event["messages_restored"] >= 6


def test_a_rebuilt_task_whose_session_is_gone_goes_on_with_the_sealed_conversation(here: ClientPlace) -> None:
    path = here.bench.put("a.py", "first = 1\n")
    here.bench.script(call(use("Read", file_path=str(path))), question("Shall I?"), say("I wait."), DONE)
    task = here.ask()
    here.supervise()
    assert here.state(task) == ("active", "question"), here
    here.lose_database()
    for transcript in here.bench.transcripts():
        transcript.unlink()

    recovery.rebuild(here.runtime, [str(here.bench.project)])
    here.tasks.resume(task.id)
    here.tasks.answers.answer(task.id, "yes")
    here.supervise()

    assert here.state(task) == ("done", ""), here
    run = here.runtime.tables.runs("task = ?", task.id)[-1]
    assert run.resume and "The answer: yes" in run.prompt
    assert "first = 1" in here.last_request() and "I wait." in here.last_request()
