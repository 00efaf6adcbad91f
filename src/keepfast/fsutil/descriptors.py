"""Open paths below a folder by descriptor, also paths longer than the kernel accepts at once."""

from __future__ import annotations

import os
from os import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_RDONLY, close, stat, stat_result
from os import open as open_fd

O_PATH: int = getattr(os, "O_PATH", O_RDONLY)

LONG = 3800
FOLDER = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC


def open_below(root: int, path: bytes, flags: int, mode: int = 0o600) -> int:
    """Open `path` relative to the descriptor `root`; links in the last part are not followed."""
    if len(path) < LONG:
        return open_fd(path or b".", flags | O_NOFOLLOW | O_CLOEXEC, mode, dir_fd=root)
    parent, name = _nearest(root, path)
    try:
        return open_fd(name, flags | O_NOFOLLOW | O_CLOEXEC, mode, dir_fd=parent)
    finally:
        close(parent)


def lstat_below(root: int, path: bytes) -> stat_result:
    if len(path) < LONG:
        return stat(path or b".", dir_fd=root, follow_symlinks=False)
    parent, name = _nearest(root, path)
    try:
        return stat(name, dir_fd=parent, follow_symlinks=False)
    finally:
        close(parent)


def _nearest(root: int, path: bytes) -> tuple[int, bytes]:
    """Open folders in steps that the kernel accepts; return a descriptor near the end, and the rest of the path."""
    fd = open_fd(b".", FOLDER, dir_fd=root)
    while len(path) >= LONG:
        cut = path.rfind(b"/", 0, LONG)
        head, path = path[:cut], path[cut + 1 :]
        try:
            further = open_fd(head, FOLDER, dir_fd=fd)
        finally:
            close(fd)
        fd = further
    return fd, path
