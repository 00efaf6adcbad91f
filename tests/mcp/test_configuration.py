"""`checkpoint_configure` has the source's input and output; an agent may tighten, and nothing else."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from keepfast.model.schema import TABLE
from keepfast.model.setting_values import shown, tightens
from tests.equipment.box import Box
from tests.settings.values import KEYS, wrong

from .agent import Agent, call, within


def project_file(box: Box) -> dict[str, Any]:
    path = box.project / ".keepfast/config.json"
    settings: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return settings


def test_the_form_is_that_of_the_source(saved_box: Box) -> None:
    answer = call(
        saved_box,
        "checkpoint_configure",
        auto_checkpoint_on_clear=True,
        auto_resume_on_start=True,
        checkpoint_threshold=70,
        verify_before_clear=True,
    )

    assert answer["success"] is True
    assert answer["config"] == {
        "auto_checkpoint_on_clear": True,
        "auto_resume_on_start": True,
        "checkpoint_threshold_percent": 70,
        "verify_before_clear": True,
    }


def test_without_anything_it_shows_what_is_in_force(saved_box: Box) -> None:
    answer = call(saved_box, "checkpoint_configure")

    assert answer["config"]["auto_checkpoint_on_clear"] == "prompt"
    assert project_file(saved_box) == {}


def test_what_tightens_goes_into_the_projects_file_and_counts_at_once(saved_box: Box) -> None:
    call(saved_box, "checkpoint_configure", auto_checkpoint_on_clear=True, settings={"retention.keep_last": 20})

    assert project_file(saved_box) == {"hooks": {"auto_checkpoint_on_clear": True}, "retention": {"keep_last": 20}}
    assert saved_box.call("config", "get", "retention.keep_last").out == "20\n"
    assert not saved_box.config.exists()


def test_what_loosens_is_prepared_for_the_user(saved_box: Box) -> None:
    answer = call(saved_box, "checkpoint_configure", verify_before_clear=False, auto_checkpoint_on_clear=True)

    assert answer["success"] is False
    assert answer["config"]["verify_before_clear"] is True
    assert answer["config"]["auto_checkpoint_on_clear"] is True
    assert [one["command"] for one in answer["prepared"]] == ["keepfast config set hooks.verify_before_clear false"]
    words = answer["prepared"][0]["command"].split()[1:]
    assert saved_box.call(*words).code == 0
    assert call(saved_box, "checkpoint_configure", verify_before_clear=False)["success"] is True


def test_what_a_variable_hides_in_the_projects_file_is_taken_out_by_the_prepared_commands(saved_box: Box) -> None:
    key = "hooks.checkpoint_threshold_percent"
    saved_box.call("config", "set", key, "90")
    call(saved_box, "checkpoint_configure", checkpoint_threshold=80)
    saved_box.variables["KEEPFAST_CHECKPOINT_THRESHOLD"] = "75"

    answer = call(saved_box, "checkpoint_configure", checkpoint_threshold=88)
    commands = [one["command"] for one in answer["prepared"]]
    del saved_box.variables["KEEPFAST_CHECKPOINT_THRESHOLD"]
    for command in commands:
        assert saved_box.call(*shlex.split(command)[1:]).code == 0, command

    assert any("unset --project" in command for command in commands)
    assert saved_box.call("config", "get", key).out == "88\n"


KEY = "hooks.checkpoint_threshold_percent"


def write_project(box: Box, percent: int) -> str:
    path = box.project / ".keepfast/config.json"
    path.write_text(json.dumps({"hooks": {"checkpoint_threshold_percent": percent}}))
    return str(path)


def test_a_project_value_that_will_count_once_the_users_is_looser_is_taken_out_too(saved_box: Box) -> None:
    saved_box.call("config", "set", KEY, "80")
    path = write_project(saved_box, 90)

    answer = call(saved_box, "checkpoint_configure", checkpoint_threshold=95)
    for one in answer["prepared"]:
        assert saved_box.call(*shlex.split(one["command"])[1:]).code == 0, one

    assert any(path in one["why"] for one in answer["prepared"])
    assert saved_box.call("config", "get", KEY).out == "95\n"


def test_a_project_value_that_will_not_count_stays(saved_box: Box) -> None:
    saved_box.call("config", "set", KEY, "80")
    write_project(saved_box, 95)

    answer = call(saved_box, "checkpoint_configure", checkpoint_threshold=90)

    assert [one["command"] for one in answer["prepared"]] == [f"keepfast config set {KEY} 90"]


@pytest.mark.parametrize(("users", "variable"), [("80", "90"), ("80", "75"), ("95", "90")])
def test_a_variable_that_would_overrule_the_value_is_named(saved_box: Box, users: str, variable: str) -> None:
    """Also one that is not taken now, because the user's value is tighter; and one above a file that says it already."""
    saved_box.call("config", "set", KEY, users)
    saved_box.variables["KEEPFAST_CHECKPOINT_THRESHOLD"] = variable

    answer = call(saved_box, "checkpoint_configure", checkpoint_threshold=95)
    [prepared] = answer["prepared"]

    assert "KEEPFAST_CHECKPOINT_THRESHOLD" in prepared["why"] and not answer["success"]
    assert f" config {'explain' if users == '95' else 'set'} {KEY}" in prepared["command"]


