"""`keepfast config`: where each value comes from, what was not taken and why, and changes that can be looked at first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keepfast.hook.autosave import settings_of
from keepfast.present.environment import Environment
from tests.equipment.box import Box


@pytest.fixture
def box(tmp_path: Path) -> Box:
    box = Box(tmp_path)
    assert box.call("init").code == 0
    return box


def test_explain_names_every_source_and_why_it_was_not_taken(box: Box) -> None:
    key = "hooks.checkpoint_threshold_percent"
    box.call("config", "set", key, "80")
    (box.project / ".keepfast/config.json").write_text(json.dumps({"hooks": {"checkpoint_threshold_percent": 90}}))
    box.variables["KEEPFAST_CHECKPOINT_THRESHOLD"] = "75"

    text = box.call("config", "explain", key).out
    answer = box.call("config", "explain", key, "--json").json()

    assert "Now 75, from KEEPFAST_CHECKPOINT_THRESHOLD." in text
    assert "says 90: ignored, it can only tighten the user's settings" in text
    assert "at least 70 and at most 95" in text
    assert [(one["value"], one["taken"]) for one in answer["considered"]] == [(80, True), (90, False), (75, True)]
    assert answer["range"] == [70, 95]
    assert answer["variables"] == [
        "KEEPFAST_HOOKS_CHECKPOINT_THRESHOLD_PERCENT",
        "KEEPFAST_CHECKPOINT_THRESHOLD",
    ]


@pytest.mark.parametrize("name", ["KEEPFAST_CHECKPOINT_THRESHOLD", "KEEPFAST_HOOKS_CHECKPOINT_THRESHOLD_PERCENT"])
def test_what_is_about_hooks_is_shown_as_hooks_have_it(box: Box, name: str) -> None:
    """In a hook the environment may only tighten: 80 is looser than the default 70."""
    key = "hooks.checkpoint_threshold_percent"
    box.variables[name] = "80"

    answer = box.call("config", "explain", key, "--json").json()
    got, listed = box.call("config", "get", key, "--json").json(), box.call("config", "list", "--json").json()

    assert (answer["value"], answer["origin"]) == (70, "default")
    assert (answer["in_hooks"], answer["in_commands"]) == (
        {"value": 70, "origin": "default"},
        {"value": 80, "origin": name},
    )
    assert (got["value"], listed[key]["value"]) == (70, 70)
    assert [(one["origin"], one["taken"]) for one in answer["considered"]] == [(name, False)]


def test_every_setting_about_hooks_has_the_value_that_a_hook_loads(box: Box) -> None:
    box.variables |= {
        "KEEPFAST_CHECKPOINT_THRESHOLD": "90",
        "KEEPFAST_AUTO_RESUME_ON_START": "false",
        "KEEPFAST_VERIFY_BEFORE_CLEAR": "false",
        "KEEPFAST_AUTO_CHECKPOINT_ON_CLEAR": "true",
        "KEEPFAST_HOOKS_RESUME_ON_STARTUP": "full",
    }
    environment = Environment({name.encode(): value.encode() for name, value in box.variables.items()})
    hook = settings_of(environment, str(box.project).encode(), None)

    listed = box.call("config", "list", "--json").json()

    listed_values = {key: listed[key]["value"] for key in hook.values if key.startswith("hooks.")}
    assert listed_values == {key: value for key, value in hook.values.items() if key.startswith("hooks.")}
    assert (
        listed_values["hooks.checkpoint_threshold_percent"] == 70
        and listed_values["hooks.auto_resume_on_start"] is False
    )


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("store.url", "Set in your file only."),
        ("capture.max_files", "Set in your file or KEEPFAST_CAPTURE_MAX_FILES."),
        ("analysis.llm", "in this order: command, anthropic, off"),
        ("budget.tokens", "tighten it: lower, where 0 is no limit"),
    ],
)
def test_explain_says_who_may_set_it(box: Box, key: str, said: str) -> None:
    assert said in box.call("config", "explain", key).out


def test_unset_brings_the_default_back(box: Box) -> None:
    box.call("config", "set", "capture.max_files", "5")

    result = box.call("config", "unset", "capture.max_files", "--dry-run")
    still = box.call("config", "get", "capture.max_files", "--json").json()
    text_result = box.call("config", "unset", "capture.max_files")
    again = box.call("config", "unset", "capture.max_files", "--json").json()

    assert '-    "max_files": 5' in result.out
    assert still == {"key": "capture.max_files", "value": 5, "origin": str(box.config)}
    assert text_result.out == f"capture.max_files removed from {box.config}.\n"
    assert (again["changed"], again["written"]) == (False, True)
    assert box.call("config", "get", "capture.max_files").out == "200000\n"


def test_a_dry_run_of_set_writes_nothing(box: Box) -> None:
    answer = box.call("config", "set", "capture.max_files", "5", "--dry-run", "--json").json()

    assert (answer["value"], answer["changed"], answer["written"]) == (5, True, False)
    assert not box.config.exists()


def test_set_says_when_another_source_has_the_last_word(box: Box) -> None:
    box.variables["KEEPFAST_CAPTURE_MAX_FILES"] = "7"
    by_variable = box.call("config", "set", "capture.max_files", "5")
    box.call("config", "set", "--project", "capture.ignored", "all")
    by_project = box.call("config", "set", "capture.ignored", "none")

    assert "KEEPFAST_CAPTURE_MAX_FILES is also set, and overrides it." in by_variable.err
    assert f"{box.project}/.keepfast/config.json overrides it" in by_project.err


def test_paths_of_both_files(box: Box) -> None:
    project = str(box.project / ".keepfast/config.json")

    assert box.call("config", "path", "--project").out == project + "\n"
    assert box.call("config", "path", "--project", "--json").json() == {"path": project, "exists": False}
    assert box.call("config", "path", "--json").json() == {"path": str(box.config), "exists": False}


def test_a_list_says_where_each_value_is_from_and_what_is_odd(box: Box) -> None:
    box.config.parent.mkdir(parents=True)
    box.config.write_text('{"capture": {"max_fils": 3, "max_files": 9}}')

    listed = box.call("config", "list")

    assert "did you mean capture.max_files?" in listed.err
    row = next(line for line in listed.out.splitlines() if line.startswith("capture.max_files"))
    assert row.split() == ["capture.max_files", "9", str(box.config)]


@pytest.mark.parametrize("value", ["relative/store", "~/store"])
def test_a_store_that_is_no_absolute_path_is_refused_before_it_is_written(box: Box, value: str) -> None:
    assert box.call("config", "set", "store.url", value).code == 2
    assert not box.config.exists()


@pytest.mark.parametrize("content", ['{"hooks": {"checkpoint_threshold_percent": 99}}', "{broken"])
@pytest.mark.parametrize("command", [["list"], ["get", "hooks.checkpoint_threshold_percent"], ["explain", "adopt"]])
def test_every_look_at_the_settings_says_what_is_wrong_with_the_file(
    box: Box, content: str, command: list[str]
) -> None:
    box.config.parent.mkdir(parents=True, exist_ok=True)
    box.config.write_text(content)

    done = box.call("config", *command)

    assert (done.code, done.out) == (2, "")
    assert str(box.config) in done.err


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("hooks", "checkpoint_threshold_percent", "80"),
        ("hooks", "verify_before_clear", "yes"),
        ("hooks", "auto_checkpoint_on_clear", "true"),
    ],
)
def test_a_text_in_a_file_is_no_number_and_no_truth(box: Box, section: str, key: str, value: str) -> None:
    box.config.parent.mkdir(parents=True, exist_ok=True)
    box.config.write_text(json.dumps({section: {key: value}}))

    done = box.call("config", "get", f"{section}.{key}")

    assert done.code == 2 and f"{section}.{key}" in done.err and "without quotes" in done.err
    box.config.write_text("{}")
    assert box.call("config", "set", f"{section}.{key}", value).code == 0
    assert box.call("config", "get", f"{section}.{key}").code == 0
