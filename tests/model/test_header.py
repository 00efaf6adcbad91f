"""What a header and the attributes of rows from elsewhere may say: each bound, from both of its sides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from keepfast.model.entry import ATTRIBUTES, Entry
from keepfast.model.errors import Damaged
from keepfast.model.header import (
    FLAGS,
    GIT_TEXTS,
    LABELS,
    LISTS,
    MAX_ATTRIBUTES_SIZE,
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_LABEL,
    MAX_TEXT,
    NUMBERS,
    OBJECTS,
    TEXTS,
    refuse_invalid_attributes,
    refuse_invalid_header,
)

WHOLE: dict[str, Any] = {"tags": [], "counts": {}}


def is_refused(**said: Any) -> bool:
    try:
        refuse_invalid_header({**WHOLE, **said})
    except Damaged:
        return True
    return False


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_what_the_program_itself_writes_is_taken() -> None:
    assert not is_refused()
    assert not is_refused(
        name=None, session=None, task=None, git=None, message="", created_at=1, pinned=False, unknown=1.5
    )
    assert is_refused(notices=None)


@pytest.mark.parametrize("name", LABELS)
def test_labels_are_short_printable_lines(name: str) -> None:
    assert not is_refused(**{name: "l" * MAX_LABEL})
    for bad in ("l" * (MAX_LABEL + 1), "two\nlines", "\x1b[2J", "\u202e", 5, ["l"]):
        assert is_refused(**{name: bad}), bad


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_texts_of_a_bounded_length(name: str) -> None:
    assert not is_refused(**{name: "two\nlines" + "t" * (MAX_TEXT - 9)})
    bad: Any
    for bad in ("t" * (MAX_TEXT + 1), 5, ["t"], {}):
        assert is_refused(**{name: bad})


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_fit_into_eight_bytes(name: str) -> None:
    assert not is_refused(**{name: (1 << 63) - 1})
    for bad in (1 << 63, -(1 << 64), True, "1", 1.5, [1]):
        assert is_refused(**{name: bad}), bad


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_of_so_many_texts(name: str) -> None:
    assert not is_refused(**{name: ["t"] * MAX_ITEMS})
    for bad in (["t"] * (MAX_ITEMS + 1), [1], [None], [["t"]], "t", {"t": 1}):
        assert is_refused(**{name: bad})


@pytest.mark.parametrize("name", FLAGS)
def test_flags_are_true_or_false(name: str) -> None:
    assert not is_refused(**{name: True})
    bad: Any
    for bad in (1, 0, "yes", []):
        assert is_refused(**{name: bad})


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_are_objects(name: str) -> None:
    assert not is_refused(**{name: {}})
    bad: Any
    for bad in ([], ["a"], "a", 5, True):
        assert is_refused(**{name: bad})


@pytest.mark.parametrize("name", GIT_TEXTS)
def test_what_git_says_is_text(name: str) -> None:
    assert not is_refused(git={name: "main", "unknown": 5})
    assert not is_refused(git={name: None})
    bad: Any
    for bad in (5, ["main"], {}, False):
        assert is_refused(git={name: bad})


def test_tags_are_labels() -> None:
    assert not is_refused(tags=["l" * MAX_LABEL])
    for bad in ("l" * (MAX_LABEL + 1), "two\nlines", "\u202egat"):
        assert is_refused(tags=["good", bad])


def test_counts_are_numbers_from_zero_on() -> None:
    assert not is_refused(counts={"f": 0, "d": (1 << 63) - 1})
    for bad in (-1, 1 << 63, True, "1", None):
        assert is_refused(counts={"f": bad}), bad


def test_what_nobody_knows_is_bounded_too() -> None:
    assert not is_refused(unknown=nested(MAX_DEPTH - 1))
    assert not is_refused(unknown={"t" * MAX_TEXT: ["t"] * MAX_ITEMS, "n": [(1 << 63) - 1, 1.5, None]})
    for bad in (
        nested(MAX_DEPTH),
        ["t"] * (MAX_ITEMS + 1),
        {str(number): 1 for number in range(MAX_ITEMS + 1)},
        ["t" * (MAX_TEXT + 1)],
        {"t" * (MAX_TEXT + 1): 1},
        [1 << 63],
        {"a": {"b": "t" * (MAX_TEXT + 1)}},
    ):
        assert is_refused(unknown=bad)


def are_refused(said: Any, flags: int = ATTRIBUTES) -> bool:
    extra = said if isinstance(said, bytes) else json.dumps(said).encode()
    try:
        refuse_invalid_attributes([Entry(b"a", "f", 0o644, flags, 0, 0, 0, b"", extra)])
    except Damaged:
        return True
    return False


def test_attributes_are_owners_and_texts_by_name() -> None:
    assert not are_refused({})
    assert not are_refused({"uid": 0, "gid": (1 << 32) - 1, "xattr": {"user.x": "MQ=="}})
    assert not are_refused(b"anything", flags=0), "only rows that say so have attributes"
    for owner in (-1, 1 << 32, True, "0", None, 1.5):
        assert are_refused({"uid": owner}), owner
        assert are_refused({"gid": owner}), owner
    values: Any
    for values in ([], "x", 5, None, {"user.x": 5}, {"user.x": None}, {"user.\0": "MQ=="}):
        assert are_refused({"xattr": values}), values
    for text in (b"", b"{", b"[]", b"null", b"5", b"[" * 50_000):
        assert are_refused(text)


def test_attributes_are_of_a_bounded_size() -> None:
    for more, is_too_large in ((0, False), (1, True)):
        text = b'{"a": "' + b"x" * (MAX_ATTRIBUTES_SIZE + more - 9) + b'"}'
        assert len(text) == MAX_ATTRIBUTES_SIZE + more
        assert are_refused(text) == is_too_large
