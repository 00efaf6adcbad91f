"""A repository that would have programs run: no command of ours runs any."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

import keepfast
from keepfast.cli.root import root as commands
from tests.equipment.folders import written

SOURCE = Path(keepfast.__file__).parents[1]
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is missing")

ARGUMENTS: dict[str, list[list[str]]] = {
    "cat": [["v1", "a.txt"]],
    "checkpoint": [["--auto"], ["list"]],
    "completion": [["bash"]],
    "config": [["list"], ["path"], ["explain"]],
    "diff": [[], ["v1"], ["v1", "v2"], ["--stat"]],
    "export": [["v1", "../bundle"]],
    "fork": [
        ["v1", "../forked"],
        ["--git", "v1", "../forked-git"],
        ["--back", "../forked"],
        ["--back", "../forked-git"],
        ["--back", "../forked-git", "--branch", "home"],
    ],
    "forget": [["v1", "-y"]],
    "import": [["../bundle"]],
    "mount": [["../mounted"], ["v1", "../mounted"]],
    "name": [["v1", "first"]],
    "pin": [["v1"]],
    "restore": [["v1", "--dry-run"], ["v1", "-y", "--theirs"], ["--continue"], ["--abort"]],
    "search": [["one"]],
    "show": [["v1"]],
    "tag": [["v1", "t"]],
    "unpin": [["v1"]],
    "undo": [["-y", "--theirs"]],
    "redo": [["-y", "--theirs"]],
    "verify": [[], ["--quick"]],
    "watch": [[], ["--poll"]],
}
"""What to give each command, whatever commands there are; those that are not named run without anything."""
PATIENCE = 5.0
"""Seconds after which a command that stays, such as a server, has shown what it does and is told to end."""


def git(folder: Path, *words: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *who, *words], cwd=folder, env=environment, check=True, capture_output=True)


@needs_git
@pytest.mark.timeout(600)
def test_no_command_runs_a_program_that_the_repository_names(tmp_path: Path) -> None:
    home = tmp_path / "home"
    project, marker = home / "project", tmp_path / "marker"
    project.mkdir(parents=True)
    evil = tmp_path / "evil"
    evil.write_text(f'#!/bin/sh\necho "$0 $*" >> {marker}\ncat\n')
    evil.chmod(0o755)
    git(project, "init", "-q", "-b", "main")
    (project / "a.txt").write_text("one\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    _poison(project, evil)
    variables = _variables(home, project, evil, marker)

    (home / "mounted").mkdir()
    ran: list[tuple[str, ...]] = []

    def run(*words: str) -> int:
        process = subprocess.Popen(
            [sys.executable, "-m", "keepfast", *words], cwd=project, env=variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            _, output = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            (project / "a.txt").write_text(f"while {words} is there\n")
            time.sleep(2)
            process.terminate()
            _, output = process.communicate(timeout=60)
        assert b"Traceback" not in output, (words, output)
        assert not marker.exists(), f"{words} ran {marker.read_text()}"
        ran.append(words)
        return process.returncode

    assert run("init") == 0
    assert run("save") == 0
    (project / "a.txt").write_text("two\n")
    assert run("save") == 0
    for name in _every_command():
        for words in ARGUMENTS.get(name[0], [[]]) if len(name) == 1 else [[]]:
            (project / "a.txt").write_text(f"{name} {words}\n")
            run(*name, *words)
    hook = Path(keepfast.__file__).parent / "hook/launch.py"
    words = [*written(home), "save", "--cwd", str(project)]
    subprocess.run([sys.executable, "-I", str(hook), *words], env=variables, capture_output=True)

    assert not marker.exists()
    assert {words[0] for words in ran} == set(commands.list_commands(click.Context(commands)))
    # The trap works: git itself falls into it.
    subprocess.run(["git", "status"], cwd=project, env=variables, capture_output=True)
    assert marker.exists()


def _every_command() -> list[tuple[str, ...]]:
    """All commands, and the commands of those that are groups."""
    command_names: list[tuple[str, ...]] = []
    ctx = click.Context(commands)
    for name in sorted(commands.list_commands(ctx)):
        command = commands.get_command(ctx, name)
        command_names.append((name,))
        if isinstance(command, click.Group):
            command_names += [(name, inner) for inner in sorted(command.list_commands(ctx))]
    return command_names


def _poison(project: Path, evil: Path) -> None:
    hooks = project / ".git/evil-hooks"
    hooks.mkdir()
    for name in (
        "post-checkout",
        "pre-commit",
        "post-index-change",
        "reference-transaction",
        "post-merge",
        "fsmonitor-watchman",
    ):
        shutil.copy(evil, hooks / name)
        shutil.copy(evil, project / ".git/hooks" / name)
    with open(project / ".git/config", "a") as file:
        file.write(
            f"[core]\n\tfsmonitor = {evil}\n\thooksPath = {hooks}\n\tsshCommand = {evil}\n\tpager = {evil}\n\teditor = {evil}\n"
            f"\tgitProxy = {evil}\n\taskPass = {evil}\n"
            f'[filter "evil"]\n\tclean = {evil}\n\tsmudge = {evil}\n\tprocess = {evil}\n\trequired = true\n'
            f'[diff "evil"]\n\ttextconv = {evil}\n\tcommand = {evil}\n[diff]\n\texternal = {evil}\n'
            f'[credential]\n\thelper = {evil}\n[uploadpack]\n\tpackObjectsHook = {evil}\n[alias]\n\trev-parse = "!{evil}"\n'
            f"[include]\n\tpath = {project}/.evilconfig\n"
        )
    (project / ".evilconfig").write_text(f"[core]\n\tfsmonitor = {evil}\n")
    (project / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (project / ".git/info/attributes").write_text("* filter=evil diff=evil\n")


def _variables(home: Path, project: Path, evil: Path, marker: Path) -> dict[str, str]:
    """The environment of a hostile client: `git` on the path is watched as well."""
    fake = home / "bin"
    fake.mkdir()
    real = shutil.which("git")
    wrapper = fake / "git-evil-ssh"
    wrapper.write_text(f"#!/bin/sh\nexec {evil}\n")
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    assert real
    return {
        "HOME": str(home), "PATH": f"{os.environ['PATH']}:{fake}", "PYTHONPATH": str(SOURCE), "LANG": "C.UTF-8",
        "GIT_SSH_COMMAND": str(evil), "GIT_SSH": str(evil), "GIT_EXTERNAL_DIFF": str(evil), "GIT_PAGER": str(evil),
        "GIT_EDITOR": str(evil), "GIT_ASKPASS": str(evil), "GIT_PROXY_COMMAND": str(evil), "PAGER": str(evil), "EDITOR": str(evil),
        "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": str(evil),
        "GIT_CONFIG_KEY_1": "core.hooksPath", "GIT_CONFIG_VALUE_1": str(project / ".git/evil-hooks"),
        "GIT_CONFIG_PARAMETERS": f"'core.fsmonitor={evil}'", "GIT_CONFIG_GLOBAL": str(project / ".evilconfig"),
        "GIT_TEMPLATE_DIR": str(project / ".git/evil-hooks"), "VISUAL": str(evil), "GIT_TRACE2_EVENT": str(marker) + ".trace",
    }  # fmt: skip
