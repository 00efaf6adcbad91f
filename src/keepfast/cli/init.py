"""`keepfast init`: protect a folder."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Elsewhere, Failed, KeepfastError, MissingStore, OtherStore, Refused, Usage
from keepfast.store.small_files import id_or_empty, read_pairs

if TYPE_CHECKING:
    from keepfast.app.checkpoint import Engine
    from keepfast.store.place import Place
    from keepfast.workspace.marker import Marker


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
    from keepfast.cli.client_files import hooks_in_hint, mend_launcher, renew_launcher
    from keepfast.workspace.adoption import refuse_whole
    from keepfast.workspace.marker import marker, show

    if moved and session.around.is_agents():
        raise Refused(
            "Only a person can confirm that a folder was moved.",
            ("Run `keepfast init --moved` in that folder in a terminal."),
        )
    root = os.path.realpath(os.path.join(session.cwd, os.fsencode(folder or ".")))
    with hooks_in_hint(session):
        engine = session.engine_for(None if new_store else root)
        refuse_whole(root, engine.home)
        shared = _is_shared(engine.place)
        outer = engine.nearest(root.rpartition(b"/")[0] or b"/")
        said = marker(root) if os.path.isdir(root) else None
        apart = _apart(engine, root) if said is not None and not moved and not new_store else None
        if moved or (apart is not None and _has_moved(session, apart)):
            workspace = engine.continue_history(root)
        else:
            engine, workspace = _adopt_or_ask(session, engine, root, new_store)
    session.say_renewed()
    known = said is not None and said[0] == workspace
    store = engine.place.path
    there = engine.repository().count(workspace)
    hooked, wrong = mend_launcher(session)
    renew_launcher(session)
    closed = _closed(engine)
    if session.json:
        facts = {"workspace": workspace, "root": show(root), "store": store, "adopted": not known}
        write_json({**facts, "shared": shared, "closed_sets": closed})
        return
    session.say(_headline(show(root), store, moved, said, known, there))
    if outer is not None and not known:
        session.remark(f"It is inside the workspace {show(outer[0])}, which saves its files too.")
    if not known:
        _tell_history(session, engine, there)
    if hooked:
        session.remark(f"Rewrote the launcher that {hooked} names. No hook started before, because {wrong}.")
    _warn_of_keys(session, closed, shared)


def _headline(root: str, store: str, moved: bool, said: Marker | None, known: bool, there: int) -> str:
    """What became of the folder. `said`: its marker before; `known`: that was this workspace; `there`: its
    checkpoints.
    """
    if moved:
        return f"{root} continues its history in the store {store}."
    if said is None:
        return f"Protecting {root} in the store {store}."
    if not known and not there:
        return f"{root} starts a new history in the store {store}."
    if known and said[1] in ("", store):
        return f"{root} is already protected."
    return f"{root} now uses the store {store}."


def _tell_history(session: Session, engine: Engine, there: int) -> None:
    """Say of a folder that was not this workspace before which history it goes on with, or what to do first."""
    from keepfast.present.terminal import plural

    if there:
        session.remark(f"It has {plural(there, 'checkpoint')}. Run `keepfast list` to see them.")
        return
    if engine.place.replaces_lost_store():
        session.remark(
            f"The store formerly at {engine.place.path} is missing; its checkpoints of this folder are not "
            "in this history."
        )
    session.remark("Run `keepfast save` to make the first checkpoint.")


def _warn_of_keys(session: Session, closed: list[str], shared: bool) -> None:
    """Say which keys are to be shared where several homes use one store."""
    from keepfast.present.terminal import plural

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
    """Is there a store already, elsewhere than in our own data folder, which this home has never used?"""
    identity = id_or_empty(place.path)
    beside = place.path.rpartition("/")[0] == place.keys.rpartition("/")[0]
    return bool(identity) and not beside and identity not in [its for its, _ in read_pairs(place.list)]


def _closed(engine: Engine) -> list[str]:
    """Ids of the store's key sets that no key of this home opens."""
    try:
        return [one for one, opens in engine.repository().contents.sealer().keys.sets() if not opens]
    except KeepfastError:
        return []  # `verify` and `doctor` say what is wrong


def _apart(engine: Engine, root: bytes) -> Elsewhere | None:
    """Why the history that the folder's marker names is not its own, if it is not."""
    try:
        engine.workspace_at(root, engine.place.registered().get(root, ""))
    except Elsewhere as apart:
        return apart
    except KeepfastError:
        pass  # adopting it says what is wrong
    return None


def _has_moved(session: Session, apart: Elsewhere) -> bool:
    """Ask, where there is somebody; a folder that nobody vouches for begins a history of its own."""
    if apart.copied:
        return False
    if session.json or session.around.is_agents() or not sys.stdin.isatty():
        session.remark(f"{apart} If you moved it, run `keepfast init --moved`.")
        return False
    return session.agreed(f"{apart} Was it moved here?", False)


def _adopt_or_ask(session: Session, engine: Engine, root: bytes, anew: bool) -> tuple[Engine, str]:
    """A folder that another store keeps is given a new history only by somebody who says so: in the store of the
    settings.
    """
    try:
        return engine, _adopt(engine, root, anew)
    except (MissingStore, OtherStore) as error:
        if session.json or not sys.stdin.isatty():
            raise
        engine = session.engine_for(None)
        if not session.agreed(f"{error} {error.hint} Start a new history in {engine.place.path}?", False):
            raise
        return engine, _adopt(engine, root, True)


def _adopt(engine: Engine, root: bytes, anew: bool) -> str:
    """Make the folder if need be and adopt it; a folder that was made for nothing is taken away again."""
    from keepfast.workspace.marker import show

    made = []
    folder = root
    while not os.path.lexists(folder):
        made.append(folder)
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise Usage(f"{show(folder)} is not a folder.")
    try:
        if made:
            os.makedirs(root)
        return engine.init(root, anew)
    except BaseException as error:
        for path in made:
            try:
                os.rmdir(path)
            except OSError:
                break
        if isinstance(error, OSError) and not isinstance(error, KeepfastError):
            raise Failed(f"{show(root)} cannot be created: {error.strerror}.") from None
        raise
