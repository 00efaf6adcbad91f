"""Commands are loaded when they run, all answer in JSON, and complete."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from keepfast.cli.root import TABLE, root
from tests.equipment.box import SOURCE, Box

HEAVY = (
    "asyncio",
    "cryptography",
    "dbos",
    "jinja2",
    "mcp",
    "psycopg",
    "pyfastcdc",
    "starlette",
    "uvicorn",
    "keepfast.app.resume",
)


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_loads_no_command_and_nothing_slow(words: list[str]) -> None:
    program = (
        "import sys\nfrom keepfast.entry import main\n"
        "try: main()\nexcept SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = set(done.stderr.split())
    assert loaded.isdisjoint(HEAVY), loaded.intersection(HEAVY)
    assert not [name for name in loaded if name.startswith("keepfast.cli.") and name.rpartition(".")[2] in TABLE]


def test_help_has_every_command_once_and_fits_a_small_terminal(box: Box) -> None:
    box.variables["COLUMNS"] = "80"

    output = box.run("--help").out

    assert sorted(
        line.split()[0] for line in output.splitlines() if line[:2] == "  " and line[2:3].islower()
    ) == sorted(TABLE)
    assert max(len(line) for line in output.splitlines()) <= 80


FOR_CLIENTS = {"hook", "mcp", "serve", "statusline"}
"""Commands that speak a client's own language instead of ours."""


@pytest.mark.parametrize("name", TABLE)
def test_a_command_is_there_under_its_name_with_help(name: str) -> None:
    command = root.get_command(click.Context(root), name)

    assert command is not None
    assert command.name == name
    assert command.help


@pytest.mark.parametrize("name", [name for name in TABLE if name not in FOR_CLIENTS])
def test_every_command_answers_in_json_and_has_help(box: Box, name: str) -> None:
    command = root.get_command(click.Context(root), name)
    commands = command.commands.values() if isinstance(command, click.Group) and name != "checkpoint" else [command]

    for one in commands:
        assert one is not None
        assert "--json" in {option for parameter in one.params for option in parameter.opts}, one.name
    assert box.call(name, "--help").code == 0


def test_without_a_command_there_is_help(box: Box) -> None:
    result = box.call()

    assert (result.code, result.err) == (0, "")
    assert "Restore and copy:" in result.out


def test_a_near_miss_is_answered_with_a_suggestion(box: Box) -> None:
    assert "Did you mean `status`?" in box.call("stauts").err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("keepfast sta", {"status", "statusline"}),
        ("keepfast show v", {"v3", "v2", "v1"}),
        ("keepfast show bef", {"before-refactoring"}),
        ("keepfast cat lat", {"latest"}),
        ("keepfast cat v2 src/", {"src/a.py", "src/b.py"}),
        ("keepfast config ex", {"explain"}),
        ("keepfast config get retention.k", {"retention.keep_last"}),
        ("keepfast --col", {"--color"}),
    ],
)
def test_a_shell_completes_commands_and_references(saved_box: Box, words: str, expected: set[str]) -> None:
    done = saved_box.run(_KEEPFAST_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))

    assert {line.partition(",")[2] for line in done.out.splitlines()} == expected


def test_completion_outside_of_a_workspace_offers_nothing(box: Box) -> None:
    done = box.run(_KEEPFAST_COMPLETE="bash_complete", COMP_WORDS="keepfast show v", COMP_CWORD="2")

    assert (done.out.strip(), done.err) == ("", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_us(box: Box, shell: str) -> None:
    result = box.call("completion", shell)

    assert result.code == 0
    assert f"_KEEPFAST_COMPLETE={shell}_complete" in result.out.replace("env ", "")
