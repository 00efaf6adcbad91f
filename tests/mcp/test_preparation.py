"""Every command that a tool prepares for a person does what it says, in the real program, from any folder."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keepfast.mcp.command import command
from tests.equipment.box import SOURCE, Box

from .agent import access, call, within

ODD = [b"with space.txt", b"quo'te\".txt", b"-dash", b"new\nline", "한글.txt".encode(), b"$(touch oops)"]
PATIENCE = 60


class Person:
    """Somebody with a shell who pastes a command, and says yes."""

    def __init__(self, box: Box) -> None:
        self.box = box
        folder = box.home / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "keepfast"
        program.write_text(f'#!/bin/sh\nPYTHONPATH={SOURCE} exec {sys.executable} -m keepfast "$@"\n')
        program.chmod(0o755)
        self.variables = {**box.variables, "PATH": f"{folder}:{os.environ['PATH']}", "TERM": "dumb"}

    def runs(self, command: str, cwd: Path | None = None, **variables: str) -> tuple[int, str]:
        leader, follower = pty.openpty()
        child = subprocess.Popen(
            ["bash", "-c", command],
            cwd=cwd or self.box.home,
            env={**self.variables, **variables},
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
        )
        os.close(follower)
        os.write(leader, b"y\ny\n")
        shown = b""
        while select.select([leader], [], [], PATIENCE)[0]:
            try:
                part = os.read(leader, 65536)
            except OSError:
                break  # nobody has the other end any more
            if not part:
                break
            shown += part
        os.close(leader)
        return child.wait(PATIENCE), shown.decode("utf-8", "replace")


@pytest.fixture
def person(saved_box: Box) -> Person:
    return Person(saved_box)


@pytest.mark.parametrize("inside", [False, True])
def test_a_previewed_restore_brings_back_those_paths_and_no_others(
    saved_box: Box, person: Person, inside: bool
) -> None:
    preview = call(saved_box, "checkpoint_restore_preview", reference="v1", paths=["src"])
    saved_box.put("README", "not to be touched\n")

    code, output = person.runs(preview["prepared"]["command"], saved_box.project / "src" if inside else None)

    assert code == 0, output
    assert (saved_box.project / "src/a.py").read_text() == "one\ntwo\nthree\n"
    assert not (saved_box.project / "src/b.py").exists()
    assert (saved_box.project / "README").read_text() == "not to be touched\n"


@pytest.mark.parametrize("paths", [[], ["."], ["src", "."]])
def test_a_previewed_restore_of_everything_brings_back_everything(
    saved_box: Box, person: Person, paths: list[str]
) -> None:
    preview = call(saved_box, "checkpoint_restore_preview", reference="v1", paths=paths)

    code, output = person.runs(preview["prepared"]["command"])

    assert code == 0, output
    assert {(step["path"], step["action"]) for step in preview["steps"]} == {
        ("src/a.py", "write"),
        ("src/b.py", "delete"),
    }
    assert not (saved_box.project / "src/b.py").exists()


@pytest.mark.parametrize("name", ODD, ids=range(len(ODD)))
def test_whatever_a_file_is_called_the_shell_hands_it_over_as_it_is(
    saved_box: Box, person: Person, name: bytes
) -> None:
    saved_box.put(name, "as it was\n")
    saved_box.save("-m", "with an odd name")
    path = saved_box.put(name, "changed\n")
    saved_box.save("-m", "changed")

    preview = call(saved_box, "checkpoint_restore_preview", reference="v4", paths=[os.fsdecode(name)])
    code, output = person.runs(preview["prepared"]["command"])

    assert code == 0, output
    assert path.read_text() == "as it was\n"
    assert "\n" not in preview["prepared"]["command"]
    assert not (saved_box.home / "oops").exists()


def test_a_shell_reads_every_word_of_a_command_as_it_is(saved_box: Box) -> None:
    """Also those that no agent can name, such as a workspace whose path is not UTF-8."""
    words = [*ODD, b"\xff\xfe", b"\x1b[31m", "\u202e".encode(), b"tab\there", b"!x", b"*", b"~", b"a\\nb"]
    command_line = command(access(saved_box), words, b"/a \xff/b")

    result = subprocess.run(
        ["bash", "-c", 'keepfast() { printf "%s\\0" "$@"; }; ' + command_line], capture_output=True
    ).stdout

    assert result.split(b"\0")[:-1] == [b"-C", b"/a \xff/b", *words]
    assert command_line.isprintable()


def test_a_prepared_restore_goes_to_that_checkpoint(saved_box: Box, person: Person) -> None:
    prepared = call(saved_box, "checkpoint_prepare", action="restore", references=["@~1"])

    code, output = person.runs(prepared["command"])

    assert code == 0, output
    assert (saved_box.project / "src/a.py").read_text() == "one\n2\nthree\n"
    assert not (saved_box.project / "src/b.py").exists()


def test_a_prepared_forgetting_forgets_those_checkpoints(saved_box: Box, person: Person) -> None:
    prepared = call(saved_box, "checkpoint_prepare", action="forget", references=["v1", "@~1", "v1"])

    code, output = person.runs(prepared["command"])

    assert code == 0, output
    assert saved_box.versions() == ["v3"]


def test_a_pinned_checkpoint_cannot_be_forgotten_and_the_agent_is_told_so(saved_box: Box) -> None:
    assert saved_box.call("pin", "v1").code == 0

    answer = call(saved_box, "checkpoint_prepare", action="forget", references=["v1", "v2"])

    assert answer.failed
    assert "unpin v1" in answer.text


def test_a_prepared_export_writes_a_file_that_can_be_imported(saved_box: Box, person: Person, tmp_path: Path) -> None:
    prepared = call(saved_box, "checkpoint_prepare", action="export", references=["v2", "v3"])

    code, output = person.runs(prepared["command"], saved_box.project)

    assert code == 0, output
    written = [path for path in saved_box.home.iterdir() if path.suffix == ".keepfast" and path.is_file()]
    assert len(written) == 1
    assert not any(path.suffix == ".keepfast" for path in saved_box.project.iterdir() if path.is_file())
    other = Box(tmp_path / "elsewhere")
    assert other.call("import", str(written[0]), "--into", str(other.home / "copy")).code == 0
    assert [row["version"] for row in other.call("list", "--json", cwd=other.home / "copy").json()] == ["v3", "v2"]
    again = call(saved_box, "checkpoint_prepare", action="export", references=["v2"])
    assert person.runs(again["command"])[0] == 0


def test_an_export_goes_where_it_was_asked_for(saved_box: Box, person: Person) -> None:
    export_file = saved_box.home / "to take along"
    prepared = call(saved_box, "checkpoint_prepare", action="export", references=["v1"], file=str(export_file))

    code, output = person.runs(prepared["command"])

    assert code == 0, output
    assert export_file.is_file()
    assert call(saved_box, "checkpoint_prepare", action="export", references=["v1"], file=str(export_file)).failed
    assert call(saved_box, "checkpoint_prepare", action="export", references=["v1"], file="/nowhere/x").failed
    assert call(saved_box, "checkpoint_prepare", action="forget", references=["v1"], file="x").failed


LOOSER: list[tuple[str, Any]] = [
    ("hooks.verify_before_clear", False),
    ("hooks.checkpoint_threshold_percent", 80),
    ("hooks.resume_on_startup", "full"),
    ("hooks.before_command_deadline", 2),
    ("checkpoint.max_file_size", 5 << 20),
    ("checkpoint.exclude_patterns", ["-dash", "with, comma", "quo'te"]),
    ("capture.exclude", ["-n", "node_modules/", "other folder/"]),
    ("budget.windows", {"some-model": 100_000, "with=odd,name": 50_000}),
    ("language", "ko"),
]


@pytest.mark.parametrize(("key", "value"), LOOSER)
def test_a_prepared_setting_is_in_force_afterwards(saved_box: Box, person: Person, key: str, value: Any) -> None:
    answer = call(saved_box, "checkpoint_configure", settings={key: value})
    assert answer["success"] is False

    for one in answer["prepared"]:
        code, output = person.runs(one["command"])
        assert code == 0, output

    assert saved_box.call("config", "get", key, "--json").json()["value"] == value
    assert call(saved_box, "checkpoint_configure", settings={key: value})["success"] is True


@pytest.mark.parametrize("users", [None, "false"])
def test_where_the_projects_file_wins_the_prepared_commands_take_it_out(
    saved_box: Box, person: Person, users: str | None
) -> None:
    """An agent tightens; later somebody wants it loose again: the user's file alone would change nothing."""
    call(saved_box, "checkpoint_configure", auto_checkpoint_on_clear=True)
    if users is not None:
        saved_box.call("config", "set", "hooks.auto_checkpoint_on_clear", users)

    answer = call(saved_box, "checkpoint_configure", auto_checkpoint_on_clear=False)
    for one in answer["prepared"]:
        code, output = person.runs(one["command"])
        assert code == 0, output

    assert answer["success"] is False
    assert str(saved_box.project / ".keepfast/config.json") in answer["prepared"][0]["why"]
    assert saved_box.call("config", "get", "hooks.auto_checkpoint_on_clear").out == "false\n"


