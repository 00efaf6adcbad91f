"""`holdfast resume`, `keep`, `drop`: going on from a checkpoint, and what becomes of the one that `/clear` left."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import click

from holdfast.core.errors import Conflict, Failed, NotFound, Usage
from holdfast.frontends.cli.numbers import Whole
from holdfast.frontends.cli.reference import REFERENCE
from holdfast.frontends.cli.session import Session, common, write_json

if TYPE_CHECKING:
    from holdfast.store.rows import CheckpointRow

CLIPBOARDS = (("wl-copy",), ("xclip", "-selection", "clipboard"), ("xsel", "-ib"), ("pbcopy",))
AGENT = "claude"


@click.command()
@click.argument("reference", required=False, type=REFERENCE)
@click.option("--tokens", type=Whole(200, 100_000), default=5_000, metavar="N", help="At most so many (5000).")
@click.option("--copy", is_flag=True, help="Put it into the clipboard.")
@click.option("--launch", is_flag=True, help="Start the agent's client with it.")
@common
def resume(session: Session, reference: str | None, tokens: int, copy: bool, launch: bool) -> int:
    """Tell what an agent must know to go on: from the newest checkpoint, or the one that is named.

    Sessions with hooks are told by themselves; this is for all others, and for people.
    """
    from holdfast.core.brief_notes import age
    from holdfast.resuming import Resuming

    if copy and launch:
        raise Usage("--copy and --launch do not go together.")
    root, row = session.workspace()
    resuming = Resuming(session.engine, root, row.id)
    told = resuming.tell(session.resolve(row, reference)) if reference else resuming.newest()
    if told is None:
        raise NotFound("There is no checkpoint to go on from.", "Run `holdfast save` first.")
    built = resuming.brief(told, tokens=tokens)
    said = f'Resumed from checkpoint: "{told.summary}" (saved {age(session.now() - told.row.created_at)} ago)'
    if session.json:
        shown = {"text": built.text, "parts": built.parts, "tokens": built.tokens, "left_out": built.left_out}
        write_json({"version": f"v{told.row.version}", "id": told.row.id, **shown})
    elif copy:
        _copy(built.text)
        session.say(f"{said}. Copied: {built.tokens:,} tokens.")
    elif launch:
        return _launch(root, built.text)
    else:
        session.print(built.text or said)
    return 0


@click.command()
@common
def keep(session: Session) -> None:
    """Keep the checkpoint that the last clear left; it is kept without an answer, too."""
    row = _left(session)
    if session.json:
        write_json({"kept": f"v{row.version}"})
    session.say(f"Kept v{row.version}.")


@click.command()
@common
def drop(session: Session) -> None:
    """Forget the checkpoint that the last clear left."""
    from holdfast.store.upkeep import forget

    row = _left(session)
    if row.pinned or row.name:
        raise Conflict(f"v{row.version} is pinned or has a name.", "`holdfast forget` asks, and then forgets it.")
    forget(session.repository, row.workspace, [row.version], "dropped", session.engine.place.path)
    if session.json:
        write_json({"dropped": f"v{row.version}"})
    session.say(f"Dropped v{row.version}.")


def _left(session: Session) -> CheckpointRow:
    from holdfast.store.rows import Query

    _, workspace = session.workspace()
    rows = session.repository.ledger.find(Query(workspace=workspace.id, trigger="before_clear", limit=1))
    if not rows:
        raise NotFound("No clear has left a checkpoint here.")
    return rows[0]


def _copy(text: str) -> None:
    for words in CLIPBOARDS:
        program = shutil.which(words[0])
        if program is not None:
            subprocess.run([program, *words[1:]], input=text.encode("utf-8", "replace"), check=False)
            return
    raise Failed("There is no clipboard here.", "Install wl-copy, xclip or xsel; or leave out --copy.")


def _launch(root: bytes, text: str) -> int:
    program = shutil.which(AGENT)
    if program is None:
        raise Failed(f"{AGENT} is not installed, or not on the search path.", "Leave out --launch, and paste the text.")
    os.chdir(root)
    os.execv(program, [program, text])
