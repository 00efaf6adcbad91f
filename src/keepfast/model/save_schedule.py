"""When to save a tree that keeps changing: once it settles, not too often, and never too late."""

from __future__ import annotations


class SaveSchedule:
    """Decides when to save. Moments are seconds of a monotonic clock.

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
        """Whether anything has changed since the last save."""

    def changed(self, now: float) -> None:
        if self.first is None:
            self.first = now
        self.last, self.unsaved = now, True

    def due(self) -> float | None:
        """Return the moment of the next save; None if there is nothing to save."""
        if self.first is None:
            return None
        moment = min(self.last + self.settle, self.first + self.at_most)
        return moment if self.saved_at is None else max(moment, self.saved_at + self.at_most)

    def saved(self, now: float, created_version: bool) -> None:
        """Record a completed save. Only one that created a version counts for the distance between saves."""
        self.first, self.unsaved = None, False
        if created_version:
            self.saved_at = now

    def failed(self, now: float) -> None:
        """Record a failed save: the next change tries again."""
        self.first, self.saved_at = None, now
