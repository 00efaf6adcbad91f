"""`holdfast init`: protect a folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from holdfast.core.errors import Failed, HoldfastError, Usage
from holdfast.frontends.cli.session import Session, common, write_json

if TYPE_CHECKING:
    from holdfast.engine import Engine


@click.command()
@click.argument("folder", metavar="[DIR]", required=False)
@common
def init(session: Session, folder: str | None) -> None:
    """Protect DIR, by default the current folder; it is made if need be.

    Checkpoints go to the store, outside of it. Only a small folder .holdfast is added, which keeps itself out of git.
    """
    from holdfast.workspace.find import find, identity, refuse, show

    engine = session.engine
    root = os.path.realpath(os.path.join(session.cwd, os.fsencode(folder or ".")))
    refuse(root, engine.home)
    outer = find(root.rpartition(b"/")[0] or b"/")
    known = os.path.isdir(root) and identity(root) is not None
    workspace = _adopt(engine, root)
    if session.json:
        write_json({"workspace": workspace, "root": show(root), "store": engine.place.path, "adopted": not known})
        return
    session.say(
        f"{show(root)} is protected already." if known else f"Protecting {show(root)} in the store {engine.place.path}."
    )
    if outer is not None and not known:
        session.remark(f"It lies in the workspace {show(outer[0])}, which keeps its files too.")
    if not known:
        session.remark("Run `holdfast save` to make the first checkpoint.")


def _adopt(engine: Engine, root: bytes) -> str:
    """Make the folder if need be and adopt it; a folder that was made for nothing is taken away again."""
    from holdfast.workspace.find import show

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
        return engine.init(root)
    except BaseException as error:
        for path in made:
            try:
                os.rmdir(path)
            except OSError:
                break
        if isinstance(error, OSError) and not isinstance(error, HoldfastError):
            raise Failed(f"{show(root)} cannot be made: {error.strerror}.") from None
        raise