def test_a_variable_that_only_commands_hear_is_named(saved_box: Box) -> None:
    saved_box.variables["KEEPFAST_RETENTION_KEEP_LAST"] = "30"

    answer = call(saved_box, "checkpoint_configure", settings={"retention.keep_last": 1})

    assert "KEEPFAST_RETENTION_KEEP_LAST" in answer["prepared"][0]["why"]


def test_every_setting_is_tightened_or_prepared_and_never_loosened(saved_box: Box) -> None:
    """Each choice, and both ends of each range, of every setting."""

    async def scenario(agent: Agent) -> None:
        for key in KEYS:
            setting = TABLE[key]
            ends = list(setting.allowed or ()) if setting.kind != "an object of whole numbers" else []
            for value in [setting.default, *[end for end in ends if end is not None]]:
                (saved_box.project / ".keepfast/config.json").unlink(missing_ok=True)
                answer = await agent.call("checkpoint_configure", settings={key: value})
                assert not answer.failed, answer.text
                tight = value == setting.default or tightens(key, setting.default, value)
                assert answer["success"] == tight, key
                assert answer["config"].get(key, answer["config"].get(key.partition(".")[2])) == (
                    value if tight else setting.default
                )
                if not tight:
                    assert f"config set {key} " in answer["prepared"][0]["command"] + " ", shown(key, value)

    within(saved_box, scenario)


def test_every_wrong_value_is_refused_with_its_key(saved_box: Box) -> None:
    async def scenario(agent: Agent) -> None:
        for key in KEYS:
            for value in wrong(key):
                answer = await agent.call("checkpoint_configure", settings={key: value})
                assert answer.failed, (key, value)
                assert key in answer.text

    within(saved_box, scenario)

    assert project_file(saved_box) == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"checkpoint_threshold": 69}, "hooks.checkpoint_threshold_percent"),
        ({"checkpoint_threshold": 96}, "hooks.checkpoint_threshold_percent"),
        ({"checkpoint_threshold": "many"}, "hooks.checkpoint_threshold_percent"),
        ({"auto_checkpoint_on_clear": "sometimes"}, "hooks.auto_checkpoint_on_clear"),
        ({"verify_before_clear": "prompt"}, "hooks.verify_before_clear"),
        ({"settings": {"hooks.verify_before_cleer": True}}, "Did you mean hooks.verify_before_clear?"),
        ({"settings": ["capture.ignored"]}, "settings"),
    ],
)
def test_a_wrong_value_of_the_source_form_is_refused(saved_box: Box, arguments: dict[str, Any], said: str) -> None:
    answer = call(saved_box, "checkpoint_configure", auto_resume_on_start=False, **arguments)

    assert answer.failed
    assert said in answer.text
    assert project_file(saved_box) == {}


def test_a_project_folder_that_is_a_link_is_not_written_through(saved_box: Box) -> None:
    elsewhere = saved_box.home / "elsewhere"
    (saved_box.project / ".keepfast").rename(elsewhere)
    (saved_box.project / ".keepfast").symlink_to(elsewhere)

    answer = call(saved_box, "checkpoint_configure", auto_checkpoint_on_clear=True)

    assert answer.failed
    assert not (elsewhere / "config.json").exists()
