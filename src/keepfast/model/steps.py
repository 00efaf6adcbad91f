"""Named steps of every write, at which tests can stop a process."""

from __future__ import annotations

from collections.abc import Callable

observer: Callable[[str], None] | None = None


def step(name: str) -> None:
    if observer is not None:
        observer(name)
