"""`keepfast hook`: the command that an agent's client runs at its events."""

from __future__ import annotations

import click

from keepfast.cli.session import Session, common
from keepfast.model.errors import Failed


@click.command()
@click.argument("agent")
@click.option("--part", default="1", metavar="N", help="Deliver part N of the resume brief (default 1).")
@click.option("--config", default=None, metavar="FILE", help="Use this settings file.")
@common
def hook(session: Session, agent: str, part: str, config: str | None) -> int:
    """Handle an event of AGENT (claude-code). Read its payload from standard input."""
    if session.start is None:
        raise Failed("`keepfast hook` cannot run here: only the command line is available.")
    return session.start("hook", [agent, "--part", part, *(["--config", config] if config else [])])
