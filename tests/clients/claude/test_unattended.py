"""Unattended tasks with the real client and the scripted model: phases, limits, pauses, kills, questions, secrets."""

from __future__ import annotations

import json
import os
import secrets
import signal
import string
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from keepfast.runner.domain.records import Task
from keepfast.runner.process import shims
from keepfast.store.rows import Query
from tests.equipment.folders import marketplace
from tests.equipment.postgres import dump
from tests.runner.place import PHASE

from .endpoint import Reply, Rule, call, say, use
from .supervised import DONE, ClientPlace, bash

ONE, TWO = say("=== PHASE 1 COMPLETE ===\nReady for review."), say("=== PHASE 2 COMPLETE ===\nReady for review.")
LONG = "python3 -c 'import time; time.sleep(60)'"
"""The client refuses a plain `sleep`."""
PHASES = [{**PHASE, "prompt": "Write the plan."}, {**PHASE, "prompt": "Build what was planned."}]
PLUGIN = Path(__file__).parents[3] / "plugin"
LIMITED = Reply(status=429, headers={"retry-after": "3600"})
SUBSCRIPTION = {
    "anthropic-ratelimit-unified-status": "rejected",
    "anthropic-ratelimit-unified-representative-claim": "five_hour",
    "anthropic-ratelimit-unified-5h-status": "rejected",
    "anthropic-ratelimit-unified-5h-utilization": "1.0",
}


def test_a_task_of_two_phases(here: ClientPlace) -> None:
    here.bench.script(bash("echo plan > plan.md"), ONE, bash("echo code > code.py"), TWO)
    task = here.ask(phases=PHASES)

    here.supervise()

    assert here.state(task) == ("done", ""), here
    assert (here.bench.project / "code.py").read_text() == "code\n"
    assert here.reasons(task) == ["start", "phase_complete", "phase_complete", "final"]
    assert "Write the plan." in here.last_request() and "Build what was planned." in here.last_request()
    assert len(here.bench.transcripts()) == 1


def test_a_subscription_limit_is_waited_for_and_the_history_goes_on(here: ClientPlace) -> None:
    here.variables["CLAUDE_CODE_OAUTH_TOKEN"] = "sk-ant-oat01-made-up"
    here.variables.pop("ANTHROPIC_API_KEY")
    limited = Reply(status=429, headers={**SUBSCRIPTION, "anthropic-ratelimit-unified-reset": "@+6"})
    here.bench.script(bash("echo begun > begun.txt"), limited, DONE)
    task = here.ask()
    here.supervise(until=here.holds(task, "rate_limit"))
    hold: Any = here.tasks.views.show(task.id)["hold"]
    assert hold["until"] and hold["seconds_left"] <= 8, hold

    here.supervise()

    assert here.state(task) == ("done", "")
    assert here.outcomes(task) == ["limited", "complete"]
    assert "rate_limit" in here.reasons(task)
    assert "Do the work." in here.last_request() and "Resume from where you left off" in here.last_request()
    assert here.requests() == 3


def one_store(here: ClientPlace) -> None:
    """Hooks and supervisor have one data folder, as people have it."""
    share = here.bench.home / ".local/share"
    share.mkdir(parents=True)
    (share / "keepfast").symlink_to(here.data)


def test_a_command_that_destroys_is_saved_before_without_any_hooks_installed(here: ClientPlace) -> None:
    one_store(here)
    here.bench.script(bash("echo all that there is > kept.txt"), bash("rm -rf kept.txt"), DONE)
    task = here.ask()

    here.supervise()

    assert here.state(task) == ("done", ""), here
    assert not (here.bench.project / "kept.txt").exists()
    [saved] = [one for one in here.bench.checkpoints() if one["trigger"] == "before_command"]
    here.bench.keepfast("restore", saved["id"], "-y")
    assert (here.bench.project / "kept.txt").read_text() == "all that there is\n"


