"""The agents we know, by the name that their hook commands give."""

from __future__ import annotations

from keepfast.agents.base import Agent, Sessions
from keepfast.agents.claude import hooks as claude_code
from keepfast.agents.claude import sessions as claude_sessions

NAMES = ("claude-code",)


def agent(name: str) -> Agent | None:
    """Return the agent of that name; only its own module is loaded."""
    if name == "claude-code":
        return claude_code
    return None


def sessions(name: str) -> Sessions | None:
    """Return what is known of the transcripts of the agent of that name."""
    if name == "claude-code":
        return claude_sessions
    return None
