"""The search for marks of secrets in Python, used if `_marks.c` was not built."""

from __future__ import annotations

from array import array
from binascii import a2b_base64
from collections.abc import Iterator
from re import finditer
from sys import byteorder

from keepfast.secrets.marks import (
    AT_WORD_START,
    CODED_ADDRESSES,
    IN_BASE64,
    MAX_UNPRINTABLE,
    MIN_CODED,
    PRINTABLE,
    REST,
    REST_LENGTH,
    SIGN,
    SIGN_BEFORE_KEY,
    STANDARD,
    WORD,
    base64_forms,
    label_marks,
    marks,
)

HEAD = 4
"""All sequences of four bytes in a content are looked up at once; only marks that begin with one of them are searched."""
LETTERS = frozenset(bytes([letter]) for letter in REST)
MAX_PASSWORD_SPAN = 640
"""A password in an address ends within so many bytes."""
MAX_LINE_BREAK = 80
PICKLE_LENGTH = b"\x8c"
"""Precedes the length of a text in a pickle: one byte, which may be a letter."""
MAX_COLOUR_LENGTH = 20

_heads: dict[int, list[tuple[bytes, int]]] = {}
_mark_heads: list[frozenset[int]] = []


def scan(content: bytes, kinds: int) -> int:
    """Return which of these kinds of marks the content has."""
    present = SIGN if kinds & SIGN and next(_signs(content), None) is not None else 0
    if kinds & WORD:
        lower = content.lower()
        if any(word in lower for word in label_marks()):
            present |= WORD
    return present


def places(content: bytes, kinds: int) -> list[int]:
    """Return the positions of marks of these kinds, in order."""
    positions = set(_signs(content)) if kinds & SIGN else set()
    if kinds & WORD:
        lower = content.lower()
        for word in label_marks():
            positions.update(_each(lower, word))
    return sorted(positions)


def coded(content: bytes) -> list[int]:
    """Return the positions of base64 that encodes text, in order."""
    starts = []
    for match in finditer(rb"[A-Za-z0-9+/_-]{%d,}" % MIN_CODED, content):
        start = match.start()
        # The end of a line that is written as an escape is none of it.
        if content[max(start - 1, 0) : start] == b"\\" and content[start] in b"nr":
            start += 1
        if match.end() - start >= MIN_CODED and _is_text(content[start : start + MIN_CODED]):
            starts.append(start)
    return starts


def _is_text(run: bytes) -> bool:
    return len(a2b_base64(run.translate(STANDARD)).translate(None, PRINTABLE)) <= MAX_UNPRINTABLE


def _signs(content: bytes) -> Iterator[int]:
    for mark, kind in _likely(content):
        for offset in _each(content, mark):
            if _is_mark(content, offset, len(mark), kind):
                yield offset
    for offset in _each(content, b"://"):
        if (
            offset
            and (content[offset - 1 : offset].isalnum() or content[offset - 1 : offset] == b"\\")
            and _has_password(content, offset + 3)
        ):
            yield offset - 1
    for offset in _each(content, rb":\/\/"):
        if _has_password(content, offset + 5):
            yield offset
    for mark in CODED_ADDRESSES:
        for offset in _each(content, mark):
            if _has_password(content, offset + len(mark), coded=True):
                yield offset


def _likely(content: bytes) -> list[tuple[bytes, int]]:
    """Return the marks whose first four bytes are somewhere in the content."""
    # One look at every four bytes, not one at every mark for each byte: there are hundreds of marks.
    heads, mark_heads = _loaded()
    matching_heads: set[int] = set()
    for shift in range(HEAD):
        end = len(content) - (len(content) - shift) % HEAD
        matching_heads |= mark_heads.intersection(array("I", content[shift:end]))
    return list(dict.fromkeys([mark for head in matching_heads for mark in heads[head]]))


def _loaded() -> tuple[dict[int, list[tuple[bytes, int]]], frozenset[int]]:
    """Return the marks by their first four bytes, and the set of these bytes."""
    if not _heads:
        for mark in dict.fromkeys(_to_find()):
            ends = [bytes([letter]) for letter in REST] if len(mark[0]) < HEAD else [b""]
            for end in ends:
                _heads.setdefault(int.from_bytes((mark[0] + end)[:HEAD], byteorder), []).append(mark)
        _mark_heads.append(frozenset(_heads))
    return _heads, _mark_heads[0]


