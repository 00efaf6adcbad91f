"""`keepfast unprotect` and `keepfast purge`: stop protecting folders, and delete their checkpoints."""

from __future__ import annotations

import os
from typing import Any

import click

from keepfast.app import unprotect as departure
from keepfast.app.unprotect import Protected
from keepfast.cli.client_files import users
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Failed, NotCompacted, Usage
from keepfast.present.terminal import plural, size
from keepfast.store.small_files import read_store_list
from keepfast.workspace.marker import show

MAX_SHOWN = 20


@click.command()
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--all", "everything", is_flag=True, help="Unprotect every workspace of the store.")
@click.option("--purge", "with_history", is_flag=True, help="Also delete its checkpoints, like `keepfast purge`.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@common
def unprotect(
    session: Session, folder: str | None, everything: bool, with_history: bool, dry_run: bool, yes: bool
) -> int:
    """Stop protecting the workspace DIR (default: the current workspace).

    Its marker is removed, and hooks ignore the folder until `keepfast init` protects it again and continues its
    history. Checkpoints are kept, unless --purge is given.
    """
    if with_history:
        return _purge(session, folder, everything, dry_run, yes)
    chosen = _select(session, folder, everything, with_folder=True)
    if dry_run:
        _show(session, chosen, "Would stop protecting")
        _answer(session, chosen, dry_run=True)
        return 0
    if everything and chosen:
        _show(session, chosen, "Stop protecting" if yes else "Would stop protecting")
        if not session.confirm("Stop protecting all of them?", yes):
            raise Failed("Nothing changed.")
    for workspace in chosen:
        departure.unprotect(session.engine, workspace)
    _answer(session, chosen)
    for workspace in chosen:
        verb = "stays" if workspace.is_registered and workspace.versions == 1 else "stay"
        what = (
            "; its marker named the history of another folder, which is kept"
            if workspace.elsewhere
            else f"; {_checkpoints(workspace)} {verb} in the store"
        )
        session.say(f"{_name(workspace)} is no longer protected{what}.")
    if not chosen:
        session.say("Nothing is protected.")
    _name_left(session, chosen)
    return 0


@click.command()
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--all", "everything", is_flag=True, help="Delete the whole store, including its keys.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@common
def purge(session: Session, folder: str | None, everything: bool, dry_run: bool, yes: bool) -> int:
    """Delete every checkpoint of the workspace DIR (default: the current workspace) and stop protecting it. This
    cannot be undone.

    DIR is a workspace, the former folder of one that is no longer protected, or an id that --all --dry-run shows. The
    files in it are not changed. --all deletes the whole store; settings, hooks of agents' clients and tasks are kept.
    """
    return _purge(session, folder, everything, dry_run, yes)


def _purge(session: Session, folder: str | None, everything: bool, dry_run: bool, yes: bool) -> int:
    chosen = _select(session, folder, everything, with_folder=False)
    departure.refuse_purge(session.engine, chosen)
    path = session.engine.place.path
    if not dry_run or not session.json:
        _show(session, chosen, f"{'Deleting' if yes and not dry_run else 'Would delete'} the checkpoints of")
    if dry_run:
        _answer(session, chosen, dry_run=True, purged=True, everything=everything)
        return 0
    what = f"the store {path} and everything in it" if everything else "all of it"
    if not session.confirm(f"Delete {what}? This cannot be undone.", yes):
        raise Failed("Nothing was deleted.")
    if everything:
        left = departure.purge_everything(session.engine, chosen)
        _answer(session, chosen, purged=True, everything=True, store_removed=True, left_in_store=left)
        session.say(f"Deleted the store {path} and its keys.")
        if left:
            session.remark(f"Kept in {path}, not created by keepfast: {', '.join(left)}.")
    else:
        try:
            done = departure.purge(session.engine, chosen)
        except NotCompacted as error:  # the checkpoints are deleted; only their space was not freed
            _answer(session, chosen, purged=True, not_compacted={"message": str(error), "hint": error.hint})
            if not session.json:
                raise
            return error.exit_code
        _answer(session, chosen, purged=True, bytes_before=done.bytes_before, bytes_after=done.bytes_after)
        session.say(f"The store went from {size(done.bytes_before)} to {size(done.bytes_after)}.")
    _name_left(session, chosen)
    for text in _kept_paths(session, everything):
        session.remark(f"Kept: {text}.")
    return 0


def _select(session: Session, folder: str | None, everything: bool, with_folder: bool) -> list[Protected]:
    if everything:
        if folder is not None:
            raise Usage("DIR and --all cannot be combined.")
        return departure.every(session.engine, with_folder)
    if folder is None:
        return [departure.around(session.engine, session.cwd, not with_folder)]
    root = os.path.realpath(os.path.join(session.cwd, os.fsencode(folder)))
    if (
        not with_folder
        and not os.path.lexists(root)
        and (workspace := departure.by_id(session.engine, folder)) is not None
    ):
        return [workspace]
    return [departure.at(session.engine_for(root), root, not with_folder)]


def _show(session: Session, chosen: list[Protected], verb: str) -> None:
    if session.json or not chosen:
        return
    session.say(f"{verb} {plural(len(chosen), 'workspace')}:")
    for workspace in chosen[:MAX_SHOWN]:
        session.say(f"  {_name(workspace)}, {_checkpoints(workspace)}")
    if len(chosen) > MAX_SHOWN:
        session.say(f"  … and {len(chosen) - MAX_SHOWN:,} more")


def _answer(session: Session, chosen: list[Protected], *, dry_run: bool = False, **more: Any) -> None:
    if not session.json:
        return
    listed = [
        {
            "workspace": workspace.id,
            "root": show(workspace.root) if workspace.root else None,
            "was": show(workspace.was) if workspace.was else None,
            "checkpoints": workspace.versions,
            "left_in_marker": [show(name) for name in workspace.left],
        }
        for workspace in chosen
    ]
    purged, everything = more.pop("purged", False), more.pop("everything", False)
    stays = _kept_paths(session, everything)
    write_json({"dry_run": dry_run, "unprotected": listed, "purged": purged, "stays": stays, **more})


def _kept_paths(session: Session, everything: bool = False) -> list[str]:
    """Return what a purge keeps: settings, tasks and other stores.

    With `everything`, also the rest of the data folder, and clients' settings with our hooks.
    """
    place, data = session.engine.place, session.environment.data
    others = [path for path in read_store_list(place.list) if path != place.path]
    paths = [path for path in (session.config_path, data + "/supervisor") if os.path.exists(path)]
    if everything:
        names = sorted(os.listdir(data)) if os.path.isdir(data) else []
        data_paths = [f"{data}/{name}" for name in names]
        paths += [path for path in data_paths if path not in (place.path, place.keys, *paths, *others)]
        paths += [place.keys] if others and os.path.isdir(place.keys) else []
        paths += [f"our hooks in {path}" for path in users(session) if os.path.exists(path)]
    return [*paths, *[f"the store {path}" for path in others]]


def _name(workspace: Protected) -> str:
    if workspace.root:
        return show(workspace.root)
    what = f"{show(workspace.was)}, no longer protected" if workspace.was else "a workspace without a folder"
    return f"{what} ({workspace.id[:8]})"


def _checkpoints(workspace: Protected) -> str:
    return plural(workspace.versions, "checkpoint") if workspace.is_registered else "its checkpoints"


def _name_left(session: Session, chosen: list[Protected]) -> None:
    for workspace in chosen:
        if workspace.left:
            names = ", ".join([show(name) for name in workspace.left])
            session.remark(f"Kept in {_name(workspace)}/.keepfast, not created by keepfast: {names}.")
