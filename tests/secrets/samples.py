"""Made-up keys of every kind that is known, from the very patterns that find them, and the places where keys turn up in files."""

from __future__ import annotations

import base64
import json
import quopri
import re
import sqlite3
from collections.abc import Callable, Iterator
from random import Random
from re import _constants as constants
from re import _parser as parser
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from keepfast.secrets import services

from .planted_secrets import BASE64, DIGITS, HEX, LETTERS, MIXED, URL64, pem

KOREAN = "한국어 문서입니다 여기에 열쇠가 있습니다 그리고 더 많은 글이 이어집니다 " * 9
MORE = 6
"""A part that may be of any length gets up to so many more than it needs."""


class Sample(NamedTuple):
    """One made-up key. `setting`: the name that gives it away, if nothing else does."""

    kind: str
    value: str
    setting: str = ""


def known(seed: int) -> Iterator[Sample]:
    """One for each way in which a key of each kind can begin; for the others, one for each kind, and addresses of every shape."""
    random = Random(seed)
    for kind, (signs, rest, *_) in services.BEGINNINGS.items():
        for sign in signs.split():
            yield Sample(kind, _made(random, re.escape(sign) + f"(?:{rest})"))
    for kind, (_, pattern) in services.OTHERS.items():
        if kind == "private-key":
            yield Sample(kind, pem(random))
        elif kind == "openvpn-key":
            body = "\n".join(_some(random, HEX, 32) for _ in range(16))
            yield Sample(kind, f"-----BEGIN OpenVPN Static key V1-----\n{body}\n-----END OpenVPN Static key V1-----")
        elif kind == "putty-key":
            public, private = (f"{_some(random, BASE64, 64)}\n{_some(random, BASE64, 40)}" for _ in range(2))
            head = "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: me\nPublic-Lines: 2"
            tail = f"Private-Lines: 2\n{private}\nPrivate-MAC: {_some(random, HEX, 64)}"
            yield Sample(kind, f"{head}\n{public}\n{tail}")
        elif kind == "oracle-password":
            for driver in ("thin", "oci"):
                yield Sample(kind, f"jdbc:oracle:{driver}:scott/{_some(random, MIXED, 14)}@db.example.org:1521/app")
        elif kind != "url-password":
            yield Sample(kind, _made(random, pattern).replace("\\", ""))  # before slashes in JSON
    for scheme in (
        "https",
        "postgres",
        "mysql",
        "mongodb+srv",
        "redis",
        "amqps",
        "ftp",
        "ssh",
        "ldap",
        "smtp",
        "mssql",
        "postgresql+psycopg2",
        "socks5",
        "s3",
        "h2",
        "db2",
        "neo4j",
    ):
        yield Sample(
            "url-password", f"{scheme}://{_some(random, MIXED, 8)}:{_some(random, MIXED, 14)}@db.example.org/app"
        )
    for scheme in ("ftp", "smtp", "https"):
        yield Sample("url-password", f"{scheme}://me@x.org:{_some(random, MIXED, 14)}@db.example.org/app")
    for user, password in ((8, "a7/Fw+{}/9x"), (90, "Zx9{}q"), (0, "k3{}T"), (12, "p%40{}%2Fz"),
        (3, "MyS3c{}"), (3, "Enterprise7{}"), (3, "Replace{}8"), (3, "mock{}5"), (3, "Sample{}4q"), (3, "%40{}"), (3, "$9{}"),
        (3, "xxx{}8"), (3, "123/{}x9"), (3, "54321/{}q7Z"), (3, "[{}9"), (3, "your8{}"), (3, "p@{}3w"),
    ):  # fmt: skip
        inner = password.format(_some(random, MIXED, 10))
        yield Sample("url-password", f"postgres://{_some(random, MIXED, user)}:{inner}@db.example.org:5432/app")


