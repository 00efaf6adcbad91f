"""`holdfast config`: show and change settings."""

from __future__ import annotations

import os
from fcntl import LOCK_EX, flock
from typing import Any

import click

from holdfast.core.errors import Failed, NotFound, Usage
from holdfast.frontends.cli.session import Session, common, write_json


@click.group()
def config() -> None:
    """Show and change settings; the user's file is where `config path` says."""


@config.command("list")
@common
def list_(session: Session) -> None:
    """List every setting, its value and where it comes from."""
    from holdfast.settings import TABLE

    settings = session.settings
    if session.json:
        write_json({key: {"value": settings[key], "origin": settings.origins.get(key, "default")} for key in TABLE})
        return
    rows = [[key, _shown(key, settings[key]), settings.origins.get(key, "default")] for key in TABLE]
    for line in session.paint.table(["SETTING", "VALUE", "FROM"], rows, give=1):
        session.print(line)
    for warning in settings.warnings:
        session.warn(warning)


@config.command("get")
@click.argument("key")
@common
def get(session: Session, key: str) -> None:
    """Print one setting."""
    _known(key)
    value = session.settings[key]
    if session.json:
        write_json({"key": key, "value": value, "origin": session.settings.origins.get(key, "default")})
        return
    session.print(_shown(key, value))


@config.command("explain")
@click.argument("key")
@common
def explain(session: Session, key: str) -> None:
    """Say what a setting means, what it may be, and where its value comes from."""
    _known(key)
    from holdfast.settings import TABLE

    kind, default, allowed, meaning = TABLE[key]
    origin = session.settings.origins.get(key, "default")
    limits = {"choices": list(allowed)} if kind == "one of" else {"range": list(allowed)} if allowed else {}
    if session.json:
        write_json(
            {
                "key": key,
                "value": session.settings[key],
                "origin": origin,
                "default": default,
                "type": kind,
                "meaning": meaning,
                **limits,
            }
        )
        return
    session.print(f"{key}: {meaning}")
    choices = ", ".join([repr(choice) for choice in allowed]) if kind == "one of" else ""
    session.print(f"Give {kind}{' ' + choices if choices else ''}; the default is {_shown(key, default) or 'empty'}.")
    session.print(f"Now {_shown(key, session.settings[key]) or 'empty'}, from {origin}.")


@config.command("set")
@click.argument("key")
@click.argument("value")
@common
def set_(session: Session, key: str, value: str) -> None:
    """Put a setting into the user's file. A list is given as JSON, or with commas."""
    _known(key)
    kept = _checked(session, key, value)
    _write(session.config_path, key, kept)
    if session.json:
        write_json({"key": key, "value": kept, "path": session.config_path})
        return
    session.say(f"{key} = {_shown(key, kept)} in {session.config_path}.")
    variable = "HOLDFAST_" + key.upper().replace(".", "_")
    if session.around.text(variable):
        session.remark(f"{variable} is set too, and wins while it is.")


@config.command("path")
@common
def path(session: Session) -> None:
    """Print the path of the user's file, whether it is there or not."""
    if session.json:
        write_json({"path": session.config_path, "exists": os.path.exists(session.config_path)})
        return
    session.print(session.config_path)


def _known(key: str) -> None:
    from difflib import get_close_matches

    from holdfast.settings import TABLE

    if key not in TABLE:
        near = get_close_matches(key, TABLE, 1)
        raise NotFound(
            f"There is no setting {key!r}.", f"Did you mean {near[0]}?" if near else "`holdfast config list` shows all."
        )


def _checked(session: Session, key: str, value: str) -> Any:
    """The value as it is written to the file: sizes stay as typed, because people read it."""
    from holdfast.settings import SIZE, TABLE, Settings, checked
    from holdfast.wiring import store_path

    result = checked(key, value, "the command line")
    if key == "store.url":
        trial = Settings()
        trial.put(key, result, "the command line")
        store_path(trial, session.around.data)
    return value if TABLE[key][0] == SIZE else result


def _write(path: str, key: str, value: Any) -> None:
    """Change one key of the file and keep the others, in one step."""
    path = os.path.realpath(path)  # a link, as people who keep their dotfiles elsewhere have, stays a link
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        guard = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flock(guard, LOCK_EX)
            _replace(path, key, value)
        finally:
            os.close(guard)
    except OSError as error:
        raise Failed(f"The settings file {path} cannot be written: {error.strerror}.") from None


def _replace(path: str, key: str, value: Any) -> None:
    import json

    from holdfast.store.local import replace

    try:
        with open(path, "rb") as file:
            content = json.loads(file.read() or b"{}")
    except FileNotFoundError:
        content = {}
    except ValueError as error:
        raise Usage(f"{path} is not JSON: {error}.", "Mend it, or move it away to use the defaults.") from None
    if not isinstance(content, dict):
        raise Usage(f"{path} must hold a JSON object.")
    section, _, name = key.rpartition(".")
    place = content.setdefault(section, {}) if section else content
    if not isinstance(place, dict):
        raise Usage(f"{path}: {section!r} must hold an object.")
    place[name] = value
    replace(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))


def _shown(key: str, value: Any) -> str:
    from holdfast.settings import SIZE, TABLE

    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(value)
    return _exact_size(value) if TABLE[key][0] == SIZE and isinstance(value, int) else str(value)


def _exact_size(count: int) -> str:
    """The largest unit that needs no fraction: what is shown can be set again."""
    from holdfast.settings import UNITS

    for unit, factor in sorted(UNITS.items(), key=lambda pair: -pair[1]):
        if unit and count and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)
