"""Standard input as the SDK can read it: half a character in a message costs that character, not the answer to the call."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# A pair of halves, a half alone, or any other escape: a backslash that is escaped itself begins none.
ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)
INSTEAD = rb"\ufffd"


def mended(line: bytes) -> bytes:
    """The line with a mark in place of every half character, as clients send where they cut a text in the middle of one.

    No JSON reader of the SDK takes it, and a message that cannot be read gets no answer: the call would hang.
    """
    if b"\\ud" not in line and b"\\uD" not in line:
        return line
    return ESCAPE.sub(lambda found: INSTEAD if found[1] else found[0], line)


class Mended(io.RawIOBase):
    """Another stream's bytes, each line mended."""

    def __init__(self, source: BinaryIO) -> None:
        self._source, self._line, self._at = source, b"", 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self._at == len(self._line):
            self._line, self._at = mended(self._source.readline()), 0
        view = memoryview(buffer)
        piece = self._line[self._at : self._at + len(view)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def mend_standard_input() -> None:
    """From now on this process reads mended lines; whoever else reads standard input finds nothing there."""
    private, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(Mended(os.fdopen(private, "rb"))), encoding="utf-8")
