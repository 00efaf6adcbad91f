"""`keepfast hook`: what an agent's client runs at its events."""

from __future__ import annotations

import click

from keepfast.cli.session import Session, common
from keepfast.model.errors import Failed


@click.command()
@click.argument("agent")
@click.option("--part", default="1", metavar="N", help="Which part of the brief this hook delivers.")
@click.option("--config", default=None, metavar="FILE", help="Use this settings file.")
@common
def hook(session: Session, agent: str, part: str, config: str | None) -> int:
    """Attend to an event of AGENT (claude-code), whose payload is on standard input."""
    if session.start is None:
        raise Failed("There is only the command line here.")
    return session.start("hook", [agent, "--part", part, *(["--config", config] if config else [])])
