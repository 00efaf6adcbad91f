"""The MCP server: the tools that an agent may call by itself (docs/mcp.md)."""

from __future__ import annotations

from collections.abc import Callable

from keepfast.mcp.http import serve_http
from keepfast.mcp.wire import repair_standard_input
from keepfast.mcp.workspace_access import WorkspaceAccess
from keepfast.present.environment import Environment
from keepfast.present.server_options import McpOptions


def serve(options: McpOptions, environment: Environment, clock: Callable[[], int]) -> int:
    """Serve until the client disconnects; return the exit code."""
    from keepfast.mcp.server import build

    access = WorkspaceAccess(options, environment, clock)
    if options.http:
        return serve_http(build(access), access.token_file, options.port)
    repair_standard_input()
    build(access).run("stdio")
    return 0
