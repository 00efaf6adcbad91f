"""Find and redact secrets in texts: by their prefix, by the label beside them, or by how random they look."""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator
from math import log2
from re import Match, Pattern

from keepfast.secrets import services
from keepfast.secrets.declarations import is_annotation, is_declaration, is_name
from keepfast.secrets.lazy_pattern import lazy
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
    JOINT,
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
from keepfast.secrets.prose import WORD_PATH, is_prose, is_public, is_random

Span = tuple[int, int, str]

MAX_TEXT = 4 << 20
"""Longer texts are truncated: nothing that is shown or stored as a summary is longer."""

_compiled: dict[str, Pattern[str]] = {}
"""Patterns compiled so far: most texts need none, and compiling all of them takes 0.15 s."""
_signs_by_kind: dict[str, tuple[str, ...]] = {}
_all_signs: tuple[str, ...] = ()
MAX_GAP_LENGTH = 80
"""How many characters before a line break the last word above it is searched for."""
_kinds_by_beginning: dict[tuple[str, ...], set[str]] = {}
"""Kinds by the first three letters of their signs."""
WITH_BLANKS = ("private-key", "url-password", "openvpn-key", "putty-key")
WITH_PASSWORD = ("url-password", "oracle-password")
MIN_KEY_LENGTH = 15
EXAMPLE_PASSWORDS = frozenset(
    ("pass", "passwd", "pwd", "pw", "tiger", "guest", "root", "admin", "postgres", "user", "foo", "bar", "p")
)
"""Passwords in examples of manuals."""
CASE_FOLDING_LETTERS = "\u0130\u0131\u017f\u212a"
"""Letters that match `i`, `s` and `k` when case is ignored; one of them becomes two characters in lower case."""
WORDS = lazy(r"[A-Za-z]+(?:[-_./: ][A-Za-z]+)*|[a-z]+(?:[A-Z][a-z]+)+|[A-Z]+(?:_[A-Z0-9]+)+|[A-Za-z]+\d")
SPOKEN = lazy(r"[A-Za-z][a-z'’]*(?:-[A-Za-z]?[a-z'’]*)?[.,:;!?)…]*")
"""A word, or two with a hyphen; more look like a passphrase. A truncated one ends with an ellipsis."""
VERBS = ("pass", "passes", "passed", "passing")
TAGS = lazy(
    r"(?:(?:json|yaml|toml|xml|db|bson|mapstructure|form|query|validate|binding|protobuf|gorm|env|envconfig|header|uri|hcl|tfsdk"
    r"|msgpack|schema|url):\"[\w,.=| *-]*\"\s*)+"
)
LOOSE = (",", "(")
MAX_VALUE_DISTANCE = 600
MAX_WORD_DISTANCE = 80
"""The next word of a sentence ends within so many characters."""
COLUMNS, MAX_COLUMNS = ",;\t|", 64
MAX_ROWS = 64 << 10
"""Characters of a table that are searched."""


def redact(text: str) -> str:
    """Return the text with every secret replaced by `[redacted:<kind>]`."""
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + " […]"
    parts, at = [], 0
    for start, end, kind in find(text):
        parts += [text[at:start], f"[redacted:{kind}]"]
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def find(text: str) -> list[Span]:
    """Return (start, end, kind) of every secret, sorted, without overlaps."""
    sent = _without_nul(text)
    text = colourless(sent)
    spans = [*_keys(text), *_labelled_values(text), *_base64_secrets(text), *_random_runs(text)]
    ends_by_start = {start: end for start, end, _ in spans}
    for pattern, put in VIEWS:
        # A colour escape may be within a key as well, so unwrapping starts from the text with its escapes.
        seen = sent if pattern is WRAP else text
        other = _view(pattern, put, seen)
        view_spans = [*_keys(other), *_base64_secrets(other)] if other != seen else []
        # If a key ends with its line and a word begins the next line, that word is no part of the key.
        spans += [
            (start, end, kind)
            for start, end, kind in _spans_in_original(view_spans, _original_places(seen, pattern, put))
            if not PROSE.match(seen[ends_by_start.get(start, end) : end].strip("\r\n \t>|#*+\\\"'"))
        ]
        if other != seen and pattern is ESCAPE:
            spans += _spans_in_original(list(_labelled_values(other)), _original_places(seen, pattern, put))
    other = CONTINUED.sub("", text)
    view_spans = list(_assigned_values(other, _label_places(other))) if other != text else []
    return _merge(spans + _spans_in_original(view_spans, _original_places(text, CONTINUED, _remove)))


