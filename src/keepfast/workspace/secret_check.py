"""Decide whether to seal a file: by its name, and by its content if a quick search finds a mark (docs/guides/secrets.md)."""

from __future__ import annotations

from binascii import a2b_qp
from codecs import utf_16_be_decode, utf_16_le_decode
from collections.abc import Iterator

from keepfast.model.compiled import demand
from keepfast.secrets.marks import (
    ESCAPES,
    KEY,
    QUOTED_PRINTABLE,
    REST,
    REST_LENGTH,
    SECRET,
    SETTINGS,
    SIGN,
    TEXT_LIMIT,
    WORD,
    kind_by_name,
    packed_marks,
)
from keepfast.secrets.redaction import holds_key, holds_labelled_value, unwrapped
from keepfast.workspace import plain_marks
from keepfast.workspace.inner_texts import in_base64, in_pickle, in_tables

try:
    from keepfast.workspace import _marks

    demand(_marks)
except ImportError:
    _marks = None  # type: ignore[assignment]


OPEN_KEYS = (
    b"-----BEGIN CERTIFICATE",
    b"-----BEGIN PUBLIC KEY",
    b"-----BEGIN RSA PUBLIC KEY",
    b"ssh-rsa AAAA",
    b"ssh-ed25519 AAAA",
    b"ssh-dss AAAA",
)
CERTIFICATE, CERTIFICATE_END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
CERTIFICATE_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n"
SQLITE = b"SQLite format 3\0"
PICKLE, PICKLE_END, PICKLE_NOTES = b"\x80", b".", (b"q\0", b"p0\n")
"""The first byte of a pickle from protocol 2 on, the last one, and how those of protocols 0 and 1 number their first text."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
LOOKED_AT = 4096
WHOLE = 32 << 10
"""Configuration files up to this size are searched completely; otherwise only the surroundings of marks."""
BEFORE, BEHIND = 128, 2048

_loaded = False


def is_secret(path: bytes, content: bytes | None) -> bool:
    """Return whether this file must be stored encrypted. `content` is None if it is too large to be inspected."""
    kind = kind_by_name(path)
    if kind == SECRET or (kind == KEY and (content is None or _is_private(content))):
        return True
    if content is None or len(content) > TEXT_LIMIT:
        return False
    if _holds_secret(content, kind == SETTINGS):
        return True
    # What looks like UTF-16 may be something else: two letters of `env -0` make one of Chinese.
    text = _from_utf_16(content)
    return bool(text) and _holds_secret(text, kind == SETTINGS)


def _from_utf_16(content: bytes) -> bytes:
    """Return the content in UTF-8 if it could be a text in UTF-16, with the mark that says so or without; else nothing."""
    if content.startswith(UTF_16):
        coding = "utf-16"
    elif content.find(b"\0", 0, LOOKED_AT) >= 0:
        coding = _without_mark(content[:LOOKED_AT])
    else:
        return b""
    return content.decode(coding, "replace").encode("utf-8", "replace") if coding else b""


def _without_mark(start: bytes) -> str:
    """Return whether it is UTF-16 without a mark of it: in a text with keys, half of the bytes of nearly all letters are zero."""
    half = len(start) // 2
    high, low = start[::2].count(0), start[1::2].count(0)
    coding = "utf-16-le" if low > high else "utf-16-be"
    if max(low, high) * 2 > half and min(low, high) * 20 < half:
        return coding
    # In other alphabets only blanks have a zero byte: then every character must be printable.
    return next((coding for coding in ("utf-16-le", "utf-16-be") if _is_text(start, coding)), "")


def _is_text(start: bytes, coding: str) -> bool:
    """Return whether it consists of letters, signs and blanks of any alphabet."""
    try:
        # The last character may be cut off.
        text, _ = (utf_16_le_decode if coding == "utf-16-le" else utf_16_be_decode)(start, "strict", False)
    except UnicodeDecodeError:
        return False
    return len(text) > 1 and all(letter.isprintable() or letter in "\r\n\t" for letter in text)


def _holds_secret(content: bytes, settings: bool) -> bool:
    # Words are searched only where people put passwords.
    marks = scan(content, SIGN | WORD if settings else SIGN)
    if marks and _holds_marked(content, settings, marks):
        return True
    return any(scan(text, SIGN) and _holds_key(text) for text in _inside(content, marks))


def _inside(content: bytes, marks: int) -> Iterator[bytes]:
    """Yield the texts that a content holds in encoded form: base64, quoted-printable, an SQLite database, a pickle."""
    if starts := coded(content):
        public = _without_certificates(content)
        yield in_base64(public, starts if public == content else coded(public))
    if marks & SIGN and any(name in content for name in QUOTED_PRINTABLE):
        yield a2b_qp(content)
    if content.startswith(SQLITE):
        yield in_tables(content)
    if content.endswith(PICKLE_END) and (content[:1] == PICKLE or any(note in content for note in PICKLE_NOTES)):
        yield in_pickle(content)


def _holds_key(content: bytes) -> bool:
    content = _without_certificates(content)
    return any(holds_key(part.decode("utf-8", "replace")) for part in _around(content, SIGN))


def _without_certificates(content: bytes) -> bytes:
    """Return the content without the base64 of its certificates: by chance it has the signs of many keys, and it is public."""
    first, *blocks = content.split(CERTIFICATE)
    parts = [first]
    for block in blocks:
        body, end, behind = block.partition(CERTIFICATE_END)
        # It begins with the sequence that every certificate is.
        is_certificate = end and body.lstrip()[:2] == b"MI" and not body.translate(None, CERTIFICATE_BYTES)
        parts.append(behind if is_certificate else block)
    return CERTIFICATE.join(parts)


def _holds_marked(content: bytes, settings: bool, marks: int) -> bool:
    if marks & SIGN and _holds_key(content):
        return True
    if not marks & WORD and not (settings and any(escape in content for escape in ESCAPES)):
        return False
    parts = [content] if len(content) <= WHOLE else _around(content, WORD)
    for text in (part.decode("utf-8", "replace") for part in parts):
        if holds_labelled_value(text):
            return True
        # A line may break within the characters that identify a key.
        if not marks & SIGN and scan(unwrapped(text).encode("utf-8", "replace"), SIGN) and holds_key(text):
            return True
    return False


def _around(content: bytes, kinds: int) -> Iterator[bytes]:
    """Yield the parts of a content around marks; overlapping ones are joined."""
    start = end = -1
    for place in places(content, kinds):
        if start < 0 or place - BEFORE > end:
            if start >= 0:
                yield content[start:end]
            start = max(place - BEFORE, 0)
        end = max(end, place + BEHIND)
    if start >= 0:
        yield content[start:end]


def scan(content: bytes, kinds: int = SIGN | WORD) -> int:
    """Return which of these kinds of marks the content has: signs of well-known keys, words next to secrets."""
    global _loaded
    if _marks is None:
        return plain_marks.scan(content, kinds)
    if not _loaded:
        _marks.load(packed_marks(), REST, REST_LENGTH, True)
        _loaded = True
    return _marks.scan(content, kinds)


def places(content: bytes, kinds: int) -> list[int]:
    """Return the positions of marks of these kinds, in order."""
    if _marks is not None and _loaded:
        return _marks.places(content, kinds)
    return plain_marks.places(content, kinds)


def coded(content: bytes) -> list[int]:
    """Return the positions of base64 that encodes text, in order."""
    if _marks is not None:
        return _marks.coded(content)
    return plain_marks.coded(content)


def _is_private(content: bytes) -> bool:
    """Return whether this possible key file is private. Everything counts except certificates and public keys."""
    if b"PRIVATE KEY" in content:
        return True
    return not any(content.startswith(mark) or b"\n" + mark in content for mark in OPEN_KEYS)
