"""List folders: one by itself, or all changed ones at once, without a stat for unchanged files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from errno import ELOOP, ENOENT, ENOTDIR, ESTALE
from os import O_DIRECTORY, O_RDONLY, close, fstat, scandir, stat, stat_result

from keepfast.fsutil.descriptors import open_below
from keepfast.model.compiled import demand
from keepfast.workspace.selection import ENCODING, ERRORS, Listing
from keepfast.workspace.stat_cache import Cache

try:
    from keepfast.workspace import _check

    demand(_check)
    from keepfast.workspace._check import list_changed as list_at_once
except ImportError:
    list_at_once = None  # type: ignore[assignment]

Listed = tuple[stat_result, Listing, dict[bytes, int], list[int]]
"""The folder's stat, taken before it was listed; its entries, sorted by name: (name, is a folder, stat of a file); the
numbers of cached files, at least of those among the entries; and the runs of unchanged files, which are not among the
entries: the first number of each run, and the one after its last."""

O_NOATIME: int = getattr(os, "O_NOATIME", 0)
VANISHED = (ENOENT, ENOTDIR, ELOOP, ESTALE)
"""Errors that mean that a path was removed or replaced after it was listed."""
EVERYTHING_OPEN: dict[bytes, int] = {}
SEVERAL = 8
"""Two threads list the folders if there are at least this many."""


def list_folder(
    root: int, path: bytes, sure: dict[bytes, int] = EVERYTHING_OPEN
) -> tuple[stat_result, Listing, list[int]]:
    """Return the folder's stat (taken before listing) and its entries by name: (name, is a folder, stat of a file).

    The stat is None where the folder lets us see the name and no more. Files in `sure` are not among the entries: the
    check has just seen that they are as they were. Their numbers there come last.
    """
    fd = _open_quietly(root, path)
    try:
        seen = fstat(fd)
        unchanged, entries = _listing(fd, sure)
    finally:
        close(fd)
    entries.sort()
    unchanged.sort()
    return seen, entries, unchanged


def list_changed(
    root: int,
    cache: Cache,
    paths: list[bytes],
    files: Sequence[int],
    folders: Sequence[int],
    always_listed: Iterable[bytes],
) -> dict[bytes, Listed]:
    """Return the listing of each of these folders by path, without those that need the slow way.

    `files` and `folders` are what the accelerated `cache.check` named. Files that are told apart, because their names begin
    with a dot or stand in `always_listed`, are among the entries even if they are as they were.
    """
    if list_at_once is None or not len(folders):
        return {}
    names = b"".join([name + b"\0" for name in always_listed])
    threads = 2 if len(folders) >= SEVERAL else 1
    listings = list_at_once(cache.raw, root, threads, bytes(files), bytes(folders), names)
    return {paths[number]: listed for number, listed in zip(folders, listings, strict=True) if listed is not None}


def runs_of(numbers: Iterable[int]) -> list[int]:
    """Return rising numbers as ranges: the first number of each, and the one after its last, in turn."""
    runs: list[int] = []
    end = -1
    for number in numbers:
        if number != end:
            runs += [number, number]
        end = runs[-1] = number + 1
    return runs


def _open_quietly(root: int, path: bytes) -> int:
    """Open a folder to list it, without noting that in its access time: each such note would be written by our next sync."""
    try:
        return open_below(root, path, O_RDONLY | O_DIRECTORY | O_NOATIME)
    except PermissionError:
        return open_below(root, path, O_RDONLY | O_DIRECTORY)  # only its owner may ask for that


def _listing(fd: int, sure: dict[bytes, int]) -> tuple[list[int], Listing]:
    """Return the numbers of the files in `sure` that exist, and the entries of all others."""
    unchanged: list[int] = []
    changed: Listing = []
    with scandir(fd) as entries:
        for entry in entries:
            name = entry.name.encode(ENCODING, ERRORS)
            if name in sure:
                unchanged.append(sure[name])
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    changed.append((name, True, None))
                else:
                    changed.append((name, False, stat(name, dir_fd=fd, follow_symlinks=False)))
            except OSError as error:
                if error.errno not in VANISHED:
                    changed.append((name, False, None))
    return unchanged, changed
