"""Secrets in texts: found by how they begin, by the word beside them, or by how random they look; and blotted out."""

from __future__ import annotations

from binascii import a2b_base64

from keepfast.secrets import services
from keepfast.secrets.declarations import is_annotation, is_declaration, is_name
from keepfast.secrets.light_re import compile, lazy
from keepfast.secrets.marks import PRINTABLE
from keepfast.secrets.patterns import (
    ASSIGNED,
    BEGINNINGS,
    CELL,
    CODE,
    CODED,
    COLOUR,
    COMMAND,
    CONTINUED,
    ENTITIES,
    ESCAPE,
    HEADER,
    LOGIN,
    LOGIN_BEHIND,
    NAMED,
    OPTION,
    PAIRED,
    PARAMETER,
    PLACEHOLDER,
    PROSE,
    RANDOM,
    SCHEME,
    SLASHED,
    VALUED,
    WRAP,
)
from keepfast.secrets.prose import TRODDEN, is_prose, is_public, is_random

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from re import Match, Pattern

    Span = tuple[int, int, str]

MOST_TEXT = 4 << 20
"""Beyond this a text is cut: nothing that is shown or kept as a summary is longer."""

_compiled: dict[str, Pattern[str]] = {}
"""Patterns that were needed so far: most texts need none, and compiling all of them takes 20 ms."""
_known: dict[str, tuple[str, ...]] = {}
_all_signs: tuple[str, ...] = ()
LONGEST_GAP = 80
"""How far above a line the word that ends before it is looked for."""
_begun: dict[tuple[str, ...], set[str]] = {}
"""Kinds by the first three letters of their signs."""
WITH_BLANKS = ("private-key", "url-password", "openvpn-key", "putty-key")
SHORTEST_KEY = 15
SHOWN = frozenset(
    ("pass", "passwd", "pwd", "pw", "tiger", "guest", "root", "admin", "postgres", "user", "foo", "bar", "p")
)
"""Passwords in the examples of every manual."""
STRANGE = "\u0130\u0131\u017f\u212a"
"""Letters that count as `i`, `s` and `k` where case does not; one of them even becomes two when it is made small."""
WORDS = lazy(r"[A-Za-z]+(?:[-_./: ][A-Za-z]+)*|[a-z]+(?:[A-Z][a-z]+)+|[A-Z]+(?:_[A-Z0-9]+)+|[A-Za-z]+\d")
SPOKEN = lazy(r"[A-Za-z][a-z'’]*(?:-[A-Za-z]?[a-z'’]*)?[.,:;!?)…]*")
"""A word, or two with a hyphen: more of them are how passphrases are made. One that was cut ends with an ellipsis."""
VERBS = ("pass", "passes", "passed", "passing")
TAGS = lazy(
    r"(?:(?:json|yaml|toml|xml|db|bson|mapstructure|form|query|validate|binding|protobuf|gorm|env|envconfig|header|uri|hcl|tfsdk"
    r"|msgpack|schema|url):\"[\w,.=| *-]*\"\s*)+"
)
LOOSE = (",", "(")
FURTHEST_VALUE = 600
FURTHEST_WORD = 80
"""The next word of a sentence ends within so many characters."""
COLUMNS, MOST_COLUMNS = ",;\t|", 64
MOST_ROWS = 64 << 10
"""So much of a table is looked at."""


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
    sent = _ended(text)
    text = colourless(sent)
    spans = [*_keys(text), *_told(text), *_coded(text), *_random(text)]
    known = {start: end for start, end, _ in spans}
    for pattern, put in VIEWS:
        # A colour may stand within a key as well: the text on one line is without.
        seen = sent if pattern is WRAP else text
        other = _view(pattern, put, seen)
        found = [*_keys(other), *_coded(other)] if other != seen else []
        # A key that ends with its line is whole; the word that begins the next line is none of it.
        spans += [
            (start, end, kind)
            for start, end, kind in _back(found, _places(seen, pattern, put))
            if not PROSE.match(seen[known.get(start, end) : end].strip("\r\n \t>|#*+\\\"'"))
        ]
        if other != seen and pattern is ESCAPE:
            spans += _back(list(_told(other)), _places(seen, pattern, put))
    other = CONTINUED.sub("", text)
    found = list(_assigned(other, _beginnings(other))) if other != text else []
    return _merged(spans + _back(found, _places(text, CONTINUED, _nothing)))


