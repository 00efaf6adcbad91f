"""What an agent's client told us, in words that no client owns. A plain class: a hook builds one in microseconds."""

from __future__ import annotations

SESSION_STARTS, SESSION_ENDS, PROMPT = "session_starts", "session_ends", "prompt"
TOOL_STARTS, TOOL_ENDED, TURN_ENDED, TURN_FAILED = "tool_starts", "tool_ended", "turn_ended", "turn_failed"
COMPACTION_STARTS, SUBAGENT_ENDED, OTHER = "compaction_starts", "subagent_ended", "other"


class AgentEvent:
    """One event. Whatever the client did not tell is empty."""

    __slots__ = (
        "agent",
        "attended",
        "can_ask",
        "client",
        "command",
        "context_tokens",
        "cwd",
        "kind",
        "model",
        "name",
        "near",
        "paths",
        "project",
        "prompt",
        "reason",
        "said",
        "session",
        "slash",
        "subagent",
        "subagent_kind",
        "tool",
        "transcript",
        "writes",
    )

    def __init__(self, agent: str, kind: str, name: str = "") -> None:
        self.agent, self.kind = agent, kind
        self.name = name
        """The client's own name of the event."""
        self.session = self.transcript = ""
        self.cwd = b""
        self.project = b""
        """The folder in which the session began."""
        self.tool, self.command = "", ""
        self.paths: tuple[str, ...] = ()
        self.writes = False
        """May this tool change files?"""
        self.reason = ""
        """Why: the source of a start, the reason of an end, the kind of an error, who asked for a compaction."""
        self.prompt = self.said = ""
        self.subagent = self.subagent_kind = ""
        self.model, self.context_tokens = "", 0
        self.client = 0
        """The process id of the client, which stays when its session changes."""
        self.near = 0
        """Where the client does not tell that: the process that seems to be it, good for telling two clears apart."""
        self.attended = True
        self.slash = ""
        """What our own commands begin with in this client; empty where it has none."""
        self.can_ask = False
        """Is there a person who would see a question of ours before this tool runs?"""