def _without_nul(text: str) -> str:
    """Return the text with form feeds in place of NUL: a value certainly ends there, as in `env -0`."""
    return text.replace("\0", "\f") if "\0" in text else text


def colourless(text: str) -> str:
    """Return the text with blanks in place of a terminal's colour escapes: every other letter keeps its place."""
    if "[" not in text or ("\x1b" not in text and "\\" not in text):
        return text
    return COLOUR.sub(_blanks, text)


def _blanks(match: Match[str]) -> str:
    return " " * len(match[0])


def unescaped(text: str) -> str:
    """Return the text with escapes decoded."""
    return _view(ESCAPE, _character, text)


def unwrapped(text: str) -> str:
    """Return the text without the line breaks across which a key could continue."""
    return JOINT.sub("", text)


def _spans_in_original(spans: list[Span], places: Callable[[], list[int]]) -> list[Span]:
    """Return a view's spans as spans of the original text. Most views have none, so `places` is called only if needed."""
    if not spans:
        return []
    at = places()
    return [(at[start], at[end - 1] + 1, kind) for start, end, kind in spans]


def holds_key(text: str) -> bool:
    """Return whether there is a key of a known kind, a private key, or a URL with a password. Stops at the first.

    Where `find` searches whole views, this searches their changed words: what is elsewhere was seen in the text itself.
    """
    sent = _without_nul(text)
    text = colourless(sent)
    # A key may follow the signs at the beginning of a line, so words at one stay there.
    words = f"\0{text}".replace("\n", "\n\0").split()
    if _holds_key_in(text, [word.replace("\0", "\n") for word in words if len(word) >= MIN_KEY_LENGTH]):
        return True
    for seen, pattern, put in ((sent, JOINT, "\0"), (text, ESCAPE, _marked_character), (text, SLASHED, "\0\\1")):
        view = pattern.sub(put, seen)
        words = [word for word in view.split() if "\0" in word and len(word) > MIN_KEY_LENGTH]
        if pattern is JOINT:
            words += [word for joined in words for word in _split_at_signs(joined)]
        if view != seen and _holds_key_in(view.replace("\0", ""), [word.replace("\0", "") for word in words]):
            return True
    return False


def _holds_key_in(text: str, words: list[str]) -> bool:
    """Return whether one of the words is a key or base64 of one, or the text contains a kind of key that has blanks in it."""
    if next(_keys_of(_kinds_with_blanks(text), text), None):
        return True
    long = " ".join(["", *dict.fromkeys(words)])
    return bool(next(_keys_of(_kinds_of_words(long), long), None) or next(_base64_secrets(long), None))


def _marked_character(match: Match[str]) -> str:
    return f"\0{_character(match)}\0"


def _split_at_signs(joined: str) -> list[str]:
    """Return the words of which a joined one is made if some of its lines begin with a key; nothing if none does."""
    words = [""]
    for line in joined.split("\0"):
        if words[-1][-1:].isalnum() and line.startswith(_signs()):
            words.append(line)
        else:
            words[-1] += line
    return words[1:]


def holds_labelled_value(text: str) -> bool:
    """Return whether there is a secret that only the label beside it reveals, also inside base64. Stops at the first."""
    text = colourless(_without_nul(text))
    if next(_labelled_values(text, strict=True), None) or next(_base64_secrets(text), None):
        return True
    joined, plain = CONTINUED.sub("", text), unescaped(text) if "\\u00" in text else text
    if joined != text and next(_assigned_values(joined, _label_places(joined), strict=True), None):
        return True
    return plain != text and next(_labelled_values(plain, strict=True), None) is not None


