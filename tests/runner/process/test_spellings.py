"""A value that was given to a task is struck out of its output however a program spells it."""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keepfast.runner.process.filter import MARK, OutputWriter
from keepfast.runner.process.spellings import forms

AWKWARD = "Kz9&mQ\"blue'Lq7<x>$w\\5é"
MOST = 250
VALUES = st.text(
    st.sampled_from("aZ09 \"'`$!&<>\\/+=%~#_-.,:;@*?[](){}|^é한😀") | st.characters(min_codepoint=33, max_codepoint=0x2FF),
    min_size=8,
    max_size=40,
).map(str.strip).filter(lambda value: len(value) >= 8)  # fmt: skip


def within_double_quotes(value: str) -> str:
    return '"' + re.sub(r'(["$`\\])', r"\\\1", value) + '"'


def go_json(value: str) -> str:
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


SPELLED: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "Python": repr,
    "ascii": ascii,
    "bytes": lambda value: repr(value.encode()),
    "repr in a list with quotes": lambda value: repr([value + "'\""]),
    "HTML": html.escape,
    "HTML without quotes": lambda value: html.escape(value, quote=False),
    "HTML by other programs": lambda value: html.escape(value).replace("&#x27;", "&#39;"),
    "HTML in ASCII": lambda value: html.escape(value).encode("ascii", "xmlcharrefreplace").decode(),
    "XML": escape,
    "XML attribute": quoteattr,
    "shell": shlex.quote,
    "shell, the other way": lambda value: "'" + value.replace("'", "'\\''") + "'",
    "shell, between double quotes": within_double_quotes,
    "shell, by backslashes": lambda value: re.sub(r"([^A-Za-z0-9%+\-./:=@_,\u0080-\U0010ffff])", r"\\\1", value),
    "pattern": re.escape,
    "a backslash before quotes": lambda value: value.replace('"', '\\"'),
    "a backslash before dollars": lambda value: value.replace("$", "\\$"),
    "JSON": json.dumps,
    "JSON of all letters": lambda value: json.dumps(value, ensure_ascii=False),
    "JSON in JSON": lambda value: json.dumps(json.dumps(value)),
    "JSON by Go": go_json,
    "repr in JSON": lambda value: json.dumps({"text": f"got {value!r}"}),
    "HTML in JSON": lambda value: json.dumps({"text": html.escape(value)}, ensure_ascii=False),
    "shell in JSON": lambda value: json.dumps({"command": f"curl -u {shlex.quote(value)}"}),
    "address": quote,
    "part of an address": lambda value: quote(value, safe=""),
    "form": quote_plus,
    "JavaScript's address": lambda value: quote(value, safe="!'()*"),
    "small percent escapes": lambda value: re.sub("%..", lambda match: match[0].lower(), quote(value)),
    "hexadecimal": lambda value: value.encode().hex(),
    "capital hexadecimal": lambda value: value.encode().hex().upper(),
    "base64": lambda value: b64encode(value.encode()).decode(),
    "base64 of addresses": lambda value: urlsafe_b64encode(b"xy" + value.encode()).decode(),
    "capitals": str.upper,
    "small letters": str.lower,
}


@pytest.mark.parametrize("way", SPELLED)
@given(value=VALUES)
@example(value=AWKWARD)
def test_a_value_is_struck_out_in_every_spelling(way: str, value: str) -> None:
    spell = SPELLED[way]
    written = spell(value).encode()
    for form in forms([value]):
        written = written.replace(form, MARK)

    assert MARK in written
    # What is left beside it is what the writer put around it, and the first and last letters of base64.
    assert len(written) <= len(spell("a" * 8).encode()) + len(MARK), written


@pytest.mark.parametrize("value", ["Kz9\tmQblue5", "Kz9mQ\nblue5\r\nLq7", "Kz9\t&mQ\"blue'5"])
def test_blanks_within_a_value_are_struck_out_of_attributes(value: str) -> None:
    written = quoteattr(value).encode()
    for form in forms([value]):
        written = written.replace(form, MARK)

    assert written.strip(b"\"'") == MARK


@given(values=st.lists(VALUES, min_size=1, max_size=3))
def test_spellings_are_bounded_in_number(values: list[str]) -> None:
    struck = forms(values)

    assert len(struck) <= MOST * len(values)
    assert struck == sorted(struck, key=len, reverse=True)


def test_a_short_value_in_capitals_is_a_word_of_its_own() -> None:
    assert b"PASS" not in forms(["pass"])


def test_the_output_of_programs_has_no_spelling_of_it(tmp_path: Path) -> None:
    stream = OutputWriter(str(tmp_path / "out"), [AWKWARD], 1 << 20)

    for way, spell in SPELLED.items():
        stream.write(f"{way} {spell(AWKWARD)} end\n".encode())
    stream.write(subprocess.check_output(["bash", "-c", 'printf "%q\\n" "$0"; set -x; : "$0"', AWKWARD]))
    stream.close()

    lines = (tmp_path / "out").read_bytes().splitlines()
    assert [line for line in lines if MARK not in line] == []
    assert not any(word in line.lower() for line in lines for word in (b"kz9", b"blue", b"lq7", b"4b7a39"))
