"""What the agent is told of its command: exactly what it damaged beyond what it named, and a command that brings it back."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .damage import DAMAGES, HARMLESS, fill, make_script
from .home import Home


@pytest.fixture
def project(home: Home) -> Home:
    """A project that is a git repository with a commit and a few files that git does not have."""
    fill(home.project)
    shell(home.project, "git init -q && git add src site docs fixtures app.db .gitignore a.txt")
    shell(home.project, "git -c user.name=a -c user.email=a@b commit -qm first")
    home.start()
    home.begin()
    return home


def shell(project: Path, command: str) -> None:
    subprocess.run(["bash", "-c", command], cwd=project, check=False, capture_output=True)


def contents(project: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(project)): (path.read_bytes(), path.stat().st_mode)
        for path in project.rglob("*")
        if path.is_file() and not {".git", ".keepfast"} & set(path.relative_to(project).parts)
    }


@pytest.mark.parametrize("name", DAMAGES)
def test_hidden_damage_is_told_and_its_command_brings_it_back(project: Home, name: str) -> None:
    task = DAMAGES[name]
    for script, text in task.scripts:
        make_script(project.project, script, text)
    if "tar" in task.command:
        shell(
            project.project,
            "mkdir t && cp -r src t && sed -i s/value/old/ t/src/*.py && tar cf old.tar -C t src && rm -r t",
        )
    if task.command.startswith("rsync") and shutil.which("rsync") is None:
        make_script(project.project, "rsync", "rm -f site/*; cp -a src/. site/")
        task = task._replace(command=f"./{task.command}")
    before = contents(project.project)

    told = project.tool("Bash", lambda: shell(project.project, task.command), command=task.command)

    assert task.word in told, told
    named = re.search(r"Undo just this: \S+ restore v\d+ -y -- (.*)", told)
    assert named is not None, told
    assert set(named[1].split()) == set(task.damaged)
    done = subprocess.run(
        ["bash", "-c", told.partition("Undo just this: ")[2]],
        cwd=project.project,
        env=project.variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    after = contents(project.project)
    assert {path: after[path] for path in task.damaged} == {path: before[path] for path in task.damaged}


@pytest.mark.parametrize("name", HARMLESS)
def test_nothing_is_told_after_what_does_only_what_it_says(project: Home, name: str) -> None:
    make_script(project.project, "build.sh", "true")

    told = project.tool("Bash", lambda: shell(project.project, HARMLESS[name]), command=HARMLESS[name])

    assert told == ""


def test_the_setting_off_tells_nothing_and_all_tells_of_every_change(project: Home) -> None:
    make_script(project.project, "grow.sh", "echo more >> src/one.py")
    grow = ["./grow.sh"]

    told = [project.tool("Bash", lambda: shell(project.project, grow[0]), command=grow[0])]
    for value in ("all", "off"):
        assert project.run("config", "set", "report.commands", value).returncode == 0
        command = "./build.sh" if value == "off" else grow[0]
        make_script(project.project, "build.sh", "rm -f src/two.py")
        told.append(project.tool("Bash", lambda command=command: shell(project.project, command), command=command))  # type: ignore[misc]

    assert told[0] == "" and "src/one.py" in told[1] and told[2] == ""


def test_a_report_is_short_however_much_was_damaged(project: Home) -> None:
    for number in range(400):
        (project.project / "docs" / f"a page with a long name, number {number}.md").write_text(f"{number}\n")
    make_script(project.project, "build.sh", "rm -rf docs site")

    told = project.tool("Bash", lambda: shell(project.project, "./build.sh"), command="./build.sh")

    assert len(told) < 1000 and told.count("\n") < 12
    assert "404 files" in told and re.search(r"Undo all that it did: \S+ restore v\d+ -y$", told)
    subprocess.run(
        ["bash", "-c", told.partition("Undo all that it did: ")[2]], cwd=project.project, env=project.variables
    )
    assert len(os.listdir(project.project / "docs")) == 402


def test_a_file_name_with_blanks_and_quotes_can_be_pasted(project: Home) -> None:
    odd = project.project / 'it\'s a "file" $HOME.txt'
    odd.write_text("odd\n")
    make_script(project.project, "build.sh", "rm -f it*")

    told = project.tool("Bash", lambda: shell(project.project, "./build.sh"), command="./build.sh")

    subprocess.run(
        ["bash", "-c", told.partition("Undo just this: ")[2]], cwd=project.project, env=project.variables, check=True
    )
    assert odd.read_text() == "odd\n"


def test_a_secret_is_named_but_not_shown(project: Home) -> None:
    key = "ghp_" + "a1B2" * 9
    (project.project / ".env").write_text(f"TOKEN={key}\n")
    make_script(project.project, "build.sh", f"echo TOKEN={key[::-1]} > .env")

    told = project.tool("Bash", lambda: shell(project.project, "./build.sh"), command="./build.sh")

    assert ".env" in told and key not in told
