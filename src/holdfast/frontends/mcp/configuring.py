"""The tool that configures: an agent may tighten the settings of its workspace; anything else is prepared for a human."""

from __future__ import annotations

from shlex import join
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from holdfast.core.checking import checked, shown, tightens
from holdfast.core.errors import Usage
from holdfast.core.schema import TABLE
from holdfast.frontends.mcp import answers
from holdfast.frontends.mcp.visit import Visits
from holdfast.settings import similar
from holdfast.settings.writing import change_project

ORIGIN = "checkpoint_configure"
NAMES = {
    "auto_checkpoint_on_clear": "hooks.auto_checkpoint_on_clear",
    "auto_resume_on_start": "hooks.auto_resume_on_start",
    "checkpoint_threshold": "hooks.checkpoint_threshold_percent",
    "verify_before_clear": "hooks.verify_before_clear",
}
SHOWN = {key.partition(".")[2]: key for key in NAMES.values()}

# Values are checked by our own schema, so that a wrong one is refused with the same sentence as everywhere.
Tristate = Annotated[Any, WithJsonSchema({"enum": [True, False, "prompt", None]})]
Percent = Annotated[Any, WithJsonSchema({"type": ["integer", "null"], "minimum": 70, "maximum": 95})]
Flag = Annotated[Any, WithJsonSchema({"type": ["boolean", "null"]})]
Others = Annotated[Any, WithJsonSchema({"type": "object"})]


def checkpoint_configure(
    visits: Visits,
    auto_checkpoint_on_clear: Annotated[Tristate, Field(description="Keep a checkpoint at /clear")] = None,
    auto_resume_on_start: Annotated[Tristate, Field(description="Tell a new session where the last one was")] = None,
    checkpoint_threshold: Annotated[Percent, Field(description="Percent of the token budget for a checkpoint")] = None,
    verify_before_clear: Annotated[Flag, Field(description="Compare with the last checkpoint at /clear")] = None,
    settings: Annotated[Others, Field(description="Other settings by their keys, such as capture.ignored")] = None,
) -> answers.Configured:
    """Show the settings, or tighten them for this workspace. What would loosen them is prepared for the user instead."""
    given = {
        "auto_checkpoint_on_clear": auto_checkpoint_on_clear,
        "auto_resume_on_start": auto_resume_on_start,
        "checkpoint_threshold": checkpoint_threshold,
        "verify_before_clear": verify_before_clear,
    }
    wanted = {NAMES[name]: checked(NAMES[name], value, ORIGIN) for name, value in given.items() if value is not None}
    wanted |= _others(settings)
    with visits.open() as visit:
        now = visit.settings
        news = {key: value for key, value in wanted.items() if value != now[key]}
        tight = {key: value for key, value in news.items() if tightens(key, now[key], value)}
        if tight:
            change_project(visit.root, tight)
    now = visits.following.now()
    prepared = [
        answers.Prepared(
            command=join(["holdfast", "config", "set", key, shown(key, value)]),
            why=f"{key} is {shown(key, now[key]) or 'empty'}; an agent may only tighten, and this does not.",
        )
        for key, value in news.items()
        if now[key] != value
    ]
    config = {name: now[key] for name, key in SHOWN.items()} | {
        key: now[key] for key in wanted if key not in SHOWN.values()
    }
    return answers.Configured(success=not prepared, config=config, prepared=prepared)


def _others(settings: object) -> dict[str, Any]:
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise Usage("settings must be an object of keys and values.", 'Give {"capture.ignored": "all"}, for example.')
    result = {}
    for key, value in settings.items():
        if key not in TABLE:
            near = similar(key)
            raise Usage(f"There is no setting {key!r}.", f"Did you mean {near}?" if near else "")
        result[key] = checked(key, value, ORIGIN)
    return result
