"""Paths as people type them, and as checkpoints have them: relative to the workspace's root."""

from __future__ import annotations

import os

from keepfast.model.errors import Usage


def candidates(text: str, cwd: bytes, root: bytes) -> list[bytes]:
    """What the text may mean: from the current folder, else from the root. Raises `Usage` if it leads outside."""
    typed = os.fsencode(text)
    paths = [_relative(os.path.join(cwd, typed), root)]
    if typed.startswith(b"/"):
        # The same folder may be known under another name, through a link above the root.
        paths.append(_relative(os.path.join(os.path.realpath(os.path.dirname(typed)), os.path.basename(typed)), root))
    else:
        paths.append(_relative(os.path.join(root, typed), root))
    inside = [path for path in dict.fromkeys(paths) if path is not None]
    if not inside:
        from keepfast.workspace.marker import show

        raise Usage(f"{show(typed)} is outside the workspace {show(root)}.")
    return inside


def _relative(path: bytes, root: bytes) -> bytes | None:
    """The path below the root, empty for the root itself. Links are not followed: the path may be gone by now."""
    path = os.path.normpath(path)
    if path == root:
        return b""
    return path[len(root.rstrip(b"/")) + 1 :] if path.startswith(root.rstrip(b"/") + b"/") else None
