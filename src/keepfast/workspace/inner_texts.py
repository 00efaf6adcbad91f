"""Encoded texts in a file, for the search for secrets: base64, the rows of an SQLite database, and pickles."""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Iterator

from keepfast.secrets.lazy_pattern import lazy
from keepfast.secrets.marks import STANDARD
from keepfast.secrets.patterns import WRAP

RUN = lazy(r"[A-Za-z0-9+/_-]+")
INDEX, INDEX_LEAF, TABLE_LEAF = 2, 10, 13
"""Types of pages that contain rows."""
FIRST_PAGE, MIN_PAGE, LARGEST_PAGE = 100, 512, 65536
TEXT_CODES = (b"X", 4), (b"T", 4), (b"B", 4), (b"U", 1), (b"C", 1), (b"\x8c", 1)
"""Codes of a pickle that a text follows, and how many bytes its length has."""
BEFORE_TEXT = b"()[]{}aelsutd0"
"""Codes of protocol 0 that may stand before a text in its line."""
CODINGS = {2: "utf-16-le", 3: "utf-16-be"}
NUMBERS = 0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0
"""Size of values that are not texts, by type."""
MAX_READS_OF_SIZE = 4
"""Pages may refer to the same bytes repeatedly; at most this many times the content's size is read."""


def in_base64(content: bytes, starts: list[int]) -> bytes:
    """Decode the base64 that begins at these positions, and may span lines; return the texts, one per line."""
    text, texts, end = content.decode("latin-1"), [], 0
    for start in starts:
        if start < end:
            continue  # a later line of the one before
        letters, end = _gathered(text, start)
        texts.append(_decoded(letters))
    return b"\n".join(texts)


def _gathered(text: str, offset: int) -> tuple[str, int]:
    """Return the base64 letters from here on, without line ends, and the position after them."""
    parts = []
    while run := RUN.match(text, offset):
        parts.append(run[0])
        offset = run.end()
        wrap = WRAP.match(text, offset)
        if wrap is None:
            break
        offset = wrap.end()
    return "".join(parts), offset


def _decoded(letters: str) -> bytes:
    plain = letters.encode("ascii").translate(STANDARD)
    return a2b_base64((plain[:-1] if len(plain) % 4 == 1 else plain) + b"==")


def in_pickle(content: bytes) -> bytes:
    """Return the texts in a pickle, one per line: in the file the code before or after it may look like a part of it."""
    lines = [line.lstrip(BEFORE_TEXT) for line in content.split(b"\n")]
    texts = [line[1:] for line in lines if line[:1] == b"V"]
    left = MAX_READS_OF_SIZE * len(content)
    for code, width in TEXT_CODES:
        offset = content.find(code)
        while offset >= 0 and left > 0:
            start = offset + 1 + width
            end = start + int.from_bytes(content[offset + 1 : start], "little")
            if end <= len(content):
                texts.append(content[start:end])
                left -= end - start
            offset = content.find(code, offset + 1)
    return b"\n".join(texts)


def in_tables(content: bytes) -> bytes:
    """Return all values in the rows of an SQLite database, one per line: in the file nothing separates them."""
    coding, left, texts = CODINGS.get(_number(content, 56, 4)), MAX_READS_OF_SIZE * len(content), []
    try:
        for value in _values(content):
            left -= len(value) + 1
            if left < 0:
                break
            texts.append(value.decode(coding, "replace").encode("utf-8", "replace") if coding else value)
    except IndexError:
        pass  # an invalid page: return the values read so far
    return b"\n".join(texts)


def _values(content: bytes) -> Iterator[bytes]:
    size = _number(content, 16, 2)
    size = LARGEST_PAGE if size == 1 else size
    for page in range(0, len(content) if size >= MIN_PAGE else 0, max(size, 1)):
        head = page + (0 if page else FIRST_PAGE)
        kind = content[head]
        if kind not in (INDEX, INDEX_LEAF, TABLE_LEAF):
            continue
        cells = head + (12 if kind == INDEX else 8)
        for number in range(_number(content, head + 3, 2)):
            offset = page + _number(content, cells + 2 * number, 2) + (4 if kind == INDEX else 0)
            _, offset = _varint(content, offset)
            if kind == TABLE_LEAF:
                _, offset = _varint(content, offset)
            yield b""  # so that a row without values counts, too
            yield from _columns(content, offset, page + size)


def _columns(content: bytes, offset: int, last: int) -> Iterator[bytes]:
    """Yield the values of a row that lie in its page; numbers and the like give nothing."""
    size, head = _varint(content, offset)
    end = value = offset + size
    offset = head
    while offset < end:
        kind, offset = _varint(content, offset)
        size = NUMBERS[kind] if kind < len(NUMBERS) else (kind - 12) // 2
        yield content[value : min(value + size, last)] if kind >= len(NUMBERS) else b""
        value += size


def _varint(content: bytes, offset: int) -> tuple[int, int]:
    """Return a number of up to nine bytes, and the position after it."""
    number = 0
    for place in range(offset, offset + 8):
        byte = content[place]
        number = number << 7 | byte & 127
        if byte < 128:
            return number, place + 1
    return number << 8 | content[offset + 8], offset + 9


def _number(content: bytes, offset: int, size: int) -> int:
    return int.from_bytes(content[offset : offset + size], "big")