def _ended(text: str) -> str:
    """The text with blanks that are none of any line in the place of NUL: as in `env -0`, a value ends there for sure."""
    return text.replace("\0", "\f") if "\0" in text else text


def colourless(text: str) -> str:
    """The text with blanks in the place of what colours a terminal: every letter stays where it is."""
    if "[" not in text or ("\x1b" not in text and "\\" not in text):
        return text
    return COLOUR.sub(_blanks, text)


def _blanks(match: Match[str]) -> str:
    return " " * len(match[0])


def unescaped(text: str) -> str:
    """The text with letters in the place of their escapes."""
    return _view(ESCAPE, _character, text)


def unwrapped(text: str) -> str:
    """The text on one line, as far as keys could go on from one to the next."""
    return _view(WRAP, _nothing, text)


def _back(spans: list[Span], places: Callable[[], list[int]]) -> list[Span]:
    """Spans of a view, as those of the text that it is made from. Most views have none, and need no places."""
    if not spans:
        return []
    at = places()
    return [(at[start], at[end - 1] + 1, kind) for start, end, kind in spans]


def holds_key(text: str) -> bool:
    """Is there a key of a known form, a private key, or an address with a password? Stops at the first."""
    sent = _ended(text)
    text = colourless(sent)
    if next(_keys(text), None) or next(_coded(text), None):
        return True
    views = (unwrapped(sent), _view(WRAP, _joined, sent), unescaped(text), _view(SLASHED, _sign, text))
    others = [other for other in dict.fromkeys(views) if other != text]
    return any(next(_keys(other), None) or next(_coded(other), None) for other in others)


def holds_told(text: str) -> bool:
    """Is there a value that nothing but the word beside it gives away, also inside of base64? Stops at the first."""
    text = colourless(_ended(text))
    if next(_told(text, strict=True), None) or next(_coded(text), None):
        return True
    joined, plain = CONTINUED.sub("", text), unescaped(text) if "\\u00" in text else text
    if joined != text and next(_assigned(joined, _beginnings(joined), strict=True), None):
        return True
    return plain != text and next(_told(plain, strict=True), None) is not None


def _keys(text: str) -> Iterator[Span]:
    for kind in _kinds(text):
        if kind == "url-password" and not LOGIN_BEHIND.search(text):
            continue
        pattern = _compiled.get(kind)
        if pattern is None:
            pattern = _compiled[kind] = compile(services.pattern(kind))
        for match in pattern.finditer(text):
            group = 1 if pattern.groups else 0
            if kind == "url-password" and (PLACEHOLDER.match(match[1]) or match[1].lower() in SHOWN):
                continue
            if match[group].endswith("EXAMPLE"):
                continue  # how AWS's manuals end the keys that they show
            if len(set(match[group])) > 4:  # `AKIAXXXXXXXXXXXXXXXX` shows how a key looks, and is none
                yield match.start(group), match.end(group), kind


def _kinds(text: str) -> list[str]:
    """Kinds of keys that could be in it, by their signs."""
    if not _known:
        _known.update({kind: services.signs(kind) for kind in services.kinds() if kind not in WITH_BLANKS})
        for kind, signs in _known.items():
            for sign in signs:
                _begun.setdefault(tuple(sign[:3]), set()).add(kind)
    found = [kind for kind in WITH_BLANKS if any(sign in text for sign in services.OTHERS[kind][0])]
    # Keys have no blanks in them, so only long words are searched, and most texts have few of those. All of their threes are
    # looked up at once: there are hundreds of signs.
    long = " ".join([word for word in text.split() if len(word) >= SHORTEST_KEY])
    begun = {*filter(_begun.__contains__, zip(long, long[1:], long[2:], strict=False))}
    if not begun:
        return found
    likely = {kind for three in begun for kind in _begun[three]}
    return [*found, *[kind for kind, signs in _known.items() if kind in likely and any(map(long.__contains__, signs))]]


