"""The MCP server: the tools that an agent may call by itself (docs/mcp.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keepfast.present.environment import Surroundings


def serve(options: Mapping[str, Any], around: Surroundings, clock: Callable[[], int]) -> int:
    """Serve until the client disconnects; return the exit code.

    `options`: `cwd`, `config`, `store`, `http`, `port`, `token_file`.
    """
    from keepfast.mcp.server import build
    from keepfast.mcp.workspace_access import WorkspaceAccess

    access = WorkspaceAccess(options, around, clock)
    if options.get("http"):
        from keepfast.mcp.http import serve_http

        return serve_http(build(access), access.token_file, int(options.get("port") or 0))
    from keepfast.mcp.wire import repair_standard_input

    repair_standard_input()
    build(access).run("stdio")
    return 0