@pytest.mark.parametrize("way", ["settings", "plugin"])
def test_hooks_that_people_installed_leave_a_supervised_run_alone(here: ClientPlace, way: str) -> None:
    """Each event is saved once, and the brief is told once; the same hooks work in a session of one's own."""
    one_store(here)
    if way == "plugin":
        here.bench.keepfast("install", "claude", "--plugin")
        here.bench.claude("plugin", "marketplace", "add", str(marketplace(here.base, here.bench.home)))
        assert here.bench.claude("plugin", "install", "keepfast@keepfast").returncode == 0
    else:
        here.bench.keepfast("install", "claude")
    here.bench.script(
        bash("echo one > one.txt"), bash("echo two > two.txt; rm -rf one.txt"), LIMITED,
        bash("echo three > three.txt"), DONE, bash("echo four > four.txt"), say("Done."),
    )  # fmt: skip
    task = here.ask(agent={**here.client(), "resume_with": "brief"})
    here.supervise()
    assert here.state(task) == ("done", ""), here
    supervised, seen = here.bench.checkpoints(), here.last_request()

    turn = here.bench.run("four")

    assert sorted(one["trigger"] for one in supervised) == sorted(["before_command", *here.reasons(task)])
    assert seen.count("Resumed from checkpoint") == 1
    assert turn.code == 0
    assert len(here.bench.checkpoints()) > len(supervised), "the hooks are installed, and work"


def test_a_limit_of_an_api_key_backs_off(here: ClientPlace) -> None:
    limited = Reply(status=429, headers={"retry-after": "3600"})
    here.bench.script(limited, DONE)
    task = here.ask()

    here.supervise()

    assert here.state(task) == ("done", ""), here
    assert here.outcomes(task)[0] == "limited"
    assert "rate_limit" in [event.get("metadata", {}).get("hold") for event in here.tasks.views.log(task.id)]


def test_an_overloaded_model_backs_off(here: ClientPlace) -> None:
    here.bench.script(*[Reply(status=529)] * 2, DONE)
    task = here.ask()

    here.supervise()

    assert here.state(task) == ("done", ""), here
    assert here.outcomes(task) == ["limited", "complete"]


def test_a_refused_account_fails_the_task_with_a_clear_reason(here: ClientPlace) -> None:
    here.bench.script(*[Reply(status=401)] * 5)
    task = here.ask()

    here.supervise()

    assert here.state(task) == ("failed", ""), here
    assert "Authentication failed" in here.runtime.tables.task(task.id).reason


def test_a_pause_comes_at_the_tool_boundary_and_loses_nothing(here: ClientPlace) -> None:
    here.bench.script(bash("sleep 3; echo one > one.txt"), bash("echo two > two.txt"), DONE)
    task = here.ask()
    here.supervise(until=lambda: here.requests() == 1 and _tool_runs(here, task))
    here.tasks.pause(task.id)
    here.supervise(until=here.holds(task, "user_pause"))
    asked = here.requests()
    assert (here.bench.project / "one.txt").exists()
    assert not (here.bench.project / "two.txt").exists()
    time.sleep(1)
    assert here.requests() == asked, "no request comes after it is paused"

    here.tasks.resume(task.id)
    here.supervise()

    assert here.state(task) == ("done", ""), here
    assert (here.bench.project / "two.txt").exists()
    assert "one.txt" in json.dumps(here.bench.endpoint.main_requests()[-1].body["messages"])


def test_what_a_live_run_has_used_is_in_the_document_of_its_checkpoint(here: ClientPlace) -> None:
    here.bench.endpoint.usage.update(input_tokens=10, output_tokens=200)
    here.bench.script(bash("echo one > a.txt"), bash("echo two > b.txt; sleep 600"))
    task = here.ask()
    here.supervise(until=lambda: (here.bench.project / "b.txt").exists())

    here.tasks.freeze(task.id)
    here.supervise(until=lambda: "user_pause" in here.reasons(task))

    newest = json.loads((here.bench.project / ".checkpoints/latest.json").read_text())
    assert (newest["reason"], newest["agent"]["tokensUsed"]) == ("user_pause", 2 * 210)
    here.tasks.cancel(task.id)
    here.supervise()


def test_a_client_that_was_killed_goes_on_with_its_session(here: ClientPlace) -> None:
    here.bench.script(bash(LONG), DONE)
    task = here.ask()
    here.supervise(until=lambda: here.requests() == 1 and _tool_runs(here, task))
    run = here.runtime.tables.last_run(task.id)
    assert run is not None
    pid = shims.agent(run.folder).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    here.supervise()

    assert here.state(task) == ("done", ""), here
    assert here.outcomes(task) == ["crashed", "complete"]
    assert f"its effects may exist: Bash {LONG}" in here.last_request()
    assert here.requests() == 2
    assert not _alive("time.sleep(60)", run.token)


