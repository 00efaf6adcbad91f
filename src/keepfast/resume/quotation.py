"""Make quoted text safe: no invisible characters, and nothing that ends its fence."""

from __future__ import annotations

import re
from hashlib import sha256

# Controls but tab and newline, soft hyphen, bidirectional and zero-width signs, variation and tag characters, lone surrogates.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
UNDECODED = re.compile("[\udc80-\udcff]")


def clean(text: str) -> str:
    """Return the text without characters that a person would not see."""
    return text if text.isascii() and text.isprintable() else HIDDEN.sub("", text)


def escaped(text: str) -> str:
    """Return the text with bytes that are no UTF-8, which stand in it as surrogates, as escapes."""
    return text if text.isascii() else UNDECODED.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", text)


def fence(body: str, label: str) -> str:
    """Return `body` between two marks that it cannot contain, because they carry a digest of it."""
    seed = body
    while True:
        mark = sha256(seed.encode("utf-8", "replace")).hexdigest()[:10]
        if mark not in body:
            return f"<{label} {mark}>\n{body}\n</{label} {mark}>"
        seed += mark
