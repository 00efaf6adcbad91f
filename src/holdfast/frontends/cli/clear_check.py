"""`holdfast clear-check`: is anything unsaved, before the conversation is cleared?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from holdfast.core.entry import CAPTURED
from holdfast.core.errors import Failed, Usage
from holdfast.frontends.cli.session import Session, common, write_json

if TYPE_CHECKING:
    from holdfast.core.model import Outcome
    from holdfast.store.rows import CheckpointRow

SAVE_FIRST = "work changed since last checkpoint - save first"
CHOICES = "  (y) Yes - save and clear\n  (n) No - just clear\n  (c) Cancel"
NOTHING, SAVED, ASKED, NOT_SAVED, CANCELLED, REFUSED = "nothing", "saved", "ask", "not_saved", "cancelled", "save_first"
ANSWERS = {"y": SAVED, "n": NOT_SAVED, "c": CANCELLED}


class Unsaved(NamedTuple):
    """What a checkpoint made now would have and the last one has not."""

    files: int
    added: int
    removed: int
    last: CheckpointRow | None


@click.command()
@click.option("-m", "--message", default="", metavar="TEXT", help="What the checkpoint says of itself.")
@click.option("-y", "--yes", "answer", flag_value="y", help="Save without asking.")
@click.option("--no", "answer", flag_value="n", help="Do not save, without asking.")
@common
def clear_check(session: Session, message: str, answer: str | None) -> int:
    """Say what changed since the last checkpoint, and save it as the settings say, before you clear the conversation.

    `hooks.auto_checkpoint_on_clear`: true saves, prompt asks, false stops with exit code 1. Without
    `hooks.verify_before_clear` nothing is compared first. Exit code 0: clear; 1: do not.
    """
    mode, verify = (session.settings[f"hooks.{key}"] for key in ("auto_checkpoint_on_clear", "verify_before_clear"))
    unsaved = _unsaved(session)
    if not unsaved.files or (mode is False and not verify and answer is None):
        return _answer(session, unsaved, NOTHING)
    if verify and not session.json:
        _show(session, unsaved)
    if mode is False and answer is None:
        return _answer(session, unsaved, REFUSED)
    if mode == "prompt" and answer is None:
        if session.json:
            return _answer(session, unsaved, ASKED)
        answer = _ask(session)
    action = ANSWERS[answer or "y"]
    return _answer(session, unsaved, action, _save(session, message) if action == SAVED else None)


def _unsaved(session: Session) -> Unsaved:
    from holdfast.frontends.patches import counted
    from holdfast.looking import pending

    root, row = session.workspace()
    with session.progress("Looking") as progress:
        session.engine.progress = progress
        found, _ = pending(session.engine, root, row)
    # A folder that is left out, such as node_modules, is nothing that a checkpoint would keep.
    changes = [change for change in found if any(side and side.kind in CAPTURED for side in (change.old, change.new))]
    diffs = [diff for diff in map(counted, changes) if diff is not None]
    last = session.repository.ledger.checkpoint(row.id, row.version) if row.version else None
    # Folders that come or go are changes too, even if no file is in them.
    return Unsaved(len(diffs) or len(changes), sum(one.added for one in diffs), sum(one.removed for one in diffs), last)


def _show(session: Session, unsaved: Unsaved) -> None:
    from holdfast.frontends.paint import age_in_words, plural

    last = age_in_words(unsaved.last.created_at, session.now()) if unsaved.last is not None else "none yet"
    session.print("Work changed since last checkpoint:")
    session.print(f"  - {plural(unsaved.files, 'file')} modified")
    session.print(f"  - {plural(unsaved.added, 'line')} added")
    session.print(f"  - Last checkpoint: {last}")


def _ask(session: Session) -> str:
    if not sys.stdin.isatty():
        raise Usage(
            "Save checkpoint before clearing? There is nobody to ask.", "Add -y to save, or --no to go on without."
        )
    session.warn(f"Save checkpoint before clearing?\n{CHOICES}")
    answer: str = click.prompt("y, n or c", type=click.Choice(list(ANSWERS)), show_choices=False, err=True)
    return answer


def _save(session: Session, message: str) -> Outcome:
    from holdfast.core.model import Event

    said = message or "before clear"
    event = Event(session.cwd, session.now(), trigger="before_clear", message=said, summary=said, created_by="user")
    outcome = session.engine.handle(event)
    if outcome.checkpoint is None:
        raise Failed("No checkpoint was made.", "`holdfast status` says why.")
    return outcome


def _answer(session: Session, unsaved: Unsaved, action: str, outcome: Outcome | None = None) -> int:
    from holdfast.frontends.facts import of_checkpoint
    from holdfast.frontends.paint import one_line

    code = 1 if action in (CANCELLED, REFUSED) else 0
    if session.json:
        write_json(
            {
                "action": action,
                "files_changed": unsaved.files,
                "lines_added": unsaved.added,
                "lines_removed": unsaved.removed,
                "last": of_checkpoint(unsaved.last) if unsaved.last is not None else None,
                "checkpoint": of_checkpoint(outcome.checkpoint) if outcome is not None else None,
            }
        )
    elif outcome is not None:
        session.say(f'Checkpoint saved: "{one_line(outcome.message)}"')
        session.say(f"Checkpoint ID: {outcome.id}")
        session.say(f"Files changed: {unsaved.files}, Lines added: {unsaved.added}")
    elif action == REFUSED:
        session.warn(f"holdfast: {SAVE_FIRST}")
    elif action == CANCELLED:
        session.remark("Cancelled: nothing was saved.")
    return code
