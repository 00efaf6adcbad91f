"""`keepfast unprotect` and `keepfast purge`: stop protecting folders, and remove what was kept of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Failed, NotCompacted, Usage

if TYPE_CHECKING:
    from keepfast.app.unprotect import Protected

SHOWN = 20


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
    from keepfast.app import unprotect as departure

    chosen = _chosen(session, folder, everything, with_folder=True)
    if dry_run:
        _show(session, chosen, "Would stop protecting")
        _answer(session, chosen, dry_run=True)
        return 0
    if everything and chosen:
        _show(session, chosen, "Stop protecting" if yes else "Would stop protecting")
        if not session.agreed("Stop protecting all of them?", yes):
            raise Failed("Nothing changed.")
    for one in chosen:
        departure.unprotect(session.engine, one)
    _answer(session, chosen)
    for one in chosen:
        verb = "stays" if one.is_registered and one.versions == 1 else "stay"
        what = (
            "; its marker named the history of another folder, which is kept"
            if one.elsewhere
            else f"; {_checkpoints(one)} {verb} in the store"
        )
        session.say(f"{_name(one)} is no longer protected{what}.")
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
    from keepfast.app import unprotect as departure

    chosen = _chosen(session, folder, everything, with_folder=False)
    departure.refuse_purge(session.engine, chosen)
    path = session.engine.place.path
    if not dry_run or not session.json:
        _show(session, chosen, "Removing" if yes and not dry_run else "Would remove")
    if dry_run:
        _answer(session, chosen, dry_run=True, purged=True, everything=everything)
        return 0
    what = f"the store {path} and everything in it" if everything else "all of it"
    if not session.agreed(f"Delete {what}? This cannot be undone.", yes):
        raise Failed("Nothing was removed.")
    if everything:
        left = departure.purge_everything(session.engine, chosen)
        _answer(session, chosen, purged=True, everything=True, store_removed=True, left_in_store=left)
        session.say(f"Removed the store {path} and its keys.")
        if left:
            session.remark(f"Kept in {path}, not created by keepfast: {', '.join(left)}.")
    else:
        from keepfast.present.terminal import size

        try:
            done = departure.purge(session.engine, chosen)
        except NotCompacted as error:  # what was to go is gone, whatever became of its space
            _answer(session, chosen, purged=True, not_compacted={"message": str(error), "hint": error.hint})
            if not session.json:
                raise
            return error.exit_code
        _answer(session, chosen, purged=True, bytes_before=done.bytes_before, bytes_after=done.bytes_after)
        session.say(f"The store went from {size(done.bytes_before)} to {size(done.bytes_after)}.")
    _name_left(session, chosen)
    for text in _stays(session, everything):
        session.remark(f"Kept: {text}.")
    return 0


def _chosen(session: Session, folder: str | None, everything: bool, with_folder: bool) -> list[Protected]:
    from keepfast.app import unprotect as departure

    if everything:
        if folder is not None:
            raise Usage("DIR and --all cannot be combined.")
        return departure.every(session.engine, with_folder)
    if folder is None:
        return [departure.around(session.engine, session.cwd, not with_folder)]
    root = os.path.realpath(os.path.join(session.cwd, os.fsencode(folder)))
    if not with_folder and not os.path.lexists(root) and (one := departure.by_id(session.engine, folder)) is not None:
        return [one]
    return [departure.at(session.engine_for(root), root, not with_folder)]


def _show(session: Session, chosen: list[Protected], verb: str) -> None:
    from keepfast.present.terminal import plural

    if session.json or not chosen:
        return
    session.say(f"{verb} {plural(len(chosen), 'workspace')}:")
    for one in chosen[:SHOWN]:
        session.say(f"  {_name(one)}, {_checkpoints(one)}")
    if len(chosen) > SHOWN:
        session.say(f"  … and {len(chosen) - SHOWN:,} more")


def _answer(session: Session, chosen: list[Protected], *, dry_run: bool = False, **more: Any) -> None:
    from keepfast.workspace.marker import show

    if not session.json:
        return
    listed = [
        {
            "workspace": one.id,
            "root": show(one.root) if one.root else None,
            "was": show(one.was) if one.was else None,
            "checkpoints": one.versions,
            "left_in_marker": [show(name) for name in one.left],
        }
        for one in chosen
    ]
    purged, everything = more.pop("purged", False), more.pop("everything", False)
    stays = _stays(session, everything)
    write_json({"dry_run": dry_run, "unprotected": listed, "purged": purged, "stays": stays, **more})


def _stays(session: Session, everything: bool = False) -> list[str]:
    """What no purge removes: it is for other commands to take away, or for the user.

    Where `everything` goes, that is all of our data folder but the store with its keys, and settings of clients with our hooks.
    """
    from keepfast.cli.client_files import users
    from keepfast.store.small_files import read_store_list

    place, data = session.engine.place, session.around.data
    others = [path for path in read_store_list(place.list) if path != place.path]
    found = [path for path in (session.config_path, data + "/supervisor") if os.path.exists(path)]
    if everything:
        names = sorted(os.listdir(data)) if os.path.isdir(data) else []
        inside = [f"{data}/{name}" for name in names]
        found += [path for path in inside if path not in (place.path, place.keys, *found, *others)]
        found += [place.keys] if others and os.path.isdir(place.keys) else []
        found += [f"our hooks in {path}" for path in users(session) if os.path.exists(path)]
    return [*found, *[f"the store {path}" for path in others]]


def _name(one: Protected) -> str:
    from keepfast.workspace.marker import show

    if one.root:
        return show(one.root)
    what = f"{show(one.was)}, no longer protected" if one.was else "a workspace without a folder"
    return f"{what} ({one.id[:8]})"


def _checkpoints(one: Protected) -> str:
    from keepfast.present.terminal import plural

    return plural(one.versions, "checkpoint") if one.is_registered else "its checkpoints"


def _name_left(session: Session, chosen: list[Protected]) -> None:
    from keepfast.workspace.marker import show

    for one in chosen:
        if one.left:
            names = ", ".join([show(name) for name in one.left])
            session.remark(f"Kept in {_name(one)}/.keepfast, not created by keepfast: {names}.")
