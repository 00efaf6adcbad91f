"""`keepfast resume`, `keep`, `drop`: going on from a checkpoint, and what becomes of the one that `/clear` left."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.numbers import Whole
from keepfast.cli.reference import REFERENCE
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Failed, NotFound, Usage
from keepfast.state import sessions

if TYPE_CHECKING:
    from keepfast.store.rows import CheckpointRow

CLIPBOARDS = (("wl-copy",), ("xclip", "-selection", "clipboard"), ("xsel", "-ib"), ("pbcopy",))
AGENT = "claude"
BEGINS = ("session_start", "prompt")
"""What a session saves before it has done anything: its start, and the very prompt that answers."""


@click.command()
@click.argument("reference", required=False, type=REFERENCE)
@click.option("--tokens", type=Whole(200, 100_000), default=5_000, metavar="N", help="Token limit (default 5000).")
@click.option("--copy", is_flag=True, help="Copy the brief to the clipboard.")
@click.option("--launch", is_flag=True, help="Start the agent's client with the brief.")
@common
def resume(session: Session, reference: str | None, tokens: int, copy: bool, launch: bool) -> int:
    """Print a resume brief from the newest checkpoint and the current files, or from checkpoint REFERENCE.

    With REFERENCE, the brief uses the conversation and files of that checkpoint. Sessions with hooks get their brief
    automatically; this command is for other agents and for people.
    """
    from keepfast.app.resume import Resumer
    from keepfast.model.age import ago

    if copy and launch:
        raise Usage("--copy and --launch cannot be combined.")
    root, row = session.workspace()
    resumer = Resumer(session.engine, root, row.id)
    told = resumer.work_at(session.resolve(row, reference)) if reference is not None else resumer.newest()
    if told is None:
        raise NotFound("No checkpoint to resume from.", "Run `keepfast save` first.")
    if reference is not None:
        built, of = resumer.moment_brief(told, tokens=tokens)
        sources = {"conversation": of or None, "files": f"v{told.row.version}"}
    else:
        built, sources = resumer.brief(told, tokens=tokens), {"conversation": "live", "files": "disk"}
    said = f'Resumed from checkpoint: "{told.summary}" (saved {ago(session.now() - told.row.created_at)})'
    if session.json:
        shown = {"text": built.text, "parts": built.parts, "tokens": built.tokens, "left_out": built.left_out}
        write_json({"version": f"v{told.row.version}", "id": told.row.id, **sources, **shown})
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
    """Keep the checkpoint made by the last clear. It is also kept if you do not answer."""
    row = _left(session)
    for client, _ in _questions(session, row.workspace):
        sessions.close_question(session.engine.place.folder(row.workspace), client)
    if session.json:
        write_json({"kept": f"v{row.version}"})
    session.say(f"Kept v{row.version}.")


@click.command()
@common
def drop(session: Session) -> None:
    """Forget the checkpoint made by the last clear. Not possible after an answer, a turn or another clear."""
    from keepfast.store.maintenance.space import forget

    session.workspace()
    left = _left(session)
    folder = session.engine.place.folder(left.workspace)
    found = [
        (client, row) for client, known in _questions(session, left.workspace) if (row := _open(session, left, known))
    ]
    if len(found) != 1:
        raise NotFound(
            "No checkpoint to drop.", (f"Run `keepfast forget v{left.version}` to forget the kept checkpoint.")
        )
    client, row = found[0]
    forget(session.repository, row.workspace, [row.version], "dropped", session.engine.place.path)
    sessions.close_question(folder, client)
    if session.json:
        write_json({"dropped": f"v{row.version}"})
    session.say(f"Dropped v{row.version}.")


def _questions(session: Session, workspace: str) -> list[tuple[int, dict[str, Any]]]:
    """The open questions of the client around us, or of all."""
    around = session.around.text("CLAUDE_PID")
    found = sessions.open_questions(session.engine.place.folder(workspace))
    return [(client, known) for client, known in found.items() if around in ("", str(client))]


def _open(session: Session, left: CheckpointRow, known: dict[str, Any]) -> CheckpointRow | None:
    """The checkpoint that a question is about; None if somebody wants it, or went on from it, by now."""
    from keepfast.store.rows import Query

    repository = session.repository
    row = repository.checkpoint(left.workspace, int(known.get("version") or 0))
    if row is None or row.forgotten or row.trigger != "before_clear" or row.pinned or row.name:
        return None
    later = [one for one in repository.find(Query(workspace=left.workspace, limit=10)) if one.version > row.version]
    is_own = all(one.session == known["asked"] and one.trigger in BEGINS for one in later)
    return row if is_own else None


def _left(session: Session) -> CheckpointRow:
    from keepfast.store.rows import Query

    _, workspace = session.workspace()
    rows = session.repository.find(Query(workspace=workspace.id, trigger="before_clear", limit=1))
    if not rows:
        raise NotFound("No checkpoint was made by a clear in this workspace.")
    return rows[0]


def _copy(text: str) -> None:
    for words in CLIPBOARDS:
        program = shutil.which(words[0])
        if program is not None:
            subprocess.run([program, *words[1:]], input=text.encode("utf-8", "replace"), check=False)
            return
    raise Failed("No clipboard found.", "Install wl-copy, xclip or xsel, or omit --copy.")


def _launch(root: bytes, text: str) -> int:
    program = shutil.which(AGENT)
    if program is None:
        raise Failed(f"{AGENT} is not installed or not on the PATH.", "Omit --launch, and paste the text.")
    os.chdir(root)
    os.execv(program, [program, text])
