"""The HTTP server without its token, for the conformance suite, which cannot send one: `open_server.py HOME PROJECT`."""

from __future__ import annotations

import sys
import time

import uvicorn
from mcp.server import MCPServer

from keepfast.mcp.http import HOST, PATH, application, listen
from keepfast.mcp.server import build
from keepfast.mcp.workspace_access import WorkspaceAccess
from keepfast.present.environment import Environment
from keepfast.present.server_options import McpOptions


def with_fixtures(server: MCPServer) -> MCPServer:
    """Resources under the names that the suite reads; ours have names of their own."""

    @server.resource("test://static-text", mime_type="text/plain")
    def text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:
        return f'{{"id": "{id}", "templateTest": true, "data": "Data for ID: {id}"}}'

    return server


if __name__ == "__main__":
    home, project = (word.encode() for word in sys.argv[1:])
    listening = listen(0)
    port = listening.getsockname()[1]
    server = with_fixtures(build(WorkspaceAccess(McpOptions(project), Environment({b"HOME": home}), time.time_ns)))
    print(f"http://{HOST}:{port}{PATH}", flush=True)
    uvicorn.Server(uvicorn.Config(application(server, port), log_level="error")).run(sockets=[listening])
