"""`keepfast init`: protect a folder."""

from __future__ import annotations

import os
import sys

import click

from keepfast.app.checkpoint import Engine
from keepfast.cli.client_files import hint_about_hooks, repair_launcher, upgrade_launcher
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Elsewhere, Failed, KeepfastError, MissingStore, OtherStore, Refused, Usage
from keepfast.present.terminal import plural
from keepfast.store.place import Place
from keepfast.store.small_files import id_or_empty, read_pairs
from keepfast.workspace.adoption import refuse_whole
from keepfast.workspace.marker import Marker, marker, show


@click.command()
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--moved", is_flag=True, help="The folder was moved here: continue the history that its marker names.")
@click.option("--new-store", is_flag=True, help="Start a new history in this store, without the previous one.")
@common
def init(session: Session, folder: str | None, moved: bool, new_store: bool) -> None:
    """Protect DIR (default: the current folder). It is created if missing.

    Checkpoints are saved in the store, outside of DIR. DIR gets only a small folder .keepfast, which git ignores. If
    the store was moved, give its new path with --store.
    """
    if moved and session.environment.is_agents():
        raise Refused(
            "Only a person can confirm that a folder was moved.",
            ("Run `keepfast init --moved` in that folder in a terminal."),
        )
    root = os.path.realpath(os.path.join(session.cwd, os.fsencode(folder or ".")))
    with hint_about_hooks(session):
        engine = session.engine_for(None if new_store else root)
        refuse_whole(root, engine.home)
        shared = _is_shared(engine.place)
        outer = engine.workspaces.nearest(root.rpartition(b"/")[0] or b"/")
        marker_before = marker(root) if os.path.isdir(root) else None
        elsewhere = _other_history(engine, root) if marker_before is not None and not moved and not new_store else None
        if moved or (elsewhere is not None and _has_moved(session, elsewhere)):
            workspace = engine.workspaces.continue_history(root)
        else:
            engine, workspace = _adopt_or_ask(session, engine, root, new_store)
    session.remark_rewritten_marker()
    was_known = marker_before is not None and marker_before[0] == workspace
    store = engine.place.path
    checkpoints = engine.repository().count(workspace)
    hooked, problem = repair_launcher(session)
    upgrade_launcher(session)
    closed = _undecryptable_key_sets(engine)
    if session.json:
        facts = {"workspace": workspace, "root": show(root), "store": store, "adopted": not was_known}
        write_json({**facts, "shared": shared, "closed_sets": closed})
        return
    session.say(_headline(show(root), store, moved, marker_before, was_known, checkpoints))
    if outer is not None and not was_known:
        session.remark(f"It is inside the workspace {show(outer[0])}, which saves its files too.")
    if not was_known:
        _tell_history(session, engine, checkpoints)
    if hooked:
        session.remark(f"Rewrote the launcher that {hooked} names. No hook started before, because {problem}.")
    _warn_of_keys(session, closed, shared)


def _headline(
    root: str, store: str, moved: bool, marker_before: Marker | None, was_known: bool, checkpoints: int
) -> str:
    """Return the first line of the result.

    `marker_before`: the folder's marker before, None if it had none; `was_known`: it named this workspace already;
    `checkpoints`: how many the workspace has.
    """
    if moved:
        return f"{root} continues its history in the store {store}."
    if marker_before is None:
        return f"Protecting {root} in the store {store}."
    if not was_known and not checkpoints:
        return f"{root} starts a new history in the store {store}."
    if was_known and marker_before[1] in ("", store):
        return f"{root} is already protected."
    return f"{root} now uses the store {store}."


def _tell_history(session: Session, engine: Engine, checkpoints: int) -> None:
    """Print which history a newly protected folder continues, or how to begin."""
    if checkpoints:
        session.remark(f"It has {plural(checkpoints, 'checkpoint')}. Run `keepfast list` to see them.")
        return
    if engine.place.replaces_lost_store():
        session.remark(
            f"The store formerly at {engine.place.path} is missing; its checkpoints of this folder are not "
            "in this history."
        )
    session.remark("Run `keepfast save` to make the first checkpoint.")


def _warn_of_keys(session: Session, closed: list[str], shared: bool) -> None:
    """Print how to share keys if several home folders use one store."""
    if closed:
        session.warn(
            f"{plural(len(closed), 'key set')} of this store cannot be decrypted with your keys: you cannot "
            "restore secret files and conversations that others sealed, nor they yours. To share them, run "
            "`keepfast key export FILE` there and `keepfast key import FILE` here, before the first save."
        )
    elif shared:
        session.warn(
            "This store was created from another home folder. Each home folder has its own keys and cannot "
            "decrypt what the other sealed. To share keys, run `keepfast key export FILE` in one home and "
            "`keepfast key import FILE` in the other."
        )


def _is_shared(place: Place) -> bool:
    """Return whether the store exists outside our data folder and this home folder has never used it."""
    identity = id_or_empty(place.path)
    is_next_to_keys = place.path.rpartition("/")[0] == place.keys.rpartition("/")[0]
    return bool(identity) and not is_next_to_keys and identity not in [its for its, _ in read_pairs(place.list)]


def _undecryptable_key_sets(engine: Engine) -> list[str]:
    """Return the ids of the store's key sets that no key of this home folder can decrypt."""
    try:
        return [key_set for key_set, opens in engine.repository().contents.sealer().keys.sets() if not opens]
    except KeepfastError:
        return []  # `verify` and `doctor` report it


def _other_history(engine: Engine, root: bytes) -> Elsewhere | None:
    """Return the error if the folder's marker names the history of another folder, else None."""
    try:
        engine.workspaces.workspace_at(root, engine.place.registered().get(root, ""))
    except Elsewhere as elsewhere:
        return elsewhere
    except KeepfastError:
        pass  # adopting the folder reports it
    return None


def _has_moved(session: Session, elsewhere: Elsewhere) -> bool:
    """Ask whether the folder was moved here; without an answer it was not, and starts a new history."""
    if elsewhere.copied:
        return False
    if session.json or session.environment.is_agents() or not sys.stdin.isatty():
        session.remark(f"{elsewhere} If you moved it, run `keepfast init --moved`.")
        return False
    return session.confirm(f"{elsewhere} Was it moved here?", False)


def _adopt_or_ask(session: Session, engine: Engine, root: bytes, new_store: bool) -> tuple[Engine, str]:
    """Adopt the folder. If it belongs to another store, ask before starting a new history in the store of the settings."""
    try:
        return engine, _adopt(engine, root, new_store)
    except (MissingStore, OtherStore) as error:
        if session.json or not sys.stdin.isatty():
            raise
        engine = session.engine_for(None)
        if not session.confirm(f"{error} {error.hint} Start a new history in {engine.place.path}?", False):
            raise
        return engine, _adopt(engine, root, True)


def _adopt(engine: Engine, root: bytes, new_store: bool) -> str:
    """Create the folder if needed and adopt it; remove what was created if that fails."""
    new_folders = []
    folder = root
    while not os.path.lexists(folder):
        new_folders.append(folder)
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise Usage(f"{show(folder)} is not a folder.")
    try:
        if new_folders:
            os.makedirs(root)
        return engine.workspaces.init(root, new_store)
    except BaseException as error:
        for path in new_folders:
            try:
                os.rmdir(path)
            except OSError:
                break
        if isinstance(error, OSError) and not isinstance(error, KeepfastError):
            raise Failed(f"{show(root)} cannot be created: {error.strerror}.") from None
        raise
