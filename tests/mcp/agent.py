"""An agent that calls tools: in this process, or over the real program's standard streams."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.types import CallToolResult

from keepfast.mcp.server import build
from keepfast.mcp.workspace_access import WorkspaceAccess
from keepfast.present.environment import Environment
from keepfast.present.server_options import McpOptions
from tests.equipment.box import SOURCE, Box


class Answer:
    """What a call gave."""

    def __init__(self, result: CallToolResult) -> None:
        self.failed = bool(result.is_error)
        self.structured: dict[str, Any] = result.structured_content or {}
        self.text = "\n".join([getattr(part, "text", "") for part in result.content])

    def __getitem__(self, key: str) -> Any:
        return self.structured[key]


class Agent:
    """One client of one workspace."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> Answer:
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        return Answer(result)


Scenario = Callable[[Agent], Awaitable[Any]]


def access(box: Box, **options: Any) -> WorkspaceAccess:
    environment = Environment({name.encode(): value.encode() for name, value in box.variables.items()})
    return WorkspaceAccess(McpOptions(str(box.project).encode(), **options), environment, lambda: box.now)


def within(box: Box, scenario: Scenario, **options: Any) -> Any:
    """Play a scenario against a server in this process."""

    async def play() -> Any:
        async with Client(build(access(box, **options))) as client:
            return await scenario(Agent(client))

    return asyncio.run(play())


def call(box: Box, tool: str, **arguments: Any) -> Answer:
    """One call of one tool."""

    async def scenario(agent: Agent) -> Answer:
        return await agent.call(tool, **arguments)

    answer: Answer = within(box, scenario)
    return answer


def server(box: Box, *words: str) -> StdioServerParameters:
    """The real program, as a client would start it."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "keepfast", "-C", str(box.project), "mcp", *words],
        env={**box.variables, "PYTHONPATH": str(SOURCE)},
    )


def outside(box: Box, scenario: Scenario) -> Any:
    """Play a scenario against a process of its own."""

    async def play() -> Any:
        async with Client(server(box)) as client:
            return await scenario(Agent(client))

    return asyncio.run(play())