def _told(text: str, strict: bool = False) -> Iterator[Span]:
    """Values that are told by what stands beside them. `strict`: only those that look like a value and not like a word."""
    places = _beginnings(text)
    yield from _assigned(text, places, strict)
    yield from _parameters(text)
    if places or places is None:
        yield from _paired(text, places, strict)
        yield from _valued(text, places, strict)
        yield from _listed(text, places)


def _assigned(text: str, places: list[int] | None, strict: bool = False) -> Iterator[Span]:
    """Values beside a word such as `password`."""
    for match in _tried(ASSIGNED, text, places):
        group = "quoted" if match["quoted"] is not None else "bare"
        value = match[group]
        after = text[match.end() : match.end() + 1]
        is_harmless = _is_harmless_quoted if group == "quoted" else _is_harmless_bare
        if is_harmless(match, value, after):
            continue
        if match["line"] is not None and (group == "bare" and (value[-1] in ":=" or after in ("=", ":"))):
            continue  # the next line has a name of its own
        # On another line, or behind a comma, there may be anything.
        is_sentence = match["sign"].strip(" \t:").lower() == "is"
        loosely = match["line"] is not None or match["sign"] in LOOSE or (is_sentence and group == "quoted")
        if loosely and not _is_strange(value):
            continue
        apart = match["sign"].isspace() or (is_sentence and group == "bare")
        if _is_value(value, apart, group == "quoted", strict or loosely, match["name"]):
            yield match.start(group), match.end(group), "secret"


def _is_harmless_bare(match: Match[str], value: str, after: str) -> bool:
    """Is a value without quotes part of a program or of a sentence?"""
    if is_declaration(match["name"], _signed(match), value, after):
        return True
    return _is_alternative(match, value) or _is_said(match, value) or _is_prose(match, value)


def _is_harmless_quoted(match: Match[str], value: str, after: str) -> bool:
    """Is a value in quotes a type or code?"""
    if is_annotation(match["name"], _signed(match), value, _line_before(match), after):
        return True
    return match["quote"] == "`" and _is_quoted_code(match["name"], value)


def _is_strange(value: str) -> bool:
    """Would nobody call anything so?"""
    if "=" in value.rstrip("=") or not any(letter.isdigit() for letter in value):
        return False
    return (_mixed(value) >= 3 or len(value) >= 16) and _entropy(value) >= 3


def _paired(text: str, places: list[int] | None, strict: bool) -> Iterator[Span]:
    """Values of which the word stands in another place, as in `name: DB_PASSWORD` and `value: …`."""
    for match in _tried(PAIRED, text, places):
        group = "quoted" if match["quoted"] is not None else "bare"
        if _is_value(match[group], False, group == "quoted", strict, match["name"]):
            yield match.start(group), match.end(group), "secret"


def _valued(text: str, places: list[int] | None, strict: bool) -> Iterator[Span]:
    """The same where the value comes first, as in `value: …` and `name: DB_PASSWORD`."""
    for named in _tried(NAMED, text, places):
        start = max(named.start() - FURTHEST_VALUE, 0)
        before = text[start : named.start()]
        match = VALUED.search(before) if ":" in before or "=" in before else None
        if match is None:
            continue
        group = "quoted" if match["quoted"] is not None else "bare"
        if _is_value(match[group], False, group == "quoted", strict, named[0]):
            yield start + match.start(group), start + match.end(group), "secret"


