"""Secrets in texts: found by how they begin, by the word beside them, or by how random they look; and blotted out."""

from __future__ import annotations

from binascii import a2b_base64

from holdfast.core.declared import is_annotation, is_declaration, is_name
from holdfast.core.light_re import compile, lazy
from holdfast.core.patterns import (
    ASSIGNED,
    BEGINNINGS,
    CODE,
    CODED,
    COMMAND,
    CONTINUED,
    ESCAPE,
    HEADER,
    KEYS,
    LOGIN,
    LOGIN_BEHIND,
    OPTION,
    PARAMETER,
    PLACEHOLDER,
    PROSE,
    RANDOM,
    SCHEME,
    WRAP,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from re import Match, Pattern

    Span = tuple[int, int, str]

MOST_TEXT = 4 << 20
"""Beyond this a text is cut: nothing that is shown or kept as a summary is longer."""

_compiled: dict[str, Pattern[str]] = {}
"""Patterns that were needed so far: most texts need none, and compiling all of them takes 20 ms."""
SHOWN = frozenset(
    ("pass", "passwd", "pwd", "pw", "tiger", "guest", "root", "admin", "postgres", "user", "foo", "bar", "p")
)
"""Passwords in the examples of every manual."""
STRANGE = "\u0130\u0131\u017f\u212a"
"""Letters that count as `i`, `s` and `k` where case does not; one of them even becomes two when it is made small."""
WORDS = lazy(r"[A-Za-z]+(?:[-_./: ][A-Za-z]+)*|[a-z]+(?:[A-Z][a-z]+)+|[A-Z]+(?:_[A-Z0-9]+)+|[A-Za-z]+\d")
PRINTABLE = bytes([9, 10, 13, *range(32, 127)])


def redact(text: str) -> str:
    """Return the text with every secret replaced by `[redacted:<kind>]`."""
    if len(text) > MOST_TEXT:
        text = text[:MOST_TEXT] + " […]"
    parts, at = [], 0
    for start, end, kind in find(text):
        parts += [text[at:start], f"[redacted:{kind}]"]
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def find(text: str) -> list[Span]:
    """Return (start, end, kind) of every secret, sorted, none of them overlapping."""
    spans = [*_keys(text), *_assigned(text), *_parameters(text), *_coded(text), *_random(text)]
    known = {start: end for start, end, _ in spans}
    for pattern, put in VIEWS:
        other = _view(pattern, put, text)
        found = [*_keys(other), *_coded(other)] if other != text else []
        # A key that ends with its line is whole; the word that begins the next line is none of it.
        spans += [
            (start, end, kind)
            for start, end, kind in _back(found, _places(text, pattern, put))
            if not PROSE.match(text[known.get(start, end) : end].strip("\r\n \t>|#*+\\\"'"))
        ]
    other = CONTINUED.sub("", text)
    found = list(_assigned(other)) if other != text else []
    return _merged(spans + _back(found, _places(text, CONTINUED, _nothing)))


def _back(spans: list[Span], places: Callable[[], list[int]]) -> list[Span]:
    """Spans of a view, as those of the text that it is made from. Most views have none, and need no places."""
    if not spans:
        return []
    at = places()
    return [(at[start], at[end - 1] + 1, kind) for start, end, kind in spans]


def holds_secret(text: str, *, words: bool) -> bool:
    """Is there one? `words`: also those that nothing but the word beside them gives away. Stops at the first."""
    for spans in (_keys, _coded):
        if next(spans(text), None) is not None:
            return True
    if words and (next(_assigned(text, strict=True), None) is not None or next(_parameters(text), None) is not None):
        return True
    if words:
        joined = CONTINUED.sub("", text)
        if joined != text and next(_assigned(joined, strict=True), None) is not None:
            return True
    for pattern, put in VIEWS:
        other = _view(pattern, put, text)
        if other != text and (next(_keys(other), None) or next(_coded(other), None)):
            return True
    return False


def _keys(text: str) -> Iterator[Span]:
    for kind, (needles, written) in KEYS.items():
        for (
            needle
        ) in needles:  # a loop: this is asked of every kind, and a generator for each costs more than the search
            if needle in text:
                break
        else:
            continue
        if kind == "url-password" and not LOGIN_BEHIND.search(text):
            continue
        pattern = _compiled.get(kind)
        if pattern is None:
            pattern = _compiled[kind] = compile(written)
        for match in pattern.finditer(text):
            group = 1 if pattern.groups else 0
            if kind == "url-password" and (PLACEHOLDER.match(match[1]) or match[1].lower() in SHOWN):
                continue
            if len(set(match[group])) > 4:  # `AKIAXXXXXXXXXXXXXXXX` shows how a key looks, and is none
                yield match.start(group), match.end(group), kind


def _assigned(text: str, strict: bool = False) -> Iterator[Span]:
    """Values beside a word such as `password`. `strict`: only those that look like a value and not like a word."""
    for match in _assignments(text):
        group = "quoted" if match["quoted"] is not None else "bare"
        value = match[group]
        after = text[match.end() : match.end() + 1]
        if group == "bare" and is_declaration(match["name"], _signed(match), value, after):
            continue
        if group == "quoted" and is_annotation(match["name"], _signed(match), value, _line_before(match), after):
            continue
        if _is_value(value, match["sign"].isspace(), group == "quoted", strict, match["name"]):
            yield match.start(group), match.end(group), "secret"


def _assignments(text: str) -> Iterator[Match[str]]:
    """All matches of `ASSIGNED`, which is tried only where one of its names begins."""
    lower = text.lower()
    if not any(stem in lower for stem in BEGINNINGS):
        return
    if any(letter in text for letter in STRANGE):
        yield from ASSIGNED.finditer(text)
        return
    end = 0
    for place in _places_of(BEGINNINGS, lower):
        match = ASSIGNED.match(text, place) if place >= end else None
        if match is not None:
            yield match
            end = match.end()


def _signed(match: Match[str]) -> str:
    """The sign with the blanks around it: `TOKEN=…` in a settings file has none, `token = …` in a program has."""
    return match.string[match.end("name") : match.start("bare" if match["quoted"] is None else "quote")]


def _line_before(match: Match[str]) -> str:
    return match.string[match.string.rfind("\n", 0, match.start()) + 1 : match.start()]


def _places_of(words: Iterable[str], text: str) -> list[int]:
    """Where one of the words begins, in order."""
    places = []
    for word in words:
        place = text.find(word)
        while place >= 0:
            places.append(place)
            place = text.find(word, place + 1)
    return sorted(places)


def _is_value(value: str, apart: bool, quoted: bool, strict: bool, name: str) -> bool:
    value = value.strip().rstrip("\\")
    if len(value) < 4 or PLACEHOLDER.match(value):
        return False
    if not quoted and CODE.match(value):
        return False
    if apart:  # `the token expired`: only what nobody would write in a sentence
        return not value.startswith("-") and _entropy(value) >= 3 and len(value) >= 8 and _mixed(value) >= 2
    if " " in value.strip() and len(value.split()) > 3:
        return False  # a sentence about secrets
    if not strict:
        return not (PROSE.match(value) and not quoted and len(value) < 8)
    if "/" in value and not any(letter.isdigit() for letter in value):
        return False  # a path
    if value.lower().replace("_", "").replace("-", "") in name.lower().replace("_", "").replace("-", ""):
        return False
    return (
        len(value) >= 8
        and _mixed(value) >= 2
        and _entropy(value) >= 2.5
        and not CODE.match(value)
        and not _is_words(value)
    )


def _is_words(value: str) -> bool:
    """Is it a name made of words, such as `session-token-secret`, `user.password` or `getToken`?"""
    return WORDS.fullmatch(value) is not None


def _parameters(text: str) -> Iterator[Span]:
    """Values in headers, in addresses, and in the options of well-known commands."""
    lower = text.lower()
    for words, pattern, kind in (
        (("authorization", "x-api-key", "x-auth-token", "cookie"), HEADER, "authorization"),
        (("bearer ", "basic "), SCHEME, "authorization"),
        (("?", "&", ";"), PARAMETER, "url-parameter"),
        ((" password ",), LOGIN, "password"),
        (("-u", "-proxy-user"), OPTION, "password"),
        (("sshpass", "mysql", "redis-cli"), COMMAND, "password"),
    ):
        if not any(word in lower for word in words):
            continue
        for match in pattern.finditer(text):
            group = match.lastindex or 0
            value = match[group]
            if not PLACEHOLDER.match(value) and not PROSE.match(value) and not CODE.match(value):
                yield match.start(group), match.end(group), kind


def _coded(text: str) -> Iterator[Span]:
    """Base64 of something that is a secret itself."""
    for match in CODED.finditer(text):
        run = match[0]
        # Text in base64 has letters of both cases; most long names in programs do not.
        if run.islower() or run.isupper():
            continue
        if any(next(_keys(inside), None) or next(_assigned(inside, strict=True), None) for inside in _decoded(run)):
            yield match.start(), match.end(), "base64"


def _decoded(run: str) -> Iterator[str]:
    """What the run may hold: it may begin anywhere in a text that looks like base64 as well."""
    plain = run.rstrip("=").replace("-", "+").replace("_", "/")
    for shift in range(4):
        size = len(plain) - shift
        try:
            inside = a2b_base64((plain[shift:-1] if size % 4 == 1 else plain[shift:]) + "==")
        except ValueError:
            continue
        # What is text in one place of its alphabet is noise in the three others, nearly always; a name before it may
        # make its first letters noise, too.
        strange = len(inside.translate(None, PRINTABLE))
        if strange * 4 <= len(inside) and (inside.isascii() or len(run) < 64):
            yield inside.decode("utf-8", "replace")


def _random(text: str) -> Iterator[Span]:
    """Long runs that look random, and are neither a digest in hexadecimal nor a path."""
    for match in RANDOM.finditer(text):
        run = match[0]
        if (
            _mixed(run) >= 3
            and _entropy(run) >= 4.3
            and run.count("/") <= len(run) // 20
            and not (_is_words(run) or is_name(run))
        ):
            yield match.start(), match.end(), "random"


def _places(text: str, pattern: Pattern[str], put: Callable[[Match[str]], str]) -> Callable[[], list[int]]:
    """How to learn the place in the text of every character of `pattern.sub(put, text)`."""

    def places() -> list[int]:
        found: list[int] = []
        at = 0
        for match in pattern.finditer(text):
            found += range(at, match.start())
            found += [match.end() - 1] * len(put(match))
            at = match.end()
        found += range(at, len(text))
        return found

    return places


def _view(pattern: Pattern[str], put: Callable[[Match[str]], str], text: str) -> str:
    return pattern.sub("" if put is _nothing else put, text)  # no call for each end of a line


def _nothing(match: Match[str]) -> str:
    return ""


def _character(match: Match[str]) -> str:
    return chr(int(match[1] or match[2], 16))


VIEWS: tuple[tuple[Pattern[str], Callable[[Match[str]], str]], ...] = ((WRAP, _nothing), (ESCAPE, _character))


def _merged(spans: list[Span]) -> list[Span]:
    result: list[Span] = []
    # Where two overlap, the one that begins first names the kind; of two that begin together, the longer one.
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if result and start < result[-1][1]:
            first = result[-1]
            result[-1] = first[0], max(first[1], end), first[2]
        else:
            result.append((start, end, kind))
    return result


def _mixed(text: str) -> int:
    """How many kinds of characters: small letters, capitals, digits, others."""
    return sum(
        (
            any(letter.islower() for letter in text),
            any(letter.isupper() for letter in text),
            any(letter.isdigit() for letter in text),
            any(not letter.isalnum() for letter in text),
        )
    )


def _entropy(text: str) -> float:
    """Bits per character, by how often each occurs."""
    from math import log2

    size = len(text)
    return -sum(count / size * log2(count / size) for count in map(text.count, set(text)))
