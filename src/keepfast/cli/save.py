"""`keepfast save` and `keepfast checkpoint`: make a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from keepfast.app.inspect import Coverage, coverage
from keepfast.app.state_document import too_large
from keepfast.cli.lazy import with_globals
from keepfast.cli.list import list_
from keepfast.cli.session import Session, common, write_json
from keepfast.model.entry import OVERSIZE, REASONS
from keepfast.model.errors import Elsewhere, KeepfastError, NoWorkspace, Unreachable, Usage, sentence
from keepfast.model.event import Event, Outcome
from keepfast.present import background
from keepfast.present.json_forms import excluded_counts, of_checkpoint, of_coverage, saved_counts
from keepfast.present.terminal import one_line, size
from keepfast.store.references import checked_name
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.marker import show

MAX_NAMED = 5
"""Files over the size limit that are listed by name."""
OPTIONS = (
    click.option("-m", "--message", default=None, metavar="TEXT", help="Message of the checkpoint."),
    click.option(
        "--name",
        default="",
        metavar="NAME",
        help=("Name of the checkpoint; retention never forgets named checkpoints."),
    ),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag of the checkpoint; can be repeated."),
    click.option("--pin", "pinned", is_flag=True, help="Pin the checkpoint: retention never forgets it."),
    click.option("--session", "session_id", default="", metavar="ID", help="Record the agent's session ID."),
    click.option("--task", "task_id", default="", metavar="ID", help="Record the task ID."),
    click.option("--auto", is_flag=True, help="For hooks: save only if something changed, and print nothing."),
)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@click.command()
@options
@common
def save(session: Session, **fields: Any) -> int:
    """Save a checkpoint of the current workspace."""
    return _save(session, **fields)


@click.group(invoke_without_command=True, subcommand_metavar="[list]")
@options
@common
def checkpoint(session: Session, **fields: Any) -> int:
    """Save a checkpoint, like `save`; `checkpoint list` lists checkpoints."""
    if click.get_current_context().invoked_subcommand is not None:
        return 0
    return _save(session, **fields)


@checkpoint.command("list", hidden=True, context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def checkpoint_list(ctx: click.Context, rest: tuple[str, ...]) -> Any:
    with with_globals(list_).make_context("list", list(rest), parent=ctx.find_root()) as inner:
        return list_.invoke(inner)


def _save(
    session: Session,
    *,
    message: str | None,
    name: str,
    tags: tuple[str, ...],
    pinned: bool,
    session_id: str,
    task_id: str,
    auto: bool,
) -> int:
    event = Event(
        session.cwd if not auto else _folder(session),
        session.now(),
        trigger="auto" if auto else "manual",
        message=_text(message) if message is not None else "auto" if auto else "",
        name=checked_name(_text(name)) if name else "",
        tags=tuple([_word("tag", tag) for tag in dict.fromkeys(tags)]),
        pinned=pinned,
        session=_word("session", session_id),
        task=_word("task", task_id),
        created_by="auto" if auto else "user",
        summary=_text(message).strip().partition("\n")[0] if auto and message else "",
        guarded=bool(message or tags) and not auto,
    )
    if auto:
        return _save_quietly(session, event)
    _ask_about_move(session)
    with session.progress("Saving") as progress:
        session.engine.progress = progress
        outcome = session.engine.handle(event)
    if outcome.status == "outside":
        raise NoWorkspace(f"{show(event.cwd)} is not inside a workspace.")
    _tidy(session, outcome)
    _print_result(session, outcome)
    return 0


def _ask_about_move(session: Session) -> None:
    """Ask whether a folder with another folder's marker was moved. If nobody can answer, it starts a new history."""
    try:
        session.engine.workspaces.find_workspace(session.cwd, adopting=True)
        session.remark_rewritten_marker()
    except Elsewhere as elsewhere:
        if elsewhere.copied:
            return
        try:
            session.ask_about_move(elsewhere)
        except Elsewhere:
            session.remark(
                f"{elsewhere} This starts a separate history. If you moved the folder, run `keepfast init --moved`."
            )


