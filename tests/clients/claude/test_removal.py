"""keepfast removed or upgraded under a client that has its hooks: the client works on as if nothing had happened."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest

from .bench import Bench
from .endpoint import call, say, use
from .environment import Environment

UPGRADES, CALLERS = 2, 2
EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop")


@pytest.fixture
def environment(tmp_path: Path, bench: Bench) -> Environment:
    made = Environment(tmp_path)
    made.install()
    script = bench.bin / "keepfast"
    script.unlink()
    script.symlink_to(made.folder / "bin/keepfast")
    return made


def hook_commands(bench: Bench) -> dict[str, str]:
    hooks = json.loads(bench.settings_path.read_text())["hooks"]
    return {event: hooks[event][0]["hooks"][0]["command"] for event in EVENTS}


def test_after_pip_uninstall_the_client_answers_in_every_project(bench: Bench, environment: Environment) -> None:
    bench.keepfast("install", "claude", "--statusline")
    bench.run("go")
    assert bench.settle(), "the hooks saved nothing"

    environment.uninstall()

    for project in ("project", "another"):
        if project != "project":
            bench.move(project)
        bench.script(call(use("Bash", command="echo ok > made.txt", description="make")), say("All done."))
        turn = bench.run("go on", "--include-hook-events")
        assert (turn.code, turn.result.get("result")) == (0, "All done."), turn.out
        assert (bench.project / "made.txt").exists()
        answers = [event for event in turn.events if event.get("subtype") == "hook_response"]
        assert answers and {(event["exit_code"], event["stdout"], event["stderr"]) for event in answers} == {
            (0, "", "")
        }


def test_while_pip_upgrades_no_hook_blocks_or_says_anything_odd(bench: Bench, environment: Environment) -> None:
    bench.keepfast("install", "claude")
    commands = hook_commands(bench)
    seen: list[tuple[str, int, bytes, bytes]] = []
    over = threading.Event()

    def call_hooks() -> None:
        while not over.is_set():
            for event, command in commands.items():
                payload = {
                    "hook_event_name": event,
                    "session_id": "s",
                    "cwd": str(bench.project),
                    "source": "startup",
                    "tool_name": "Bash",
                    "tool_input": {"command": "rm README.md"},
                }
                done = subprocess.run(
                    ["/bin/sh", "-c", command],
                    input=json.dumps(payload).encode(),
                    env=bench.environment(),
                    cwd=bench.project,
                    capture_output=True,
                )
                seen.append((event, done.returncode, done.stdout, done.stderr))

    callers = [threading.Thread(target=call_hooks) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(UPGRADES):
            environment.install()
        bench.script(say("All done."))
        turn = bench.run("go")
    finally:
        over.set()
        for caller in callers:
            caller.join()

    assert turn.result["result"] == "All done."
    assert Counter(code for _, code, _, _ in seen).keys() == {0}, [one for one in seen if one[1]]
    assert {err for _, _, _, err in seen} == {b""}
    assert all(out == b"" or json.loads(out) for _, _, out, _ in seen)
