"""The plugin: the client's own validator passes it, it installs from the marketplace of this repository, and it works."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from keepfast.agents import launcher
from tests.equipment.folders import marketplace

from .bench import Bench
from .endpoint import call, say, use
from .terminal import PROMPT, Terminal

REPOSITORY = Path(__file__).parents[3]
PLUGIN = REPOSITORY / "plugin"


def plugin_of(bench: Bench) -> str:
    """The plugin, where this bench's home is the one of the passwd entry."""
    return str(marketplace(bench.base, bench.home) / "plugin")


def commands_run(bench: Bench) -> list[str]:
    """What the stand-in for Python was asked to do, one line per start."""
    try:
        return (bench.base / "started").read_text().splitlines()
    except FileNotFoundError:
        return []


def count_starts(bench: Bench) -> None:
    """Let the plugin find a program that only writes down how it was started."""
    program = bench.base / "python"
    program.write_text(f'#!/bin/sh\ncat >/dev/null\necho "$@" >> "{bench.base}/started"\n')
    program.chmod(0o755)
    (bench.base / "launch.py").write_text("")
    recorded, start = bench.home / ".config/keepfast/interpreter", bench.home / ".local/share/keepfast/bin/launch"
    for path in (recorded, start):
        path.parent.mkdir(parents=True)
    recorded.write_text(f"{program}\n{bench.base / 'launch.py'}\n")
    start.write_text(launcher.script(str(program), str(bench.base / "launch.py"), str(start)))
    start.chmod(0o755)


@pytest.mark.parametrize("folder", [PLUGIN, REPOSITORY], ids=["plugin", "marketplace"])
def test_the_clients_own_validator_has_nothing_to_say(bench: Bench, folder: Path) -> None:
    strict = ["--strict", "--profile", "directory"] if folder == PLUGIN else ["--strict"]

    done = bench.claude("plugin", "validate", *strict, str(folder))

    assert done.returncode == 0, done.stdout + done.stderr


def test_it_installs_from_the_marketplace_and_every_hook_starts_once(bench: Bench) -> None:
    count_starts(bench)
    added = bench.claude("plugin", "marketplace", "add", str(marketplace(bench.base, bench.home)))
    installed = bench.claude("plugin", "install", "keepfast@keepfast")
    assert (added.returncode, installed.returncode) == (0, 0), added.stdout + added.stderr + installed.stderr
    bench.script(call(use("Bash", command="true", description="nothing")), say("Done."))

    turn = bench.run("go")

    assert turn.code == 0
    launch = f"-I -S -B {bench.base / 'launch.py'} hook claude-code"
    started = commands_run(bench)
    assert sorted(set(started)) == [launch, f"{launch} --part 1", f"{launch} --part 2"]
    # SessionStart twice, then UserPromptSubmit, PreToolUse, PostToolUse, Stop and SessionEnd. PostToolUse is asynchronous: where
    # the session ends at once, the client may end it too.
    assert len(started) in (6, 7)


def test_with_hooks_in_the_settings_too_nothing_runs_twice(bench: Bench) -> None:
    count_starts(bench)
    bench.keepfast("install", "claude", "--scope", "local")
    start = bench.home / ".local/share/keepfast/bin/launch"
    count = f'echo settings >> "$REC_DIR/started"; true {start} hook claude-code'
    local = bench.project / ".claude/settings.local.json"
    local.write_text(
        json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": count, "timeout": 5}]}]}})
    )

    bench.run("go", "--plugin-dir", plugin_of(bench))

    assert commands_run(bench) == ["settings"]


def test_without_keepfast_the_user_is_told_once_and_the_agent_goes_on(bench: Bench) -> None:
    (bench.bin / "keepfast").unlink()
    bench.script(call(use("Bash", command="true", description="nothing")), say("All done."))

    turn = bench.run("go", "--plugin-dir", plugin_of(bench), "--include-hook-events")

    assert turn.result["result"] == "All done."
    assert turn.out.count("keepfast is not installed") >= 1
    assert "keepfast is not installed" not in bench.endpoint.main_requests()[-1].raw
    assert '"is_error":true' not in turn.out


@pytest.mark.parametrize(
    ("command", "shown"),
    [("list", "before the plan"), ("status", "before the plan"), ("clear-check", '"action": "nothing"')],
)
def test_a_slash_command_shows_the_model_what_keepfast_says(bench: Bench, command: str, shown: str) -> None:
    bench.keepfast("init")
    bench.keepfast("save", "-m", "before the plan")
    bench.keepfast("install", "claude", "--plugin")
    (bench.bin / "keepfast").unlink()  # only the plugin's own is left on the PATH

    turn = bench.run(f"/keepfast:{command}", "--plugin-dir", plugin_of(bench))

    assert turn.code == 0, turn.out
    assert shown in bench.endpoint.main_requests()[0].texts()