def _cut(row: str, between: str) -> list[str]:
    """The cells of a row; what stands between quotes may have the sign in it that divides them."""
    if '"' not in row:
        return row.split(between)
    cells: list[str] = []
    is_open = False
    for part in row.split(between):
        if is_open:
            cells[-1] += between + part
        else:
            cells.append(part)
        is_open ^= part.count('"') % 2 == 1
    return cells


def _listed(text: str, places: list[int] | None) -> Iterator[Span]:
    """Values in the column of a table that is called so."""
    end = 0
    for match in _tried(NAMED, text, places):
        line = text.find("\n", match.end())
        if match.start() < end or line < 0:
            continue
        end = line
        heading = text[text.rfind("\n", 0, match.start()) + 1 : end]
        for between in COLUMNS:
            names = _cut(heading, between)
            # The rows of a table in Markdown begin and end with the bar.
            written = [name for name in names if between != "|" or name.strip()]
            if 1 < len(names) <= MOST_COLUMNS and written and all(CELL.fullmatch(name) for name in written):
                told = [NAMED.search(name) is not None for name in names]
                yield from _cells(text, end + 1, between, told)


def _cells(text: str, at: int, between: str, told: list[bool]) -> Iterator[Span]:
    """Secrets in the rows of a table from here on, in the columns that are told to hold them."""
    for row in text[at : at + MOST_ROWS].split("\n"):
        cells = _cut(row, between)
        if len(cells) != len(told):
            return
        for cell, is_told in zip(cells, told, strict=True):
            value = cell.strip(" \t\r\"'")
            if is_told and _is_value(value, False, True, True, ""):
                start = at + cell.find(value)
                yield start, start + len(value), "secret"
            at += len(cell) + 1


def _beginnings(text: str) -> list[int] | None:
    """Where telling words begin; None if they could be written with strange letters, and begin anywhere."""
    if not text.isascii() and any(letter in text for letter in STRANGE):
        return None
    lower = text.lower()
    return _places_of(BEGINNINGS, lower) if any(map(lower.__contains__, BEGINNINGS)) else []


def _tried(pattern: Pattern[str], text: str, places: list[int] | None) -> Iterator[Match[str]]:
    """All matches of a pattern that begins with a telling word, and is tried only where one of them begins."""
    if places is None:
        yield from pattern.finditer(text)
        return
    end = 0
    for place in places:
        match = pattern.match(text, place) if place >= end else None
        if match is not None:
            yield match
            end = match.end()


def _signed(match: Match[str]) -> str:
    """The sign with the blanks around it: `TOKEN=…` in a settings file has none, `token = …` in a program has."""
    return match.string[match.end("name") : match.start("bare" if match["quoted"] is None else "quote")]


def _is_alternative(match: Match[str], value: str) -> bool:
    """Is it one of three words or more that may stand there, as in `kind: api_key | env_variable | service`?

    The cells of a table are told apart by the bar that its rows begin with, or by there being only two.
    """
    if _signed(match).strip() != "|" or not (value.islower() and value.replace("_", "").isalpha()):
        return False
    before, after = _line_before(match).strip(), match.string[match.end() :].partition("\n")[0].strip()
    return not before.startswith("|") and (before.endswith("|") or after.startswith("|"))


def _is_said(match: Match[str], value: str) -> bool:
    """Is it the next word of a sentence or a title, as in `Secrets Redaction for log writes`, or the next path of a command?

    Not behind an option's name.
    """
    if not match["sign"].isspace() or not (SPOKEN.fullmatch(value) or TRODDEN.fullmatch(value)):
        return False
    return not _line_before(match).rpartition(" ")[2].startswith("-")


def _is_prose(match: Match[str], value: str) -> bool:
    after = match.string[match.end() : match.end() + FURTHEST_WORD].partition("\n")[0]
    return is_prose(match["name"], _line_before(match), _signed(match), value, after)


