"""The plugin's own program: it finds what `install` wrote down, and no variable or file of a repository leads it elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from keepfast.agents import launcher
from tests.equipment.folders import marketplace

SCRIPT = Path(__file__).parents[2] / "plugin/bin/keepfast"


class Prepared:
    """A home for which the plugin was prepared with a program that only notes how it was started, and a hostile project."""

    def __init__(self, base: Path) -> None:
        self.base, self.home, self.project = base, base / "home", base / "project"
        self.started, self.trapped = base / "started", base / "trapped"
        self.launcher = self.home / "elsewhere/keepfast/bin/launch"
        self.interpreter = self.home / ".config/keepfast/interpreter"
        for folder in (self.launcher.parent, self.interpreter.parent, self.project / ".claude", self.home / ".claude"):
            folder.mkdir(parents=True)
        python, launch = self.program("python", self.started), base / "launch.py"
        launch.write_text("")
        folders = (str(self.home), str(self.home / ".config"), str(self.home / "elsewhere"))
        self.launcher.write_text(launcher.script(str(python), str(launch), str(self.launcher), folders))
        self.launcher.chmod(0o755)
        self.interpreter.write_text(f"{python}\n{launch}\n{self.launcher}\n")
        self.script = marketplace(base, self.home) / "plugin/bin/keepfast"
        self.variables = self.hostile()

    def program(self, name: str, notes: Path, folder: Path | None = None) -> Path:
        path = (folder or self.base) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\n/bin/cat >/dev/null\necho {name} "$@" >> "{notes}"\n')
        path.chmod(0o755)
        return path

    def hostile(self) -> dict[str, str]:
        """Variables of a repository, and all that they lead to."""
        tools = self.project / "tools"
        for name in ("cat", "grep", "id", "keepfast", "python3", "sh"):
            self.program(name, self.trapped, tools)
        trap = self.program("trap", self.trapped, tools)
        for place in (self.project / ".config/keepfast/interpreter", self.project / "cfg/keepfast/interpreter"):
            place.parent.mkdir(parents=True)
            place.write_text(f"{trap}\n{trap}\n{trap}\n")
        self.program("launch", self.trapped, self.project / ".local/share/keepfast/bin")
        return {
            "HOME": str(self.project),
            "XDG_CONFIG_HOME": str(self.project / "cfg"),
            "XDG_DATA_HOME": str(self.project / ".local/share"),
            "PATH": f"{tools}:/usr/bin:/bin",
            "PYTHONPATH": str(self.project),
            "CLAUDE_PROJECT_DIR": str(self.project),
        }

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["/bin/sh", self.script, *words],
            cwd=self.project,
            env={**self.variables, **variables},
            input=b"{}",
            capture_output=True,
            check=False,
        )

    def notes(self) -> list[str]:
        return self.started.read_text().splitlines() if self.started.exists() else []


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    return Prepared(tmp_path)


def test_a_hook_reaches_the_launcher_that_was_written_down(prepared: Prepared) -> None:
    assert prepared.run("hook", "claude-code").returncode == 0

    [note] = prepared.notes()
    assert note.endswith("hook claude-code") and f"--folders {prepared.home}" in note
    assert not prepared.trapped.exists()


def test_a_command_has_the_folders_of_whoever_prepared_it(prepared: Prepared) -> None:
    assert prepared.run("mcp").returncode == 0

    [note] = prepared.notes()
    assert note.startswith("python -E -P -m keepfast --folders") and note.endswith("mcp")
    assert not prepared.trapped.exists()


def test_a_file_of_an_earlier_version_still_leads_to_it(prepared: Prepared) -> None:
    lines = prepared.interpreter.read_text().splitlines(True)
    prepared.interpreter.write_text("".join(lines[:2]))

    assert [prepared.run(*words).returncode for words in (("hook", "claude-code"), ("list",))] == [0, 0]

    assert len(prepared.notes()) == 2
    assert not prepared.trapped.exists()


@pytest.mark.parametrize("name", ["settings.json", "settings.local.json"])
def test_settings_of_a_repository_that_look_like_hooks_do_not_silence_it(prepared: Prepared, name: str) -> None:
    text = launcher.hook(str(prepared.launcher), "hook", "claude-code")
    (prepared.project / ".claude" / name).write_text(json.dumps({"about": text}))
    Path(f"{prepared.launcher}.users").write_text(f"plugin\n{prepared.base}/another/.claude/settings.json\n")

    prepared.run("hook", "claude-code", KEEPFAST_SUPERVISED="claude-code")

    assert len(prepared.notes()) == 1


@pytest.mark.parametrize("scope", ["user", "local", "linked"])
def test_hooks_that_were_installed_into_settings_do_the_work_alone(prepared: Prepared, scope: str) -> None:
    own, variables = prepared.home / ".claude/settings.json", {}
    if scope == "local":
        own = prepared.project / ".claude/settings.local.json"
    if scope == "linked":
        own, link = prepared.home / "dotfiles.json", prepared.home / ".claude/settings.json"
        link.symlink_to(own)
        variables = {"CLAUDE_CONFIG_DIR": str(link.parent)}
    own.write_text(json.dumps({"command": launcher.hook(str(prepared.launcher), "hook", "claude-code")}))
    Path(f"{prepared.launcher}.users").write_text(f"plugin\n{own}\n")

    done = prepared.run("hook", "claude-code", **variables)

    assert (done.returncode, done.stdout, prepared.notes()) == (0, b"", [])


def test_a_program_on_the_search_path_is_not_ours(prepared: Prepared) -> None:
    prepared.interpreter.unlink()

    hook, command = prepared.run("hook", "claude-code", "--part", "1"), prepared.run("list")

    assert hook.returncode == 0 and b"systemMessage" in hook.stdout
    assert command.returncode == 1
    assert not prepared.trapped.exists()


def test_a_program_in_the_users_own_folder_is(prepared: Prepared) -> None:
    prepared.interpreter.unlink()
    prepared.program("keepfast", prepared.started, prepared.home / ".local/bin")

    assert prepared.run("hook", "claude-code").returncode == 0

    assert prepared.notes() == ["keepfast hook claude-code"]
    assert not prepared.trapped.exists()


@pytest.mark.skipif(not os.path.exists("/etc/passwd"), reason="there are no passwd entries")
def test_the_home_folder_is_that_of_the_passwd_entry(prepared: Prepared) -> None:
    prepared.script = SCRIPT
    prepared.run("--version")

    assert not prepared.trapped.exists() and not prepared.notes()
