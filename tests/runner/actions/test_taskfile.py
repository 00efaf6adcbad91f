"""Task files: what is wrong is named, before anything is made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keepfast.model.errors import Usage
from keepfast.runner.actions import taskfile
from keepfast.runner.domain.records import TaskSpec


def check(tmp_path: Path, **keys: Any) -> TaskSpec:
    return taskfile.check({"brief": "Do it.", **keys}, str(tmp_path))


def test_everything_has_a_default(tmp_path: Path) -> None:
    found = check(tmp_path)

    assert found.title == "Do it."
    assert (found.type, found.priority, found.phases) == ("custom", "normal", [])
    assert found.agent == {"kind": "claude", "completes_on": "marker", "input": "prompt"}
    assert found.workspace == str(tmp_path)


def test_the_types_of_the_source_have_their_phases(tmp_path: Path) -> None:
    names = [phase["name"] for phase in check(tmp_path, type="create_app").phases]

    assert names == ["Planning", "Design", "Implementation", "Testing"]


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"breif": "x"}, "unknown key 'breif'"), ({"type": "odd"}, "type = 'odd'"), ({"brief": ""}, "needs a `brief`"),
        ({"brief": 3}, "must be a string"), ({"workspace": "nowhere"}, "does not exist"),
        ({"phases": "x"}, "must be a list"), ({"phases": [{"promt": "x"}]}, "unknown key 'promt'"),
        ({"phases": [{"review": "yes"}]}, "true or false"), ({"budget": {"tokens": -1}}, "0 or more"),
        ({"budget": {"token": 1}}, "unknown key 'token'"), ({"agent": {"command": []}}, "is empty"),
        ({"agent": "robot"}, "agent.kind = 'robot'"), ({"agent": {"permission_mode": "all"}}, "permission_mode = 'all'"),
        ({"after": "x"}, "list of strings"), ({"secrets": [1]}, "list of strings"), ({"brief": "a\0b"}, "NUL"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, keys: dict[str, Any], why: str) -> None:
    with pytest.raises(Usage, match=why):
        check(tmp_path, **keys)


def test_a_misspelt_key_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(Usage) as caught:
        check(tmp_path, breif="x")

    assert caught.value.hint == "Did you mean 'brief'?"


def write(tmp_path: Path, content: object, name: str = "tasks.json") -> str:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_several_tasks_come_after_those_they_wait_for(tmp_path: Path) -> None:
    rows = [{"name": "b", "brief": "x", "after": ["a"]}, {"name": "a", "brief": "x"}]

    assert [task.name for task in taskfile.read(write(tmp_path, {"tasks": rows}))] == ["a", "b"]


def test_cycles_are_refused(tmp_path: Path) -> None:
    rows = [{"name": "a", "brief": "x", "after": ["b"]}, {"name": "b", "brief": "x", "after": ["a"]}]

    with pytest.raises(Usage, match="wait for one another: a → b"):
        taskfile.read(write(tmp_path, {"tasks": rows}))


def test_toml_is_read_too(tmp_path: Path) -> None:
    text = 'brief = "Do it."\n[[phases]]\nprompt = "First"\nverify = "make test"\n'

    [found] = taskfile.read(write(tmp_path, text, "task.toml"))

    assert found.phases[0]["verify"] == "make test"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"tasks": []}', '{"tasks": [1]}', '{"tasks": [{"brief": "x"}], "brief": "y"}']
)
def test_odd_files_are_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(Usage):
        taskfile.read(write(tmp_path, content))
