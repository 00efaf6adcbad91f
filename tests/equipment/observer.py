"""What a child does at the named steps of its work: note them, or die at one of them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable


def observer(listing: str | None, kill: str | None) -> Callable[[str], None]:
    """Append the name of every step to the file `listing`; end without warning at `kill`, a name and its occurrence."""
    seen: Counter[str] = Counter()
    name, _, number = (kill or ":0").rpartition(":")
    out = os.open(listing, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if listing else -1

    def observe(step: str) -> None:
        seen[step] += 1
        if out >= 0:
            os.write(out, step.encode() + b"\n")
        if step == name and seen[step] == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

    return observe
