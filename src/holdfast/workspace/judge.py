"""Is a file to be sealed? By its name, and by what it holds where a quick look finds a mark (docs/guides/secrets.md)."""

from __future__ import annotations

from holdfast.core.secrecy import (
    CHANCE,
    KEY,
    REST,
    REST_LENGTH,
    SECRET,
    TEXT_LIMIT,
    WORDS,
    named,
    packed,
    signs,
)

try:
    from holdfast.workspace import _marks
except ImportError:
    _marks = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from re import Pattern

SIGN, WORD = 1, 2
OPEN_KEYS = (b"-----BEGIN CERTIFICATE", b"-----BEGIN PUBLIC KEY", b"-----BEGIN RSA PUBLIC KEY", b"ssh-")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
WHOLE = 32 << 10
"""Up to here a file of settings is looked at as a whole; elsewhere only what surrounds a mark is."""
BEFORE, BEHIND = 128, 2048

_loaded = False
_patterns: list[Pattern[bytes]] = []
"""Of signs, and of words: what the compiled search looks for, for those who do not have it."""


def is_secret(path: bytes, content: bytes | None) -> bool:
    """Must this file not lie in the store in the clear? `content` None: it is too large to be looked at."""
    kind = named(path)
    if kind & (SECRET | KEY):
        return kind != KEY or content is None or _is_private(content)
    if content is None or len(content) > TEXT_LIMIT:
        return False
    if content.startswith(UTF_16):
        content = content.decode("utf-16", "replace").encode("utf-8", "replace")
    # Words count where people put passwords, and only there they are looked for.
    marks = scan(content, SIGN | WORD if kind else SIGN)
    if not marks:
        return False
    words = bool(marks & WORD)
    from holdfast.core.redact import holds_secret

    if words and len(content) <= WHOLE:
        return holds_secret(content.decode("utf-8", "replace"), words=True)
    wanted = SIGN | WORD if words else SIGN
    return any(holds_secret(part.decode("utf-8", "replace"), words=words) for part in _around(content, wanted))


def _around(content: bytes, wanted: int) -> Iterator[bytes]:
    """The parts of a content that surround marks; what overlaps is one part."""
    start = end = -1
    for place in places(content, wanted):
        if start < 0 or place - BEFORE > end:
            if start >= 0:
                yield content[start:end]
            start = max(place - BEFORE, 0)
        end = max(end, place + BEHIND)
    if start >= 0:
        yield content[start:end]


def scan(content: bytes, wanted: int = SIGN | WORD) -> int:
    """Return which of the wanted marks are in it: of well-known keys, of words that stand beside secrets, both, or none."""
    global _loaded
    if _marks is None:
        return _scan_in_python(content, wanted)
    if not _loaded:
        _marks.load(packed(), REST, REST_LENGTH, True)
        _loaded = True
    return _marks.scan(content, wanted)


def places(content: bytes, wanted: int) -> list[int]:
    """Where marks of the wanted kinds begin, in order."""
    if _marks is not None and _loaded:
        return _marks.places(content, wanted)
    found = [
        match.start()
        for kind, pattern in zip((SIGN, WORD), _compiled(), strict=True)
        if kind & wanted
        for match in pattern.finditer(content)
    ]
    return sorted(found)


def _scan_in_python(content: bytes, wanted: int) -> int:
    sign, word = _compiled()
    return (SIGN if wanted & SIGN and sign.search(content) else 0) | (
        WORD if wanted & WORD and word.search(content) else 0
    )


def _compiled() -> list[Pattern[bytes]]:
    if not _patterns:
        from re import compile, escape

        address = rb"[A-Za-z]://[^/\x00-\x20\"'<>@]{0,198}:[^/\x00-\x20\"'<>@]{0,198}@"
        rest = b"(?=[%b]{%d})" % (escape(REST), REST_LENGTH)
        _patterns.append(
            compile(b"|".join([address, *map(escape, signs()), *[escape(sign) + rest for sign in CHANCE]]))
        )
        _patterns.append(compile(b"(?i)" + b"|".join(map(escape, WORDS))))
    return _patterns


def _is_private(content: bytes) -> bool:
    """Of what may be a key: everything, except what says that it is a certificate or a public key."""
    if b"PRIVATE KEY" in content:
        return True
    return not any(mark in content for mark in OPEN_KEYS) and not _is_source(content)


def _is_source(content: bytes) -> bool:
    """Some projects call texts `.key` that are none: many lines, with words in them."""
    return content.count(b"\n") > 3 and content.count(b" ") * 20 > len(content) and b"\0" not in content
