"""`keepfast install` and `uninstall`: add hooks to an agent's client, and remove them."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import wrap
from typing import Any

import click

from keepfast.agents.claude.installer import (
    Found,
    look,
    with_hooks,
    with_status_line,
    without_hooks,
    without_status_line,
)
from keepfast.agents.launcher import hook, status_line
from keepfast.cli.client_files import (
    PLUGIN,
    SCOPES,
    File,
    backup_path,
    has_first_copy,
    hook_command,
    interpreter_file,
    is_at_home,
    is_empty,
    launcher_defect,
    launcher_path,
    read,
    record,
    release_launcher,
    remove,
    remove_interpreter_file,
    settings_path,
    start_problem,
    write,
    write_launcher,
)
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Failed, Usage
from keepfast.present.environment import FOLDERS
from keepfast.present.terminal import printable

AGENTS = ("claude",)

scope_option = click.option(
    "--scope",
    type=click.Choice(list(SCOPES)),
    default="user",
    help=(
        "Settings file to change: yours (user), this project's (project), or yours for this project (local). "
        "Default user."
    ),
)


class AgentChoice(click.Choice[str]):
    """The name of an agent that has hooks; for others the error says what to use instead."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> str:
        if value not in AGENTS:
            raise Usage(
                f"No hooks exist for '{printable(str(value))}', only for {' and '.join(AGENTS)}.",
                "`keepfast watch` works with any agent; see docs/guides/other-agents.md.",
            )
        return super().convert(value, param, context)


dry_run_option = click.option("-n", "--dry-run", is_flag=True, help="Show what would change, and change nothing.")


@click.command()
@click.argument("agent", required=False, type=AgentChoice(AGENTS))
@scope_option
@dry_run_option
@click.option(
    "--statusline", is_flag=True, help="Also install a status line with context use, limits and the last checkpoint."
)
@click.option("--plugin", is_flag=True, help="Only prepare for the plugin, which has its own hooks.")
@common
def install(session: Session, agent: str | None, scope: str, dry_run: bool, statusline: bool, plugin: bool) -> None:
    """Install hooks into an agent's client. Without a name, list the known agents.

    Other hooks and settings are not changed. A backup of the settings file is saved next to it.
    """
    if agent is None:
        _list(session)
        return
    _check_start([*hook_command(), FOLDERS, *session.environment.folders])
    if plugin:
        _prepare_plugin(session, dry_run)
        return
    launcher = launcher_path(session)

    def change(text: str, path: str) -> str:
        text = with_hooks(text, path, lambda *words: hook(launcher, *words))
        has_line = statusline or bool(look(text, path).statusline)
        return with_status_line(text, path, lambda own: status_line(launcher, own)) if has_line else text

    _change(session, agent, scope, dry_run, change)


@click.command()
@click.argument("agent", type=AgentChoice(AGENTS))
@scope_option
@dry_run_option
@click.option("--plugin", is_flag=True, help="Only remove what was prepared for the plugin.")
@common
def uninstall(session: Session, agent: str, scope: str, dry_run: bool, plugin: bool) -> None:
    """Remove the hooks from an agent's client. Checkpoints are kept."""
    if plugin:
        _drop_plugin(session, dry_run)
        return

    _change(session, agent, scope, dry_run, _without_ours)


def _without_ours(text: str, path: str) -> str:
    return without_status_line(without_hooks(text, path), path)


def _change(session: Session, agent: str, scope: str, dry_run: bool, change: Callable[[str, str], str]) -> None:
    settings = read(settings_path(session, scope))
    text = change(settings.text, settings.path)
    before, after = look(settings.text, settings.path), look(text, settings.path)
    changed = text != settings.text
    is_pristine = not _has_ours(before)
    is_kept = changed and settings.exists and (is_pristine or not is_empty(_without_ours(settings.text, settings.path)))
    backup = backup_path(settings, is_pristine) if is_kept else None
    # A file that existed before the installation has a backup.
    is_removed = changed and not is_pristine and is_empty(text) and not has_first_copy(settings)
    is_used = _has_ours(after)
    defect = launcher_defect(session) if is_used and not is_pristine else ""
    if not dry_run:
        _write_settings(session, settings, None if is_removed else text, backup, is_used)
    if session.json:
        write_json(
            {
                "agent": agent,
                "scope": scope,
                "path": settings.path,
                "changed": changed,
                "launcher_rewritten": bool(defect),
                "dry_run": dry_run,
                "backup": backup,
                "events": after.events,
                "commands": after.commands,
                "foreign": after.foreign,
                "statusline": after.statusline or None,
            }
        )
        return
    _tell_launcher(session, defect, dry_run)
    if not changed:
        session.say(f"{'' if defect else 'Nothing to do: '}{settings.path} is up to date.")
        return
    _tell_change(session, settings.path, before, after, dry_run)
    if is_removed:
        session.say(f"The file holds nothing else and {'would be' if dry_run else 'is'} removed.")
    if backup:
        session.say(f"{'Would back it up' if dry_run else 'Backup'}: {backup}")
    _remarks(session, scope, after)


