"""The spellings in which programs may print a secret value: escaped, quoted or encoded."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from urllib.parse import quote

MIN_SECRET_LENGTH = 4
MIN_CASED_LENGTH = 8
"""A shorter value in capitals or small letters would match words: `PASS`."""
MIN_LINE_LENGTH = 16
"""A shorter line of a secret would match unrelated text."""
SAFE = "", "/", "*", "!'()*", "!'()*;,/?:@&=+$#"
"""Characters that URL encoders leave as they are: Python, Java, JavaScript for a part and for a whole URL."""
MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
QUOTES = (
    ("'", '"'),
    ("'", "&quot;"),
    ("&#x27;", "&quot;"),
    ("&#39;", "&quot;"),
    ("&#39;", "&#34;"),
    ("&apos;", "&quot;"),
)
"""The two quotes as HTML and XML write them, by different programs."""
BLANKS = {"\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
"""Characters that XML writers escape in attributes."""
SLASHED = ('"', "'", "$", '"$', '"\\', "'\\", '"$`\\', '"$`!\\', "$`")
"""Characters before which shells and programs put a backslash, each by its own rule."""
BARE = "%+-./:=@_,"
"""Characters besides letters and digits that a shell leaves as they are when it quotes with backslashes."""
WEB_SAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""Characters that some JSON writers escape for use in HTML."""


def forms(secrets: list[str]) -> list[bytes]:
    """Return every spelling in which a secret may be printed, longest first; for one line some two hundred at most."""
    spellings: set[bytes] = set()
    for secret in secrets:
        for text in (secret, *_own_lines(secret)):
            for spelling in dict.fromkeys(_spellings(text)):
                spellings.update(_bytes(written) for written in (spelling, *_in_json(spelling)))
            spellings.update(_codes(_bytes(text)))
            spellings.add(_bytes(_in_json(_in_json(text)[0])[0]))
    return sorted((form for form in spellings if len(form) >= MIN_SECRET_LENGTH), key=len, reverse=True)


def _own_lines(secret: str) -> list[str]:
    """Return the lines that only this secret has, without those that begin and end every private key."""
    lines = [line.strip() for line in secret.split("\n")] if "\n" in secret else []
    return [
        line for line in lines if len(line) >= MIN_LINE_LENGTH and not line.startswith("-----") and ": " not in line
    ]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _spellings(text: str) -> Iterator[str]:
    yield text
    if len(text) >= MIN_CASED_LENGTH:
        yield from (text.upper(), text.lower())
    yield from _in_addresses(text)
    yield from _in_markup(text)
    yield from _in_programs(text)
    yield from _in_shells(text)


def _in_addresses(text: str) -> Iterator[str]:
    for safe in SAFE:
        coded = quote(text, safe=safe, errors="surrogateescape")
        for blank in ("%20", "+"):
            written = coded.replace("%20", blank)
            yield from (written, _small_escapes(written), written.replace("~", "%7E"))


def _small_escapes(coded: str) -> str:
    """Return the text with percent escapes in small letters."""
    first, *parts = coded.split("%")
    return "%".join([first, *[part[:2].lower() + part[2:] for part in parts]])


def _in_markup(text: str) -> Iterator[str]:
    for single, double in QUOTES:
        written = _replaced(text, MARKUP | {"'": single, '"': double})
        yield written
        if any(blank in text for blank in BLANKS):
            yield _replaced(written, BLANKS)
        if not text.isascii():
            yield _replaced(written, {char: f"&#{ord(char)};" for char in text if not char.isascii()})
            yield _replaced(written, {char: f"&#x{ord(char):x};" for char in text if not char.isascii()})


def _in_programs(text: str) -> Iterator[str]:
    """Yield the text as in literals of Python, JavaScript and the like, with either quote."""
    # Both kinds of quotes before it, and so the single ones are those that are escaped.
    octal = "".join(chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}" for byte in _bytes(text.replace("\\", "\\\\")))
    both = "\"'"
    for single in (
        repr(both + text)[4:-1],
        ascii(both + text)[4:-1],
        repr(_bytes(both + text))[5:-1],
        _slashed(octal, "'"),
    ):
        neither = single.replace("\\'", "'")
        yield from (single, neither, neither.replace('"', '\\"'))


def _in_shells(text: str) -> Iterator[str]:
    for inner in ("'\"'\"'", "'\\''"):
        yield text.replace("'", inner)
    for signs in SLASHED:
        yield _slashed(text, signs)
    signs = "".join({char for char in text if char.isascii() and not char.isalnum()})
    for spared in ("", "_", BARE, BARE + "~"):
        yield _slashed(text, "".join([sign for sign in signs if sign not in spared]))
    yield _slashed(text, "".join([sign for sign in signs if sign in "\\.^$*+?{}[]|()-&~# "]))  # as patterns


def _slashed(text: str, signs: str) -> str:
    return _replaced(text, {sign: "\\" + sign for sign in signs})


def _in_json(text: str) -> tuple[str, ...]:
    """Return the text as a JSON string: in ASCII, in Unicode, safe for HTML, and with escaped slashes."""
    plain, all_letters = json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]
    safe = [_replaced(one, WEB_SAFE) for one in (plain, all_letters)]
    return plain, all_letters, *safe, plain.replace("/", "\\/")


def _codes(raw: bytes) -> Iterator[bytes]:
    """Yield the bytes in base64, also as part of a longer encoded text, and in hexadecimal."""
    for encode in (b64encode, urlsafe_b64encode):
        for shift in range(3):
            middle = encode(b"\0" * shift + raw)[(0, 2, 3)[shift] :]
            yield middle.rstrip(b"=")[: -1 if (len(raw) + shift) % 3 else None]
    yield from (raw.hex().encode(), raw.hex().upper().encode())


def _replaced(text: str, by: dict[str, str]) -> str:
    return text.translate({ord(char): written for char, written in by.items()}) if by else text
