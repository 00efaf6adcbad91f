"""`keepfast config`: show and change settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.lazy import Listed
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import NotFound, Usage

if TYPE_CHECKING:
    from keepfast.settings import Settings
    from keepfast.settings.file import FileChange

PROJECT = click.option(
    "--project",
    is_flag=True,
    help="Use the settings file of the current workspace, which can only tighten the user's settings.",
)
WIDEST = 60
HOOKS = "hooks."
DRY_RUN = click.option("-n", "--dry-run", is_flag=True, help="Show what would change in the file, and change nothing.")


def _keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from keepfast.model.schema import TABLE

    return [key for key in TABLE if key.startswith(incomplete)]


@click.group(cls=Listed)
def config() -> None:
    """Show and change settings. `config path` prints where the user's file is."""


@config.command("list")
@common
def list_(session: Session) -> None:
    """List every setting, its value and where it comes from."""
    from keepfast.model.setting_values import shown
    from keepfast.settings import TABLE

    settings = session.settings
    found = {key: (_in_force(session, key)[key], _origin(session, key)) for key in TABLE}
    if session.json:
        write_json({key: {"value": value, "origin": origin} for key, (value, origin) in found.items()})
        return
    rows = [[key, _cut(shown(key, value)), origin] for key, (value, origin) in found.items()]
    for line in session.paint.table(["SETTING", "VALUE", "FROM"], rows, give=1):
        session.print(line)
    for warning in settings.warnings:
        session.warn(warning)


@config.command("get")
@click.argument("key", shell_complete=_keys)
@common
def get(session: Session, key: str) -> None:
    """Print the value of a setting."""
    from keepfast.model.setting_values import shown

    _known(key)
    _refuse_broken(session)
    value = _in_force(session, key)[key]
    if session.json:
        write_json({"key": key, "value": value, "origin": _origin(session, key)})
        return
    session.print(shown(key, value))


@config.command("explain")
@click.argument("key", shell_complete=_keys)
@common
def explain(session: Session, key: str) -> None:
    """Explain a setting: meaning, allowed values, current value and its origin."""
    _known(key)
    _refuse_broken(session)
    from keepfast.model.schema import CHOICE, TABLE
    from keepfast.model.setting_values import choices, limits, shown

    setting, settings = TABLE[key], _in_force(session, key)
    if session.json:
        write_json(_explained(session, key))
        return
    session.print(f"{key}: {setting.meaning}")
    allowed = f" {choices(key)}" if setting.kind == CHOICE else f", {limits(key)}" if setting.allowed else ""
    session.print(f"Expects {setting.kind}{allowed}; the default is {shown(key, setting.default) or 'empty'}.")
    session.print(_who(key))
    session.print(f"Now {shown(key, settings[key]) or 'empty'}, from {_origin(session, key)}.")
    for who, other in (("Hooks", session.hook_settings), ("Commands", session.settings)):
        if other[key] != settings[key]:
            session.print(f"{who} have {shown(key, other[key]) or 'empty'}, from {other.origins.get(key, 'default')}.")
    for said_by, value, why in _considered(session, key):
        text = value if isinstance(value, str) else shown(key, value)
        session.print(f"  {said_by} says {text or 'empty'}{f': ignored, {why}' if why else ''}")


class Negative(click.Command):
    """A command whose arguments may be numbers below zero: `-1` is no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        numbers = [word for word in args if word[:1] == "-" and word[1:].replace(".", "", 1).isdecimal()]
        ctx.ignore_unknown_options = bool(numbers)
        return super().parse_args(ctx, args)


@config.command("set", cls=Negative)
@click.argument("key", shell_complete=_keys)
@click.argument("value")
@PROJECT
@DRY_RUN
@common
def set_(session: Session, key: str, value: str, project: bool, dry_run: bool) -> None:
    """Set a setting in the user's file. Give a list as JSON or separated by commas."""
    _known(key)
    from keepfast.model.setting_values import shown

    kept = _proposed(session, key, value)
    written = _write(session, {key: kept}, project, dry_run)
    if _told(session, written, dry_run, {"key": key, "value": kept}):
        session.say(f"{key} = {shown(key, kept)} in {written.path}.")
        _overruled(session, key)


@config.command("unset")
@click.argument("key", shell_complete=_keys)
@PROJECT
@DRY_RUN
@common
def unset(session: Session, key: str, project: bool, dry_run: bool) -> None:
    """Remove a setting from the user's file, so that its default applies."""
    from keepfast.settings.file import REMOVED

    written = _write(session, {key: REMOVED}, project, dry_run)
    if _told(session, written, dry_run, {"key": key}):
        session.say(f"{key} removed from {written.path}.")
        if key in session.settings.values:
            _overruled(session, key)


@config.command("path")
@PROJECT
@common
def path(session: Session, project: bool) -> None:
    """Print the path of the settings file, even if it does not exist."""
    where = _project_path(session) if project else session.config_path
    if session.json:
        write_json({"path": where, "exists": os.path.exists(where)})
        return
    session.print(where)


def _cut(text: str) -> str:
    """A long list would push the last column out of sight; `config get` shows all of it."""
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _known(key: str) -> None:
    from keepfast.settings import TABLE, similar

    if key not in TABLE:
        near = similar(key)
        raise NotFound(
            f"There is no setting {key!r}.",
            f"Did you mean {near}?" if near else ("Run `keepfast config list` to see all settings."),
        )


