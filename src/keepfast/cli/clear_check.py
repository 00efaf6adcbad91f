"""`keepfast clear-check`: show and save unsaved changes before the conversation is cleared."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import click

from keepfast.app.inspect import compare, pending
from keepfast.app.worker import event_of, moved_on
from keepfast.cli.session import Session, common, write_json
from keepfast.model.entry import FILE, FOLDER, LINK
from keepfast.model.errors import Failed
from keepfast.model.event import Outcome
from keepfast.present.environment import program
from keepfast.present.json_forms import of_checkpoint
from keepfast.present.live_session import LiveSession, live_session
from keepfast.present.patches import count_lines
from keepfast.present.terminal import age_in_words, one_line, plural
from keepfast.store.rows import CheckpointRow, Query, WorkspaceRow

SAVE_FIRST = "work changed since last checkpoint - save first"
NEVER_SAVED = "nothing was saved yet - save first"
CHOICES = "  (y) Yes - save and clear\n  (n) No - just clear\n  (c) Cancel"
NOTHING, SAVED, ASKED, NOT_SAVED, CANCELLED, REFUSED = "nothing", "saved", "ask", "not_saved", "cancelled", "save_first"
ANSWERS = {"y": SAVED, "n": NOT_SAVED, "c": CANCELLED}


class Unsaved(NamedTuple):
    """What changed since the last checkpoint."""

    files: int
    added: int
    removed: int
    last: CheckpointRow | None
    folders: int
    """Folders created, deleted or changed; shown only if no file changed."""
    changed_folders: int
    """Those of them whose permissions changed."""
    talk: bool
    """Whether the conversation of another session continued since its last checkpoint."""

    def __bool__(self) -> bool:
        return bool(self.files or self.folders or self.talk)


@click.command()
@click.option("-m", "--message", default="", metavar="TEXT", help="Message of the checkpoint.")
@click.option("-y", "--yes", "answer", flag_value="y", help="Save without asking for confirmation.")
@click.option("--no", "answer", flag_value="n", help="Clear without saving and without asking.")
@common
def clear_check(session: Session, message: str, answer: str | None) -> int:
    """Show unsaved changes before you clear the conversation, and save them if the settings say so.

    `hooks.auto_checkpoint_on_clear`: true saves, prompt asks, false exits with code 1. Without
    `hooks.verify_before_clear` changes are not compared first. Inside an agent's session, a checkpoint made by the
    current prompt counts as unsaved. If stdin is not a terminal, the commands to choose from are printed. Exit code
    0: safe to clear; 1: not yet.
    """
    mode, verify = (session.settings[f"hooks.{key}"] for key in ("auto_checkpoint_on_clear", "verify_before_clear"))
    root, row = session.workspace()
    live = live_session(session.engine.place.folder(row.id), session.environment)
    _name_others(session, live)
    unsaved = _find_unsaved(session, root, row, live)
    save = partial(_save, session, root, row, live, message, unsaved)
    if not unsaved and answer == "y":
        return _save_the_rest(session, live, unsaved, save())
    if not unsaved or (mode is False and not verify and answer is None):
        return _answer(session, live, unsaved, NOTHING)
    is_asked = mode == "prompt" and answer is None
    is_open = is_asked and not session.json and not sys.stdin.isatty()
    if (verify or is_open) and not session.json:
        _show(session, unsaved)
    if mode is False and answer is None:
        return _answer(session, live, unsaved, REFUSED)
    if is_open:
        return _name_choices(session, live)
    if is_asked:
        if session.json:
            return _answer(session, live, unsaved, ASKED)
        answer = _ask(session)
    return _act(session, live, unsaved, ANSWERS[answer] if answer else SAVED, save)


def _act(session: Session, live: LiveSession, unsaved: Unsaved, action: str, save: Callable[[], Outcome]) -> int:
    """Carry out the chosen action. Raises `Failed` if it is to save and no checkpoint was made."""
    if action != SAVED:
        return _answer(session, live, unsaved, action)
    outcome = save()
    if outcome.checkpoint is None:
        raise Failed("No checkpoint was made.", "Run `keepfast status` to see why.")
    return _answer(session, live, unsaved, action, outcome)


def _save_the_rest(session: Session, live: LiveSession, unsaved: Unsaved, outcome: Outcome) -> int:
    """Report a save without changed files: it contains the new part of the conversation, if any."""
    if outcome.checkpoint is None and unsaved.last is not None:
        _report_already_saved(session, unsaved.last)
    return _answer(session, live, unsaved, SAVED if outcome.checkpoint else NOTHING, outcome)


def _name_others(session: Session, live: LiveSession) -> None:
    if live.other_sessions:
        session.remark(
            f"There are {live.other_sessions + 1} open sessions; this is about the most recently active one, {live.name}."
        )


def _find_unsaved(session: Session, root: bytes, row: WorkspaceRow, live: LiveSession) -> Unsaved:
    last = _checkpoint_before_prompt(session, row, live)
    with session.progress("Looking") as progress:
        session.engine.progress = progress
        if last is None or last.version != row.version:
            changes = compare(session.engine, root, row, last, None)
        else:
            changes, _ = pending(session.engine, root, row)
    # Excluded folders, such as node_modules, do not count: a checkpoint would not save them.
    kinds = [{side.kind for side in (change.old, change.new) if side is not None} for change in changes]
    files = sum(not kind.isdisjoint((FILE, LINK)) for kind in kinds)
    folders = sum(FOLDER in kind for kind in kinds if kind.isdisjoint((FILE, LINK)))
    changed_folders = sum(
        change.old is not None and change.new is not None and change.old.kind == change.new.kind == FOLDER
        for change in changes
    )
    diffs = [diff for change in changes if (diff := count_lines(change)) is not None]
    folder, event = session.engine.place.folder(row.id), live.event("before_clear", os.fsdecode(root), 0)
    talk = not live.is_parent and moved_on(session.engine, root, folder, event)
    added, removed = sum(diff.added for diff in diffs), sum(diff.removed for diff in diffs)
    return Unsaved(files, added, removed, last, folders, changed_folders, talk)


def _checkpoint_before_prompt(session: Session, row: WorkspaceRow, live: LiveSession) -> CheckpointRow | None:
    """Return the newest checkpoint, except those of tool calls and the one made by the prompt that runs this command."""
    newest, before = [*session.repository.find(Query(workspace=row.id, limit=2, light=False)), None, None][:2]
    if newest is None or not live.is_parent or (newest.trigger, newest.session) != ("prompt", live.name):
        return newest
    return newest if newest.created_at < live.prompted_at else before


def _show(session: Session, unsaved: Unsaved) -> None:
    last = age_in_words(unsaved.last.created_at, session.now()) if unsaved.last is not None else "none yet"
    if unsaved.last is None:
        session.print("Nothing was saved yet:")
        session.print(f"  - {plural(unsaved.files, 'file')} not saved")
    else:
        session.print("Work changed since last checkpoint:")
        session.print(f"  - {plural(unsaved.files, 'file')} modified")
    session.print(f"  - {plural(unsaved.added, 'line')} added")
    if not unsaved.files:
        for count, words in (
            (unsaved.folders - unsaved.changed_folders, "made or removed"),
            (unsaved.changed_folders, "with changed permissions"),
        ):
            if count:
                session.print(f"  - {plural(count, 'folder')} {words}")
    if unsaved.talk:
        session.print("  - the conversation has new messages")
    session.print(f"  - Last checkpoint: {last}")


def _name_choices(session: Session, live: LiveSession) -> int:
    """Print the commands to choose from, because nobody can answer here."""
    command = f"{'! ' if live.is_parent else ''}{program(session.environment)} clear-check"
    session.print("Save checkpoint before clearing?")
    session.print(f"  {command} -y    save, then clear")
    session.print(f"  {command} --no  clear without saving")
    return 1


def _report_already_saved(session: Session, row: CheckpointRow) -> None:
    """Report the checkpoint that already has everything: a hook may have saved first."""
    session.say(f'Checkpoint saved: "{one_line(row.message)}" (v{row.version})')
    session.say(f"Checkpoint ID: {row.id}")


def _ask(session: Session) -> str:
    session.warn(f"Save checkpoint before clearing?\n{CHOICES}")
    answer: str = click.prompt("y, n or c", type=click.Choice(list(ANSWERS)), show_choices=False, err=True)
    return answer


def _save(
    session: Session, root: bytes, row: WorkspaceRow, live: LiveSession, message: str, unsaved: Unsaved
) -> Outcome:
    """Save as at the end of the session: with its conversation, and its work as the summary."""
    folder = session.engine.place.folder(row.id)
    seen = live.event("before_clear", os.fsdecode(session.cwd), session.now())
    event = event_of(session.engine, root, folder, seen)
    event.created_by = "user"
    if message:
        event.message = event.summary = message
    event.moved_on = bool(unsaved) or moved_on(session.engine, root, folder, seen)
    return session.engine.handle(event)


def _answer(session: Session, live: LiveSession, unsaved: Unsaved, action: str, outcome: Outcome | None = None) -> int:
    code = 1 if action in (CANCELLED, REFUSED, ASKED) else 0
    if session.json:
        write_json(
            {
                "action": action,
                "session": live.name or None,
                "files_changed": unsaved.files,
                "lines_added": unsaved.added,
                "lines_removed": unsaved.removed,
                "conversation_changed": unsaved.talk,
                "last": of_checkpoint(unsaved.last) if unsaved.last is not None else None,
                "checkpoint": of_checkpoint(outcome.checkpoint) if action == SAVED and outcome is not None else None,
            }
        )
    elif action == SAVED and outcome is not None:
        session.say(f'Checkpoint saved: "{one_line(outcome.message)}"')
        session.say(f"Checkpoint ID: {outcome.id}")
        session.say(f"Files changed: {unsaved.files}, Lines added: {unsaved.added}")
    elif action == REFUSED:
        session.warn(f"keepfast: {SAVE_FIRST if unsaved.last is not None else NEVER_SAVED}")
    elif action == CANCELLED:
        session.remark("Cancelled: nothing was saved.")
    return code
