"""The plugin: the client's own validator passes it, it installs from the marketplace of this repository, and it works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .bench import Bench
from .endpoint import call, say, use

REPOSITORY = Path(__file__).parents[2]
PLUGIN = REPOSITORY / "plugin"


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
    recorded = bench.home / ".config/holdfast/interpreter"
    recorded.parent.mkdir(parents=True)
    recorded.write_text(f"{program}\n{bench.base / 'launch.py'}\n")


@pytest.mark.parametrize("folder", [PLUGIN, REPOSITORY], ids=["plugin", "marketplace"])
def test_the_clients_own_validator_has_nothing_to_say(bench: Bench, folder: Path) -> None:
    strict = ["--strict", "--profile", "directory"] if folder == PLUGIN else ["--strict"]

    done = bench.claude("plugin", "validate", *strict, str(folder))

    assert done.returncode == 0, done.stdout + done.stderr


def test_it_installs_from_the_marketplace_and_every_hook_starts_once(bench: Bench) -> None:
    count_starts(bench)
    added = bench.claude("plugin", "marketplace", "add", str(REPOSITORY))
    installed = bench.claude("plugin", "install", "holdfast@holdfast")
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
    bench.holdfast("install", "claude", "--scope", "local")
    count = 'echo settings >> "$REC_DIR/started"; true hook claude-code'
    local = bench.project / ".claude/settings.local.json"
    local.write_text(
        json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": count, "timeout": 5}]}]}})
    )

    bench.run("go", "--plugin-dir", str(PLUGIN))

    assert commands_run(bench) == ["settings"]


def test_without_holdfast_the_user_is_told_once_and_the_agent_goes_on(bench: Bench) -> None:
    (bench.bin / "holdfast").unlink()
    bench.script(call(use("Bash", command="true", description="nothing")), say("All done."))

    turn = bench.run("go", "--plugin-dir", str(PLUGIN), "--include-hook-events")

    assert turn.result["result"] == "All done."
    assert turn.out.count("holdfast is not installed") >= 1
    assert "holdfast is not installed" not in bench.endpoint.main_requests()[-1].raw
    assert '"is_error":true' not in turn.out


@pytest.mark.parametrize(
    ("command", "shown"),
    [("list", "before the plan"), ("status", "before the plan"), ("clear-check", '"action": "nothing"')],
)
def test_a_slash_command_shows_the_model_what_holdfast_says(bench: Bench, command: str, shown: str) -> None:
    bench.holdfast("init")
    bench.holdfast("save", "-m", "before the plan")
    bench.holdfast("install", "claude", "--plugin")
    (bench.bin / "holdfast").unlink()  # only the plugin's own is left on the PATH

    turn = bench.run(f"/holdfast:{command}", "--plugin-dir", str(PLUGIN))

    assert turn.code == 0, turn.out
    assert shown in bench.endpoint.main_requests()[0].texts()


@pytest.mark.parametrize("command", ["save", "restore"])
def test_a_slash_command_hands_its_words_to_the_model_and_not_to_a_shell(bench: Bench, command: str) -> None:
    bench.holdfast("init")
    words = 'before `touch pwned` $(touch pwned) "; touch pwned'

    bench.run(f"/holdfast:{command} {words}", "--plugin-dir", str(PLUGIN))

    assert words in bench.endpoint.main_requests()[0].texts()
    assert not (bench.project / "pwned").exists()


def test_the_skill_is_offered_to_the_model(bench: Bench) -> None:
    bench.run("hello", "--plugin-dir", str(PLUGIN))

    assert "holdfast:checkpoints" in bench.endpoint.main_requests()[0].raw
