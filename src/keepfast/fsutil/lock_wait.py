"""How long this process waits for a lock that another process holds, and who is told of a wait."""

from __future__ import annotations

from collections.abc import Callable

COMMAND, HOOK = 30.0, 2.0
"""Seconds that a command waits, and a hook while its client waits for the answer."""


class Waiting:
    """Seconds to wait before `Busy`, and where a wait of more than a moment is announced.

    None waits until the lock is free, which is for work in the background.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.announce: Callable[[str], None] = lambda text: None


WAITING = Waiting()
"""What holds for this process; front ends set it."""
