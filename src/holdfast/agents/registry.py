"""The agents we know, by the name that stands in their hooks."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.agents.base import Agent

NAMES = ("claude-code",)


def agent(name: str) -> Agent | None:
    """Return the agent of that name; only its own module is loaded."""
    if name == "claude-code":
        from holdfast.agents import claude_code

        return claude_code
    return None