@pytest.mark.campaign
def test_a_supervisor_that_is_killed_costs_no_request(here: ClientPlace, request: pytest.FixtureRequest) -> None:
    """The model is asked the same, once each, however often `keepfast supervise` is killed meanwhile."""
    one_store(here)
    settings = here.bench.home / ".config/keepfast/config.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"supervisor": {"tick": 0.5, "database": here.options.database}}))
    work = [bash(f"sleep 1; echo {number} > {number}.txt") for number in range(4)]
    wanted, kills, tasks, noise = 50 if request.config.getoption("campaign") else 3, 0, 0, Random(7)
    while kills < wanted:
        tasks += 1
        before = here.requests()
        here.bench.script(*work[:2], ONE, *work[2:], TWO)
        task = here.ask(phases=PHASES)
        while kills < wanted and here.state(task)[0] != "done":
            supervisor = subprocess.Popen(
                [here.bench.bin / "keepfast", "-q", "supervise"], env=here.bench.environment()
            )
            time.sleep(1 + noise.random() * 5)
            kills += supervisor.poll() is None
            supervisor.kill()
            supervisor.wait()
        here.supervise()

        assert here.state(task) == ("done", ""), here
        assert here.outcomes(task) == ["phase", "phase"]
        assert sorted(here.reasons(task)) == ["final", "phase_complete", "phase_complete", "start"]
        assert here.requests() - before == 6
        assert {path.name for path in here.bench.project.glob("*.txt")} == {f"{number}.txt" for number in range(4)}
        assert sum(shims.end_strays(run.token) for run in here.runtime.tables.runs("task = ?", task.id)) == 0
        print(f"{kills} kills of the supervisor in {tasks} tasks", flush=True)


def test_a_question_is_answered_from_another_process(here: ClientPlace) -> None:
    tool = use("mcp__keepfast__ask_user", question="Which colour?", options=["red", "blue"])
    here.bench.script(call(tool), say("I wait."), DONE)
    task = here.ask()
    here.supervise()
    assert here.state(task) == ("active", "question"), here

    here.bench.variables["XDG_DATA_HOME"] = str(here.data)
    (here.data / "keepfast").symlink_to(here.data)
    if here.options.database:
        here.bench.keepfast("config", "set", "supervisor.database", here.options.database)
    answered = here.bench.keepfast("task", "answer", task.id, "BLUE", check=False)
    here.supervise()

    assert answered.returncode == 0, answered
    assert here.state(task) == ("done", "")
    assert "The answer: blue" in here.last_request()


def test_a_secret_reaches_the_tool_and_nothing_else(here: ClientPlace) -> None:
    value = "hunter2-secret-value"
    here.bench.script(
        call(use("mcp__keepfast__request_secret", name="DEPLOY_KEY", description="to deploy")), say("I wait."),
        bash('printf %s "$DEPLOY_KEY" | wc -c > length.txt; echo "key $DEPLOY_KEY"'), DONE,
    )  # fmt: skip
    task = here.ask()
    here.supervise()
    assert here.state(task) == ("active", "secret"), here
    here.tasks.answers.secret(task.id, "DEPLOY_KEY", value)

    here.supervise()

    assert here.state(task) == ("done", ""), here
    assert (here.bench.project / "length.txt").read_text().strip() == str(len(value))
    for path in [*here.data.rglob("*"), *here.bench.project.rglob("*")]:
        if path.is_file():
            assert value.encode() not in path.read_bytes(), path
    if here.options.database:
        assert not [row for row in dump(here.options.database) if value in row]


