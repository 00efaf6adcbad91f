"""`keepfast list`: checkpoints, newest first; `keepfast latest`: the first of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from keepfast.app.inspect import as_compared
from keepfast.cli.numbers import Whole
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import NotFound
from keepfast.present.json_forms import of_checkpoint, of_work
from keepfast.present.terminal import age, one_line, size
from keepfast.store.known_stores import last_unprotected_folders
from keepfast.store.rows import CheckpointRow, Query
from keepfast.workspace.marker import show

MAX_SHOWN = 50
OPTIONS = (
    click.option("--session", "session_id", default="", metavar="ID", help="Show only checkpoints of this session."),
    click.option("--task", "task_id", default="", metavar="ID", help="Show only checkpoints of this task."),
    click.option(
        "--trigger",
        default="",
        metavar="NAME",
        help=("Show only checkpoints with this trigger, such as manual or auto."),
    ),
    click.option("--tag", default="", metavar="TAG", help="Show only checkpoints with this tag."),
    click.option(
        "--all",
        "everything",
        is_flag=True,
        help="Also show checkpoints of single tool calls, and those that restores make.",
    ),
    click.option("--all-workspaces", is_flag=True, help="Show checkpoints of every workspace in the store."),
)


LIMIT_HELP = "Show at most N checkpoints; 0 shows all (default 50, with --json all)."


def filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that filter checkpoints to a command."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@click.command("list")
@filter_options
@click.option("--limit", type=Whole(0), default=None, metavar="N", help=LIMIT_HELP)
@common
def list_(session: Session, limit: int | None, **filters: Any) -> None:
    """List checkpoints, newest first.

    Checkpoints of single tool calls, and safety checkpoints made by restores, are shown only with --all or --trigger.
    """
    most = limit if limit is not None else 0 if session.json else MAX_SHOWN
    rows, labels = _matching_rows(session, most + 1 if most else 0, **filters)
    more = bool(most) and len(rows) > most
    rows = rows[:most] if most else rows
    if session.json:
        write_json(_facts(rows, labels))
        return
    if not rows:
        session.remark(_no_match_message(filters))
        return
    _as_table(session, rows, labels)
    session.remark_unknown_settings()
    if more:
        session.remark(f"There are more. Use `--limit 0` to show all, or `--limit {2 * most}` for twice as many.")


@click.command()
@filter_options
@click.option("--limit", type=Whole(0), default=None, metavar="N", hidden=True)  # as `list` has it, without effect
@common
def latest(session: Session, limit: int | None, **filters: Any) -> None:
    """Show the newest checkpoint that matches the filters: the first one that `list` shows with the same options.

    --json prints one object. `show` prints more about a checkpoint.
    """
    rows, labels = _matching_rows(session, 1, **filters)
    if not rows:
        raise NotFound(_no_match_message(filters))
    if session.json:
        header = session.repository.document(rows[0])[0]
        write_json({**_facts(rows, labels)[0], **of_work(rows[0], header)})
        return
    _as_table(session, rows, labels)


def _matching_rows(
    session: Session,
    most: int,
    session_id: str,
    task_id: str,
    trigger: str,
    tag: str,
    everything: bool,
    all_workspaces: bool,
) -> tuple[list[CheckpointRow], dict[str, bytes]]:
    """Return the matching checkpoints, newest first, and with --all-workspaces a label for each workspace's id."""
    workspace = "" if all_workspaces else session.workspace()[1].id
    repository = session.repository
    is_whole = everything or bool(trigger)
    rows = repository.find(
        Query(workspace, session_id, task_id, trigger, tag, limit=most, safety=is_whole, light=is_whole)
    )
    # A workspace without a folder is labelled by its id, which `fork` accepts.
    labels = {row.id: row.path or row.id.encode("ascii") for row in repository.workspaces()} if all_workspaces else {}
    return as_compared(session.repository, rows), labels


def _no_match_message(filters: dict[str, Any]) -> str:
    limited = any(filters[key] for key in ("session_id", "task_id", "trigger", "tag"))
    return "No checkpoint matches." if limited else "No checkpoint yet. Run `keepfast save`."


def _facts(rows: list[CheckpointRow], labels: dict[str, bytes]) -> list[dict[str, Any]]:
    return [{**of_checkpoint(row), **({"workspace": show(labels[row.workspace])} if labels else {})} for row in rows]


def _workspace_label(label: bytes, last_folders: dict[str, bytes]) -> str:
    """Return a workspace's folder; for one without a folder its id, and its last folder if known."""
    last_folder = last_folders.get(label.decode("ascii", "replace"))
    return f"{show(label)} (was {show(last_folder)})" if last_folder is not None else show(label)


def _as_table(session: Session, rows: list[CheckpointRow], labels: dict[str, bytes]) -> None:
    now, head, lines = session.now(), ["VERSION", "WHEN", "TRIGGER", "MESSAGE", "FILES", "CHANGED", "SIZE"], []
    for row in rows:
        lines.append(
            [
                f"v{row.version}",
                age(row.created_at, now),
                row.trigger,
                _message(row),
                f"{row.files:,}",
                f"{row.changed:,}",
                size(row.bytes),
            ]
        )
    if labels:
        head.append("WORKSPACE")
        before = last_unprotected_folders(session.engine.place.unprotected)
        for line, row in zip(lines, rows, strict=True):
            line.append(_workspace_label(labels[row.workspace], before))
    for text in session.paint.table(head, lines, right="    rrr", give=3):
        session.print(text)


def _message(row: CheckpointRow) -> str:
    """Return message, name, tags and pin as one column."""
    parts = [f'"{one_line(row.message)}"'] if row.message else []
    if row.name:
        parts.append(f"[{row.name}]")
    parts += [f"#{tag}" for tag in row.tags.split("\n") if tag]
    if row.pinned:
        parts.append("(pinned)")
    return " ".join(parts)