def _has_ours(found: Found) -> bool:
    return bool(found.commands or found.statusline)


def _tell_launcher(session: Session, defect: str, dry_run: bool) -> None:
    if defect:
        session.say(f"{'Would rewrite' if dry_run else 'Rewrote'} the launcher: {defect}.")


def _tell_change(session: Session, path: str, before: Found, after: Found, dry_run: bool) -> None:
    session.say(f"{'Would change' if dry_run else 'Changed'} {path}:")
    for sign, kind, names in (
        ("-", "hooks", [event for event in before.events if event not in after.events]),
        ("+", "hooks", [event for event in after.events if event not in before.events]),
        ("~", "hooks", _changed_events(before, after)),
        *_line_change(before.statusline, after.statusline),
    ):
        if names:
            lines = wrap(", ".join(names), 70 - len(kind))
            session.say(f"  {sign} {kind}: " + ("\n" + " " * (6 + len(kind))).join(lines))
    if after.foreign:
        session.say(f"  {after.foreign} other hooks unchanged")


def _write_settings(session: Session, settings: File, text: str | None, backup: str | None, is_used: bool) -> None:
    """Write or remove the settings file; without `text`, remove it.

    The launcher is written before the settings that name it, and removed after them.
    """
    if is_used:
        path = write_launcher(session, settings.path)
        _check_start([path])
        record(session)
    if text is None:
        remove(settings)
    elif text != settings.text:
        write(settings, text, backup)
    if not is_used:
        release_launcher(session, settings.path)


def _changed_events(before: Found, after: Found) -> list[str]:
    if before.commands == after.commands and before.events == after.events:
        return []
    return [event for event in after.events if event in before.events]


def _line_change(before: str, after: str) -> list[tuple[str, str, list[str]]]:
    if before == after:
        return []
    return [("+" if after else "-", "status line", [after or before])]


def _remarks(session: Session, scope: str, after: Found) -> None:
    if after.disabled and after.commands:
        session.remark("`disableAllHooks` is set there: no hook runs until you remove it.")
    if scope == "project" and after.commands:
        session.remark(
            "The hooks refer to a file in your home folder. Use `--scope local` to keep them out of the repository."
        )


def _list(session: Session) -> None:
    places: list[dict[str, Any]] = []
    for scope in SCOPES:
        settings = read(settings_path(session, scope))
        try:
            hooks = look(settings.text, settings.path)
        except Failed as error:
            places.append({"scope": scope, "path": settings.path, "installed": None, "problem": str(error)})
            continue
        installed = bool(hooks.commands)
        places.append({"scope": scope, "path": settings.path, "installed": installed, "problem": None})
    if session.json:
        write_json([{"agent": agent, "places": places} for agent in AGENTS])
        return
    for agent in AGENTS:
        session.print(agent)
        for place in places:
            word = {True: "installed", False: "not installed", None: "broken"}[place["installed"]]
            session.print(f"  {place['scope']:<8} {word:<14} {place['path']}")
            if place["problem"]:
                session.print(f"           {place['problem']}")


def _check_start(command: list[str]) -> None:
    """Raise `Failed` if the hook does not start: it would fail at every event."""
    problem = start_problem(command)
    if problem:
        raise Failed(problem, "See `keepfast doctor`.")


def _prepare_plugin(session: Session, dry_run: bool) -> None:
    path = interpreter_file(session)
    if not dry_run:
        _check_start([write_launcher(session, PLUGIN)])
        record(session)
    if session.json:
        is_found = is_at_home(session)
        write_json(
            {"agent": "claude", "path": path, "dry_run": dry_run, "interpreter": hook_command()[0], "found": is_found}
        )
        return
    session.say(f"{'Would write' if dry_run else 'Wrote'} {path}, where the plugin looks for keepfast.")
    if not is_at_home(session):
        session.warn(
            "The plugin does not look there: it uses the home folder of your passwd entry, which differs "
            "from HOME. Use `keepfast install claude` instead."
        )


def _drop_plugin(session: Session, dry_run: bool) -> None:
    path = interpreter_file(session)
    if not dry_run and release_launcher(session, PLUGIN):
        remove_interpreter_file(session)
    if session.json:
        write_json({"agent": "claude", "path": path, "dry_run": dry_run, "interpreter": None})
        return
    session.say(f"{'Would remove' if dry_run else 'Removed'} what was prepared for the plugin.")
