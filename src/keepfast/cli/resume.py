"""`keepfast resume`, `keep`, `drop`: print a resume brief; keep or forget the checkpoint made by a clear."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

import click

from keepfast.cli.numbers import Whole
from keepfast.cli.reference import REFERENCE
from keepfast.cli.session import Session, common, write_json
from keepfast.model.age import ago
from keepfast.model.errors import Failed, NotFound, Usage
from keepfast.state import sessions
from keepfast.store.maintenance.space import forget
from keepfast.store.rows import CheckpointRow, Query

CLIPBOARDS = (("wl-copy",), ("xclip", "-selection", "clipboard"), ("xsel", "-ib"), ("pbcopy",))
CLIENT = "claude"
OPENING_TRIGGERS = ("session_start", "prompt")
"""Triggers of the checkpoints that a session makes before it has done anything."""


@click.command()
@click.argument("reference", metavar="[REF]", required=False, type=REFERENCE)
@click.option("--tokens", type=Whole(200, 100_000), default=5_000, metavar="N", help="Token limit (default 5000).")
@click.option("--copy", is_flag=True, help="Copy the brief to the clipboard.")
@click.option("--launch", is_flag=True, help="Start the agent's client with the brief.")
@common
def resume(session: Session, reference: str | None, tokens: int, copy: bool, launch: bool) -> int:
    """Print a resume brief from the newest checkpoint and the current files, or from checkpoint REF.

    With REF, the brief uses the conversation and files of that checkpoint. Sessions with hooks get their brief
    automatically; this command is for other agents and for people.
    """
    from keepfast.app.resume import Resumer

    if copy and launch:
        raise Usage("--copy and --launch cannot be combined.")
    root, row = session.workspace()
    resumer = Resumer(session.engine, root, row.id)
    work = resumer.work_at(session.resolve(row, reference)) if reference is not None else resumer.newest()
    if work is None:
        raise NotFound("No checkpoint to resume from.", "Run `keepfast save` first.")
    if reference is not None:
        built, of = resumer.moment_brief(work, tokens=tokens)
        sources = {"conversation": of or None, "files": f"v{work.row.version}"}
    else:
        built, sources = resumer.brief(work, tokens=tokens), {"conversation": "live", "files": "disk"}
    headline = f'Resumed from checkpoint: "{work.summary}" (saved {ago(session.now() - work.row.created_at)})'
    if session.json:
        facts = {"text": built.text, "parts": built.parts, "tokens": built.tokens, "left_out": built.left_out}
        write_json({"version": f"v{work.row.version}", "id": work.row.id, **sources, **facts})
    elif copy:
        _copy(built.text)
        session.say(f"{headline}. Copied: {built.tokens:,} tokens.")
    elif launch:
        return _launch(root, built.text)
    else:
        session.print(built.text or headline)
    return 0


@click.command()
@common
def keep(session: Session) -> None:
    """Keep the checkpoint made by the last clear. It is also kept if you do not answer."""
    row = _last_clear(session)
    for client, _ in _questions(session, row.workspace):
        sessions.close_question(session.engine.place.folder(row.workspace), client)
    if session.json:
        write_json({"kept": f"v{row.version}"})
    session.say(f"Kept v{row.version}.")


@click.command()
@common
def drop(session: Session) -> None:
    """Forget the checkpoint made by the last clear. Works only until you answer, or until the next turn or clear."""
    session.workspace()
    last_clear = _last_clear(session)
    folder = session.engine.place.folder(last_clear.workspace)
    droppable = [
        (client, row)
        for client, question in _questions(session, last_clear.workspace)
        if (row := _droppable_row(session, last_clear, question))
    ]
    if len(droppable) != 1:
        raise NotFound(
            "No checkpoint to drop.", (f"Run `keepfast forget v{last_clear.version}` to forget the kept checkpoint.")
        )
    client, row = droppable[0]
    forget(session.repository, row.workspace, [row.version], "dropped", session.engine.place.path)
    sessions.close_question(folder, client)
    if session.json:
        write_json({"dropped": f"v{row.version}"})
    session.say(f"Dropped v{row.version}.")


def _questions(session: Session, workspace: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the open questions of the client that runs this command, else of all clients."""
    own_client = session.environment.text("CLAUDE_PID")
    questions = sessions.open_questions(session.engine.place.folder(workspace))
    return [(client, question) for client, question in questions.items() if own_client in ("", str(client))]


def _droppable_row(session: Session, last_clear: CheckpointRow, question: dict[str, Any]) -> CheckpointRow | None:
    """Return the checkpoint that a question is about; None if it was pinned, named or built upon since."""
    repository = session.repository
    row = repository.checkpoint(last_clear.workspace, int(question.get("version") or 0))
    if row is None or row.forgotten or row.trigger != "before_clear" or row.pinned or row.name:
        return None
    later = [
        later_row
        for later_row in repository.find(Query(workspace=last_clear.workspace, limit=10))
        if later_row.version > row.version
    ]
    is_own = all(
        later_row.session == question["asked"] and later_row.trigger in OPENING_TRIGGERS for later_row in later
    )
    return row if is_own else None


def _last_clear(session: Session) -> CheckpointRow:
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
    program = shutil.which(CLIENT)
    if program is None:
        raise Failed(f"{CLIENT} is not installed or not on the PATH.", "Omit --launch, and paste the text.")
    os.chdir(root)
    os.execv(program, [program, text])
