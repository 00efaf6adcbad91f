"""Named steps of every write, so that tests can stop a process exactly there."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

observer: Callable[[str], None] | None = None


def step(name: str) -> None:
    if observer is not None:
        observer(name)
