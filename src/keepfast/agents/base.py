"""The ports to a client: its hook payloads and answers (`Agent`), and its stored conversations (`Sessions`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from keepfast.model.agent_event import AgentEvent


class Agent(Protocol):
    """A client's hooks. Any module with these two functions implements it."""

    NAME: str

    def read(self, payload: bytes, environment: Mapping[bytes, bytes]) -> AgentEvent:
        """Return the event. Unknown events are `OTHER`; raises `ValueError` if it is no payload at all."""

    def answer(self, event: AgentEvent, reply: Reply) -> tuple[bytes, int]:
        """Return what the client accepts on standard output for this event, and an exit code that blocks nothing."""


class Sessions(Protocol):
    """A client's stored conversations. Any module with these functions implements it."""

    def last_message(self, lines: bytes) -> str:
        """Return the id of the last message of the main conversation in these lines; empty if there is none."""

    def has_message(self, lines: bytes) -> bool:
        """Return whether these lines have a message of the main conversation."""

    def folder(self, home: str, variables: Mapping[str, str], cwd: str) -> str:
        """Return the folder in which the client looks for the sessions of the folder `cwd`."""

    def forked(self, lines: Iterable[bytes], session: str, places: Sequence[tuple[str, str]]) -> Iterator[bytes]:
        """Yield the lines of a transcript as those of another session, with paths moved as `places` say."""

    def base_of(self, path: str) -> str:
        """Return the client's own folder, from the path of a transcript in it; empty if it lies elsewhere."""

    def cwd_of(self, lines: Iterable[bytes]) -> str:
        """Return the folder in which a session began."""

    def command(self, session: str) -> list[str]:
        """Return the command that goes on with a session."""


class Reply:
    """A hook's reply: texts for the agent and its user, and what becomes of the tool call. Empty: no reply."""

    __slots__ = ("agent_text", "ask", "budget", "checkpoint", "deny", "failed", "user_text", "warning")

    def __init__(
        self,
        *,
        agent_text: str = "",
        user_text: str = "",
        budget: str = "",
        checkpoint: str = "",
        warning: bool = False,
        ask: str = "",
        deny: str = "",
        failed: str = "",
    ) -> None:
        self.agent_text, self.user_text = agent_text, user_text
        self.budget = budget
        """The notice of a crossed budget."""
        self.checkpoint, self.warning = checkpoint, warning
        self.ask = ask
        """A question for the user before the tool runs."""
        self.deny = deny
        """Why the tool must not run."""
        self.failed = failed
        """What went wrong, in one line for standard error."""

    def beside(self, other: Reply) -> Reply:
        """Add the other reply's texts and decisions to this one, and return it."""
        self.agent_text = "\n".join([text for text in (self.agent_text, other.agent_text) if text])
        self.user_text = "\n".join([text for text in (self.user_text, other.user_text) if text])
        self.ask, self.deny = self.ask or other.ask, self.deny or other.deny
        return self


__all__ = ["AgentEvent", "Reply"]
