"""A task's timeline tells real times: where a bar begins, how long it is, and what the clock below says."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from keepfast.web.task_timeline import MAX_MARKS, MAX_TICKS, SECOND, Course, Mark, Span, draw, ticks

NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * SECOND
MINUTE, HOUR = 60 * SECOND, 3_600 * SECOND


def english(text: str) -> str:
    return text


def places(drawn: str, kind: str) -> list[tuple[float, float]]:
    """Left end and width of every bar of a kind, in percent."""
    found = re.findall(rf'<rect class="{kind}" x="([\d.]+)%" width="([\d.]+)%"', drawn)
    return [(float(left), float(width)) for left, width in found]


def test_a_bar_lies_where_its_time_was() -> None:
    course = Course(
        NOON, NOON + 100 * MINUTE,
        phases=[
            Span(NOON, NOON + 40 * MINUTE, "phase1", "1. Plan"),
            Span(NOON + 40 * MINUTE, NOON + 100 * MINUTE, "phase0", "2. Build"),
        ],
        runs=[Span(NOON, NOON + 10 * MINUTE, "asked", "asked"), Span(NOON + 50 * MINUTE, NOON + 100 * MINUTE, "live", "live")],
        holds=[Span(NOON + 10 * MINUTE, NOON + 50 * MINUTE, "question", "Which colour?")],
        checkpoints=[Mark(NOON + 25 * MINUTE, "interval", "v2 interval")],
        compactions=[Mark(NOON + 75 * MINUTE, "compaction", "v3 compaction")],
    )  # fmt: skip
    drawn = str(draw(course, english))

    assert places(drawn, "phase1") == [(0, 40)]
    assert places(drawn, "phase0") == [(40, 60)]
    assert places(drawn, "asked") == [(0, 10)]
    assert places(drawn, "live") == [(50, 50)]
    assert places(drawn, "question") == [(10, 40)]
    assert 'cx="25.00%"' in drawn
    assert '<svg x="75.00%" overflow="visible"><path class="compaction"' in drawn
    assert re.findall(r'<line class="restart" x1="([\d.]+)%"', drawn) == ["50.00"]
    assert "Which colour? 2026-03-01 12:10:00 – 2026-03-01 12:50:00 UTC" in drawn
    assert "Phases 2, Runs 2, Holds 1, Checkpoints 1, Compactions 1" in drawn


def test_the_clock_is_written_at_round_times() -> None:
    drawn = str(draw(Course(NOON + MINUTE, NOON + 100 * MINUTE), english))
    said = re.findall(r'data-time="([^"]+)" data-step="(\d+)">([^<]+)<', drawn)

    assert said == [
        ("2026-03-01T12:30:00Z", "1800", "12:30 UTC"),
        ("2026-03-01T13:00:00Z", "1800", "13:00 UTC"),
        ("2026-03-01T13:30:00Z", "1800", "13:30 UTC"),
    ]


@pytest.mark.parametrize(
    "length",
    [timedelta(seconds=3), timedelta(seconds=70), timedelta(minutes=9), timedelta(hours=5), timedelta(days=3), timedelta(days=90)],
)  # fmt: skip
def test_however_long_a_task_takes_a_phone_has_room_for_its_clock(length: timedelta) -> None:
    end = NOON + int(length.total_seconds()) * SECOND
    found = ticks(NOON + 1, end)

    assert 1 <= len(found) <= MAX_TICKS + 1
    assert all(NOON <= at <= end and at % (step * SECOND) == 0 for at, step in found)


def test_names_with_markup_are_text() -> None:
    drawn = str(
        draw(Course(NOON, NOON + HOUR, phases=[Span(NOON, NOON + HOUR, "phase1", "<script>\x1b[31m")]), english)
    )

    assert "<script>" not in drawn
    assert "\x1b" not in drawn


def test_thousands_of_checkpoints_are_thinned_and_the_ends_stay() -> None:
    marks = [Mark(NOON + number * SECOND, "interval", f"v{number}") for number in range(3_601)]
    drawn = str(draw(Course(NOON, NOON + HOUR, checkpoints=marks), english))

    assert drawn.count("<circle") == MAX_MARKS
    assert "<title>v0 " in drawn
    assert "<title>v3600 " in drawn
    assert "Checkpoints 3601" in drawn
