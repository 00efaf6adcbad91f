"""`holdfast list`: checkpoints, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.frontends.cli.numbers import Whole
from holdfast.frontends.cli.session import Session, common, write_json

if TYPE_CHECKING:
    from holdfast.store.rows import CheckpointRow

SHOWN = 50


@click.command("list")
@click.option("--session", "session_id", default="", metavar="ID", help="Only those of this session.")
@click.option("--task", "task_id", default="", metavar="ID", help="Only those of this task.")
@click.option("--trigger", default="", metavar="NAME", help="Only those with this trigger, such as manual or auto.")
@click.option("--tag", default="", metavar="TAG", help="Only those with this tag.")
@click.option("--limit", type=Whole(0), default=None, metavar="N", help="At most so many; 0 for all.")
@click.option("--all-workspaces", is_flag=True, help="Of every workspace in the store.")
@common
def list_(
    session: Session, session_id: str, task_id: str, trigger: str, tag: str, limit: int | None, all_workspaces: bool
) -> None:
    """List checkpoints, newest first.

    Without --limit a table shows the newest 50, and --json gives all.
    """
    from holdfast.store.rows import Query

    most = limit if limit is not None else 0 if session.json else SHOWN
    workspace = "" if all_workspaces else session.workspace()[1].id
    query = Query(workspace, session_id, task_id, trigger, tag, limit=most + 1 if most else 0)
    rows = session.repository.ledger.find(query)
    more = bool(most) and len(rows) > most
    rows = rows[:most] if most else rows
    homes = {row.id: row.path for row in session.repository.ledger.workspaces()} if all_workspaces else {}
    if session.json:
        _as_json(rows, homes)
        return
    if not rows:
        limited = bool(session_id or task_id or trigger or tag)
        session.remark("No checkpoint fits." if limited else "There is no checkpoint yet. Run `holdfast save`.")
        return
    _as_table(session, rows, homes)
    if more:
        session.remark(f"There are more: `--limit 0` shows all, `--limit {2 * most}` twice as many.")


def _as_json(rows: list[CheckpointRow], homes: dict[str, bytes]) -> None:
    from holdfast.frontends.facts import of_checkpoint
    from holdfast.workspace.find import show

    write_json([{**of_checkpoint(row), **({"workspace": show(homes[row.workspace])} if homes else {})} for row in rows])


def _as_table(session: Session, rows: list[CheckpointRow], homes: dict[str, bytes]) -> None:
    from holdfast.frontends.paint import age, size
    from holdfast.workspace.find import show

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
    if homes:
        head.append("WORKSPACE")
        for line, row in zip(lines, rows, strict=True):
            line.append(show(homes[row.workspace]))
    for text in session.paint.table(head, lines, right="    rrr", give=3):
        session.print(text)


def _message(row: CheckpointRow) -> str:
    """Message, name, tags and pin in one column."""
    from holdfast.frontends.paint import one_line

    parts = [f'"{one_line(row.message)}"'] if row.message else []
    if row.name:
        parts.append(f"[{row.name}]")
    parts += [f"#{tag}" for tag in row.tags.split("\n") if tag]
    if row.pinned:
        parts.append("(pinned)")
    return " ".join(parts)
