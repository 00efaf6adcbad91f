"""`keepfast install claude`: our hooks go in and out; every byte of others stays where it was."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.agents.claude import installer as claude_settings
from keepfast.agents.claude.installer import HOOKS, with_hooks, with_status_line, without_hooks, without_status_line
from keepfast.agents.launcher import hook, place_of, status_line
from keepfast.cli.client_files import interpreter
from tests.equipment.box import SOURCE, Box

PROGRAM = "/opt/py/bin/python3 -I -S -B /opt/keepfast/hook/launch.py"
"""What settings named before there was a launcher."""
LAUNCHER = "/opt/a b/bin/launch"


def direct(*words: str) -> str:
    return " ".join([PROGRAM, *words])


def launched(*words: str) -> str:
    return hook(LAUNCHER, *words)


def line(own: str) -> str:
    return status_line(LAUNCHER, own)


OTHERS = {
    "model": "opus",
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
        "Odd": [1, "two", {"no": "hooks"}],
    },
    "statusLine": {"type": "command", "command": "echo 'it is' \"mine\"", "padding": 2},
}


def settings_of(box: Box) -> Path:
    return box.home / ".claude/settings.json"


def write(box: Box, value: object, **style: Any) -> str:
    settings_of(box).parent.mkdir(exist_ok=True)
    text = value if isinstance(value, str) else json.dumps(value, **style)
    settings_of(box).write_text(text)
    return text


def test_install_hooks_every_event_with_one_command_and_explicit_timeouts(box: Box) -> None:
    result = box.call("install", "claude", "--json")

    assert result.code == 0, result.err
    hooks = json.loads(settings_of(box).read_text())["hooks"]
    entries = {event: [entry for group in groups for entry in group["hooks"]] for event, groups in hooks.items()}
    assert set(entries) == set(HOOKS)
    assert all(0 < entry["timeout"] <= 30 for event in entries.values() for entry in event)
    starts = [entry["command"] for entry in entries.pop("SessionStart")]
    (failure,) = entries.pop("StopFailure")
    (command,) = {entry["command"] for event in entries.values() for entry in event}
    assert starts == [command.replace("claude-code", f"claude-code --part {part}") for part in (1, 2)]
    assert failure["command"] == command.replace("launch hook", "launch detach hook")
    launcher = place_of(command)
    assert launcher == str(box.home / ".local/share/keepfast/bin/launch") and os.access(launcher, os.X_OK)
    assert result.json()["changed"] and result.json()["commands"] == [*starts, command, failure["command"]]


def test_the_hook_command_starts_from_any_folder_with_nothing_in_the_environment(box: Box) -> None:
    box.call("install", "claude")
    (command,) = {
        entry["command"]
        for group in json.loads(settings_of(box).read_text())["hooks"]["Stop"]
        for entry in group["hooks"]
    }

    done = subprocess.run(
        command, shell=True, cwd="/", env={}, input=b'{"hook_event_name":"Setup"}', capture_output=True
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_second_install_changes_nothing(box: Box) -> None:
    box.call("install", "claude", "--statusline")
    before = settings_of(box).read_bytes()

    result = box.call("install", "claude", "--statusline", "--json")

    assert settings_of(box).read_bytes() == before
    assert result.json()["changed"] is False and result.json()["backup"] is None


@pytest.mark.parametrize("indent", [None, 2, 4, "\t"])
def test_uninstall_gives_back_every_byte_of_others(box: Box, indent: Any) -> None:
    text = write(box, OTHERS, indent=indent)

    installed = box.call("install", "claude", "--statusline", "--json")
    assert installed.json()["foreign"] == 1
    assert json.loads(settings_of(box).read_text())["hooks"]["Odd"] == OTHERS["hooks"]["Odd"]  # type: ignore[index]
    box.call("uninstall", "claude")

    assert settings_of(box).read_text() == text


def test_the_file_as_it_was_is_kept_beside_it(box: Box) -> None:
    text = write(box, OTHERS, indent=2)
    settings_of(box).chmod(0o640)

    result = box.call("install", "claude", "--json")

    assert Path(result.json()["backup"]).read_text() == text
    assert stat.S_IMODE(settings_of(box).stat().st_mode) == 0o640


def test_the_first_copy_of_the_file_stays_and_later_ones_have_numbers(box: Box) -> None:
    text = write(box, OTHERS, indent=2)
    first = Path(box.call("install", "claude", "--json").json()["backup"])

    hooked = settings_of(box).read_text()
    second = Path(box.call("uninstall", "claude", "--json").json()["backup"])
    third = Path(box.call("install", "claude", "--json").json()["backup"])

    assert first.name == "settings.json.before-keepfast" and first.read_text() == text
    assert second.name == "settings.json.before-keepfast.2" and second.read_text() == hooked
    assert third == first, "the same bytes are kept once"


def test_a_copy_with_our_hooks_never_has_the_name_of_the_pristine_one(box: Box) -> None:
    box.call("install", "claude")
    hooked = settings_of(box).read_text().replace("{", '{"theme": "dark", ', 1)
    settings_of(box).write_text(hooked)
    copy = Path(box.call("uninstall", "claude", "--json").json()["backup"])

    assert copy.name == "settings.json.before-keepfast.2" and copy.read_text() == hooked
    assert not settings_of(box).with_name("settings.json.before-keepfast").exists()
    assert json.loads(settings_of(box).read_text()) == {"theme": "dark"}


@pytest.mark.parametrize("scope", ["user", "project", "local"])
def test_where_no_file_was_install_and_uninstall_leave_none(box: Box, scope: str) -> None:
    installed = box.call("install", "claude", "--statusline", "--scope", scope, "--json").json()
    again = box.call("install", "claude", "--scope", scope, "--json").json()
    answer = box.call("uninstall", "claude", "--scope", scope, "-n", "--json").json()
    assert Path(installed["path"]).exists()
    facts = box.call("uninstall", "claude", "--scope", scope, "--json").json()

    assert (installed["backup"], again["backup"], answer["backup"], facts["backup"]) == (None, None, None, None)
    assert facts["changed"] is True
    assert list(Path(installed["path"]).parent.iterdir()) == []
    assert box.call("uninstall", "claude", "--scope", scope, "--json").json()["changed"] is False


@pytest.mark.parametrize("text", ["{}", "", "{ }\n"])
def test_a_file_of_the_user_with_no_setting_in_it_stays(box: Box, text: str) -> None:
    settings_of(box).parent.mkdir(parents=True, exist_ok=True)
    settings_of(box).write_text(text)
    box.call("install", "claude")
    box.call("uninstall", "claude")

    assert settings_of(box).exists()
    assert [path.name for path in settings_of(box).parent.glob("*.before-keepfast*")] == [
        "settings.json.before-keepfast"
    ]


def test_dry_run_shows_and_changes_nothing(box: Box) -> None:
    text = write(box, OTHERS, indent=2)

    result = box.call("install", "claude", "--dry-run")

    assert "Would change" in result.out and "SessionStart" in result.out
    assert settings_of(box).read_text() == text
    assert sorted(path.name for path in settings_of(box).parent.iterdir()) == ["settings.json"]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ('{"hooks": {', "is not valid JSON"),
        ("// mine\n{}", "is not valid JSON"),
        ("[]", "is not a JSON object"),
        ('{"hooks": []}', "`hooks` in"),
        ('{"hooks": {"Stop": {}}}', "`hooks.Stop` in"),
        ("[" * 100_000, "nested too deeply"),
        ('{"statusLine": "odd"}', "`statusLine` in"),
    ],
)
def test_a_settings_file_of_another_form_is_left_alone(box: Box, broken: str, said: str) -> None:
    write(box, broken)

    result = box.call("install", "claude", "--statusline")

    assert result.code == 1 and said in result.err and "othing was changed" in result.err
    assert "Traceback" not in result.err
    assert settings_of(box).read_text() == broken
    assert sorted(path.name for path in settings_of(box).parent.iterdir()) == ["settings.json"]


def test_a_linked_settings_file_stays_a_link(box: Box) -> None:
    dotfiles = box.home / "dotfiles.json"
    dotfiles.write_text("{}\n")
    settings_of(box).parent.mkdir()
    settings_of(box).symlink_to(dotfiles)

    box.call("install", "claude")

    assert settings_of(box).is_symlink() and "hook claude-code" in dotfiles.read_text()


def test_project_and_local_scope_are_files_of_the_project(box: Box) -> None:
    for scope, name in (("project", "settings.json"), ("local", "settings.local.json")):
        result = box.call("install", "claude", "--scope", scope)

        assert result.code == 0
        assert "hook claude-code" in (box.project / ".claude" / name).read_text()
    assert not settings_of(box).exists()


@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_an_agent_without_hooks_is_told_another_way(box: Box, verb: str) -> None:
    result = box.call(verb, "codex")

    assert (result.code, result.out) == (2, "")
    assert "No hooks exist for 'codex', only for claude." in result.err
    assert "`keepfast watch` works with any agent" in result.err


def test_install_without_a_name_lists_agents(box: Box) -> None:
    box.call("install", "claude")

    result, listed = box.call("install"), box.call("install", "--json")

    assert "user     installed" in result.out and "project  not installed" in result.out
    assert [place["installed"] for place in listed.json()[0]["places"]] == [True, False, False]


def test_an_older_command_of_ours_is_replaced(box: Box) -> None:
    older = with_hooks(json.dumps(OTHERS, indent=2), "settings.json", direct)
    older = with_status_line(older, "settings.json", lambda own: f"{direct('statusline')} --then {shlex.quote(own)}")
    write(box, older)

    result = box.call("install", "claude")

    assert result.code == 0 and "~ hooks: Stop, SessionStart" in result.out
    assert "/opt" not in settings_of(box).read_text()
    box.call("uninstall", "claude")
    assert settings_of(box).read_text() == json.dumps(OTHERS, indent=2)


def test_a_shim_is_never_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyenv's `python` is a script that picks a version by folder; a hook must not depend on where the agent works."""
    shim = tmp_path / "shims/python3"
    shim.parent.mkdir()
    shim.write_text('#!/bin/sh\nexec python3 "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(shim))

    chosen = interpreter()

    assert chosen != str(shim) and os.path.isabs(chosen)
    assert subprocess.run([chosen, "-c", "import blake3"]).returncode == 0


def test_doctor_finds_hooks_whose_python_is_gone(box: Box) -> None:
    write(box, with_hooks("", "s", direct))

    result = box.call("doctor", "--json")

    (checks,) = [check for check in result.json()["checks"] if check["name"] == "claude"]
    assert checks["level"] == "problem" and "/opt/" in checks["text"] and "install claude" in checks["advice"]
    assert result.code == 1


# The text of settings files, without a command

names = st.sampled_from(["Stop", "PreToolUse", "SessionStart", "Notification", "Ünknown"])
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
foreign = st.fixed_dictionaries({"type": st.just("command"), "command": st.text(min_size=1, max_size=12)})
groups = st.fixed_dictionaries(
    {"hooks": st.lists(foreign, min_size=1, max_size=2)}, optional={"matcher": st.text(max_size=4)}
)
documents = st.dictionaries(st.text(min_size=1, max_size=6), scalars | st.lists(scalars), max_size=3).flatmap(
    lambda rest: st.dictionaries(names, st.lists(groups, min_size=1, max_size=2), min_size=1, max_size=3).map(
        lambda hooks: {**rest, "hooks": hooks}
    )
)
styles = st.sampled_from([None, 1, 2, 4, "\t"])


@given(documents, styles, st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_whatever_the_file_holds_comes_back_byte_for_byte(
    document: dict[str, Any], indent: Any, ascii_only: bool, newline: str
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only).replace("\n", newline) + newline

    once = with_hooks(text, "s", launched)
    lined = with_status_line(once, "s", line)

    assert with_hooks(once, "s", launched) == once
    assert with_status_line(lined, "s", line) == lined
    assert without_status_line(lined, "s") == once
    assert without_hooks(once, "s") == text
    merged = json.loads(once)
    assert {key: value for key, value in merged.items() if key != "hooks"} == {
        key: value for key, value in document.items() if key != "hooks"
    }
    for event, mine in document["hooks"].items():
        assert merged["hooks"][event][: len(mine)] == mine


def test_a_hook_that_was_moved_into_a_group_of_others_is_found() -> None:
    mine = {"type": "command", "command": "mine"}
    ours = claude_settings.hooks_for(launched)["Stop"][0]["hooks"][0]
    text = json.dumps({"hooks": {"Stop": [{"hooks": [ours, mine]}], "SessionEnd": [{"hooks": [ours]}]}}, indent=2)

    left = json.loads(without_hooks(text, "s"))

    assert left == {"hooks": {"Stop": [{"hooks": [mine]}]}}


def test_the_plugin_hooks_the_same_events() -> None:
    """plugin/hooks/hooks.json is written by tools/plugin_hooks.py from the same table."""
    done = subprocess.run(
        [sys.executable, "-c", "import plugin_hooks, sys; sys.stdout.write(plugin_hooks.text())"],
        cwd=SOURCE.parent / "tools",
        capture_output=True,
        text=True,
        check=True,
    )

    assert (SOURCE.parent / "plugin/hooks/hooks.json").read_text() == done.stdout


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text.replace(sys.executable, "/elsewhere/bin/python"), "started /elsewhere/bin/python"),
        (lambda text: text[:100], "is damaged"),
        (lambda text: text.replace("exit 0", "exit  0", 1), "was written by another version"),
    ],
)
def test_install_tells_that_it_repaired_the_launcher(box: Box, damage: Callable[[str], str], words: str) -> None:
    box.call("install", "claude")
    launcher = box.home / ".local/share/keepfast/bin/launch"
    text = launcher.read_text()
    launcher.write_text(damage(text))

    would = box.call("install", "claude", "--dry-run")
    assert launcher.read_text() == damage(text)
    result = box.call("install", "claude")

    assert launcher.read_text() == text
    for answer, verb in ((would, "Would rewrite"), (result, "Rewrote")):
        assert f"{verb} the launcher: {launcher}" in answer.out + answer.err and words in answer.out + answer.err
        assert "Nothing to do" not in answer.out + answer.err
    assert "Nothing to do" in "".join([(again := box.call("install", "claude")).out, again.err])
