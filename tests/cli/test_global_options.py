"""Global options are understood before the command and behind it, by every command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from keepfast.cli.root import TABLE, root
from tests.equipment.box import Box

GLOBAL = ("--config", "-C", "--store", "-q", "--quiet", "--color", "--json")


def every_command(group: click.Group, context: click.Context, words: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{words} {name}".strip(), command
        if isinstance(command, click.Group):
            yield from every_command(command, context, f"{words} {name}".strip())


def test_every_command_takes_them_behind_its_name() -> None:
    commands = dict(every_command(root, click.Context(root), ""))
    assert set(TABLE) <= set(commands)
    lacking = {
        words: sorted(set(GLOBAL) - {name for parameter in command.params for name in parameter.opts})
        for words, command in commands.items()
        if words != "checkpoint list"  # it hands its words to `list`
    }

    assert {words: names for words, names in lacking.items() if names} == {}


@pytest.mark.parametrize("words", [("--json", "list"), ("list", "--json"), ("checkpoint", "--json", "list")])
def test_json_stands_on_either_side(saved_box: Box, words: tuple[str, ...]) -> None:
    assert [row["version"] for row in saved_box.call(*words).json()] == ["v3", "v2", "v1"]


@pytest.mark.parametrize("words", [("save", "-q"), ("-q", "save"), ("save", "--quiet"), ("checkpoint", "-q")])
def test_quiet_stands_on_either_side(saved_box: Box, words: tuple[str, ...]) -> None:
    result = saved_box.call(*words)

    assert (result.code, result.out) == (0, "")
    assert saved_box.versions()[0] == "v4"


@pytest.mark.parametrize("verb", [("list",), ("config", "path"), ("restore", "v1", "-y"), ("key", "show")])
def test_the_folder_stands_on_either_side(saved_box: Box, verb: tuple[str, ...]) -> None:
    before = saved_box.run("-C", str(saved_box.project), *verb, "--json", cwd=saved_box.home)
    behind = saved_box.run(*verb, "--json", "-C", str(saved_box.project), cwd=saved_box.home)

    assert before.code == behind.code == 0, behind


def test_store_and_settings_may_stand_behind(box: Box) -> None:
    config = box.home / "other.json"
    config.write_text('{"adopt": "never"}')
    assert box.call("init", "--store", str(box.home / "own")).code == 0

    assert box.call("status", "--json").json()["store"]["path"] == str(box.home / "own")
    assert box.call("config", "get", "adopt", "--config", str(config)).out.strip() == "never"


def test_the_value_of_another_option_is_not_taken_for_one(saved_box: Box) -> None:
    assert saved_box.call("save", "-m", "-q").out.startswith("Created v4")
    assert saved_box.call("list", "--json").json()[0]["message"] == "-q"


@pytest.mark.parametrize("words", [("--json", "restore", "v1", "-y"), ("restore", "v1", "-y", "--json", "-q")])
def test_scripts_may_put_them_anywhere(saved_box: Box, words: tuple[str, ...]) -> None:
    result = saved_box.call(*words)

    assert (result.code, result.json()["restored"]) == (0, True)
