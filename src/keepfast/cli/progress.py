"""A progress bar for work that takes longer than a second."""

from __future__ import annotations

from time import monotonic
from typing import TextIO

DELAY_SECONDS, REDRAW_SECONDS = 1.0, 0.1
BAR_WIDTH = 24


class Progress:
    """A progress bar on one line: call it with (done, total); `clear` removes it."""

    def __init__(self, stream: TextIO, what: str) -> None:
        self.stream, self.what = stream, what
        self.drawn_at = 0.0
        self.visible = False
        self.shown_from = monotonic() + DELAY_SECONDS

    def __call__(self, done: int, total: int) -> None:
        now = monotonic()
        if now < self.shown_from or now - self.drawn_at < REDRAW_SECONDS:
            return
        self.drawn_at, self.visible = now, True
        self.stream.write(f"\r{line(self.what, done, total)}\x1b[K")
        self.stream.flush()

    def clear(self) -> None:
        if self.visible:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self.visible = False


def line(what: str, done: int, total: int) -> str:
    """Return a line such as `Saving [######..................] 25% 250 of 1,000`."""
    if total <= 0:
        return f"{what}  {done:,}"
    share = min(done / total, 1.0)
    filled = int(share * BAR_WIDTH)
    return f"{what}  [{'#' * filled}{'.' * (BAR_WIDTH - filled)}]  {share:4.0%}  {done:,} of {total:,}"
