"""Right and wrong values for every setting, made from the schema."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from keepfast.model.schema import (
    CHOICE,
    COMMAND,
    FLAG,
    HOURS,
    LIST,
    NUMBER,
    NUMBERS,
    PATH,
    PATHS,
    SIZE,
    TABLE,
    TEXT,
    TIME,
    TRISTATE,
    URL,
)

KEYS = sorted(TABLE)
WORD = st.from_regex(r"[a-z*/._]{1,12}", fullmatch=True)
LARGEST = 10**12
NEVER: list[Any] = [None, 1.5, float("1e300"), {"a": "b"}, [1], [None], "\0", "a\nb", "x" * 5000]
"""Not right for any setting."""

WRONG: dict[str, list[Any]] = {
    FLAG: ["maybe", "", 2, 1, []],
    TRISTATE: ["ask", "", 0, []],
    CHOICE: ["nonsense", "", True, 3, []],
    NUMBER: ["-1", "1.5", "ten", "", "٣", True, [], 10**30],
    SIZE: ["1XB", "-1MB", "nan", "inf", "", "1_0", True, []],
    TIME: ["-1s", "soon", "5 parsecs", "", "0.5s", True, []],
    TEXT: [3, True, []],
    LIST: ['["a"', 3, True, [""], [["a"]]],
    COMMAND: ["echo $HOME", "a | b", 'say "it"', 3, True],
    NUMBERS: ["a", "a=b", "{", 3, [], {"a": -1}, {"": 1}, {"a": True}],
    PATH: ["relative/path", "~/file", 3, True, []],
    PATHS: ["relative", ["/a", "b"], 3],
    URL: ["ftp://host", "http://", "host", "http://a b", 3, []],
    HOURS: ["22", "22:00", "25:00-07:00", "22:60-07:00", "22:00-07:00-08:00", "a:b-c:d", 7, []],
}


def right(key: str) -> SearchStrategy[Any]:
    """Values in the form that a JSON file has."""
    setting = TABLE[key]
    low, high = setting.allowed if setting.allowed and setting.kind != CHOICE else (0, None)
    numbers = st.integers(low, min(high if high is not None else LARGEST, LARGEST))
    return {
        FLAG: st.booleans(),
        TRISTATE: st.sampled_from([True, False, "prompt"]),
        CHOICE: st.sampled_from(list(setting.allowed or ("",))),
        NUMBER: numbers,
        SIZE: numbers,
        TIME: numbers,
        TEXT: st.text(st.characters(categories=["L", "N", "P"]), max_size=20),
        LIST: st.lists(WORD, max_size=4),
        COMMAND: st.lists(WORD, max_size=4),
        NUMBERS: st.dictionaries(WORD, numbers, max_size=3),
        PATH: WORD.map(lambda word: "/" + word),
        PATHS: st.lists(WORD.map(lambda word: "/" + word), max_size=3),
        URL: st.sampled_from(["", "http://127.0.0.1:8080/x", "https://host.example/a?b=c"]),
        HOURS: st.sampled_from(["", "22:00-07:00", "00:30-06:15"]),
    }[setting.kind]


def wrong(key: str) -> list[Any]:
    """Values that must be refused: of another type, out of range, or not a choice."""
    setting = TABLE[key]
    values = NEVER + WRONG[setting.kind]
    if setting.kind == NUMBERS:
        values = [value for value in values if value != {"a": "b"}] + [
            {"a": setting.allowed[0] - 1 if setting.allowed else -1}
        ]
    elif setting.allowed and setting.kind != CHOICE:
        low, high = setting.allowed
        values += [low - 1, -1, *([high + 1, str(high + 1)] if high is not None else [])]
    return values


def as_variable(value: Any) -> str:
    """The same value in the form of a variable."""
    import json

    return json.dumps(value) if isinstance(value, bool | list | dict) else str(value)


def in_sections(key: str, value: Any) -> dict[str, Any]:
    section, _, name = key.rpartition(".")
    return {section: {name: value}} if section else {name: value}
