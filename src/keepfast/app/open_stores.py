"""Repositories that stay open between requests, for a process that saves often."""

from __future__ import annotations

import os

from keepfast.store.place import Place
from keepfast.store.repository import Repository

MAX_OPEN = 8
Identity = tuple[tuple[int, ...], ...]


class OpenStores:
    """Opens a store once, and again if its files or keys were replaced."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, bool], tuple[Identity, Repository]] = {}

    def repository(self, place: Place) -> Repository:
        """Return the open repository of the place. Raises what `Place.open` raises."""
        key = place.path, place.keys, place.durable
        identity = _identity(place)
        known = self._open.pop(key, None)
        if known is not None and known[0] != identity:
            known[1].close()
            known = None
        if known is None:
            while len(self._open) >= MAX_OPEN:
                self._open.pop(next(iter(self._open)))[1].close()
            known = _identity(place), place.open(small_cache=True)
        elif place.expected:
            place.id()
        self._open[key] = known  # the newest is last
        return known[1]

    def paths(self) -> list[str]:
        """Return the folders of the stores that are open."""
        return sorted({path for path, _, _ in self._open})

    def close(self) -> None:
        for _, repository in self._open.values():
            repository.close()
        self._open.clear()


def _identity(place: Place) -> Identity:
    """Return what changes when the store, its ledger or its keys are replaced."""
    return tuple([_seen(path) for path in (f"{place.path}/format", f"{place.path}/ledger.db", place.keys)])


def _seen(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    changed = status.st_mtime_ns if os.path.isdir(path) else 0  # a folder of keys: another key came or went
    return status.st_dev, status.st_ino, changed
