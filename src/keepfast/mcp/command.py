"""Command lines for a person to run: quoted for a shell, and independent of the current folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from shlex import quote

from keepfast.mcp.workspace_access import WorkspaceAccess

PROGRAM = "keepfast"


def command(access: WorkspaceAccess, words: Sequence[str | bytes], root: bytes = b"") -> str:
    """Return the command with the flags that this server was started with; with `root`, for the workspace there."""
    flags: list[str | bytes] = ["-C", root] if root else []
    flags += [word for flag, value in access.given_flags for word in (flag, value)]
    return " ".join([PROGRAM, *[_quoted(word) for word in [*flags, *words]]])


def _quoted(word: str | bytes) -> str:
    """Quote a word for a shell; unprintable bytes become escapes."""
    data = os.fsencode(word)
    text = data.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return quote(text)
    safe = [chr(byte) if 0x20 <= byte < 0x7F and byte not in b"\\'" else f"\\x{byte:02x}" for byte in data]
    return "$'" + "".join(safe) + "'"
