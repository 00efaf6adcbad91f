"""`keepfast config`: show and change settings."""

from __future__ import annotations

import os
from typing import Any

import click

from keepfast.app.wiring import store_path
from keepfast.cli.lazy import OrderedGroup
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import NotFound, Usage
from keepfast.model.schema import ALIASES, CHOICE, TABLE, variable
from keepfast.model.setting_values import choices, limits, shown
from keepfast.settings import PROJECT_FILE, Settings, load, similar
from keepfast.settings.file import REMOVED, FileChange, change, change_project, proposed, tightens_project

PROJECT = click.option(
    "--project",
    is_flag=True,
    help="Use the settings file of the current workspace, which can only tighten the user's settings.",
)
MAX_COLUMNS = 60
HOOKS_SECTION = "hooks."
DRY_RUN = click.option("-n", "--dry-run", is_flag=True, help="Show what would change in the file, and change nothing.")


def _keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [key for key in TABLE if key.startswith(incomplete)]


@click.group(cls=OrderedGroup)
def config() -> None:
    """Show and change settings. `config path` prints where the user's file is."""


@config.command("list")
@common
def list_(session: Session) -> None:
    """List every setting, its value and where it comes from."""
    settings = session.settings
    values = {key: (_settings_for(session, key)[key], _origin(session, key)) for key in TABLE}
    if session.json:
        write_json({key: {"value": value, "origin": origin} for key, (value, origin) in values.items()})
        return
    rows = [[key, _cut(shown(key, value)), origin] for key, (value, origin) in values.items()]
    for line in session.paint.table(["SETTING", "VALUE", "FROM"], rows, give=1):
        session.print(line)
    for warning in settings.warnings:
        session.warn(warning)


@config.command("get")
@click.argument("key", shell_complete=_keys)
@common
def get(session: Session, key: str) -> None:
    """Print the value of a setting."""
    _check_key(key)
    _refuse_broken(session)
    value = _settings_for(session, key)[key]
    if session.json:
        write_json({"key": key, "value": value, "origin": _origin(session, key)})
        return
    session.print(shown(key, value))


@config.command("explain")
@click.argument("key", shell_complete=_keys)
@common
def explain(session: Session, key: str) -> None:
    """Explain a setting: meaning, allowed values, current value and its origin."""
    _check_key(key)
    _refuse_broken(session)
    setting, settings = TABLE[key], _settings_for(session, key)
    if session.json:
        write_json(_explanation(session, key))
        return
    session.print(f"{key}: {setting.meaning}")
    allowed = f" {choices(key)}" if setting.kind == CHOICE else f", {limits(key)}" if setting.allowed else ""
    session.print(f"Expects {setting.kind}{allowed}; the default is {shown(key, setting.default) or 'empty'}.")
    session.print(_where_to_set(key))
    session.print(f"Now {shown(key, settings[key]) or 'empty'}, from {_origin(session, key)}.")
    for who, other in (("Hooks", session.hook_settings), ("Commands", session.settings)):
        if other[key] != settings[key]:
            session.print(f"{who} have {shown(key, other[key]) or 'empty'}, from {other.origins.get(key, 'default')}.")
    for source, value, why in _considered_values(session, key):
        text = value if isinstance(value, str) else shown(key, value)
        session.print(f"  {source} says {text or 'empty'}{f': ignored, {why}' if why else ''}")


class NegativeNumbersCommand(click.Command):
    """A command whose arguments may be negative numbers, such as `-1`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        numbers = [word for word in args if word[:1] == "-" and word[1:].replace(".", "", 1).isdecimal()]
        ctx.ignore_unknown_options = bool(numbers)
        return super().parse_args(ctx, args)


@config.command("set", cls=NegativeNumbersCommand)
@click.argument("key", shell_complete=_keys)
@click.argument("value")
@PROJECT
@DRY_RUN
@common
def set_(session: Session, key: str, value: str, project: bool, dry_run: bool) -> None:
    """Set a setting in the user's file. Give a list as JSON or separated by commas."""
    _check_key(key)
    checked = _check_value(session, key, value)
    written = _write(session, {key: checked}, project, dry_run)
    if _report_write(session, written, dry_run, {"key": key, "value": checked}):
        session.say(f"{key} = {shown(key, checked)} in {written.path}.")
        _remark_override(session, key)


@config.command("unset")
@click.argument("key", shell_complete=_keys)
@PROJECT
@DRY_RUN
@common
def unset(session: Session, key: str, project: bool, dry_run: bool) -> None:
    """Remove a setting from the user's file, so that its default applies."""
    written = _write(session, {key: REMOVED}, project, dry_run)
    if _report_write(session, written, dry_run, {"key": key}):
        session.say(f"{key} removed from {written.path}.")
        if key in session.settings.values:
            _remark_override(session, key)


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
    """Shorten a long value, which would push the last column off the screen; `config get` prints all of it."""
    return text if len(text) <= MAX_COLUMNS else text[: MAX_COLUMNS - 1] + "…"


