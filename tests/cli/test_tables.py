"""Tables line up in Korean too; sizes, ages and the bar are short and right."""

from __future__ import annotations

import pytest

from keepfast.cli.progress import line
from keepfast.present.terminal import Paint, age, age_in_words, one_line, rfc3339, shorten, size, width
from tests.equipment.box import DAY, HOUR, MINUTE, NOON, SECOND, Box


def test_wide_letters_take_two_columns() -> None:
    rows = Paint(False, None).table(["A", "B"], [["한글", "x"], ["ab", "y"]])

    assert rows == ["A     B", "한글  x", "ab    y"]
    assert width("한글ab") == 6


def test_one_column_gives_way_to_the_terminal() -> None:
    rows = Paint(False, 20).table(["V", "MESSAGE", "N"], [["v1", "a rather long message", "10"]], right="  r", give=1)

    assert all(width(row) <= 20 for row in rows)
    assert rows[1] == "v1  a rather lo…  10"
    assert shorten("한국어 메시지", 8) == "한국어 …"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0B"),
        (512, "512B"),
        (1023, "1.0KB"),
        (1024, "1KB"),
        (1536, "1.5KB"),
        (24 << 10, "24KB"),
        (10 << 30, "10GB"),
        (5 << 50, "5120TB"),
    ],
)
def test_sizes_are_short(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("ago", "short", "words"),
    [
        (0, "now", "just now"),
        (-DAY, "now", "just now"),
        (5 * SECOND, "5s ago", "5 seconds ago"),
        (MINUTE, "1m ago", "1 minute ago"),
        (2 * HOUR, "2h ago", "2 hours ago"),
        (3 * DAY, "3d ago", "3 days ago"),
        (40 * DAY, "2026-01-20", "40 days ago"),
    ],
)
def test_ages_are_short(ago: int, short: str, words: str) -> None:
    assert age(NOON - ago, NOON) == short
    assert age_in_words(NOON - ago, NOON) == words


def test_times_are_rfc_3339() -> None:
    assert rfc3339(NOON + 123_456_789) == "2026-03-01T12:00:00.123456Z"
    assert rfc3339(1 << 62).endswith("Z")


def test_a_message_cannot_move_the_cursor() -> None:
    assert one_line("a\x1b[2J\rb") == "a\\x1b[2J …"
    assert one_line("") == ""


def test_the_bar_shows_how_far_it_is() -> None:
    assert line("Saving", 250, 1000) == "Saving  [######..................]   25%  250 of 1,000"
    assert line("Saving", 7, 0) == "Saving  7"
    assert "100%" in line("Saving", 11, 10)


def test_colour_follows_the_terminal_the_flag_and_no_color(saved_box: Box) -> None:
    escape = b"\x1b["

    assert escape in saved_box.terminal("list")
    assert escape not in saved_box.terminal("list", NO_COLOR="1")
    assert escape not in saved_box.terminal("list", TERM="dumb")
    assert escape not in saved_box.terminal("--color", "never", "list")
    assert escape not in saved_box.run("list").raw
    assert escape in saved_box.run("--color", "always", "list").raw


def test_a_bar_appears_only_on_a_terminal_and_only_for_long_work(saved_box: Box) -> None:
    for number in range(30):
        saved_box.put(f"many/{number}", "x")

    assert b"Saving" not in saved_box.terminal("save")
    assert saved_box.run("save").err == ""
