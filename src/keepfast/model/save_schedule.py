"""When to save a tree that keeps changing: once it settles, not too often, and never too late."""

from __future__ import annotations


class Rhythm:
    """Moments are seconds on any clock that only goes forward.

    A save is due when nothing changed for `settle` seconds. Two saves are at least `at_most` seconds apart, and a
    change never waits longer than that.
    """

    __slots__ = ("at_most", "first", "last", "saved_at", "settle", "unsaved")

    def __init__(self, settle: float, at_most: float) -> None:
        self.settle, self.at_most = settle, at_most
        self.first: float | None = None
        self.last = 0.0
        self.saved_at: float | None = None
        self.unsaved = False
        """Has something changed that no save has seen?"""

    def changed(self, now: float) -> None:
        if self.first is None:
            self.first = now
        self.last, self.unsaved = now, True

    def due(self) -> float | None:
        """The moment of the next save, None if there is nothing to save."""
        if self.first is None:
            return None
        moment = min(self.last + self.settle, self.first + self.at_most)
        return moment if self.saved_at is None else max(moment, self.saved_at + self.at_most)

    def saved(self, now: float, made: bool) -> None:
        """Everything was looked at; `made` if it made a version. A look that finds nothing does not count."""
        self.first, self.unsaved = None, False
        if made:
            self.saved_at = now

    def failed(self, now: float) -> None:
        """The next change tries again."""
        self.first, self.saved_at = None, now