def _check_key(key: str) -> None:
    if key not in TABLE:
        similar_key = similar(key)
        raise NotFound(
            f"There is no setting {key!r}.",
            f"Did you mean {similar_key}?" if similar_key else ("Run `keepfast config list` to see all settings."),
        )


def _refuse_broken(session: Session) -> None:
    """Raise `Usage` if a settings file is broken; hook settings would silently ignore it."""
    _ = session.settings


def _settings_for(session: Session, key: str) -> Settings:
    """Return the settings that apply to the key: settings of hooks as hooks see them."""
    return session.hook_settings if key.startswith(HOOKS_SECTION) else session.settings


def _origin(session: Session, key: str) -> str:
    return _settings_for(session, key).origins.get(key, "default")


def _considered_values(session: Session, key: str) -> list[tuple[str, Any, str]]:
    """Return each source's value for the key, and why it was ignored, empty if it was not."""
    entries = list(_settings_for(session, key).considered.get(key, []))
    long, variables = variable(key), session.environment.keepfast_variables()
    if key.startswith(HOOKS_SECTION) and long in variables and long not in ALIASES:
        entries.append((long, variables[long], "hooks ignore it"))
    return entries


def _explanation(session: Session, key: str) -> dict[str, Any]:
    setting = TABLE[key]
    limits = {"choices" if setting.kind == CHOICE else "range": list(setting.allowed)} if setting.allowed else {}
    tighter = list(setting.tighter) if isinstance(setting.tighter, tuple) else setting.tighter
    names = [variable(key), *[name for name, target in ALIASES.items() if target == key and name != variable(key)]]
    return {
        "key": key,
        "value": _settings_for(session, key)[key],
        "origin": _origin(session, key),
        "in_hooks": _value_and_origin(session.hook_settings, key),
        "in_commands": _value_and_origin(session.settings, key),
        "default": setting.default,
        "type": setting.kind,
        "meaning": setting.meaning,
        **limits,
        "tighter": tighter,
        "variables": names if setting.from_environment else [],
        "considered": [
            {"origin": source, "value": value, "taken": not why, "reason": why or None}
            for source, value, why in _considered_values(session, key)
        ],
    }


def _value_and_origin(settings: Settings, key: str) -> dict[str, Any]:
    return {"value": settings[key], "origin": settings.origins.get(key, "default")}


def _where_to_set(key: str) -> str:
    setting = TABLE[key]
    names = [name for name, target in ALIASES.items() if target == key] or [variable(key)]
    by = f"Set in your file, {names[0]} and --project" if setting.from_environment else "Set in your file and --project"
    if setting.tighter is None:
        return f"Set in your file or {names[0]}." if setting.from_environment else "Set in your file only."
    if isinstance(setting.tighter, tuple):
        return (
            f"{by}; --project can only tighten it, in this order: "
            f"{', '.join([shown(key, choice) for choice in setting.tighter])}."
        )
    return f"{by}; --project can only tighten it: {setting.tighter}."


def _check_value(session: Session, key: str, value: str) -> Any:
    result = proposed(key, value, "the command line")
    if key == "store.url":
        trial = Settings()
        trial.put(key, result, "the command line")
        store_path(trial, session.environment.data)
    return result


def _write(session: Session, values: dict[str, Any], project: bool, dry_run: bool) -> FileChange:
    if not project:
        return change(session.config_path, values, dry_run=dry_run)
    new_values = {key: value for key, value in values.items() if value is not REMOVED}
    loose = tightens_project(_without_project(session), new_values, "the command line")
    if loose:
        raise Usage(
            f"{loose[0]} = {shown(loose[0], new_values[loose[0]])} is looser than your own setting; a project's "
            "file can only tighten it.",
            f"Run `keepfast config explain {loose[0]}` to see what is tighter, or omit --project to change "
            "your own setting.",
        )
    return change_project(session.workspace()[0], values, dry_run=dry_run)


def _without_project(session: Session) -> Any:
    return load(session.config_path, {})


def _project_path(session: Session) -> str:
    return os.fsdecode(session.workspace()[0] + PROJECT_FILE)


def _report_write(session: Session, written: FileChange, dry_run: bool, facts: dict[str, Any]) -> bool:
    """Report a changed file as JSON or, for a dry run, as a patch; return whether a message should follow."""
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


def _remark_override(session: Session, key: str) -> None:
    """Print a remark if another source overrides the setting."""
    session.forget_settings()
    origin = _settings_for(session, key).origins.get(key, "")
    if origin.startswith("KEEPFAST_"):
        session.remark(f"{origin} is also set, and overrides it.")
    elif origin and origin not in (session.config_path, os.path.realpath(session.config_path)):
        session.remark(f"{origin} overrides it here.")
