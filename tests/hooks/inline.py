"""The background without processes: work is done at once, by whoever asks for it. A real one, only without patience."""

from __future__ import annotations

from collections.abc import Callable


class Inline:
    """Implements the port `Background` of `holdfast.attending`."""

    def detach(self, work: Callable[[], object]) -> None:
        work()

    def attempt(self, work: Callable[[], bytes], seconds: float) -> bytes | None:
        return work()

    def tidy(self, folder: bytes) -> None:
        pass
