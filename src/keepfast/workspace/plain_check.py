"""Check all files and folders against the stat cache in Python, used if `_check.c` was not built."""

from __future__ import annotations

import os
from os import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_RDONLY, close, fstat, stat
from os import open as open_fd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keepfast.workspace.stat_cache import Cache

O_PATH: int = getattr(os, "O_PATH", O_RDONLY)
BITS = (1 << 64) - 1
"""A folder's mtime may have any value; it is stored modulo 2^64."""


def check(cache: Cache, root: int) -> tuple[list[int], list[int]]:
    ctimes, sizes, inodes, folder_mtimes, folder_ctimes, folder_inodes, counts = cache.columns()
    names = cache.names()
    changed: list[int] = []
    changed_folders: list[int] = []
    at = 0
    for number, path in enumerate(cache.paths()):
        end = at + counts[number]
        try:
            folder = open_fd(path or b".", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=root)
        except OSError:
            changed_folders.append(number)
            changed.extend(range(at, end))  # not checked
            at = end
            continue
        try:
            seen = fstat(folder)
            if (
                seen.st_mtime_ns & BITS != folder_mtimes[number]
                or seen.st_ctime_ns != folder_ctimes[number]
                or seen.st_ino != folder_inodes[number]
            ):
                changed_folders.append(number)
            for file in range(at, end):
                try:
                    seen = stat(names[file], dir_fd=folder, follow_symlinks=False)
                except OSError:
                    changed.append(file)
                    continue
                if seen.st_ctime_ns != ctimes[file] or seen.st_size != sizes[file] or seen.st_ino != inodes[file]:
                    changed.append(file)
        finally:
            close(folder)
        at = end
    return changed, changed_folders