def _keys(text: str) -> Iterator[Span]:
    # Keys have no blanks, so only long words are searched for their signs, and most texts have few of those.
    long = " ".join([word for word in text.split() if len(word) >= MIN_KEY_LENGTH])
    return _keys_of([*_kinds_with_blanks(text), *_kinds_of_words(long)], text)


def _keys_of(kinds: list[str], text: str) -> Iterator[Span]:
    for kind in kinds:
        if kind == "url-password" and not LOGIN_BEHIND.search(text):
            continue
        pattern = _compiled.get(kind)
        if pattern is None:
            pattern = _compiled[kind] = re.compile(services.pattern(kind))
        for match in pattern.finditer(text):
            group = 1 if pattern.groups else 0
            if kind in WITH_PASSWORD and (PLACEHOLDER.match(match[1]) or match[1].lower() in EXAMPLE_PASSWORDS):
                continue
            if match[group].endswith("EXAMPLE"):
                continue  # example keys in AWS's manuals end so
            if len(set(match[group])) > 4:  # `AKIAXXXXXXXXXXXXXXXX` is a placeholder
                yield match.start(group), match.end(group), kind


def _kinds_with_blanks(text: str) -> list[str]:
    """Return the kinds of keys with blanks in them, and of URLs, that could be in the text, by their signs."""
    return [kind for kind in WITH_BLANKS if any(sign in text for sign in services.OTHERS[kind][0])]


def _kinds_of_words(long: str) -> list[str]:
    """Return the kinds of keys without blanks that could be among these long words, by their signs."""
    if not _signs_by_kind:
        _signs_by_kind.update({kind: services.signs(kind) for kind in services.kinds() if kind not in WITH_BLANKS})
        for kind, signs in _signs_by_kind.items():
            for sign in signs:
                _kinds_by_beginning.setdefault(tuple(sign[:3]), set()).add(kind)
    # All groups of three letters are looked up at once, because there are hundreds of signs.
    begun = {*filter(_kinds_by_beginning.__contains__, zip(long, long[1:], long[2:], strict=False))}
    likely = {kind for three in begun for kind in _kinds_by_beginning[three]}
    return [kind for kind in _signs_by_kind if kind in likely and any(map(long.__contains__, _signs_by_kind[kind]))]


def _labelled_values(text: str, strict: bool = False) -> Iterator[Span]:
    """Yield secrets that the text beside them reveals. `strict`: only those that look like a secret and not like a word."""
    places = _label_places(text)
    yield from _assigned_values(text, places, strict)
    yield from _parameters(text)
    if places or places is None:
        yield from _paired_values(text, places, strict)
        yield from _values_before_labels(text, places, strict)
        yield from _table_values(text, places)


def _assigned_values(text: str, places: list[int] | None, strict: bool = False) -> Iterator[Span]:
    """Yield values assigned to a label such as `password`."""
    for match in _matches_at(ASSIGNED, text, places):
        group = "quoted" if match["quoted"] is not None else "bare"
        value = match[group]
        after = text[match.end() : match.end() + 1]
        is_harmless = _is_harmless_quoted if group == "quoted" else _is_harmless_bare
        if is_harmless(match, value, after):
            continue
        if match["line"] is not None and (group == "bare" and (value[-1] in ":=" or after in ("=", ":"))):
            continue  # the next line has a name of its own
        # In the next line, or behind a comma, there may be anything.
        is_sentence = match["sign"].strip(" \t:").lower() == "is"
        loosely = match["line"] is not None or match["sign"] in LOOSE or (is_sentence and group == "quoted")
        if loosely and not _is_strange(value):
            continue
        after_blank = match["sign"].isspace() or (is_sentence and group == "bare")
        if _is_value(value, after_blank, group == "quoted", strict or loosely, match["name"]):
            yield match.start(group), match.end(group), "secret"


def _is_harmless_bare(match: Match[str], value: str, after: str) -> bool:
    """Return whether a value without quotes is part of code or of a sentence."""
    if is_declaration(match["name"], _sign_with_blanks(match), value, after):
        return True
    return _is_alternative(match, value) or _is_next_word(match, value) or _is_prose(match, value)