def test_its_hooks_offer_its_commands(bench: Bench) -> None:
    """The client tells a hook by a variable that it belongs to a plugin."""
    bench.keepfast("install", "claude", "--plugin")
    config = bench.home / ".config/keepfast/config.json"
    config.write_text(json.dumps({"hooks": {"auto_resume_on_start": "prompt"}}))
    plugin = ("--plugin-dir", plugin_of(bench), "--include-hook-events")
    bench.script(say("Begun."))
    session = bench.run("begin", *plugin).session
    bench.settle()

    turn = bench.run("/clear", "--resume", session, *plugin)

    assert "/keepfast:resume" in turn.out


@pytest.mark.parametrize(("command", "stays"), [("keep", True), ("drop", False)])
def test_after_a_clear_that_asks_its_commands_keep_or_drop_the_checkpoint(
    bench: Bench, command: str, stays: bool
) -> None:
    screen = cleared(bench, f"/keepfast:{command}", {"auto_checkpoint_on_clear": "prompt"})

    assert "/keepfast:keep" in screen and "/keepfast:drop" in screen
    (asked,) = [
        request.texts() for request in bench.endpoint.main_requests() if "in one line what this says" in request.texts()
    ]
    made = [one["version"] for one in bench.settle() if one["trigger"] == "before_clear"]
    assert len(made) == stays
    assert all(f"Kept {version}" in asked for version in made) and ("Dropped v" in asked) != stays
    assert bench.keepfast("drop", check=False).returncode == 4  # it was answered


def test_where_a_brief_is_only_offered_its_command_gives_it_to_the_model(bench: Bench) -> None:
    screen = cleared(bench, "/keepfast:resume", {"auto_resume_on_start": "prompt"})

    assert "/keepfast:resume" in screen
    (asked,) = [request.texts() for request in bench.endpoint.main_requests() if "It is history" in request.texts()]
    assert asked.count("Resumed from checkpoint:") == 1
    assert "plan the parser for dates" in asked and "A recursive one would do." in asked


def cleared(bench: Bench, command: str, hooks: dict[str, Any]) -> str:
    """Talk, an edit by hand, /clear and this command, in one client; return what was on the screen."""
    bench.keepfast("install", "claude", "--plugin")
    (bench.home / ".config/keepfast/config.json").write_text(json.dumps({"hooks": hooks}))
    bench.script(say("A recursive one would do."), say("Told the user."))
    with Terminal(bench, "--permission-mode", "bypassPermissions", "--plugin-dir", plugin_of(bench)) as terminal:
        terminal.wait(PROMPT)
        terminal.type("plan the parser for dates")
        terminal.wait("recursive one would do")
        bench.wait_for(lambda: any(one["trigger"] == "turn" for one in bench.checkpoints()))
        bench.put("by-hand.txt", "not yet saved\n")
        terminal.type("/clear")
        offered = terminal.wait("/keepfast:(drop|resume)")
        terminal.type(command)
        terminal.wait("Told the user")
    return offered


def test_clear_check_asks_about_what_its_own_prompt_has_saved_and_saves_for_its_session(bench: Bench) -> None:
    bench.keepfast("install", "claude", "--plugin")
    bench.script(
        say("A recursive one would do."),
        call(use("Bash", command="keepfast clear-check -y --json", description="save")),
        say("Saved."),
    )
    command = [*bench.command("", "--plugin-dir", plugin_of(bench)), "--input-format", "stream-json"]
    del command[2]  # prompts come one after another

    with subprocess.Popen(
        command, env=bench.environment(), cwd=bench.project, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        first = prompt(client, "plan the parser for dates")
        bench.settle()
        bench.put("by-hand.txt", "not yet saved\n")
        last = prompt(client, "/keepfast:clear-check")
        assert client.stdin is not None
        client.stdin.close()

    assert last["result"] == "Saved."
    assert [request for request in bench.endpoint.main_requests() if '"action": "ask"' in request.texts()]
    (made,) = [one for one in bench.settle() if one["trigger"] == "before_clear"]
    assert (made["session_id"], made["message"]) == (first["session_id"], "plan the parser for dates")


def prompt(client: subprocess.Popen[bytes], text: str) -> dict[str, Any]:
    """Hand the client a prompt; return the result that it says at the end."""
    assert client.stdin is not None and client.stdout is not None
    message = {"type": "user", "message": {"role": "user", "content": text}}
    client.stdin.write(json.dumps(message).encode() + b"\n")
    client.stdin.flush()
    for line in client.stdout:
        event: dict[str, Any] = json.loads(line)
        if event.get("type") == "result":
            return event
    raise AssertionError("the client ended")


@pytest.mark.parametrize("command", ["save", "restore"])
def test_a_slash_command_hands_its_words_to_the_model_and_not_to_a_shell(bench: Bench, command: str) -> None:
    bench.keepfast("init")
    words = 'before `touch pwned` $(touch pwned) "; touch pwned'

    bench.run(f"/keepfast:{command} {words}", "--plugin-dir", plugin_of(bench))

    assert words in bench.endpoint.main_requests()[0].texts()
    assert not (bench.project / "pwned").exists()


def test_the_skill_is_offered_to_the_model(bench: Bench) -> None:
    bench.run("hello", "--plugin-dir", plugin_of(bench))

    assert "keepfast:checkpoints" in bench.endpoint.main_requests()[0].raw
