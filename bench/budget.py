"""How long a run may take: every case has a share of the time that is left, and ends when that is used up."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

COMPACTION = "compaction"
# How much longer one case takes than another, on trees of one size; and the trees among themselves.
OF_CASES = {"first": 6.0, "edit-1000": 2.0, "mixed-1000": 2.0, "edit-1mb": 2.0, "insert-1mb": 2.0, "history": 4.0}
OF_TREES = {"linux": 4.0, "node_modules": 4.0, "project": 4.0, "binaries": 3.0}
OF_COMPACTION = 4.0
MIN_RUNS = 2
"""Fewer say nothing. A case that was begun has as many, whatever the time."""


class Budget:
    """The time of a run, shared out among its cases in their order. Without a number of minutes it never ends."""

    def __init__(
        self, minutes: float | None, cases: list[tuple[str, str]], clock: Callable[[], float] = monotonic
    ) -> None:
        self.minutes = minutes
        self.cases = [*cases, *dict.fromkeys((tree, COMPACTION) for tree, _ in cases)]
        self.total = len(self.cases)
        self._clock = clock
        self._begun = clock()
        self._end = 0.0

    def begin(self, tree: str, case: str) -> bool:
        """Give the case its share; False if no time is left for it."""
        weights = [weight(*one) for one in self.cases]
        here = (tree, case)
        share = weight(*here) / sum(weights) if here in self.cases else 0.0
        if here in self.cases:
            self.cases.remove(here)
        left = self.left()
        if left is None:
            return True
        self._end = self._clock() + max(left, 0.0) * share
        return left > 0

    def is_over(self) -> bool:
        """Return whether the share of the present case is used up."""
        return self.minutes is not None and self._clock() >= self._end

    def left(self) -> float | None:
        """Seconds that are left for the whole run; None if there is no end to it."""
        return None if self.minutes is None else self.minutes * 60 - (self._clock() - self._begun)

    def share(self, most: float) -> float:
        """Seconds that one command of the present case may take."""
        return most if self.minutes is None else max(min(most, self._end - self._clock()), 1.0)

    def __str__(self) -> str:
        """Where the run is: the number of the case, and the time."""
        spent = (self._clock() - self._begun) / 60
        end = "" if self.minutes is None else f" of {self.minutes:g}"
        return f"part {self.total - len(self.cases)} of {self.total}, {spent:.0f}{end} min"


def weight(tree: str, case: str) -> float:
    return OF_TREES.get(tree, 1.0) * (OF_COMPACTION if case == COMPACTION else OF_CASES.get(case, 1.0))
