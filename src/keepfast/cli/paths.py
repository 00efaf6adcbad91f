"""Turns typed paths into paths relative to the workspace's root, as checkpoints have them."""

from __future__ import annotations

import os

from keepfast.model.errors import Usage
from keepfast.workspace.marker import show


def candidates(text: str, cwd: bytes, root: bytes) -> list[bytes]:
    """Return what a typed path may mean: relative to the current folder, then to the root. Raises `Usage` if outside."""
    typed = os.fsencode(text)
    paths = [_relative(os.path.join(cwd, typed), root)]
    if typed.startswith(b"/"):
        # The root may be reached under another name, through a link above it.
        paths.append(_relative(os.path.join(os.path.realpath(os.path.dirname(typed)), os.path.basename(typed)), root))
    else:
        paths.append(_relative(os.path.join(root, typed), root))
    inside = [path for path in dict.fromkeys(paths) if path is not None]
    if not inside:
        raise Usage(f"{show(typed)} is outside the workspace {show(root)}.")
    return inside


def _relative(path: bytes, root: bytes) -> bytes | None:
    """Return the path below the root, empty for the root itself. Links are not followed: the path may no longer exist."""
    path = os.path.normpath(path)
    if path == root:
        return b""
    return path[len(root.rstrip(b"/")) + 1 :] if path.startswith(root.rstrip(b"/") + b"/") else None
