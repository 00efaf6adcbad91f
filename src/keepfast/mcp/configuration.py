"""The tool that configures: an agent may tighten the settings of its workspace; anything else is prepared for a human."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from keepfast.mcp import answers
from keepfast.mcp.command import command
from keepfast.mcp.visit import Visits
from keepfast.model.errors import KeepfastError, Usage
from keepfast.model.light_json import dumps
from keepfast.model.schema import ALIASES, SECTIONS, TABLE, variable
from keepfast.model.setting_values import checked, shown, tightens
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
SHOWN = {key.partition(".")[2]: key for key in NAMES.values()}

# Values are checked by our own schema, so that a wrong one is refused with the same sentence as everywhere.
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
    visits: Visits,
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
    given = {
        "auto_checkpoint_on_clear": auto_checkpoint_on_clear,
        "auto_resume_on_start": auto_resume_on_start,
        "checkpoint_threshold": checkpoint_threshold,
        "checkpoint_threshold_percent": checkpoint_threshold_percent,
        "verify_before_clear": verify_before_clear,
    }
    wanted = _joined([(name, NAMES[name], value) for name, value in given.items() if value is not None], settings)
    with visits.open() as visit:
        now = visit.settings
        news = {key: value for key, value in wanted.items() if value != now[key]}
        tight = {key: value for key, value in news.items() if tightens(key, now[key], value)}
        if tight:
            change_project(visit.root, tight)
        root = visit.root
    now = visits.following.now()
    prepared = [
        one for key, value in news.items() if now[key] != value for one in _prepared(visits, root, now, key, value)
    ]
    config = {name: now[key] for name, key in SHOWN.items()} | {
        key: now[key] for key in wanted if key not in SHOWN.values()
    }
    return answers.Configured(success=not prepared, config=config, prepared=prepared)


def _prepared(visits: Visits, root: bytes, now: Settings, key: str, value: Any) -> list[answers.Prepared]:
    """The commands that bring the setting to the value, one after the other; where none can, what has the last word."""
    project = (root + PROJECT_FILE).decode("utf-8", "backslashreplace")
    is_now = f"{key} is {shown(key, now[key]) or 'empty'}"
    above = _above(now, key, value, project)
    found = []
    if project in above:
        why = f"{is_now}, from the project's file {project}, which overrides the user's; only the user can loosen it."
        if now.origins.get(key, "") != project:
            there = f"the project's file {project} says {shown(key, above[project]) or 'empty'}"
            why = f"{is_now}; {there} as well, which overrides the user's. Only the user can loosen it."
        words = ["config", "unset", "--project", key]
        found.append(answers.Prepared(command=command(visits, words, root), why=why))
    others = [f"{by} says {shown(key, one) or 'empty'}" for by, one in above.items() if by != project]
    last = f"{is_now}; {' and '.join(others)}, which takes precedence" if others else ""
    if _users(visits, key) != value or not above:
        why = (
            (f"{last}: this value takes effect when that is removed.")
            if last
            else f"{is_now}; an agent can only tighten it."
        )
        found.append(
            answers.Prepared(
                command=command(visits, ["config", "set", key, *_text(key, value)]), why=why + _unheard(now, key)
            )
        )
    elif last:
        # The user's file is as it should be: no command of ours changes what the environment says.
        why = (
            f"{last}. The user's file says {shown(key, value) or 'empty'} already, which takes effect when that "
            "is removed."
        )
        found.append(answers.Prepared(command=command(visits, ["config", "explain", key], root), why=why))
    return found


def _above(now: Settings, key: str, value: Any, project: str) -> dict[str, Any]:
    """What would still overrule the value if the user's own file said it: the project's file, variables, a flag.

    A layer that is not taken now, because the user's value is tighter, is taken once that is looser.
    """
    found, in_force = {}, value
    for by, one, _ in now.considered.get(key, []):
        counts = by == FLAG or ((by == project or by in ALIASES) and tightens(key, in_force, one))
        if counts and one != in_force:
            found[by] = in_force = one
    return found


def _unheard(now: Settings, key: str) -> str:
    """Say which variable agents and hooks do not hear, but a person's commands do."""
    name = variable(key)
    is_set = any(by == name and name not in ALIASES for by, _, _ in now.considered.get(key, []))
    return f" {name} is also set, and overrides it in shells that have the variable." if is_set else ""


def _users(visits: Visits, key: str) -> Any:
    """What the user's own file says, or the default; None if it cannot be read."""
    try:
        return load(visits.config, {})[key]
    except KeepfastError:
        return None


def _text(key: str, value: Any) -> list[str]:
    """The value as words that set it again, exactly."""
    text = shown(key, value)
    try:
        exact = checked(key, text, ORIGIN) == value
    except Usage:
        exact = False
    text = text if exact else dumps(value)
    return ["--", text] if text.startswith("-") else [text]


def _joined(given: list[tuple[str, str, object]], settings: object) -> dict[str, Any]:
    """Checked values by their keys. Raises `Usage` if one setting is given two different ones."""
    found: dict[str, tuple[str, Any]] = {}
    for name, key, value in [*given, *_others(settings)]:
        result = checked(key, value, ORIGIN)
        before, known = found.setdefault(key, (name, result))
        if known != result:
            raise Usage(f"{before} and {name} are the same setting with two different values.", "Give one of them.")
    return {key: value for key, (_, value) in found.items()}


def _others(settings: object) -> list[tuple[str, str, object]]:
    if settings is None:
        return []
    if not isinstance(settings, dict):
        raise Usage("settings must be an object of keys and values.", 'Give {"capture.ignored": "all"}, for example.')
    for key in settings:
        if key not in TABLE:
            raise Usage(f"settings: unknown setting {key[:100]!r}.", _known(key))
    return [(f"settings.{key}", key, value) for key, value in settings.items()]


def _known(key: str) -> str:
    """What was probably meant, else what there is: the keys of its section, or all sections."""
    near = similar(key)
    if near:
        return f"Did you mean {near}?"
    section = key.partition(".")[0]
    keys = [one for one in TABLE if one.startswith(section + ".")]
    return f"Known: {', '.join(keys or [*SECTIONS, *[one for one in TABLE if '.' not in one]])}."