def _save_quietly(session: Session, event: Event) -> int:
    """Save for a hook: print nothing unless the save failed. Skipped and failed saves become notices for `status`."""
    if not event.cwd:
        return 0
    session.use_last_good_settings()
    engine = session.engine
    if session.settings.broken:
        engine.workspaces.note_once(event.cwd, "noticed", event.trigger, session.settings.warnings[0])
    try:
        outcome = engine.handle(event)
    except (NoWorkspace, Unreachable) as error:
        engine.workspaces.note(event.cwd, "skipped", event.trigger, str(error))
        return _report_skipped(session, str(error))
    except Exception as error:
        engine.workspaces.note(event.cwd, "failed", event.trigger, sentence(error), reported=True)
        raise
    _tidy(session, outcome)
    if session.json:
        _print_result(session, outcome)
    return 0


def _tidy(session: Session, outcome: Outcome) -> None:
    """Start a background process that merges packs if many have accumulated, as the hook does."""
    # The process finds the store through the workspace's marker.
    if outcome.needs_tidying:
        background.tidy(session.cwd, session.config_path, session.environment)


def _print_result(session: Session, outcome: Outcome) -> None:
    duration = session.milliseconds()
    if outcome.checkpoint is None:
        write_json({"status": outcome.status})
        return
    row = session.repository.workspace(outcome.checkpoint.workspace)
    assert row is not None
    totals = coverage(row)
    large = _too_large(session, outcome.checkpoint, row.path)
    if session.json:
        write_json(
            {
                "status": outcome.status,
                "checkpoint": of_checkpoint(outcome.checkpoint),
                "duration_ms": duration,
                "coverage": of_coverage(totals),
                "notices": [*outcome.notices, *large],
            }
        )
        return
    title = f' "{one_line(outcome.message)}"' if outcome.message else ""
    took = f"{duration}ms" if duration < 10_000 else f"{duration / 1000:.1f}s"
    session.say(f"Created v{outcome.version}{title} ({took})")
    if outcome.version == 1 or outcome.notices:
        session.remark(f"Saved {saved_counts(totals)}.")
        if totals.left_out:
            session.remark(f"Excluded: {excluded_counts(totals)}. Run `keepfast show --excluded` to list them.")
    _name_large(session, outcome.checkpoint)
    for notice in [*outcome.notices, *large]:
        session.warn(notice)
    _warn_of_poor(session, totals, REASONS)
    session.remark_unknown_settings()


def _too_large(session: Session, checkpoint: CheckpointRow, root: bytes) -> list[str]:
    """Return notices about files that are saved, but too large for the checkpoint's state document."""
    repository = session.repository
    try:
        header = repository.document(checkpoint)[0]
    except KeepfastError:
        return []  # the checkpoint is saved; `verify` reports the damage
    return too_large(repository, checkpoint, header, show(root), session.settings)


def _name_large(session: Session, checkpoint: CheckpointRow) -> None:
    """List files over the size limit at every save, so that nobody expects a restore to bring them back."""
    rows = session.repository.left_out(checkpoint.workspace, checkpoint.version)
    large = [row for row in rows if row.kind == OVERSIZE]
    if large:
        names = ", ".join([f"{show(row.path)} ({size(row.size)})" for row in large[:MAX_NAMED]])
        more = f" and {len(large) - MAX_NAMED:,} more" if len(large) > MAX_NAMED else ""
        session.warn(f"Excluded, larger than capture.max_file_size: {names}{more}.")


def _warn_of_poor(session: Session, totals: Coverage, reasons: dict[str, str]) -> None:
    paint = session.warning_paint
    if totals.files + totals.links == 0:
        why = " Everything was excluded." if totals.left_out else " The folder is empty."
        session.warn(paint("bold yellow", "Warning: no file was saved.") + why)
    elif totals.is_poor:
        left = sum(totals.left_out.values())
        worst = max(totals.left_out, key=lambda kind: totals.left_out[kind])
        session.warn(
            paint(
                "bold yellow",
                f"Warning: {left:,} entries were excluded, more than the {totals.files + totals.links:,} saved;",
            )
            + f" most of them: {reasons[worst]}."
        )


def _report_skipped(session: Session, why: str) -> int:
    if session.json:
        write_json({"status": "skipped", "reason": why})
    return 0


def _folder(session: Session) -> bytes:
    """Return the current folder; empty if it no longer exists, which is no error for a hook."""
    try:
        return session.cwd
    except NoWorkspace:
        return b""


def _text(text: str) -> str:
    """Return the argument as valid Unicode: bytes that are not UTF-8 become replacement characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _word(what: str, text: str) -> str:
    text = _text(text)
    if len(text) > 200 or not text.isprintable() or text != text.strip():
        raise Usage(
            f"{text!r} is not a valid {what}.", "Give one line of at most 200 characters, without spaces around it."
        )
    return text
