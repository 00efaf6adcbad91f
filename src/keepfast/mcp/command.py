"""A command line for a person to run: it means the same in every folder, and a shell reads every name in it as it is."""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keepfast.mcp.visit import Visits

PROGRAM = "keepfast"


def command(visits: Visits, words: Sequence[str | bytes], root: bytes = b"") -> str:
    """The command with the flags that this server was started with; with `root`, for the workspace there."""
    flags: list[str | bytes] = ["-C", root] if root else []
    flags += [word for flag, value in visits.given for word in (flag, value)]
    return " ".join([PROGRAM, *[_quoted(word) for word in [*flags, *words]]])


def _quoted(word: str | bytes) -> str:
    """The word for a shell, on one line that hides nothing: odd bytes as escapes."""
    data = os.fsencode(word)
    text = data.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return quote(text)
    safe = [chr(byte) if 0x20 <= byte < 0x7F and byte not in b"\\'" else f"\\x{byte:02x}" for byte in data]
    return "$'" + "".join(safe) + "'"
