"""`keepfast save` and `keepfast checkpoint`: make a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Elsewhere, KeepfastError, NoWorkspace, Unreachable, Usage, sentence

if TYPE_CHECKING:
    from keepfast.app.inspect import Coverage
    from keepfast.model.event import Event, Outcome
    from keepfast.store.rows import CheckpointRow

NAMED = 5
"""Files that are too large, by name."""
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
def save(session: Session, **given: Any) -> int:
    """Save a checkpoint of the current workspace."""
    return _save(session, **given)


@click.group(invoke_without_command=True, subcommand_metavar="[list]")
@options
@common
def checkpoint(session: Session, **given: Any) -> int:
    """Save a checkpoint, like `save`; `checkpoint list` lists checkpoints."""
    if click.get_current_context().invoked_subcommand is not None:
        return 0
    return _save(session, **given)


@checkpoint.command("list", hidden=True, context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def checkpoint_list(ctx: click.Context, rest: tuple[str, ...]) -> Any:
    from keepfast.cli.lazy import with_globals
    from keepfast.cli.list import list_

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
    from keepfast.model.event import Event
    from keepfast.store.references import checked_name

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
    from keepfast.workspace.marker import show

    _ask_about_a_move(session)
    with session.progress("Saving") as progress:
        session.engine.progress = progress
        outcome = session.engine.handle(event)
    if outcome.status == "outside":
        raise NoWorkspace(f"{show(event.cwd)} is not inside a workspace.")
    _tidy(session, outcome)
    _announce(session, outcome)
    return 0


def _ask_about_a_move(session: Session) -> None:
    """Where nobody can be asked, the folder begins a history of its own; of a copy that goes without saying."""
    try:
        session.engine.find_workspace(session.cwd, adopting=True)
        session.say_renewed()
    except Elsewhere as apart:
        if apart.copied:
            return
        try:
            session.settle_move(apart)
        except Elsewhere:
            session.remark(
                f"{apart} This starts a separate history. If you moved the folder, run `keepfast init --moved`."
            )


def _save_quietly(session: Session, event: Event) -> int:
    """For hooks: silent unless saving was due and failed. What was skipped or failed is kept for `status`."""
    if not event.cwd:
        return 0
    session.go_on_by_last_good()
    engine = session.engine
    if session.settings.broken:
        engine.note_once(event.cwd, "noticed", event.trigger, session.settings.warnings[0])
    try:
        outcome = engine.handle(event)
    except (NoWorkspace, Unreachable) as error:
        is_kept = engine.note(event.cwd, "skipped", event.trigger, str(error))
        # Else the marker names a store of another home.
        is_ours = engine.place.expected or engine.nearest(event.cwd) is not None
        if not is_kept and is_ours and isinstance(error, Unreachable):
            session.warn(f"keepfast: {error}")  # nowhere to keep it for `status`: it is said now
        return _skipped(session, str(error))
    except Exception as error:
        engine.note(event.cwd, "failed", event.trigger, sentence(error), reported=True)
        raise
    _tidy(session, outcome)
    if session.json:
        _announce(session, outcome)
    return 0


def _tidy(session: Session, outcome: Outcome) -> None:
    """Let a process of its own merge packs when many have piled up, as the hook does."""
    # The workspace's marker tells it which store that is.
    if outcome.untidy:
        from keepfast.present import background

        background.tidy(session.cwd, session.config_path, session.around)


def _announce(session: Session, outcome: Outcome) -> None:
    from keepfast.app.inspect import coverage
    from keepfast.model.entry import REASONS
    from keepfast.present.json_forms import kept, left_out, of_checkpoint, of_coverage
    from keepfast.present.terminal import one_line

    duration = session.milliseconds()
    if outcome.checkpoint is None:
        write_json({"status": outcome.status})
        return
    row = session.repository.workspace(outcome.checkpoint.workspace)
    assert row is not None
    found = coverage(row)
    large = _too_large(session, outcome.checkpoint, row.path)
    if session.json:
        write_json(
            {
                "status": outcome.status,
                "checkpoint": of_checkpoint(outcome.checkpoint),
                "duration_ms": duration,
                "coverage": of_coverage(found),
                "notices": [*outcome.notices, *large],
            }
        )
        return
    title = f' "{one_line(outcome.message)}"' if outcome.message else ""
    took = f"{duration}ms" if duration < 10_000 else f"{duration / 1000:.1f}s"
    session.say(f"Created v{outcome.version}{title} ({took})")
    if outcome.version == 1 or outcome.notices:
        session.remark(f"Saved {kept(found)}.")
        if found.left_out:
            session.remark(f"Excluded: {left_out(found)}. Run `keepfast show --excluded` to list them.")
    _name_large(session, outcome.checkpoint)
    for notice in [*outcome.notices, *large]:
        session.warn(notice)
    _warn_of_poor(session, found, REASONS)
    session.remark_unknown_settings()


def _too_large(session: Session, checkpoint: CheckpointRow, root: bytes) -> list[str]:
    """What is kept, but too large for the description of the work."""
    from keepfast.app.state_document import too_large
    from keepfast.workspace.marker import show

    repository = session.repository
    try:
        header = repository.document(checkpoint)[0]
    except KeepfastError:
        return []  # it is saved; `verify` says what is wrong with it
    return too_large(repository, checkpoint, header, show(root), session.settings)


def _name_large(session: Session, checkpoint: CheckpointRow) -> None:
    """Name what is too large to be kept, at every save: nobody shall believe that it could come back."""
    from keepfast.model.entry import OVERSIZE
    from keepfast.present.terminal import size
    from keepfast.workspace.marker import show

    rows = session.repository.left_out(checkpoint.workspace, checkpoint.version)
    large = [row for row in rows if row.kind == OVERSIZE]
    if large:
        names = ", ".join([f"{show(row.path)} ({size(row.size)})" for row in large[:NAMED]])
        more = f" and {len(large) - NAMED:,} more" if len(large) > NAMED else ""
        session.warn(f"Excluded, larger than capture.max_file_size: {names}{more}.")


def _warn_of_poor(session: Session, found: Coverage, reasons: dict[str, str]) -> None:
    paint = session.warning_paint
    if found.files + found.links == 0:
        why = " Everything was excluded." if found.left_out else " The folder is empty."
        session.warn(paint("bold yellow", "Warning: no file was saved.") + why)
    elif found.is_poor:
        left = sum(found.left_out.values())
        worst = max(found.left_out, key=lambda kind: found.left_out[kind])
        session.warn(
            paint(
                "bold yellow",
                f"Warning: {left:,} entries were excluded, more than the {found.files + found.links:,} saved;",
            )
            + f" most of them: {reasons[worst]}."
        )


def _skipped(session: Session, why: str) -> int:
    if session.json:
        write_json({"status": "skipped", "reason": why})
    return 0


def _folder(session: Session) -> bytes:
    """The current folder; empty if it is gone, which is no trouble for a hook."""
    try:
        return session.cwd
    except NoWorkspace:
        return b""


def _text(text: str) -> str:
    """What was typed, as text that any database takes: bytes that are not UTF-8 become replacement characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _word(what: str, text: str) -> str:
    text = _text(text)
    if len(text) > 200 or not text.isprintable() or text != text.strip():
        raise Usage(f"{text!r} is not a {what}.", "Give one line of at most 200 characters, without spaces around it.")
    return text
