"""How close the blocks of a file are to the lines that were read and changed in it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import exp

from keepfast.agents.working_file import Span, WorkingFile

LN2 = 0.6931471805599453
HALF, LONG, SHORT = 12.0, 40.0, 4.0  # tool calls until a sign counts half
FAR = 25.0
NARROW, SMALL = 60, 40  # a read of so many lines or fewer was meant for them
MAX_SPANS = 20
NOWHERE = 999


def fading(age: float, half: float = HALF) -> float:
    return exp(-LN2 * max(age, 0) / half)


class Nearness:
    """One figure for each block: thousands of blocks by dozens of spans, so that each span touches only the blocks it concerns."""

    def __init__(self, file: WorkingFile, blocks: list[tuple[int, int]], now: int) -> None:
        self._tops = [first + 1 for first, _ in blocks]
        self._bottoms = [last + 1 for _, last in blocks]
        count = len(blocks)
        self.closest = [NOWHERE] * count  # lines to the nearest change
        self.overs = [0] * count  # changes in it
        self.near_long = [0.0] * count
        self.read = [0.0] * count
        self.read_lately = [0.0] * count
        self.narrow = [0.0] * count
        self.small = [0.0] * count
        hunks = [hunk for hunk in file.hunks[-2 * MAX_SPANS :] if hunk.is_placed][-MAX_SPANS:]
        if hunks:
            self._changed(hunks, now)
        last_edit = max([hunk.at for hunk in file.hunks[-MAX_SPANS:]], default=-1)
        for span in file.reads[-MAX_SPANS:]:
            self._seen(span, now, span.at > last_edit)

    def covered(self, start: int, end: int) -> range:
        """Return the blocks that lines `start` to `end` (from 1) touch."""
        return range(bisect_left(self._bottoms, start), bisect_right(self._tops, end))

    def distance(self, number: int, span: Span) -> int:
        """Return lines between a block and a span; 0 where they touch."""
        return max(0, span.start - self._bottoms[number], self._tops[number] - span.end)

    def _changed(self, hunks: list[Span], now: int) -> None:
        for hunk in hunks:
            for number in self.covered(hunk.start, hunk.end):
                self.overs[number] += 1
                self.closest[number] = 0
        starts = sorted([hunk.start for hunk in hunks])
        ends = sorted([hunk.end for hunk in hunks])
        # The freshest first: most blocks need no other.
        fresh = sorted([(-fading(now - hunk.at, LONG), hunk.start, hunk.end) for hunk in hunks])
        for number, (top, bottom) in enumerate(zip(self._tops, self._bottoms, strict=True)):
            if self.closest[number]:
                below = bisect_right(starts, bottom)
                above = bisect_left(ends, top) - 1
                nearest = NOWHERE
                if below < len(starts):
                    nearest = min(nearest, starts[below] - bottom)
                if above >= 0:
                    nearest = min(nearest, top - ends[above])
                self.closest[number] = nearest
            best = 0.0
            for less, start, end in fresh:
                if -less <= best:
                    break
                distance = start - bottom if start > bottom else top - end if top > end else 0
                closeness = -less / (1 + distance / FAR)
                if closeness > best:
                    best = closeness
            self.near_long[number] = best

    def _seen(self, span: Span, now: int, since_edit: bool) -> None:
        fresh, lately = fading(now - span.at), fading(now - span.at, SHORT)
        narrow = fresh * min(1.0, NARROW / max(span.count, 1))
        small = fresh * min(1.0, SMALL / max(span.count, 1)) if since_edit else 0.0
        for number in self.covered(span.start, span.end):
            if fresh > self.read[number]:
                self.read[number], self.read_lately[number] = fresh, lately
            if narrow > self.narrow[number]:
                self.narrow[number] = narrow
            if small > self.small[number]:
                self.small[number] = small