@pytest.mark.parametrize("value", [90, 80])
def test_where_the_environment_wins_the_agent_is_told_so(saved_box: Box, person: Person, value: int) -> None:
    """Of what an agent has started, variables count where they tighten: no looser file counts while they are there."""
    assert saved_box.call("config", "set", "hooks.checkpoint_threshold_percent", "85").code == 0
    saved_box.variables["KEEPFAST_CHECKPOINT_THRESHOLD"] = "75"

    answer = call(saved_box, "checkpoint_configure", checkpoint_threshold=value)

    assert answer["success"] is False
    assert answer["config"]["checkpoint_threshold_percent"] == 75
    assert answer["prepared"]
    assert all("KEEPFAST_CHECKPOINT_THRESHOLD" in one["why"] for one in answer["prepared"])
    for one in answer["prepared"]:
        assert person.runs(one["command"])[0] == 0
    del saved_box.variables["KEEPFAST_CHECKPOINT_THRESHOLD"]
    assert saved_box.call("config", "get", "hooks.checkpoint_threshold_percent").out == f"{value}\n"


def test_a_server_with_its_own_settings_file_and_store_prepares_commands_for_those(box: Box) -> None:
    config, store = box.home / "other config.json", box.home / "other store"
    config.write_text("{}")
    flags = ["--config", str(config), "--store", str(store)]
    box.put("a", "one\n")
    assert box.call(*flags, "init").code == 0
    assert box.call(*flags, "save").code == 0
    box.put("a", "two\n")
    assert box.call(*flags, "save").code == 0

    async def scenario(agent: Any) -> list[str]:
        restore = await agent.call("checkpoint_restore_preview", reference="v1")
        loose = await agent.call("checkpoint_configure", verify_before_clear=False)
        return [restore["prepared"]["command"], loose["prepared"][0]["command"]]

    for one in within(box, scenario, config=str(config), store=str(store)):
        code, output = Person(box).runs(one)
        assert code == 0, output

    assert (box.project / "a").read_text() == "one\n"
    assert box.call(*flags, "config", "get", "hooks.verify_before_clear").out == "false\n"
    assert not box.config.exists()