def _is_quoted_code(name: str, value: str) -> bool:
    """Between backticks: a command that is said to pass, or the tags of a field in Go."""
    return (name.lower() in VERBS and " " in value.strip()) or TAGS.fullmatch(value) is not None


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
    value = value.strip().strip("`").rstrip("\\")  # Markdown puts names and code between backticks
    if len(value) < 4 or PLACEHOLDER.match(value):
        return False
    if not quoted and (CODE.match(value) or _is_argument(value)):
        return False
    if apart:
        return _is_no_speech(value, strict)
    if " " in value.strip() and len(value.split()) > 3:
        return False  # a sentence about secrets
    if not strict:
        return not (PROSE.match(value) and not quoted and len(value) < 8)
    return _looks_random(value, name)


def _is_no_speech(value: str, strict: bool) -> bool:
    """Would nobody write it in a sentence, such as `the token expired`?"""
    is_name = value.startswith("-") or (strict and (_is_words(value) or value.endswith("=") or "://" in value))
    return not is_name and _entropy(value) >= 3 and len(value) >= 8 and _mixed(value) >= 2


def _looks_random(value: str, name: str) -> bool:
    """Is it no path, not the name beside it once more, no code and no words?"""
    if "/" in value and not any(letter.isdigit() for letter in value):
        return False
    if value.lower().replace("_", "").replace("-", "") in name.lower().replace("_", "").replace("-", ""):
        return False
    return (
        len(value) >= 8
        and _mixed(value) >= 2
        and _entropy(value) >= 2.5
        and not CODE.match(value)
        and not _is_words(value)
    )


def _is_argument(value: str) -> bool:
    """Is it how programs write an argument, as in `parse_all=True`?"""
    name, _, given = value.partition("=")
    return name.isidentifier() and given in ("True", "False", "None")


def _is_words(value: str) -> bool:
    """Is it a name made of words, such as `session-token-secret`, `user.password` or `getToken`? Random letters are none."""
    return WORDS.fullmatch(value) is not None and not is_random(value)


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
            if kind == "authorization" and is_public(value):
                continue
            if not PLACEHOLDER.match(value) and not PROSE.match(value) and not CODE.match(value):
                yield match.start(group), match.end(group), kind


def _coded(text: str) -> Iterator[Span]:
    """Base64 of something that is a secret itself."""
    for match in CODED.finditer(text):
        run = match[0]
        # Text in base64 has letters of both cases; most long names in programs do not.
        if run.islower() or run.isupper():
            continue
        if any(
            next(_keys(inside), None) or next(_assigned(inside, _beginnings(inside), strict=True), None)
            for inside in _decoded(run)
        ):
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
        if inside.count(0) * 3 > len(inside):  # a text in UTF-16, as PowerShell takes its commands
            inside = inside.replace(b"\0", b"")
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


def _joined(match: Match[str]) -> str:
    """Nothing, so that a key goes on in the next line; a blank where the next line begins a key, whatever word is above."""
    text, start = match.string, match.start()
    above = text[max(0, start - LONGEST_GAP) : start].rstrip()
    return " " if above and above[-1].isalnum() and text.startswith(_signs(), match.end()) else ""


def _signs() -> tuple[str, ...]:
    """How keys begin, of all kinds that have no blanks in them."""
    global _all_signs
    if not _all_signs:
        _all_signs = tuple(
            {sign for kind in services.kinds() if kind in services.BEGINNINGS for sign in services.signs(kind)}
        )
    return _all_signs


def _character(match: Match[str]) -> str:
    if match[5]:
        return ENTITIES[match[5]]
    return chr(int(match[4])) if match[4] else chr(int(match[1] or match[2] or match[3], 16))


def _sign(match: Match[str]) -> str:
    return match[1]


VIEWS: tuple[tuple[Pattern[str], Callable[[Match[str]], str]], ...] = (
    (WRAP, _nothing),
    (WRAP, _joined),
    (ESCAPE, _character),
    (SLASHED, _sign),
)


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