def told(seed: int) -> Iterator[Sample]:
    """Secrets of no form of their own: only the name beside them gives them away."""
    random = Random(seed)
    for setting, alphabet, count in (
        ("aws_secret_access_key", BASE64, 40), ("AccountKey", BASE64, 86), ("HEROKU_API_KEY", HEX, 36), ("session_secret", HEX, 40),
        ("webhook_token", URL64, 32), ("DB_PASSWORD", MIXED, 14), ("CLOUDFLARE_API_KEY", HEX, 37), ("DATADOG_APP_KEY", HEX, 40),
        ("okta_token", URL64, 42), ("twitter_api_secret", MIXED, 50), ("ADAFRUIT_API_KEY", MIXED, 32),
        ("algolia_api_key", MIXED, 32),
        ("airtable_token", MIXED, 40), ("bitbucket_client_secret", MIXED, 44), ("codecov_token", HEX, 32),
        ("dropbox_secret", MIXED, 15),
        ("discord_token", URL64, 59), ("fastly_token", URL64, 32), ("signing_key", HEX, 64), ("encryption_key", BASE64, 44),
        ("master_key", HEX, 32), ("travis_token", MIXED, 22), ("smtp_pass", MIXED, 12), ("ZENDESK_SECRET", MIXED, 40),
    ):  # fmt: skip
        value = ""
        while not (set(value) & {*DIGITS} and set(value) & {*LETTERS}):
            value = _some(random, alphabet, count)
        yield Sample("told by its name", value, setting)


def _some(random: Random, alphabet: str, count: int) -> str:
    return "".join(random.choice(alphabet) for _ in range(count))


def _made(random: Random, pattern: str) -> str:
    """A text of which the pattern takes all, and in which enough letters differ."""
    whole, tree = re.compile(pattern), parser.parse(pattern)
    while True:
        text = "".join(_parts(random, tree))
        if whole.fullmatch(text) and len(set(text)) > 8:
            return text


def _parts(random: Random, tree: Any) -> Iterator[str]:
    for name, given in tree:
        if name is constants.LITERAL:
            yield chr(given)
        elif name is constants.IN:
            yield random.choice(_letters(given))
        elif name is constants.MAX_REPEAT or name is constants.MIN_REPEAT:
            least, most, inner = given
            for _ in range(random.randint(least, min(most, least + MORE))):
                yield from _parts(random, inner)
        elif name is constants.SUBPATTERN:
            yield from _parts(random, given[3])
        elif name is constants.BRANCH:
            yield from _parts(random, random.choice(given[1]))
        elif name not in (constants.ASSERT, constants.ASSERT_NOT):
            raise NotImplementedError(name)


def _letters(given: Any) -> list[str]:
    found = []
    for name, value in given:
        if name is constants.LITERAL:
            found.append(chr(value))
        elif name is constants.RANGE:
            found += [chr(code) for code in range(value[0], value[1] + 1)]
        elif name is constants.CATEGORY and value is constants.CATEGORY_DIGIT:
            found += DIGITS
        else:
            raise NotImplementedError(name)
    return found


# Places: each takes the name that stands beside a value, if one gives it away, and the value; a file's name, and its content


def _line(name: str, value: str) -> tuple[str, str]:
    return "notes.txt", f"first\n{name}={value}\nlast\n" if name else f"first\n{value}\nlast\n"


def _backticks(name: str, value: str) -> tuple[str, str]:
    return "notes.md", f"Use `{name}`: `{value}` for it.\n" if name else f"Use `{value}` for it.\n"


def _brackets(name: str, value: str) -> tuple[str, str]:
    return ("build.gradle", f'{name}("{value}")\n') if name else ("main.c", f"/* connect({value}) */\n")


def _tab(name: str, value: str) -> tuple[str, str]:
    return "list.txt", f"one\t{name}\t{value}\n"


def _json(name: str, value: str) -> tuple[str, str]:
    return "a.json", json.dumps({"a": 1, name or "x": value})


