"""The background without processes: work is done at once, by whoever asks for it. A real one, only without patience."""

from __future__ import annotations

from collections.abc import Callable

from keepfast.attending import Attending
from keepfast.core.agent_event import AgentEvent
from keepfast.engine import Engine


class Inline:
    """Implements the port `Background` of `keepfast.attending`."""

    def detach(self, work: Callable[[], object]) -> None:
        work()

    def attempt(self, work: Callable[[], bytes], seconds: float) -> bytes | None:
        return work()

    def tidy(self, folder: bytes) -> None:
        pass

    def pause(self, seconds: float) -> None:
        pass


def attending(engine: Engine, event: AgentEvent) -> Attending:
    return Attending(engine.place, engine.settings, lambda: engine, engine.clock, Inline(), event)
