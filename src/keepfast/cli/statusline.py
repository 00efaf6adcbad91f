"""`keepfast statusline`: print a client's status line; `hook/statusline.py` does the work."""

from __future__ import annotations

import click

from keepfast.cli.session import Session


@click.command()
@click.option("--then", metavar="COMMAND", help="Run COMMAND with the same input, and append its output.")
@click.pass_obj
def statusline(session: Session, then: str | None) -> int:
    """Print context use, limits and the last checkpoint, from a status line payload on standard input.

    The figures are also stored for the session's hooks. Run `keepfast install claude --statusline` to set it up.
    """
    assert session.start is not None
    return session.start("statusline", then)
