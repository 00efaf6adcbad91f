"""The digest of everything stored: BLAKE3, for its speed."""

from __future__ import annotations

from blake3 import blake3 as blake3

from keepfast.model.entry import CAPTURED, Entry

ZERO = bytes(32)
LETTERS = {kind: kind.encode() for kind in CAPTURED}
_MASK = (1 << 256) - 1
_heads: dict[tuple[str, int], bytes] = {}
"""Encoded kind and mode of rows: a cache, as there are few combinations."""


def digest(data: bytes | memoryview) -> bytes:
    return blake3(data).digest()


def weight(row: Entry) -> int:
    """Return the row's share in the sum that identifies a whole tree (docs/format/checkpoint.md, `tree`)."""
    path, kind, mode = row[:3]
    head = _heads.get((kind, mode))
    if head is None:
        letter = LETTERS.get(kind)
        if letter is None:
            return 0
        head = _heads[kind, mode] = b"%b%04o" % (letter, mode)
    return int.from_bytes(blake3(b"".join((head, path, b"\0", row[7]))).digest(), "little")


def add(tree: int, *, plus: int = 0, minus: int = 0) -> int:
    return (tree + plus - minus) & _MASK
