"""An event of an agent's client, in terms that no single client owns. A plain class: a hook creates it in microseconds."""

from __future__ import annotations

SESSION_STARTS, SESSION_ENDS, PROMPT = "session_starts", "session_ends", "prompt"
TOOL_STARTS, TOOL_ENDED, TURN_ENDED, TURN_FAILED = "tool_starts", "tool_ended", "turn_ended", "turn_failed"
COMPACTION_STARTS, SUBAGENT_ENDED, OTHER = "compaction_starts", "subagent_ended", "other"


class AgentEvent:
    """One event. Whatever the client did not report is empty."""

    __slots__ = (
        "agent",
        "attended",
        "call",
        "can_ask",
        "client",
        "command",
        "context_tokens",
        "cwd",
        "kind",
        "last_answer",
        "likely_client",
        "model",
        "name",
        "paths",
        "project",
        "prompt",
        "reason",
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
        self.call = ""
        """The client's id of the tool call."""
        self.paths: tuple[str, ...] = ()
        self.writes = False
        """Whether this tool may change files."""
        self.reason = ""
        """Source of a start, reason of an end, kind of an error, or who requested a compaction."""
        self.prompt = ""
        self.last_answer = ""
        """What the agent answered at the end of its turn."""
        self.subagent = self.subagent_kind = ""
        self.model, self.context_tokens = "", 0
        self.client = 0
        """The process id of the client, which stays when its session changes."""
        self.likely_client = 0
        """If the client does not report that: the process that is probably it, only used to tell two clears apart."""
        self.attended = True
        self.slash = ""
        """Prefix of our own commands in this client; empty if it has none."""
        self.can_ask = False
        """Whether a person would see our question before this tool runs."""