def _refuse_broken(session: Session) -> None:
    """Raise what a command raises of a file that is wrong; a hook goes on without it."""
    _ = session.settings


def _in_force(session: Session, key: str) -> Settings:
    """What is about hooks counts as hooks have it; commands have the environment's last word besides."""
    return session.hook_settings if key.startswith(HOOKS) else session.settings


def _origin(session: Session, key: str) -> str:
    return _in_force(session, key).origins.get(key, "default")


def _considered(session: Session, key: str) -> list[tuple[str, Any, str]]:
    """Who said what about it, and why that was not taken."""
    from keepfast.model.schema import ALIASES, variable

    said = list(_in_force(session, key).considered.get(key, []))
    long, variables = variable(key), session.around.keepfast_variables()
    if key.startswith(HOOKS) and long in variables and long not in ALIASES:
        said.append((long, variables[long], "hooks ignore it"))
    return said


def _explained(session: Session, key: str) -> dict[str, Any]:
    from keepfast.model.schema import ALIASES, CHOICE, TABLE, variable

    setting = TABLE[key]
    limits = {"choices" if setting.kind == CHOICE else "range": list(setting.allowed)} if setting.allowed else {}
    tighter = list(setting.tighter) if isinstance(setting.tighter, tuple) else setting.tighter
    names = [variable(key), *[name for name, meant in ALIASES.items() if meant == key and name != variable(key)]]
    return {
        "key": key,
        "value": _in_force(session, key)[key],
        "origin": _origin(session, key),
        "in_hooks": _said(session.hook_settings, key),
        "in_commands": _said(session.settings, key),
        "default": setting.default,
        "type": setting.kind,
        "meaning": setting.meaning,
        **limits,
        "tighter": tighter,
        "variables": names if setting.from_environment else [],
        "considered": [
            {"origin": said_by, "value": value, "taken": not why, "reason": why or None}
            for said_by, value, why in _considered(session, key)
        ],
    }


def _said(settings: Settings, key: str) -> dict[str, Any]:
    return {"value": settings[key], "origin": settings.origins.get(key, "default")}


def _who(key: str) -> str:
    from keepfast.model.schema import ALIASES, TABLE, variable
    from keepfast.model.setting_values import shown

    setting = TABLE[key]
    names = [name for name, meant in ALIASES.items() if meant == key] or [variable(key)]
    by = f"Set in your file, {names[0]} and --project" if setting.from_environment else "Set in your file and --project"
    if setting.tighter is None:
        return f"Set in your file or {names[0]}." if setting.from_environment else "Set in your file only."
    if isinstance(setting.tighter, tuple):
        return (
            f"{by}; --project can only tighten it, in this order: "
            f"{', '.join([shown(key, choice) for choice in setting.tighter])}."
        )
    return f"{by}; --project can only tighten it: {setting.tighter}."


def _proposed(session: Session, key: str, value: str) -> Any:
    from keepfast.app.wiring import store_path
    from keepfast.settings import Settings
    from keepfast.settings.file import proposed

    result = proposed(key, value, "the command line")
    if key == "store.url":
        trial = Settings()
        trial.put(key, result, "the command line")
        store_path(trial, session.around.data)
    return result


def _write(session: Session, values: dict[str, Any], project: bool, dry_run: bool) -> FileChange:
    from keepfast.model.setting_values import shown
    from keepfast.settings.file import REMOVED, change, change_project, tightens_project

    if not project:
        return change(session.config_path, values, dry_run=dry_run)
    given = {key: value for key, value in values.items() if value is not REMOVED}
    loose = tightens_project(_without_project(session), given, "the command line")
    if loose:
        raise Usage(
            f"{loose[0]} = {shown(loose[0], given[loose[0]])} is looser than your own setting; a project's "
            "file can only tighten it.",
            f"Run `keepfast config explain {loose[0]}` to see what is tighter, or omit --project to change "
            "your own setting.",
        )
    return change_project(session.workspace()[0], values, dry_run=dry_run)


def _without_project(session: Session) -> Any:
    from keepfast.settings import load

    return load(session.config_path, {})


def _project_path(session: Session) -> str:
    from keepfast.settings import PROJECT_FILE

    return os.fsdecode(session.workspace()[0] + PROJECT_FILE)


def _told(session: Session, written: FileChange, dry_run: bool, facts: dict[str, Any]) -> bool:
    """Answer in JSON or with a patch; False if there is nothing more to say."""
    if session.json:
        write_json({**facts, "path": written.path, "changed": written.old != written.new, "written": not dry_run})
        return False
    if not dry_run:
        return True
    from difflib import unified_diff

    old, new = written.old.splitlines(), written.new.splitlines()
    for line in unified_diff(old, new, written.path, written.path, lineterm=""):
        session.print(line)
    return False


def _overruled(session: Session, key: str) -> None:
    """Say so if another source has the last word."""
    session.forget_settings()
    origin = _in_force(session, key).origins.get(key, "")
    if origin.startswith("KEEPFAST_"):
        session.remark(f"{origin} is also set, and overrides it.")
    elif origin and origin not in (session.config_path, os.path.realpath(session.config_path)):
        session.remark(f"{origin} overrides it here.")
