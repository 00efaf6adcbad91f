"""`keepfast run -- claude`: the real client has the terminal to itself, and is protected without being installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess

from .bench import Bench
from .endpoint import Reply, call, say, use
from .terminal import PROMPT, Terminal

HEAD = ("keepfast", "run", "--", "claude")
FREE = ("--permission-mode", "bypassPermissions")


def terminal(bench: Bench, *arguments: str) -> Terminal:
    program = bench.bin / "claude"
    if not program.exists():
        program.symlink_to(bench.client.path)
    return Terminal(bench, *FREE, *arguments, program=HEAD)


def test_the_terminal_is_the_clients_and_its_turns_are_saved(bench: Bench) -> None:
    bench.script(call(use("Bash", command="echo made > made.txt", description="make")), say("It is made."))
    with terminal(bench) as screen:
        screen.wait(PROMPT)
        screen.type("make it")
        screen.wait("It is made")
        saved = bench.wait_for(lambda: [one for one in bench.checkpoints() if one["trigger"] == "turn"])
        screen.type("/exit")
        screen.wait("ENDED=0")

    assert saved, "hooks save although nothing was installed"
    assert not bench.settings_path.exists() or "keepfast" not in bench.settings_path.read_text()
    assert bench.keepfast("cat", saved[0]["version"], "made.txt").stdout == "made\n"
    assert bench.checkpoints()[-1]["message"] == "before a session"


def test_the_exit_code_is_75_if_it_ended_limited(bench: Bench) -> None:
    bench.variables["CLAUDE_CODE_MAX_RETRIES"] = "0"
    bench.script(Reply(status=429, headers={"retry-after": "3600"}))
    with terminal(bench) as screen:
        screen.wait(PROMPT)
        screen.type("go")
        screen.wait("429|limit")
        screen.type("/exit")
        seen = screen.wait("ENDED=75")

    assert "The agent reached its usage limit" in seen


def test_a_limit_that_was_got_over_does_not_count(bench: Bench) -> None:
    bench.variables["CLAUDE_CODE_MAX_RETRIES"] = "0"
    bench.script(Reply(status=429, headers={"retry-after": "3600"}), say("All is well."))
    with terminal(bench) as screen:
        screen.wait(PROMPT)
        screen.type("go")
        screen.wait("429|limit")
        screen.type("again")
        screen.wait("All is well")
        screen.type("/exit")
        screen.wait("ENDED=0")


def test_settings_of_the_command_line_go_with_ours(bench: Bench) -> None:
    mark = bench.base / "mark"
    own = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": f"touch {mark}"}]}]}}
    bench.script(call(use("Bash", command="echo made > made.txt", description="make")), say("Hello there."))
    with terminal(bench, "--settings", json.dumps(own)) as screen:
        screen.wait(PROMPT)
        screen.type("hello")
        screen.wait("Hello there")
        assert bench.wait_for(mark.exists)
        assert bench.wait_for(lambda: [one for one in bench.checkpoints() if one["trigger"] == "turn"])
        screen.type("/exit")
        screen.wait("ENDED=0")


def test_what_ends_us_ends_the_client_and_a_key_for_it_does_not_end_us(bench: Bench) -> None:
    program = bench.bin / "claude"
    program.write_text(
        f"#!/bin/sh\necho $$ > {bench.base}/pid\ntrap 'echo asked > {bench.base}/asked; exit 7' INT\n"
        "while :; do sleep 0.1; done\n"
    )
    program.chmod(0o755)
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 7)):
        child = subprocess.Popen(
            [bench.bin / "keepfast", "run", "--", "claude"],
            env=bench.environment(), cwd=bench.project, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert bench.wait_for(lambda: (bench.base / "pid").exists() and (bench.base / "pid").read_text().strip())
        if number == signal.SIGTERM:
            child.send_signal(number)
        else:
            os.killpg(child.pid, number)  # as a terminal does

        assert child.wait(60) == code
        (bench.base / "pid").unlink()
    assert (bench.base / "asked").exists()