def _is_harmless_quoted(match: Match[str], value: str, after: str) -> bool:
    """Return whether a value in quotes is a type or code."""
    if is_annotation(match["name"], _sign_with_blanks(match), value, _line_before(match), after):
        return True
    return match["quote"] == "`" and _is_quoted_code(match["name"], value)


def _is_strange(value: str) -> bool:
    """Return whether the value does not look like a name: it has digits, mixed characters or great length."""
    if "=" in value.rstrip("=") or not any(letter.isdigit() for letter in value):
        return False
    return (_count_character_kinds(value) >= 3 or len(value) >= 16) and _entropy(value) >= 3


def _paired_values(text: str, places: list[int] | None, strict: bool) -> Iterator[Span]:
    """Yield values whose label is the value of another key, as in `name: DB_PASSWORD` and `value: …`."""
    for match in _matches_at(PAIRED, text, places):
        group = "quoted" if match["quoted"] is not None else "bare"
        if _is_value(match[group], False, group == "quoted", strict, match["name"]):
            yield match.start(group), match.end(group), "secret"


def _values_before_labels(text: str, places: list[int] | None, strict: bool) -> Iterator[Span]:
    """Yield such values that come before their label, as in `value: …` and `name: DB_PASSWORD`."""
    for named in _matches_at(NAMED, text, places):
        start = max(named.start() - MAX_VALUE_DISTANCE, 0)
        before = text[start : named.start()]
        match = VALUED.search(before) if ":" in before or "=" in before else None
        if match is None:
            continue
        group = "quoted" if match["quoted"] is not None else "bare"
        if _is_value(match[group], False, group == "quoted", strict, named[0]):
            yield start + match.start(group), start + match.end(group), "secret"


def _split_row(row: str, between: str) -> list[str]:
    """Split a row into cells; a quoted cell may contain the separator."""
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


def _table_values(text: str, places: list[int] | None) -> Iterator[Span]:
    """Yield values in the columns of tables whose heading is a label."""
    end = 0
    for match in _matches_at(NAMED, text, places):
        line = text.find("\n", match.end())
        if match.start() < end or line < 0:
            continue
        end = line
        heading = text[text.rfind("\n", 0, match.start()) + 1 : end]
        for between in COLUMNS:
            names = _split_row(heading, between)
            # The rows of a table in Markdown begin and end with the bar.
            written = [name for name in names if between != "|" or name.strip()]
            if 1 < len(names) <= MAX_COLUMNS and written and all(CELL.fullmatch(name) for name in written):
                secret_columns = [NAMED.search(name) is not None for name in names]
                yield from _cells(text, end + 1, between, secret_columns)


def _cells(text: str, at: int, between: str, secret_columns: list[bool]) -> Iterator[Span]:
    """Yield secrets in the rows of a table that begins at `at`, from the columns that hold secrets."""
    for row in text[at : at + MAX_ROWS].split("\n"):
        cells = _split_row(row, between)
        if len(cells) != len(secret_columns):
            return
        for cell, is_secret in zip(cells, secret_columns, strict=True):
            value = cell.strip(" \t\r\"'")
            if is_secret and _is_value(value, False, True, True, ""):
                start = at + cell.find(value)
                yield start, start + len(value), "secret"
            at += len(cell) + 1


def _label_places(text: str) -> list[int] | None:
    """Return where labels begin; None if the text has letters that only match labels when case is ignored."""
    if not text.isascii() and any(letter in text for letter in CASE_FOLDING_LETTERS):
        return None
    lower = text.lower()
    return _places_of(BEGINNINGS, lower) if any(map(lower.__contains__, BEGINNINGS)) else []


def _matches_at(pattern: Pattern[str], text: str, places: list[int] | None) -> Iterator[Match[str]]:
    """Yield all matches of a pattern that begins with a label, which is tried at `places` only."""
    if places is None:
        yield from pattern.finditer(text)
        return
    end = 0
    for place in places:
        match = pattern.match(text, place) if place >= end else None
        if match is not None:
            yield match
            end = match.end()


