"""Finds the agent's session that runs a command, or is open in the same workspace."""

from __future__ import annotations

from typing import Any, NamedTuple

from keepfast.present.environment import Environment
from keepfast.state import sessions
from keepfast.state.pending_events import PendingEvent

AGENT = "claude-code"


class LiveSession(NamedTuple):
    """An agent's session; `facts` are what hooks recorded about it (`state/sessions.py`), empty if there is none."""

    facts: dict[str, Any]
    is_parent: bool
    """Whether the session runs this command, so that its newest prompt is the one that asked for it."""
    other_sessions: int = 0
    """How many other sessions are open in this workspace, if none of them runs this command."""

    @property
    def name(self) -> str:
        return self.text("session")

    @property
    def prompted_at(self) -> int:
        at = self.facts.get("prompted")
        return at if isinstance(at, int) else 0

    def text(self, key: str) -> str:
        return str(self.facts.get(key) or "")

    def event(self, trigger: str, cwd: str, at: int) -> PendingEvent:
        """Return an event of the session, as a hook would record it."""
        agent, model = AGENT if self.name else "", self.text("model")
        return PendingEvent(trigger, at, self.name, agent, cwd, self.text("transcript"), model=model)


def live_session(folder: str, environment: Environment) -> LiveSession:
    """Return the session that runs this command, else the most recently active open one in this workspace.

    Sessions are matched by the client's process first: its variable with the session's id may be outdated.
    """
    client, named = environment.text("CLAUDE_PID"), environment.text("CLAUDE_CODE_SESSION_ID")
    open_sessions = [facts for facts in sessions.all_facts(folder) if not facts.get("ended")]
    for facts in open_sessions if client else ():
        if str(facts.get("client")) == client:
            return LiveSession(facts, True)
    if named:
        return LiveSession({**sessions.facts(folder, named), "session": named}, True)
    live = [facts for facts in open_sessions if sessions.has_live_client(facts)]
    return LiveSession(live[0] if live else {}, False, max(len(live) - 1, 0))
