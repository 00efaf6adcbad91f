"""The MCP server: what an agent may ask of keepfast by itself (docs/mcp.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keepfast.present.environment import Surroundings


def serve(options: Mapping[str, Any], around: Surroundings, clock: Callable[[], int]) -> int:
    """Serve until the client goes; return the exit code. `options`: `cwd`, `config`, `store`, `http`, `port`, `token_file`."""
    from keepfast.mcp.server import build
    from keepfast.mcp.visit import Visits

    visits = Visits(options, around, clock)
    if options.get("http"):
        from keepfast.mcp.http import serve_http

        return serve_http(build(visits), visits.token_file, int(options.get("port") or 0))
    from keepfast.mcp.wire import mend_standard_input

    mend_standard_input()
    build(visits).run("stdio")
    return 0