def _sign_with_blanks(match: Match[str]) -> str:
    """Return the sign with the blanks around it: `TOKEN=…` in a settings file has none, `token = …` in code has."""
    return match.string[match.end("name") : match.start("bare" if match["quoted"] is None else "quote")]


def _is_alternative(match: Match[str], value: str) -> bool:
    """Return whether the value is one of three or more alternatives, as in `kind: api_key | env_variable | service`.

    The cells of a table differ from that: its rows begin with a bar, or have only two cells.
    """
    if _sign_with_blanks(match).strip() != "|" or not (value.islower() and value.replace("_", "").isalpha()):
        return False
    before, after = _line_before(match).strip(), match.string[match.end() :].partition("\n")[0].strip()
    return not before.startswith("|") and (before.endswith("|") or after.startswith("|"))


def _is_next_word(match: Match[str], value: str) -> bool:
    """Return whether the value is the next word of a sentence or title (`Secrets Redaction for log writes`) or a path in a command.

    Never after the name of an option.
    """
    if not match["sign"].isspace() or not (SPOKEN.fullmatch(value) or WORD_PATH.fullmatch(value)):
        return False
    return not _line_before(match).rpartition(" ")[2].startswith("-")


def _is_prose(match: Match[str], value: str) -> bool:
    after = match.string[match.end() : match.end() + MAX_WORD_DISTANCE].partition("\n")[0]
    return is_prose(match["name"], _line_before(match), _sign_with_blanks(match), value, after)


def _is_quoted_code(name: str, value: str) -> bool:
    """Return whether a value in backticks is a command after a verb (`make test` passes), or the tags of a field in Go."""
    return (name.lower() in VERBS and " " in value.strip()) or TAGS.fullmatch(value) is not None


def _line_before(match: Match[str]) -> str:
    return match.string[match.string.rfind("\n", 0, match.start()) + 1 : match.start()]


def _places_of(words: Iterable[str], text: str) -> list[int]:
    """Return where the words begin in the text, in order."""
    places = []
    for word in words:
        place = text.find(word)
        while place >= 0:
            places.append(place)
            place = text.find(word, place + 1)
    return sorted(places)


def _is_value(value: str, after_blank: bool, is_quoted: bool, strict: bool, name: str) -> bool:
    value = value.strip().strip("`").rstrip("\\")  # Markdown puts names and code between backticks
    if len(value) < 4 or PLACEHOLDER.match(value):
        return False
    if not is_quoted and (CODE.match(value) or _is_argument(value)):
        return False
    if after_blank:
        return _is_unlike_speech(value, strict)
    if " " in value.strip() and len(value.split()) > 3:
        return False  # a sentence about secrets
    if not strict:
        return not (PROSE.match(value) and not is_quoted and len(value) < 8)
    return _looks_random(value, name)


def _is_unlike_speech(value: str, strict: bool) -> bool:
    """Return whether the value cannot be a word of a sentence, such as `the token expired`."""
    is_name = value.startswith("-") or (strict and (_is_words(value) or value.endswith("=") or "://" in value))
    return not is_name and _entropy(value) >= 3 and len(value) >= 8 and _count_character_kinds(value) >= 2


def _looks_random(value: str, name: str) -> bool:
    """Return whether the value looks random: no path, no repetition of its label, no code and no words."""
    if "/" in value and not any(letter.isdigit() for letter in value):
        return False
    if value.lower().replace("_", "").replace("-", "") in name.lower().replace("_", "").replace("-", ""):
        return False
    return (
        len(value) >= 8
        and _count_character_kinds(value) >= 2
        and _entropy(value) >= 2.5
        and not CODE.match(value)
        and not _is_words(value)
    )


def _is_argument(value: str) -> bool:
    """Return whether the value is an argument in code, as in `parse_all=True`."""
    name, _, argument = value.partition("=")
    return name.isidentifier() and argument in ("True", "False", "None")


def _is_words(value: str) -> bool:
    """Return whether the value is made of words, such as `session-token-secret` or `getToken`, and not of random letters."""
    return WORDS.fullmatch(value) is not None and not is_random(value)


def _parameters(text: str) -> Iterator[Span]:
    """Yield secrets in headers, URLs, and options of well-known commands."""
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