def test_keys_of_a_conversation_are_told_to_the_client_and_nobody_else(here: ClientPlace) -> None:
    """A key for each way: what people write, what the model says, runs, is shown and asks."""
    names = ("title", "brief", "set", "text", "command", "shown", "file", "question", "option", "answer", "last")
    keys = {
        name: "ghp_" + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(36))
        for name in names
    }
    (here.base / "shown").write_text(f"token: {keys['shown']}\n")
    here.bench.script(
        bash(f"printf %s \"$CHOSEN\" | wc -c > length.txt; cat {here.base}/shown; : {keys['command']}"),
        call(use("mcp__keepfast__ask_user", question=f"Is {keys['question']} right?", options=[keys["option"], "no"])),
        say(f"I wait for {keys['text']}."),
        say(f"=== CUSTOM TASK COMPLETE ===\nSummary: used {keys['last']}"),
    )  # fmt: skip
    task = here.ask(
        title=f"Deploy {keys['title']}", brief=f"Log in with {keys['brief']}.",
        agent={**here.client(), "set": {"CHOSEN": keys["set"]}},
    )  # fmt: skip
    here.supervise()
    assert here.state(task) == ("active", "question"), here
    here.tasks.answers.answer(task.id, f"Rather {keys['answer']}")
    here.supervise()

    assert here.state(task) == ("done", ""), here
    assert (here.bench.project / "length.txt").read_text().strip() == "40"
    asked = here.last_request()
    assert [name for name in ("title", "brief", "answer") if keys[name] not in asked] == []
    found = {}
    for path in [*here.data.rglob("*"), *here.bench.project.rglob("*")]:
        if path.is_file():
            found[str(path)] = path.read_bytes().decode("utf-8", "replace")
    with here.runtime.engine() as engine:
        for row in engine.repository().ledger.find(Query()):
            found[row.id] = json.dumps([row.message, engine.repository().document(row)[0].members], default=str)
    found["shown"] = json.dumps(
        [here.tasks.views.show(task.id), here.tasks.views.log(task.id), here.tasks.views.listing()]
    )
    if here.options.database:
        found["database"] = "\n".join(dump(here.options.database))
    assert [(name, where) for name, key in keys.items() for where, text in found.items() if key in text] == []


def test_a_session_that_is_gone_begins_anew_with_a_notice(here: ClientPlace) -> None:
    here.bench.script(Reply(status=429, headers={"retry-after": "3600"}), DONE)
    task = here.ask()
    here.supervise(until=here.holds(task, "rate_limit"))
    for path in here.bench.transcripts():
        path.unlink()

    here.supervise()

    assert here.state(task) == ("done", ""), here
    assert "# Task: Do the work." in here.last_request()


def test_nothing_of_the_workspaces_own_configuration_is_trusted(here: ClientPlace) -> None:
    hook = {"hooks": [{"type": "command", "command": f"touch {here.base}/owned"}]}
    settings = {"hooks": {"SessionStart": [hook], "PreToolUse": [hook]}}
    here.bench.put(".claude/settings.json", json.dumps(settings))
    server = {"mcpServers": {"evil": {"command": "touch", "args": [f"{here.base}/owned"]}}}
    here.bench.put(".mcp.json", json.dumps(server))
    here.bench.script(bash("echo hello > a.txt"), DONE)
    task = here.ask()

    here.supervise()

    assert here.state(task) == ("done", ""), here
    assert not (here.base / "owned").exists()


def _tool_runs(here: ClientPlace, task: Task) -> bool:
    run = here.runtime.tables.last_run(task.id)
    return run is not None and '"tool_use"' in Path(run.folder, "out.log").read_text()


def _alive(command: str, token: str) -> bool:
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True).stdout.splitlines()
    pids = [int(line.split()[0]) for line in listed if line.endswith(command)]
    return any(f"{shims.TOKEN}={token}".encode() in shims._environment(pid) for pid in pids)


@pytest.mark.campaign
def test_nothing_comes_after_a_pause_whatever_runs_at_once(here: ClientPlace, request: pytest.FixtureRequest) -> None:
    """Parallel tools and a background subagent: no request and no tool starts once the task is paused."""
    subagent = use(
        "Task",
        description="look",
        prompt="SUBAGENT: look around",
        subagent_type="general-purpose",
        run_in_background=True,
    )
    for number in range(50 if request.config.getoption("campaign") else 2):
        marks = here.base / f"marks{number}"
        marks.mkdir()
        tools = [
            use("Bash", command=f"touch {marks}/{one}; sleep 1; touch {marks}/{one}.end", description="work")
            for one in "abc"
        ]
        slow = [Rule([bash(f"touch {marks}/sub; sleep 1")] * 9, first="SUBAGENT")]
        here.bench.script(call(subagent, *tools), *[bash(f"touch {marks}/more; sleep 1")] * 9, rules=slow)
        task = here.ask()
        here.supervise(until=(marks / "a").exists)
        here.tasks.pause(task.id)
        here.supervise(until=here.holds(task, "user_pause"))
        asked, seen = len(here.bench.endpoint.requests), sorted(path.name for path in marks.iterdir())
        time.sleep(1.2)

        assert len(here.bench.endpoint.requests) == asked, "a request came after the pause"
        assert sorted(path.name for path in marks.iterdir()) == seen, "a tool started or went on after the pause"
        here.tasks.cancel(task.id)
        print(f"{number + 1} pauses", flush=True)
