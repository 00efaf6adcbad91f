"""Draws plugin/.claude-plugin/icon.png: an anchor, from circles and bars, with nothing but the standard library."""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path

TARGET = Path(__file__).parents[1] / "plugin/.claude-plugin/icon.png"
SIDE = 512
SEA, LIGHT = (16, 58, 84), (244, 239, 226)


def is_anchor(x: float, y: float) -> bool:
    """Return whether this point, on a square from -1 to 1 with y going down, is part of the anchor."""
    ring = 0.09 < math.hypot(x, y + 0.6) < 0.2
    shank = abs(x) < 0.065 and -0.42 < y < 0.68
    stock = abs(x) < 0.34 and abs(y + 0.28) < 0.06
    arms = 0.5 < math.hypot(x, y - 0.1) < 0.64 and y > 0.22
    flukes = y > 0.02 and abs(abs(x) - 0.57) < (y - 0.02) * 0.62 and y < 0.26
    return ring or shank or stock or arms or flukes


def png() -> bytes:
    rows = []
    for row in range(SIDE):
        y = (row + 0.5) / SIDE * 2 - 1
        colours = [LIGHT if is_anchor((column + 0.5) / SIDE * 2 - 1, y) else SEA for column in range(SIDE)]
        rows.append(b"\0" + b"".join(bytes(colour) for colour in colours))
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"".join(rows), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


if __name__ == "__main__":
    TARGET.write_bytes(png())
