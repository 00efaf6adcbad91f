"""The background without processes: work is done at once, by whoever asks for it. A real one, only without patience."""

from __future__ import annotations

from collections.abc import Callable

from keepfast.app.checkpoint import Engine
from keepfast.app.hooks import HookCall
from keepfast.model.agent_event import AgentEvent


class Inline:
    """Implements the port `Background` of `keepfast.app.hooks`."""

    def leave_to_process(self, why: str) -> None:
        pass

    def detach(self, work: Callable[[], object], at: int = 0) -> None:
        work()

    def attempt(self, work: Callable[[], bytes], seconds: float) -> bytes | None:
        return work()

    def tidy(self, folder: bytes) -> None:
        pass

    def pause(self, seconds: float) -> None:
        pass


def attending(engine: Engine, event: AgentEvent) -> HookCall:
    return HookCall(engine.place, engine.settings, lambda: engine, engine.clock, Inline(), event)
