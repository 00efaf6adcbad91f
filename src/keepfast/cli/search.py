"""`keepfast search`: find checkpoints by message, name, tag or path."""

from __future__ import annotations

import click

from keepfast.cli.numbers import Whole
from keepfast.cli.session import Session, common, write_json
from keepfast.present.json_forms import of_checkpoint, of_path
from keepfast.present.terminal import age, one_line
from keepfast.store.search import search as find
from keepfast.workspace.marker import show


@click.command()
@click.argument("text", metavar="TEXT")
@click.option("--limit", type=Whole(1), default=50, metavar="N", help="Show at most N matches (default 50).")
@common
def search(session: Session, text: str, limit: int) -> None:
    """Search messages, names, tags and paths for TEXT, ignoring case.

    TEXT is literal, not a pattern. For a path, the newest version that has it is shown.
    """
    _, workspace = session.workspace()
    hits = find(session.repository, session.engine.place.path, workspace.id, text, limit)
    if session.json:
        listed = []
        for hit in hits:
            what = of_path(hit.path) if hit.path else {"text": hit.text.replace("\n", " ")}
            listed.append({"where": hit.where, **what, "checkpoint": of_checkpoint(hit.checkpoint)})
        write_json(listed)
        return
    if not hits:
        session.remark("No match.")
        return
    now = session.now()
    rows = [
        [
            f"v{hit.checkpoint.version}",
            age(hit.checkpoint.created_at, now),
            hit.where,
            show(hit.path) if hit.path else one_line(hit.text.replace("\n", " ")),
        ]
        for hit in hits
    ]
    for line in session.paint.table(["VERSION", "WHEN", "WHERE", "FOUND"], rows, give=3):
        session.print(line)
