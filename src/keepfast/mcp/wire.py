"""Repairs messages on standard input: a lone surrogate in one would otherwise leave the call without an answer."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# A surrogate pair, a lone surrogate, or any other escape, so that an escaped backslash does not start one.
ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)
REPLACEMENT = rb"\ufffd"


def without_lone_surrogates(line: bytes) -> bytes:
    """Return the line with U+FFFD in place of every lone surrogate; clients send these if they cut a text inside a pair.

    The SDK's JSON reader rejects them, and a message that cannot be read gets no answer: the call would hang.
    """
    if b"\\ud" not in line and b"\\uD" not in line:
        return line
    return ESCAPE.sub(lambda match: REPLACEMENT if match[1] else match[0], line)


class RepairedLines(io.RawIOBase):
    """A stream that reads another one line by line, without lone surrogates."""

    def __init__(self, source: BinaryIO) -> None:
        self._source, self._line, self._at = source, b"", 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self._at == len(self._line):
            self._line, self._at = without_lone_surrogates(self._source.readline()), 0
        view = memoryview(buffer)
        piece = self._line[self._at : self._at + len(view)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def repair_standard_input() -> None:
    """Replace `sys.stdin` by a repaired stream, and the descriptor by /dev/null for everything else that reads it."""
    private, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(RepairedLines(os.fdopen(private, "rb"))), encoding="utf-8")
