"""The real client with a resident: every tool call is a checkpoint, and the model is told what its commands damaged."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from tests.resident.damage import DAMAGES, HARMLESS, fill, make_script

from .bench import Bench
from .endpoint import call, say, use


def tool_calls(bench: Bench) -> list[dict[str, Any]]:
    """Checkpoints of tool calls and of what lies between them, oldest first."""
    listed = json.loads(bench.keepfast("list", "--all", "--json", "--limit", "0").stdout)
    return [one for one in reversed(listed) if one["trigger"] in ("tool", "between")]


@pytest.fixture
def resident(hooked: Bench) -> Bench:
    """Hooks, and a resident that has seen the first session of the project."""
    hooked.put("a.txt", "one\n")
    hooked.script(say("Hello."))
    hooked.run("hello")
    hooked.settle()
    assert hooked.wait_for(lambda: json.loads(hooked.keepfast("daemon", "status", "--json").stdout)["answers"])
    return hooked


def test_three_edits_and_a_sed_in_one_turn_are_four_versions(resident: Bench) -> None:
    path = resident.path("a.txt")
    edits = [("one", "two"), ("two", "three"), ("three", "four")]
    resident.script(
        call(use("Read", file_path=path)),
        *[call(use("Edit", file_path=path, old_string=old, new_string=new)) for old, new in edits],
        call(use("Bash", command="sed -i s/four/five/ a.txt", description="edit")),
        say("Done."),
    )

    turn = resident.run("count up to five")

    assert turn.code == 0
    resident.settle()
    made = tool_calls(resident)
    assert [one["trigger"] for one in made] == ["tool"] * 4
    shown = [json.loads(resident.keepfast("show", one["version"], "--json").stdout)["tool_call"] for one in made]
    assert [(one["name"], one["prompt"]) for one in shown] == [
        (name, "count up to five") for name in ("Edit", "Edit", "Edit", "Bash")
    ]
    assert len({one["id"] for one in shown}) == 4
    texts = [resident.keepfast("cat", one["version"], "a.txt").stdout for one in made]
    assert texts == ["two\n", "three\n", "four\n", "five\n"]


def test_hidden_damage_is_in_the_models_next_request_with_a_command_that_brings_it_back(resident: Bench) -> None:
    fill(resident.project)
    make_script(
        resident.project,
        "prepare",
        "mkdir t; cp -r src t; sed -i s/value/old/ t/src/*.py; tar cf old.tar -C t src; rm -r t",
    )
    subprocess.run(["./prepare"], cwd=resident.project, check=True)
    scripts = [script for task in DAMAGES.values() for script in task.scripts]
    for name, text in scripts:
        make_script(resident.project, name, text)
    if subprocess.run(["which", "rsync"], capture_output=True).returncode:
        make_script(resident.bin, "rsync", "rm -f site/*; cp -a src/. site/")
    commit = "git init -q; git add -A; git rm -q --cached notes.txt; git add -f old.tar;"
    commit += " git -c user.name=a -c user.email=a@b commit -qm first"
    subprocess.run(commit, shell=True, cwd=resident.project, check=True)

    kept = resident.base / "all.tar"
    subprocess.run(["tar", "cf", kept, "."], cwd=resident.project, check=True)
    for name, task in DAMAGES.items():
        resident.endpoint.requests.clear()
        resident.script(call(use("Bash", command=task.command, description="work")), say("Done."))
        before = {path: read(resident, path) for path in task.damaged}
        assert resident.run(f"work on: {name}").code == 0
        resident.settle()

        told = resident.endpoint.main_requests()[-1].texts()
        report = re.search(r"That command also [^\n]*\nUndo just this: ([^\n]*)", told)
        assert report is not None and task.word in report[0], (name, told[-2000:])
        words = report[1].partition("</system-reminder>")[0]
        assert set(words.partition(" -- ")[2].split()) == set(task.damaged), (name, words)
        done = subprocess.run(
            ["bash", "-c", words], cwd=resident.project, env=resident.environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, (name, done.stderr)
        assert {path: read(resident, path) for path in task.damaged} == before, name
        subprocess.run(f"rm -rf src site docs fixtures; tar xf {kept}", shell=True, cwd=resident.project, check=True)


def read(bench: Bench, path: str) -> tuple[bytes, int]:
    file = bench.project / path
    return file.read_bytes(), file.stat().st_mode


def test_after_harmless_calls_the_model_is_told_nothing(resident: Bench) -> None:
    fill(resident.project)
    make_script(resident.project, "build.sh", "true")
    commands = [command for name, command in HARMLESS.items() if name not in ("remove a folder", "pattern")]
    resident.script(*[call(use("Bash", command=command, description="work")) for command in commands], say("Done."))

    assert resident.run("do all of it").code == 0

    assert "That command also" not in resident.endpoint.main_requests()[-1].texts()