def _json_text(name: str, value: str) -> tuple[str, str]:
    return "a.json", json.dumps({"text": f"first\n{name}={value}\nlast" if name else f"first\n{value}\nlast"})


def _pair(name: str, value: str) -> tuple[str, str]:
    return "a.yaml", f"env:\n  - name: {name or 'X'}\n    value: {json.dumps(value)}\n  - name: Y\n    value: z\n"


def _pair_bare(name: str, value: str) -> tuple[str, str]:
    return "a.yaml", f"env:\n- name: {name or 'X'}\n  value: {value}\n"


def _plist(name: str, value: str) -> tuple[str, str]:
    return "a.plist", f"<dict>\n\t<key>{name or 'x'}</key>\n\t<string>{escape(value)}</string>\n</dict>\n"


def _attribute(name: str, value: str) -> tuple[str, str]:
    return "web.config", f'<appSettings>\n  <add key="{name or "x"}" value={quoteattr(value)} />\n</appSettings>\n'


def _element(name: str, value: str) -> tuple[str, str]:
    return "a.xml", f"<a>\n  <{name or 'x'}>{escape(value)}</{name or 'x'}>\n</a>\n"


def _csv(name: str, value: str) -> tuple[str, str]:
    return "a.csv", f"user,{name or 'x'},note\nann,{value},first\n"


def _next_line(name: str, value: str) -> tuple[str, str]:
    return "a.json", f'{{"{name or "x"}":\n    {json.dumps(value)}}}\n'


def _next_line_bare(name: str, value: str) -> tuple[str, str]:
    return "a.yaml", f"{name or 'x'}:\n  {value}\n"


def _shell(name: str, value: str) -> tuple[str, str]:
    return "run.sh", f"export {name or 'X'}={value}; ./run\n"


def _wrapped(name: str, value: str) -> tuple[str, str]:
    middle = len(value) // 2
    return "run.sh", f'export {name or "X"}="{value[:middle]}\\\n{value[middle:]}"\n'


def _coded(name: str, value: str) -> tuple[str, str]:
    inner = f"{name}={value}" if name else value
    return "a.json", json.dumps({"x": base64.b64encode(inner.encode()).decode()})


def _escaped(name: str, value: str) -> tuple[str, str]:
    return "a.json", f'{{"{name or "x"}": "{"".join(f"{chr(92)}u{ord(letter):04x}" for letter in value)}"}}'


def _written(name: str, value: str) -> str:
    return f"{name}={value}" if name else value


def _percent(name: str, value: str) -> tuple[str, str]:
    return "a.txt", f"{name or 'q'}={''.join(f'%{ord(letter):02X}' for letter in value)}\n"


def _percent_small(name: str, value: str) -> tuple[str, str]:
    return "a.conf", f"{name or 'q'}={''.join(f'%{ord(letter):02x}' for letter in value)}\n"


def _behind(before: str, after: str = "") -> Callable[[str, str], tuple[str, str]]:
    """Directly behind an escape, whose last letter is no part of the key."""
    return lambda name, value: ("a.log", f"out: {before}{_written(name, value)}{after} end\n")


def _broken(value: str) -> tuple[str, str]:
    """In two, behind the letters that most keys are known by."""
    middle = len(value) * 2 // 3
    return value[:middle], value[middle:]


def _php(name: str, value: str) -> tuple[str, str]:
    first, second = _broken(value)
    return "a.ini", f"{name or 'x'} = '{first}' .\n    '{second}';\n"


def _printable(name: str, value: str) -> tuple[str, str]:
    first, second = _broken(value)
    return "a.txt", f"{name or 'x'}: {first}=\r\n{second}\r\n"


def _basic(before: str) -> Callable[[str, str], tuple[str, str]]:
    """In base64 behind something else, so that it begins at another place there."""
    return lambda name, value: (
        "a.json",
        json.dumps({"x": base64.b64encode((before + _written(name, value)).encode()).decode()}),
    )