def _base64_secrets(text: str) -> Iterator[Span]:
    """Yield base64 of texts that contain a secret."""
    for match in CODED.finditer(text):
        run = match[0]
        # Text in base64 has letters of both cases; most long names in programs do not.
        if run.islower() or run.isupper():
            continue
        if any(
            next(_keys(inside), None) or next(_assigned_values(inside, _label_places(inside), strict=True), None)
            for inside in _decoded(run)
        ):
            yield match.start(), match.end(), "base64"


def _decoded(run: str) -> Iterator[str]:
    """Yield the texts that the run may encode, at each of four alignments: letters of a name may precede the base64."""
    plain = run.rstrip("=").replace("-", "+").replace("_", "/")
    for shift in range(4):
        size = len(plain) - shift
        try:
            inside = a2b_base64((plain[shift:-1] if size % 4 == 1 else plain[shift:]) + "==")
        except ValueError:
            continue
        if inside.count(0) * 3 > len(inside):  # a text in UTF-16, as PowerShell takes its commands
            inside = inside.replace(b"\0", b"")
        # At the right alignment it is text, at the three others noise, nearly always; a name before the base64 makes its
        # first letters noise, too.
        strange = len(inside.translate(None, PRINTABLE))
        if strange * 4 <= len(inside) and (inside.isascii() or len(run) < 64):
            yield inside.decode("utf-8", "replace")


def _random_runs(text: str) -> Iterator[Span]:
    """Yield long runs that look random and are neither a hexadecimal digest nor a path."""
    for match in RANDOM.finditer(text):
        run = match[0]
        if (
            _count_character_kinds(run) >= 3
            and _entropy(run) >= 4.3
            and run.count("/") <= len(run) // 20
            and not (_is_words(run) or is_name(run))
        ):
            yield match.start(), match.end(), "random"


def _original_places(text: str, pattern: Pattern[str], put: Callable[[Match[str]], str]) -> Callable[[], list[int]]:
    """Return a function that returns the place in the text of every character of `pattern.sub(put, text)`."""

    def places() -> list[int]:
        places_in_text: list[int] = []
        at = 0
        for match in pattern.finditer(text):
            places_in_text += range(at, match.start())
            places_in_text += [match.end() - 1] * len(put(match))
            at = match.end()
        places_in_text += range(at, len(text))
        return places_in_text

    return places


def _view(pattern: Pattern[str], put: Callable[[Match[str]], str], text: str) -> str:
    return pattern.sub("" if put is _remove else put, text)  # no call for each end of a line


def _remove(match: Match[str]) -> str:
    return ""


def _joined(match: Match[str]) -> str:
    """Return nothing, so that a key continues in the next line; a blank if the next line begins with a key's sign."""
    text, start = match.string, match.start()
    above = text[max(0, start - MAX_GAP_LENGTH) : start].rstrip()
    return " " if above and above[-1].isalnum() and text.startswith(_signs(), match.end()) else ""


def _signs() -> tuple[str, ...]:
    """Return the prefixes of all kinds of keys."""
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
    (WRAP, _remove),
    (WRAP, _joined),
    (ESCAPE, _character),
    (SLASHED, _sign),
)


def _merge(spans: list[Span]) -> list[Span]:
    result: list[Span] = []
    # Of overlapping spans, the one that begins first gives the kind; of two with the same start, the longer one.
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if result and start < result[-1][1]:
            first = result[-1]
            result[-1] = first[0], max(first[1], end), first[2]
        else:
            result.append((start, end, kind))
    return result


def _count_character_kinds(text: str) -> int:
    """Return how many kinds of characters the text has: lower case, upper case, digits, others."""
    return sum(
        (
            any(letter.islower() for letter in text),
            any(letter.isupper() for letter in text),
            any(letter.isdigit() for letter in text),
            any(not letter.isalnum() for letter in text),
        )
    )


def _entropy(text: str) -> float:
    """Return the bits per character, from how often each occurs."""
    size = len(text)
    return -sum(count / size * log2(count / size) for count in map(text.count, set(text)))
