"""Which files the newest version holds exactly as they are on disk, as far as the stat cache can tell."""

from __future__ import annotations

from collections.abc import Container
from os import lstat

from keepfast.workspace import stat_cache
from keepfast.workspace.stat_cache import LEFT, NOT_ENTERED, UNREAD, Cache


class SavedFiles:
    """The files that the newest version holds in some folders."""

    def __init__(self, cache: Cache, root: bytes, folders: Container[bytes]) -> None:
        self.root = root
        self._cached: dict[bytes, tuple[int, int, int]] = {}
        ctimes, sizes, inodes = cache.views()[:3]
        names, at = cache.names(), 0
        for folder, count in zip(cache.paths(), cache.counts(), strict=True):
            if folder in folders:
                start = folder + b"/" if folder else b""
                for number in range(at, at + count):
                    self._cached[start + names[number]] = (ctimes[number], sizes[number], inodes[number])
            at += count
        for mark in cache.marks():
            if mark[:1] in (LEFT, NOT_ENTERED, UNREAD):
                self._cached.pop(mark[1:], None)

    def holds(self, path: bytes) -> bool:
        """Return whether the version holds this file unchanged, or there is no file."""
        try:
            status = lstat(self.root + b"/" + path)
        except OSError:
            return True  # deleted meanwhile
        return self._cached.get(path) == (status.st_ctime_ns, status.st_size, status.st_ino)


def unsaved_files(folder: str, root: bytes, paths: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return those of these files that exist and that the newest version may not hold as they are. `folder`: the workspace's.

    A path that leads through a link counts as not held.
    """
    existing = tuple([path for path in paths if _exists(root + b"/" + path)])
    cache = stat_cache.load(folder + "/cache") if existing else None
    if cache is None:
        return existing
    files = SavedFiles(cache, root, {path.rpartition(b"/")[0] for path in existing})
    return tuple([path for path in existing if not files.holds(path)])


def _exists(path: bytes) -> bool:
    try:
        lstat(path)
    except OSError:
        return False
    return True