def _powershell(name: str, value: str) -> tuple[str, str]:
    return "a.ps1", f"powershell -enc {base64.b64encode(f'x {_written(name, value)}'.encode('utf-16-le')).decode()}\n"


def _wrapped_base64(name: str, value: str) -> tuple[str, str]:
    return "a.txt", base64.encodebytes(f"export {name or 'THING'}={value}\n".encode()).decode()


def _base64_in_a_program(name: str, value: str) -> tuple[str, str]:
    inner = base64.b64encode(f"{name or 'x'}={value}".encode()).decode()
    return "a.py", f"X = b64decode('{inner}')\n"


def _base64_of_addresses(name: str, value: str) -> tuple[str, str]:
    inner = base64.urlsafe_b64encode(json.dumps({name or "a": value}, indent=1).encode()).decode()
    return "a.txt", f"d={inner.rstrip('=')}\n"


def _properties(name: str, value: str) -> tuple[str, str]:
    written = value.replace(":", "\\:").replace("=", "\\=").replace("\n", "\\n\\\n  ")
    return "a.properties", f"{name or 'thing'}={written}\n"


def _mail(value: str) -> tuple[str, bytes]:
    """As programs of mail write it: a line ends wherever it is full, be it within the first letters of a key."""
    said = f"Hello, the thing for the service that you asked for last week: {value} ok\n"
    head = "MIME-Version: 1.0\nContent-Transfer-Encoding: quoted-printable\n\n"
    return "a.eml", head.encode() + quopri.encodestring(said.encode())


def _in_a_database(coding: str) -> Callable[[str], tuple[str, bytes]]:
    """Nothing but a number stands before the value in the file, and the next one directly behind it."""

    def put(value: str) -> tuple[str, bytes]:
        database = sqlite3.connect(":memory:")
        database.execute(f"PRAGMA encoding = '{coding}'")
        database.execute("CREATE TABLE t (a, b, c)")
        database.execute("INSERT INTO t VALUES ('ann', ?, 'seen')", (value,))
        database.commit()
        return "a.db", database.serialize()

    return put


def _ended(before: str, after: str) -> Callable[[str, str], tuple[str, str]]:
    """Between bytes of zero, as `env -0` and `find -print0` write them."""
    return lambda name, value: ("env.txt", f"{before}{name or 'X'}={value}\0{after}")


def _last(name: str, value: str) -> tuple[str, str]:
    return "a.txt", f"{_written(name, value)}\0"


def _one_escape(at: int) -> Callable[[str, str], tuple[str, str]]:
    """One letter of the value percent-encoded, within what keys are known by."""
    return lambda name, value: ("a.txt", f"{name or 'q'}={value[:at]}%{ord(value[at]):02x}{value[at + 1 :]}\n")


def _replaced(letters: str, written: str) -> Callable[[str, str], tuple[str, str]]:
    """Some signs of the value otherwise: `written` is a format that is given the sign's number, and the sign."""
    by = {ord(letter): written.format(ord(letter), letter) for letter in letters}
    return lambda name, value: ("a.html", f"<p>{name or 'q'}={value.translate(by)}</p>\n")


def _highlighted(name: str, value: str) -> tuple[str, str]:
    """As `grep` shows what it looked for."""
    first, second = _broken(value)
    return "a.log", f"a.txt:{name or 'x'}=\x1b[01;31m\x1b[K{first}\x1b[m\x1b[K{second}\n"


def _patch(name: str, value: str) -> tuple[str, str]:
    return "a.patch", f"@@ -1 +1 @@\n-old\n+{_written(name, value)}\n"


def _comment(name: str, value: str) -> tuple[str, str]:
    return "a.md", f"<p><!--{_written(name, value)}--></p>\n"


