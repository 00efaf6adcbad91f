"""Strict JSON reads and writes exactly what the `json` module does, within JSON proper."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keepfast.model.strict_json import dumps, load_truncated, loads

TEXTS = st.one_of(
    st.text(), st.text(st.characters(), max_size=5), st.sampled_from(["\ud800", "\udcff", "\0", "한글", "🎉"])
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
    st.integers(-(10**400), 10**400),
)
VALUES = st.recursive(LEAVES, lambda inner: st.one_of(st.lists(inner), st.dictionaries(TEXTS, inner)), max_leaves=30)


@given(VALUES)
def test_what_is_written_is_what_json_writes(value: Any) -> None:
    assert dumps(value) == json.dumps(value, separators=(",", ":"), allow_nan=False)


@given(VALUES)
def test_what_was_written_comes_back(value: Any) -> None:
    text = dumps(value)

    assert same(loads(text), value)
    assert same(loads(text.encode()), value)


@given(VALUES, st.sampled_from([None, 1, "\t"]), st.booleans(), st.text(" \t\n\r", max_size=3))
def test_what_json_wrote_is_read(value: Any, indent: Any, ascii_only: bool, space: str) -> None:
    text = space + json.dumps(value, indent=indent, ensure_ascii=ascii_only) + space

    assert same(loads(text), json.loads(text))


def same(one: Any, other: Any) -> bool:
    """Equal, and of equal types: 1 is not 1.0, and not True."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    return bool(one == other) and (not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other))


PIECES = st.lists(
    st.sampled_from(
        [
            *'{}[],:"\\/ \t\n0123456789-+.eE\x0b\x1f',
            "true",
            "null",
            "NaN",
            "Infinity",
            '"a"',
            "\\u12",
            "\\ud83d",
            "é",
            "\ufeff",
        ]
    )
).map("".join)


@settings(max_examples=1000)
@given(st.one_of(PIECES, st.text()))
@example("1 2")
@example("﻿1")
@example("-")
@example("01")
@example("[1,]")
@example('{"a":1,"a":2}')
@example('{"a" 1}')
@example("{'a':1}")
@example('"\n"')
@example('"\\x"')
@example('"\\ud83d\\ude00"')
@example('"\\ud83d"')
@example("1e999")
@example("-0.0")
@example("nan")
@example("\u00a01")
def test_any_text_is_read_or_refused_as_json_does(text: str) -> None:
    """Except that NaN and Infinity, which are not JSON, are always refused."""
    try:
        expected = json.loads(text, parse_constant=refuse)
    except ValueError:
        with pytest.raises(ValueError):
            loads(text)
    else:
        assert same(loads(text), expected)


def refuse(name: str) -> Any:
    raise ValueError(name)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "[NaN]", '{"a":-Infinity}', "[1,Infinity,2]"])
def test_nan_and_infinity_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        loads(text)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("wrap", [lambda number: number, lambda number: [number], lambda number: {"a": [number]}])
def test_nan_and_infinity_are_not_written(number: float, wrap: Any) -> None:
    with pytest.raises(ValueError):
        dumps(wrap(number))


@pytest.mark.parametrize("value", [b"", {1, 2}, object(), {1: 2}, {None: 1}, {"a": b""}, [1j]])
def test_what_has_no_json_form_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError):
        dumps(value)


def test_a_tuple_is_written_as_a_list() -> None:
    assert dumps((1, ("a",))) == '[1,["a"]]'


@pytest.mark.parametrize("depth", [100_000, 1_000_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_deep_nesting_is_a_value_error(depth: int, opening: str, closing: str) -> None:
    for text in (opening * depth, opening * depth + "1" + closing * depth):
        with pytest.raises(ValueError):
            loads(text)


def test_nesting_as_deep_as_people_write_is_read() -> None:
    text = "[" * 200 + "]" * 200

    assert dumps(loads(text)) == text


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b'"\xff"',
        b'"\xc3"',
        b'"\xed\xa0\x80"',
        b'"\xc0\xaf"',
        b'{"a":"\xb0\xa1"}',
        '{"a":1}'.encode("utf-16"),
        b"\xef\xbb\xbf1",
    ],
)
def test_bytes_that_are_not_utf_8_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        loads(data)


@given(st.binary())
def test_any_bytes_are_read_or_a_value_error(data: bytes) -> None:
    try:
        loads(data)
    except ValueError:
        pass


def test_a_number_of_too_many_digits_is_a_value_error() -> None:
    """Turning a million digits into a number takes minutes; Python refuses, and so do we."""
    digits = sys.get_int_max_str_digits() + 1

    with pytest.raises(ValueError):
        loads("9" * digits)
    with pytest.raises(ValueError):
        loads("[" + "9" * 1_000_000 + "]")


def test_the_keys_of_one_document_do_not_stay_for_the_next() -> None:
    """The scanner keeps one string per key while it reads, and no longer."""
    one, other = loads('[{"key":1},{"key":2}]')

    assert next(iter(one)) is next(iter(other))
    assert loads('{"key":3}') == {"key": 3}


@pytest.mark.parametrize(
    "text", ['{"a":"b', '"', '{"a" 1}', '{"a":1 "b":2}', "[1 2]", '"\\x"', '"\n"', "{1:2}", "[1,", "{", "[" * 100_000]
)
def test_what_is_not_json_is_a_value_error_and_cut_off_at_most(text: str) -> None:
    assert isinstance(load_truncated(text, "a"), dict)
    with pytest.raises(ValueError):
        loads(text)


@example(10, 26)
@given(VALUES, st.integers(0, 200))
def test_the_beginning_of_an_object_holds_what_is_whole_of_it(value: Any, cut: int) -> None:
    whole = {"first": "text", "second": value, "third": [1, {}], "inner": {"path": "/p", "long": "x" * 50}}
    text = dumps(whole)

    found = load_truncated(text[: cut if cut < len(text) else len(text)], "inner")

    assert all(same(item, whole[key]) for key, item in found.items() if key != "inner")
    assert found.get("inner", {}).items() <= {"path": "/p", "long": "x" * 50}.items()
    assert load_truncated(text, "inner") == whole
