"""Search finds messages, names, tags and paths; the index can be thrown away, damaged or impossible."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys

import pytest

from keepfast.store import search
from tests.equipment.box import SOURCE, Box


def hits(box: Box, text: str) -> list[tuple[str, str]]:
    result = box.call("search", "--json", "--", text)
    assert result.code == 0, result
    return [(hit["checkpoint"]["version"], hit["where"]) for hit in result.json()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("first", [("v1", "message")]),
        ("FIRST", [("v1", "message")]),
        ("irs", [("v1", "message")]),
        ("체크포인트", [("v2", "message")]),
        ("둘째 체크", [("v2", "message")]),
        ("둘째", [("v2", "message")]),
        ("째", [("v2", "message")]),
        ("refactor", [("v2", "name")]),
        ("work", [("v2", "tag")]),
        ("readme", [("v2", "path")]),
        ("src/a", [("v3", "path")]),
        ("nothing like it", []),
        ("   ", []),
    ],
)
def test_what_was_said_and_where_it_was_is_found(saved_box: Box, text: str, expected: list[tuple[str, str]]) -> None:
    assert hits(saved_box, text) == expected


@pytest.mark.parametrize(
    "text", ['"', "%", "_", "a%b", "a_b", "'", "\\", "NEAR(", "first OR x", "*", "-", "^", ":", 'a"b', "{", "\udcff"]
)
def test_every_character_stands_for_itself(saved_box: Box, text: str) -> None:
    assert hits(saved_box, text) == [] or text in "before-refactoring"

    saved_box.put("more", text.replace("\udcff", ""))
    saved_box.save("-m", f"odd {text} one")

    assert hits(saved_box, f"odd {text} one")[:1] == [("v4", "message")]
    assert ("v4", "message") in hits(saved_box, text)


def test_decomposed_korean_is_found_by_composed_letters(saved_box: Box) -> None:
    """macOS writes names in decomposed form; people type the composed one."""
    saved_box.put("\u1112\u1161\u11ab\u1100\u1173\u11af.txt", "x")
    saved_box.save("-m", "\u1112\u1161\u11ab\u1100\u1173\u11af decomposed")

    assert hits(saved_box, "한글") == [("v4", "message"), ("v4", "path")]
    assert hits(saved_box, "한글 decomposed") == [("v4", "message")]


def test_a_name_given_later_is_found_and_one_taken_away_is_not(saved_box: Box) -> None:
    assert hits(saved_box, "golden") == []

    saved_box.call("name", "v1", "golden")
    assert hits(saved_box, "golden") == [("v1", "name")]

    saved_box.call("name", "v1", "--remove")
    assert hits(saved_box, "golden") == []


def test_forgotten_checkpoints_are_not_found(saved_box: Box) -> None:
    assert hits(saved_box, "first") == [("v1", "message")]

    saved_box.call("forget", "v1", "-y")

    assert hits(saved_box, "first") == []


def test_other_workspaces_are_not_searched(saved_box: Box) -> None:
    other = saved_box.home / "other"
    saved_box.call("init", str(other))
    (other / "src").mkdir()
    saved_box.call("save", "-m", "first of the other", cwd=other)

    assert hits(saved_box, "first") == [("v1", "message")]
    assert [hit["checkpoint"]["message"] for hit in saved_box.call("search", "--json", "first", cwd=other).json()] == [
        "first of the other"
    ]


@pytest.mark.parametrize("damage", ["garbage", "empty", "truncated", "flipped", "another store", "newer"])
def test_a_damaged_index_is_made_again(saved_box: Box, damage: str) -> None:
    assert hits(saved_box, "first")
    index = saved_box.store / "search.db"
    content = index.read_bytes()
    if damage == "garbage":
        index.write_bytes(b"x" * 10_000)
    elif damage == "empty":
        index.write_bytes(b"")
    elif damage == "truncated":
        index.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        index.write_bytes(content[:4096] + bytes(byte ^ 0xFF for byte in content[4096:]))
    else:
        db = sqlite3.connect(index)
        db.execute("UPDATE store SET id = 'x'" if damage == "another store" else "PRAGMA user_version = 9")
        db.commit()
        db.close()

    assert hits(saved_box, "first") == [("v1", "message")]
    assert hits(saved_box, "체크포인트") == [("v2", "message")]


def test_where_no_index_can_be_made_the_same_is_found(saved_box: Box) -> None:
    (saved_box.store / "search.db").mkdir()

    assert hits(saved_box, "FIRST") == [("v1", "message")]
    assert hits(saved_box, "체크포인트") == [("v2", "message")]
    assert hits(saved_box, "work") == [("v2", "tag")]
    assert hits(saved_box, "refactor") == [("v2", "name")]


def test_the_limit_holds_over_messages_and_paths(saved_box: Box) -> None:
    for number in range(5):
        saved_box.put(f"first/{number}", str(number))
        saved_box.save("-m", f"first again {number}")

    assert len(saved_box.call("search", "--json", "--limit", "3", "first").json()) == 3
    assert [row[0] for row in hits(saved_box, "again")] == ["v8", "v7", "v6", "v5", "v4"]


def test_more_hits_than_one_page_are_found(saved_box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ROWS_PER_PAGE", 2)
    for number in range(7):
        saved_box.save("-m", f"many {number}")

    assert [row[0] for row in hits(saved_box, "many")] == [f"v{number}" for number in range(10, 3, -1)]
    assert [row[0] for row in hits(saved_box, "an")] == [f"v{number}" for number in range(10, 3, -1)]


def test_many_may_search_at_once_while_there_is_no_index_yet(saved_box: Box) -> None:
    command = [sys.executable, "-m", "keepfast", "search", "--json", "first"]
    environment = {**saved_box.variables, "PYTHONPATH": str(SOURCE)}

    children = [
        subprocess.Popen(
            command, cwd=saved_box.project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(8)
    ]

    for child in children:
        out, err = child.communicate(timeout=60)
        assert (child.returncode, err) == (0, b"")
        assert [hit["checkpoint"]["version"] for hit in json.loads(out)] == ["v1"]


def test_two_letters_are_found_in_either_case_over_pages_and_an_old_name_is_not(
    saved_box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "ROWS_PER_SLOW_PAGE", 2)
    for number in range(7):
        saved_box.put("a.py", f"{number}\n")
        saved_box.save("-m", f"{'입력' if number % 2 else '출력'} {number} ẞQx")

    assert hits(saved_box, "입력") == [("v9", "message"), ("v7", "message"), ("v5", "message")]
    assert hits(saved_box, "없음") == []
    assert len(hits(saved_box, "qX")) == 7
    saved_box.call("name", "v1", "쌍둥")
    assert hits(saved_box, "쌍둥") == [("v1", "name")]
    saved_box.call("name", "v1", "--remove")
    assert hits(saved_box, "쌍둥") == []