PLACES: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "at the beginning of a line": _line, "between backticks": _backticks, "in brackets": _brackets, "behind a tab": _tab,
    "JSON": _json, "a line of a text in JSON": _json_text, "YAML, name and value": _pair, "YAML, both bare": _pair_bare,
    "property list": _plist, "XML attribute": _attribute, "XML element": _element, "CSV": _csv, "on the next line": _next_line,
    "on the next line, bare": _next_line_bare, "shell": _shell, "broken in two": _wrapped, "base64": _coded, "as escapes": _escaped,
    "percent-encoded": _percent, "percent-encoded in small letters": _percent_small, "in a comment": _comment,
    "behind a colour": _behind("\x1b[1;32m", "\x1b[0m"), "behind a colour, escaped": _behind(r"\x1b[32m", r"\x1b[0m"),
    "behind a colour in JSON": _behind(r"\u001b[32m", r"\u001b[0m"),
    "behind a colour of a shell": _behind(r"\033[0;31m", r"\033[0m"),
    "behind %0A": _behind("a%0A", "%0A"), "behind a backspace": _behind(r"x\b"), "behind a form feed": _behind(r"x\f"),
    "behind a cleared line": _behind("\x1b[2K"), "base64 behind a user": _basic("u:"),
    "base64 behind a longer user": _basic("ab:"), "base64 behind another user": _basic("abc:"), "base64 of UTF-16": _powershell,
    "broken in PHP": _php, "quoted-printable": _printable, "base64 on several lines": _wrapped_base64,
    "base64 in a program": _base64_in_a_program, "base64 of addresses": _base64_of_addresses, "properties": _properties,
    "env -0": _ended("PATH=/usr/bin\0SHELL=/bin/bash\0", "HOME=/home/b\0"),
    "env -0, one letter more": _ended("PATH=/usr/bin\0SHELL=/bin/bash\0A=\0", "HOME=/home/b\0"), "before a zero": _last,
    "a long list of find -print0": _ended("./src/a.py\0" * 500, "./b\0"),
}  # fmt: skip
OTHERWISE: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "its first letter percent-encoded": _one_escape(0), "its third letter percent-encoded": _one_escape(2),
    "its signs percent-encoded": _replaced("_-.:+$!~=", "%{0:02X}"),
    "all but slashes percent-encoded": _replaced("_-.:+$!~=@", "%{0:02x}"), "its signs as entities": _replaced("_-.:", "&#{0};"),
    "its signs as entities in hexadecimal": _replaced("_-.:", "&#x{0:X};"),
    "its signs behind backslashes": _replaced("_-.:=+$!~", "\\{1}"), "highlighted": _highlighted, "in a patch": _patch,
}  # fmt: skip
"""Places where a part of the key itself is written in another way."""
FOR_KEYS = {
    "SQLite": _in_a_database("UTF-8"), "SQLite in UTF-16": _in_a_database("UTF-16le"), "quoted-printable mail": _mail,
}  # fmt: skip
"""Places where words do not count, since no settings are kept there."""


def files(sample: Sample) -> Iterator[tuple[str, str, bytes]]:
    """Each place, with the name of a file and its content."""
    for place, put in PLACES.items():
        name, text = put(sample.setting, sample.value)
        yield place, name, text.encode()
    for place, put_in in FOR_KEYS.items() if not sample.setting else ():
        yield place, *put_in(sample.value)
    for place, put in OTHERWISE.items() if not sample.setting else ():
        name, text = put("", sample.value)
        yield place, name, text.encode()
    name, text = _json(sample.setting, sample.value)
    yield "UTF-16", name, text.encode("utf-16")
    yield "UTF-16 that does not say so", name, text.encode("utf-16-le")
    yield (
        "UTF-16, most of it Korean",
        "a.txt",
        (KOREAN + _written(sample.setting, sample.value) + "\n").encode("utf-16-le"),
    )
    yield "UTF-16 the other way, Korean", "a.txt", (KOREAN + _written(sample.setting, sample.value)).encode("utf-16-be")
    yield "UTF-16 that does not say so, the other way", name, text.encode("utf-16-be")
