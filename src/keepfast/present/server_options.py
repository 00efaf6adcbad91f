"""Options that the command line passes to a server; front ends do not import one another."""

from __future__ import annotations

from typing import NamedTuple


class McpOptions(NamedTuple):
    """Options of the MCP server, from the command line of `keepfast mcp`."""

    cwd: bytes
    config: str | None = None
    store: str | None = None
    http: bool = False
    port: int = 0
    token_file: str | None = None
