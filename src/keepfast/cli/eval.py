"""`keepfast eval`: how much of what recorded sessions needed next the brief would have held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from keepfast.cli.numbers import Whole
from keepfast.cli.session import Session, common, write_json

if TYPE_CHECKING:
    from keepfast.resume.measurement import Report


@click.command("eval")
@click.argument("transcripts", nargs=-1, required=True, metavar="TRANSCRIPTS...")
@click.option("--tokens", type=Whole(500, 100_000), default=5_000, metavar="N", help="The whole brief (5000).")
@click.option("--calls", type=Whole(5, 200), default=20, metavar="N", help="Calls to look ahead (20).")
@click.option("--refit", is_flag=True, help="Fit the weights anew for each project, on the other projects alone.")
@click.option("--plot", metavar="FILE", help="Write the table as an SVG picture.")
@common
def eval_(
    session: Session, transcripts: tuple[str, ...], tokens: int, calls: int, refit: bool, plot: str | None
) -> None:
    """Stop recorded sessions at several moments, build the brief, and look for what the next calls needed in it.

    TRANSCRIPTS are files or folders of them. No model is asked. Other ways to fill the same room stand in the same table.
    """
    from time import process_time

    from keepfast.cli.eval_page import picture
    from keepfast.model.errors import NotFound
    from keepfast.resume.measurement import find, measure

    paths = find(transcripts)
    if not paths:
        raise NotFound("No transcripts (.jsonl, .jsonl.gz) are there.", "Name files, or folders that hold them.")
    with session.progress("transcripts") as progress:
        report = measure(paths, tokens=tokens, calls=calls, refit=refit, clock=process_time, progress=progress)
    if plot is not None:
        with open(plot, "w", encoding="utf-8") as file:
            file.write(picture(report))
    if session.json:
        write_json(report.to_json())
        return
    _print(session, report)


def _print(session: Session, report: Report) -> None:
    from keepfast.cli.eval_page import lines

    for line in lines(report, session.paint):
        session.print(line)
