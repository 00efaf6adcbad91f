"""The tool that shows and changes settings: an agent may tighten those of its workspace; the user gets commands for the rest."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from keepfast.mcp import answers
from keepfast.mcp.command import command
from keepfast.mcp.workspace_access import WorkspaceAccess
from keepfast.model.errors import KeepfastError, Usage
from keepfast.model.schema import ALIASES, SECTIONS, TABLE, variable
from keepfast.model.setting_values import checked, shown, tightens
from keepfast.model.strict_json import dumps
from keepfast.settings import FLAG, PROJECT_FILE, Settings, load, similar
from keepfast.settings.file import change_project

ORIGIN = "checkpoint_configure"
NAMES = {
    "auto_checkpoint_on_clear": "hooks.auto_checkpoint_on_clear",
    "auto_resume_on_start": "hooks.auto_resume_on_start",
    "checkpoint_threshold": "hooks.checkpoint_threshold_percent",
    "checkpoint_threshold_percent": "hooks.checkpoint_threshold_percent",
    "verify_before_clear": "hooks.verify_before_clear",
}
SHORT_NAMES = {key.partition(".")[2]: key for key in NAMES.values()}

# Our own schema checks the values, so that a wrong one gets the same error message as everywhere.
Tristate = Annotated[Any, WithJsonSchema({"enum": [True, False, "prompt", None]})]
Percent = Annotated[Any, WithJsonSchema({"type": ["integer", "null"], "minimum": 70, "maximum": 95})]
Flag = Annotated[Any, WithJsonSchema({"type": ["boolean", "null"]})]
Others = Annotated[
    Any,
    WithJsonSchema(
        {"type": ["object", "null"], "properties": {key: {} for key in TABLE}, "additionalProperties": False}
    ),
]


def checkpoint_configure(
    access: WorkspaceAccess,
    auto_checkpoint_on_clear: Annotated[Tristate, Field(description="Save a checkpoint at /clear")] = None,
    auto_resume_on_start: Annotated[
        Tristate, Field(description=("Give a new session the resume brief of the last one"))
    ] = None,
    checkpoint_threshold: Annotated[
        Percent, Field(description=("Percent of the token budget at which a checkpoint is saved"))
    ] = None,
    checkpoint_threshold_percent: Annotated[Percent, Field(description="Alias, by the name used in the result")] = None,
    verify_before_clear: Annotated[Flag, Field(description="Compare with the last checkpoint at /clear")] = None,
    settings: Annotated[Others, Field(description="Other settings by their keys, such as capture.ignored")] = None,
) -> answers.Configured:
    """Show the settings, or tighten them for this workspace. What would loosen them is prepared for the user instead."""
    arguments = {
        "auto_checkpoint_on_clear": auto_checkpoint_on_clear,
        "auto_resume_on_start": auto_resume_on_start,
        "checkpoint_threshold": checkpoint_threshold,
        "checkpoint_threshold_percent": checkpoint_threshold_percent,
        "verify_before_clear": verify_before_clear,
    }
    requested = _merge([(name, NAMES[name], value) for name, value in arguments.items() if value is not None], settings)
    with access.open() as workspace:
        settings_now = workspace.settings
        changes = {key: value for key, value in requested.items() if value != settings_now[key]}
        tight = {key: value for key, value in changes.items() if tightens(key, settings_now[key], value)}
        if tight:
            change_project(workspace.root, tight)
        root = workspace.root
    settings_now = access.following.now()
    prepared = [
        command_for_user
        for key, value in changes.items()
        if settings_now[key] != value
        for command_for_user in _commands_for(access, root, settings_now, key, value)
    ]
    config = {name: settings_now[key] for name, key in SHORT_NAMES.items()} | {
        key: settings_now[key] for key in requested if key not in SHORT_NAMES.values()
    }
    return answers.Configured(success=not prepared, config=config, prepared=prepared)


def _commands_for(access: WorkspaceAccess, root: bytes, now: Settings, key: str, value: Any) -> list[answers.Prepared]:
    """Return the commands that set the value, in order; if none can, the one that explains what overrides it."""
    project = (root + PROJECT_FILE).decode("utf-8", "backslashreplace")
    is_now = f"{key} is {shown(key, now[key]) or 'empty'}"
    above = _overriding_layers(now, key, value, project)
    prepared = []
    if project in above:
        why = f"{is_now}, from the project's file {project}, which overrides the user's; only the user can loosen it."
        if now.origins.get(key, "") != project:
            also_says = f"the project's file {project} says {shown(key, above[project]) or 'empty'}"
            why = f"{is_now}; {also_says} as well, which overrides the user's. Only the user can loosen it."
        words = ["config", "unset", "--project", key]
        prepared.append(answers.Prepared(command=command(access, words, root), why=why))
    others = [
        f"{layer} says {shown(key, layer_value) or 'empty'}" for layer, layer_value in above.items() if layer != project
    ]
    last = f"{is_now}; {' and '.join(others)}, which takes precedence" if others else ""
    if _user_value(access, key) != value or not above:
        why = (
            (f"{last}: this value takes effect when that is removed.")
            if last
            else f"{is_now}. An agent can only tighten it."
        )
        prepared.append(
            answers.Prepared(
                command=command(access, ["config", "set", key, *_words_for(key, value)]),
                why=why + _ignored_variable_note(now, key),
            )
        )
    elif last:
        # The user's file has the value already, and no command of ours changes the environment.
        why = (
            f"{last}. The user's file says {shown(key, value) or 'empty'} already, which takes effect when that "
            "is removed."
        )
        prepared.append(answers.Prepared(command=command(access, ["config", "explain", key], root), why=why))
    return prepared


def _overriding_layers(now: Settings, key: str, value: Any, project: str) -> dict[str, Any]:
    """Return what would override the value if the user's own file had it: the project's file, variables, a flag.

    A layer that is ignored now because the user's value is tighter counts once that value is looser.
    """
    overriding, in_force = {}, value
    for layer, layer_value, _ in now.considered.get(key, []):
        counts = layer == FLAG or ((layer == project or layer in ALIASES) and tightens(key, in_force, layer_value))
        if counts and layer_value != in_force:
            overriding[layer] = in_force = layer_value
    return overriding


def _ignored_variable_note(now: Settings, key: str) -> str:
    """Return a note about a variable that agents and hooks ignore, but a person's commands do not."""
    name = variable(key)
    is_set = any(by == name and name not in ALIASES for by, _, _ in now.considered.get(key, []))
    return f" {name} is also set, and overrides it in shells that have the variable." if is_set else ""