def _to_find() -> Iterator[tuple[bytes, int]]:
    """Yield the signs as they are, and as they look inside of base64 at each alignment."""
    for mark, kind in marks():
        if kind & (SIGN | SIGN_BEFORE_KEY):
            yield mark, kind & ~IN_BASE64
        if kind & IN_BASE64:
            yield from base64_forms(mark)


def _each(content: bytes, mark: bytes) -> Iterator[int]:
    offset = content.find(mark)
    while offset >= 0:
        yield offset
        offset = content.find(mark, offset + 1)


def _is_mark(content: bytes, offset: int, size: int, kind: int) -> bool:
    if kind & AT_WORD_START and not _begins_word(content, offset):
        return False
    if size < HEAD and content[offset + size : offset + HEAD] not in LETTERS:
        return False
    return not kind & SIGN_BEFORE_KEY or _continues_key(content, offset + size)


def _begins_word(content: bytes, offset: int) -> bool:
    """Return whether a word begins here. Behind an escape, which ends in a letter, too."""
    before = content[max(offset - 6, 0) : offset]
    last = before[-1:]
    if not (last.isalnum() and last.isascii()):
        return True
    if before[-2:-1] in (b"\\", PICKLE_LENGTH) or before[-3:-2] == b"%" or (len(before) == 6 and before[:2] == b"\\u"):
        return True
    if len(before) > 3 and before[-4:-2] == b"\\x":
        return True
    return content[max(offset - 1 - MAX_COLOUR_LENGTH, 0) : offset - 1].rstrip(b"0123456789;?").endswith(b"[")


def _continues_key(content: bytes, offset: int) -> bool:
    """Return whether the rest of a key may follow here. It may contain line ends, and its signs may be escaped by a backslash."""
    letters = 0
    while letters < REST_LENGTH:
        if offset >= len(content):
            return False
        if content[offset] in REST:
            letters += 1
            offset += 1
        elif (
            content[offset] == 92
            and content[offset + 1 : offset + 2] in LETTERS
            and not content[offset + 1 : offset + 2].isalnum()
        ):
            offset += 1
        else:
            offset = _next_line(content, offset, len(content)) if _is_blank(content[offset]) else 0
            if not offset:
                return False
    return True


def _is_blank(byte: int) -> bool:
    return byte <= 32 or byte in b"\"'\\"


def _has_password(content: bytes, offset: int, coded: bool = False) -> bool:
    """Return whether this address begins with `user:password@`. Slashes and colons may be escaped, or percent-encoded (`coded`)."""
    end = min(offset + MAX_PASSWORD_SPAN, len(content))
    colon = user_has_at = False
    if not coded and content.find(b"@", offset, end) < 0:
        return False
    while offset < end:
        byte = content[offset]
        if byte == 92 and content[offset + 1 : offset + 2] in (b"/", b":"):
            offset += 1
            continue
        if coded and byte == 37:
            escape = content[offset + 1 : min(offset + 3, end)].lower()
            if escape == b"40":
                return colon
            colon |= escape == b"3a"
        if _is_blank(byte):
            offset = _next_line(content, offset, end)
            if not offset:
                return False
            continue
        if byte in b"<>" or (byte == 47 and not colon):
            return False
        if byte == 64:
            if colon or user_has_at:
                return colon
            user_has_at = True
        colon |= byte == 58
        offset += 1
    return False


def _next_line(content: bytes, offset: int, end: int) -> int:
    """Return the position after a line end and the wrapping of texts and strings around it; 0 if the line does not end here.

    Behind a colour, too: it may change within a key, as `grep` does.
    """
    if content[offset] == 27:
        return _after_colour(content, offset, end)
    ended = False
    for place in range(offset, min(offset + MAX_LINE_BREAK, end)):
        byte = content[place]
        if byte == 10 or (byte == 110 and content[place - 1] == 92):
            ended = True
        elif byte not in b"\\\"'+.\r \t" and not (ended and byte in b">|#*"):
            return place if ended else 0
    return min(offset + MAX_LINE_BREAK, end) if ended else 0


def _after_colour(content: bytes, offset: int, end: int) -> int:
    """Return the position after a colour code of a terminal; 0 if there is none here."""
    end = min(end, offset + MAX_COLOUR_LENGTH + 3)
    if content[offset + 1 : offset + 2] != b"[":
        return 0
    offset += 2
    while offset < end and content[offset] in b"0123456789;?":
        offset += 1
    last = content[offset : offset + 1] if offset < end else b""
    return offset + 1 if last.isalnum() and last.isascii() else 0
