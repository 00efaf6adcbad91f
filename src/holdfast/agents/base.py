"""The Agent port: what is known of a client's payloads and of the answers that it accepts."""

from __future__ import annotations

from holdfast.core.agent_event import AgentEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class Agent(Protocol):
        """One client. A module with these two functions is one."""

        NAME: str

        def read(self, payload: bytes, environment: Mapping[bytes, bytes]) -> AgentEvent:
            """Return the event. Unknown events are `OTHER`; raises `ValueError` if it is no payload at all."""

        def answer(self, event: AgentEvent, reply: Reply) -> tuple[bytes, int]:
            """Return what the client accepts on standard output for this event, and an exit code that blocks nothing."""


class Reply:
    """What the agent and its user are to be told. Empty: nothing."""

    __slots__ = ("ask", "budget", "checkpoint", "failed", "told_agent", "told_user", "warning")

    def __init__(
        self,
        *,
        told_agent: str = "",
        told_user: str = "",
        budget: str = "",
        checkpoint: str = "",
        warning: bool = False,
        ask: str = "",
        failed: str = "",
    ) -> None:
        self.told_agent, self.told_user = told_agent, told_user
        self.budget = budget
        """The notice of a crossed budget."""
        self.checkpoint, self.warning = checkpoint, warning
        self.ask = ask
        """A question for the user before the tool runs."""
        self.failed = failed
        """What went wrong, in one line for standard error."""


__all__ = ["AgentEvent", "Reply"]
