"""Each setting is taken from each source that may set it, and each wrong value is refused with its key."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.model.errors import Usage
from keepfast.model.schema import ALIASES, CHOICE, SECTIONS, SIZE, TABLE, TIME, variable
from keepfast.model.setting_values import checked, limits, shown, tightens
from keepfast.settings import Settings

from .values import KEYS, as_variable, in_sections, right, wrong

KEY_AND_VALUE = st.sampled_from(KEYS).flatmap(lambda key: st.tuples(st.just(key), right(key)))
KEY_AND_TWO = st.sampled_from(KEYS).flatmap(lambda key: st.tuples(st.just(key), right(key), right(key)))
FROM_ENVIRONMENT = [key for key in KEYS if TABLE[key].from_environment]


@pytest.mark.parametrize("key", KEYS)
def test_a_default_is_itself_a_right_value_and_is_explained(key: str) -> None:
    setting = TABLE[key]

    assert checked(key, setting.default, "here") == setting.default
    assert setting.meaning.endswith(".")
    assert key in ("adopt", "language", "resident") or key.partition(".")[0] in SECTIONS
    assert not isinstance(setting.tighter, tuple) or setting.default in setting.tighter


@given(KEY_AND_VALUE)
def test_a_right_value_is_taken_from_a_file(pair: tuple[str, Any]) -> None:
    key, value = pair
    settings = Settings()

    settings.read_file(json.dumps(in_sections(key, value)).encode(), "the file")

    assert (settings[key], settings.origins[key], settings.warnings) == (value, "the file", [])


@given(st.sampled_from(FROM_ENVIRONMENT).flatmap(lambda key: st.tuples(st.just(key), right(key))))
def test_a_right_value_is_taken_from_the_environment(pair: tuple[str, Any]) -> None:
    key, value = pair
    settings = Settings()

    settings.read_environment({variable(key): as_variable(value)})

    assert (settings[key], settings.origins[key], settings.warnings) == (value, variable(key), [])


@pytest.mark.parametrize("key", KEYS)
def test_a_wrong_value_in_a_file_is_refused_with_its_key_and_a_hint(key: str) -> None:
    for value in wrong(key):
        settings = Settings()

        with pytest.raises(Usage, match=key) as refused:
            settings.read_file(json.dumps(in_sections(key, value)).encode(), "the file")

        assert refused.value.hint, value
        assert "the file" in str(refused.value)
        assert len(str(refused.value)) < 400
        assert settings[key] == TABLE[key].default


@pytest.mark.parametrize("key", FROM_ENVIRONMENT)
def test_a_wrong_value_in_the_environment_is_refused_with_its_key(key: str) -> None:
    for value in wrong(key):
        if isinstance(value, str) and "\0" not in value:
            with pytest.raises(Usage, match=key):
                Settings().read_environment({variable(key): value})


@pytest.mark.parametrize("key", KEYS)
def test_a_wrong_value_in_a_hook_is_a_warning_and_the_default_stands(key: str) -> None:
    for value in wrong(key):
        settings = Settings()

        settings.read_file(json.dumps(in_sections(key, value)).encode(), "the file", lenient=True)

        assert settings[key] == TABLE[key].default
        assert key in settings.warnings[0]


@pytest.mark.parametrize("key", [key for key in KEYS if not TABLE[key].from_environment])
def test_what_only_the_user_sets_is_not_taken_from_the_environment(key: str) -> None:
    settings = Settings()

    settings.read_environment({variable(key): as_variable(TABLE[key].default)})

    assert key not in settings.origins
    assert variable(key) in settings.warnings[0]


def test_store_commands_web_and_supervisor_are_the_users_alone() -> None:
    closed = {key for key in KEYS if not TABLE[key].from_environment and TABLE[key].tighter is None}

    assert closed >= {key for key in KEYS if key.startswith(("store.", "web.", "supervisor."))} | {"analysis.command"}
    assert {key for key in KEYS if TABLE[key].kind.startswith("a command")} <= closed


@given(KEY_AND_VALUE)
def test_what_is_shown_can_be_set_again(pair: tuple[str, Any]) -> None:
    key, value = pair

    assert checked(key, shown(key, value), "here") == value


@given(KEY_AND_TWO)
def test_of_two_values_a_project_can_only_reach_the_tighter_one(case: tuple[str, Any, Any]) -> None:
    key, user, project = case
    settings = Settings()
    settings.put(key, user, "the user")

    taken = settings.put(key, project, "the project", tighten=True)

    assert taken == tightens(key, user, project)
    assert settings[key] == (project if taken else user)
    if project == user:
        assert taken == (TABLE[key].tighter is not None)
    elif taken and tightens(key, project, user):
        assert sorted(project) == sorted(user) or set(project) == set(
            user
        )  # only lists can be equally tight and differ


@given(KEY_AND_VALUE)
def test_a_hook_hears_only_the_short_names_and_only_to_tighten(pair: tuple[str, Any]) -> None:
    key, value = pair
    short = [name for name, meant in ALIASES.items() if meant == key]
    settings = Settings()

    settings.read_environment({variable(key): as_variable(value)}, hook=True)

    if variable(key) not in short:
        assert (settings.values, settings.warnings) == (Settings().values, [])
    for name in short:
        settings = Settings()
        settings.read_environment({name: as_variable(value)}, hook=True)
        tight = tightens(key, TABLE[key].default, value)
        assert settings[key] == (value if tight else TABLE[key].default)


@pytest.mark.parametrize(("name", "key"), ALIASES.items())
def test_every_short_name_sets_its_key_outside_of_hooks(name: str, key: str) -> None:
    for text in ("false", "80", "summary", "4096"):
        settings = Settings()
        try:
            settings.read_environment({name: text})
        except Usage as error:
            assert key in str(error)
            continue
        assert settings.origins == {key: name}


def test_the_long_name_wins_over_the_short_one() -> None:
    settings = Settings()

    settings.read_environment(
        {"KEEPFAST_HOOKS_CHECKPOINT_THRESHOLD_PERCENT": "90", "KEEPFAST_CHECKPOINT_THRESHOLD": "75"}
    )

    assert settings["hooks.checkpoint_threshold_percent"] == 90


@pytest.mark.parametrize("key", [key for key in KEYS if TABLE[key].allowed and TABLE[key].kind != CHOICE])
def test_the_hint_of_a_range_can_be_followed(key: str) -> None:
    low, _ = TABLE[key].allowed or (0, 0)

    text = limits(key)

    assert shown(key, low) in text
    if TABLE[key].kind in (SIZE, TIME):
        assert checked(key, shown(key, low), "here") == low
