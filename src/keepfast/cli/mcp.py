"""`keepfast mcp`: the MCP server for this workspace."""

from __future__ import annotations

import click

from keepfast.cli.numbers import Whole
from keepfast.cli.session import Session
from keepfast.model.errors import Failed, Usage, extra
from keepfast.present.server_options import McpOptions

PORT = 8418


@click.command()
@click.option("--http", is_flag=True, help="Serve HTTP on loopback instead of standard input and output.")
@click.option(
    "--port",
    type=Whole(0, 65535),
    default=None,
    metavar="N",
    help=(f"Port for --http (default {PORT}; 0: any free port)."),
)
@click.option("--token-file", metavar="FILE", help="File with the token for --http; created if missing.")
@click.pass_obj
def mcp(session: Session, http: bool, port: int | None, token_file: str | None) -> int:
    """Serve checkpoints and recall of the current workspace to an agent over MCP."""
    if not http and (port is not None or token_file is not None):
        raise Usage("--port and --token-file need --http.")
    if session.start is None:
        raise Failed("The server cannot be started from here.")
    port = PORT if port is None else port
    options = McpOptions(session.cwd, session.given_config, session.given_store, http, port, token_file)
    try:
        return session.start("mcp", options, session.environment, session.now)
    except ModuleNotFoundError as error:
        raise Failed(f"The MCP server needs the package {error.name!r}.", extra("mcp")) from None