def _user_value(access: WorkspaceAccess, key: str) -> Any:
    """Return the value in the user's own file, or the default; None if the file cannot be read."""
    try:
        return load(access.config, {})[key]
    except KeepfastError:
        return None


def _words_for(key: str, value: Any) -> list[str]:
    """Return the value as arguments of `config set` that set exactly this value."""
    text = shown(key, value)
    try:
        exact = checked(key, text, ORIGIN) == value
    except Usage:
        exact = False
    text = text if exact else dumps(value)
    return ["--", text] if text.startswith("-") else [text]


def _merge(arguments: list[tuple[str, str, object]], settings: object) -> dict[str, Any]:
    """Return checked values by key. Raises `Usage` if a setting is given two different values."""
    values: dict[str, tuple[str, Any]] = {}
    for name, key, value in [*arguments, *_entries_of(settings)]:
        result = checked(key, value, ORIGIN)
        first_name, first_value = values.setdefault(key, (name, result))
        if first_value != result:
            raise Usage(f"{first_name} and {name} are the same setting with two different values.", "Give one of them.")
    return {key: value for key, (_, value) in values.items()}


def _entries_of(settings: object) -> list[tuple[str, str, object]]:
    if settings is None:
        return []
    if not isinstance(settings, dict):
        raise Usage("settings must be an object of keys and values.", 'Give {"capture.ignored": "all"}, for example.')
    for key in settings:
        if key not in TABLE:
            raise Usage(f"settings: unknown setting {key[:100]!r}.", _suggestion(key))
    return [(f"settings.{key}", key, value) for key, value in settings.items()]


def _suggestion(key: str) -> str:
    """Return a hint: the key that was probably meant, else the keys of its section, or all sections."""
    similar_key = similar(key)
    if similar_key:
        return f"Did you mean {similar_key}?"
    section = key.partition(".")[0]
    keys = [setting for setting in TABLE if setting.startswith(section + ".")]
    return f"Known: {', '.join(keys or [*SECTIONS, *[setting for setting in TABLE if '.' not in setting]])}."
