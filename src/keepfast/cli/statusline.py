"""`keepfast statusline`: what a client shows below its prompt; the work is done in `hook/statusline.py`."""

from __future__ import annotations

import click

from keepfast.cli.session import Session


@click.command()
@click.option("--then", metavar="COMMAND", help="Your own status line, shown behind ours; it reads the same input.")
@click.pass_obj
def statusline(session: Session, then: str | None) -> int:
    """Read a status line's payload from standard input; write context used, limits and the last checkpoint.

    The figures are kept for the session's hooks. `keepfast install claude --statusline` sets it up.
    """
    assert session.start is not None
    return session.start("statusline", then)
