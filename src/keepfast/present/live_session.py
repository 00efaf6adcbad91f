"""The agent's session that a command is run in, or beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from keepfast.state import sessions
from keepfast.state.pending_events import PendingEvent

if TYPE_CHECKING:
    from keepfast.present.environment import Surroundings

AGENT = "claude-code"


class LiveSession(NamedTuple):
    """`facts` are what hooks have noted of it (`state/sessions.py`), empty if there is none."""

    facts: dict[str, Any]
    is_around: bool
    """Is the command run by the session itself, so that its newest prompt is the one that runs it?"""
    others: int = 0
    """How many other sessions are open in this workspace, where we are beside them all."""

    @property
    def name(self) -> str:
        return self.text("session")

    @property
    def prompted(self) -> int:
        at = self.facts.get("prompted")
        return at if isinstance(at, int) else 0

    def text(self, key: str) -> str:
        return str(self.facts.get(key) or "")

    def event(self, trigger: str, cwd: str, at: int) -> PendingEvent:
        """An event of the session as a hook would have recorded it."""
        agent, model = AGENT if self.name else "", self.text("model")
        return PendingEvent(trigger, at, self.name, agent, cwd, self.text("transcript"), model=model)


def live_session(folder: str, around: Surroundings) -> LiveSession:
    """Return the session around us, else the one last heard of that is still open in this workspace.

    A client's process stays when its session changes; its variable with the session's id may be older than that.
    """
    client, named = around.text("CLAUDE_PID"), around.text("CLAUDE_CODE_SESSION_ID")
    known = [facts for facts in sessions.all_facts(folder) if not facts.get("ended")]
    for facts in known if client else ():
        if str(facts.get("client")) == client:
            return LiveSession(facts, True)
    if named:
        return LiveSession({**sessions.facts(folder, named), "session": named}, True)
    live = [facts for facts in known if sessions.is_alive(facts.get("client"))]
    return LiveSession(live[0] if live else {}, False, max(len(live) - 1, 0))
