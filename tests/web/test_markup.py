"""What is drawn on the server: plots of context and limits, the log in words, nothing that a browser would carry out."""

from __future__ import annotations

import re
from typing import Any

import pytest

from keepfast.runner.domain.task import STATES
from keepfast.store.rows import CheckpointRow
from keepfast.web import log_lines, markup
from keepfast.web.pages import BOARD


def context(percent: float | None, **windows: float) -> dict[str, Any]:
    account = {name: {"used": used, "resetsAt": None} for name, used in windows.items()}
    return {"type": "context", "request": 1, "used": 1, "window": 2, "percent": percent, "account": account}


def test_context_and_windows_are_drawn_against_the_threshold_eighty_and_ninety() -> None:
    events = [context(10, five_hour=0.2), context(75, five_hour=0.4), context(92, seven_day=0.1)]
    plot = markup.usage_plot(events, 70)

    assert plot.count("<polyline") == 3
    assert 'points="0.0,90.0 500.0,25.0 1000.0,8.0"' in plot
    assert 'points="0.0,80.0 500.0,60.0"' in plot
    assert re.findall(r'<line class="(\w+)" x1="0" x2="100%" y1="(\d+)%"', plot) == [
        ("threshold", "30"), ("at80", "20"), ("at90", "10"),
    ]  # fmt: skip
    assert "context 92 %" in plot and "five hour 40 %" in plot


def test_the_configured_threshold_is_drawn_and_its_number_covers_no_other() -> None:
    events = [context(10), context(75)]
    near, same = markup.usage_plot(events, 84), markup.usage_plot(events, 80)

    assert '<line class="threshold" x1="0" x2="100%" y1="16%" y2="16%"/><text x="4" y="16%" dy="-3">84</text>' in near
    assert same.count("<line") == 2


def test_nothing_is_drawn_of_too_little_or_of_nonsense() -> None:
    odd: list[dict[str, Any]] = [
        {"type": "context", "percent": "x", "account": [1]},
        {"type": "context", "percent": None, "account": {"a": 1}},
    ]

    assert markup.usage_plot([context(5)], 70) == ""
    assert markup.usage_plot([*odd, {"type": "log", "percent": 5}], 70) == ""


def test_a_window_with_markup_for_a_name_is_text() -> None:
    events = [context(1, **{"<script>": 0.1}), context(2, **{"<script>": 0.2})]
    plot = markup.usage_plot(events, 70, title='"><script>')

    assert "<script>" not in plot


def test_an_event_is_told_in_words() -> None:
    event = {**context(49.5, five_hour=0.5), "output": "long", "sequence": 7, "tokens": 12_345, "step": None}

    assert log_lines.facts(event, str) == [
        ("request", "1"), ("used", "1"), ("window", "2"), ("", "50 %"), ("five hour", "50 %"), ("", "12,345 tokens"),
    ]  # fmt: skip


def moved(before: str, after: str, state: str = "active", other: str = "active", **facts: Any) -> dict[str, Any]:
    return {"type": "state_transition", "from": before, "to": after, "fromState": state, "toState": other, **facts}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"type": "agent_ended", "outcome": "host_lost", "exit": 9, "reason": "gone"}, "host lost, exit code 9, gone"),
        ({"type": "checkpoint_created", "reason": "user_pause", "size": 4_215, "duration_ms": 65}, "user pause, 4.1KB, 65 ms"),
        ({"type": "agent_started", "pid": 12_946, "session": "4316d7a9"}, ""),
        ({"type": "progress", "fraction": 0.25, "tokens": 0}, "25 %"),
        ({"type": "phase_complete", "phase": 1, "passed": False, "gate": "rework"}, "phase 1, rework, failed"),
        ({"type": "run_begun", "attempt": 2, "phase": 1, "resumed": True, "why": ""}, "attempt 2, phase 1, resumed"),
        (moved("draft", "pending", "draft", "queued", trigger="start"), "draft → pending"),
        (moved("in_progress", "waiting_rate_limit", metadata={"hold": "rate_limit"}), "On hold: rate limit"),
        (moved("paused", "in_progress", metadata={"lifted": "backoff"}), "continues"),
    ],
)  # fmt: skip
def test_the_log_speaks_to_people(facts: dict[str, Any], said: str) -> None:
    """Process ids, sessions and triggers are for programs; figures come with their units."""
    told = log_lines.facts({"sequence": 1, "timestamp": "x", "taskId": "t", **facts}, str)

    assert ", ".join([" ".join([key, value]).strip() for key, value in told]) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/home/ann/projects/shop", "~/projects/shop"),
        ("/home/ann", "~"),
        ("No store at /home/ann/.local yet.", "No store at ~/.local yet."),
        ("/home/anna/shop", "/home/anna/shop"),
        ("/srv/home/ann/shop", "/srv/home/ann/shop"),
        ("/home/ann-old", "/home/ann-old"),
    ],
)
def test_the_home_folder_is_shown_as_a_tilde(text: str, said: str) -> None:
    assert markup.short(text, "/home/ann") == said
    assert markup.short(text, "/") == markup.short(text, "") == text


def row(version: int, trigger: str = "auto", pinned: int = 0) -> CheckpointRow:
    return CheckpointRow(
        "w", version, f"cp-{version}", b"", version, version, trigger, "", "", "", "", "", "", pinned, 0, 1, 1, 1, 1, ""
    )


def test_the_bars_stand_above_the_slider() -> None:
    """The first bar begins and the last one ends where the slider does, however few there are."""
    for count in (2, 3, 60, 1_000):
        drawn = markup.timeline([row(number) for number in range(1, count + 1)], 0, "")
        places = [
            (float(x), float(width)) for x, width in re.findall(r'x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawn)
        ]

        assert places[0][0] == 0
        assert abs(sum(places[-1]) - 1000) < 0.2


def test_only_colours_that_occur_are_explained() -> None:
    assert markup.kinds([row(1), row(2, "manual"), row(3, "crash", pinned=1)]) == ["turn", "manual", "alarm", "kept"]


def test_what_stands_between_backticks_is_code_and_the_rest_is_text() -> None:
    assert markup.coded("run `a < b` & go") == "run <code>a &lt; b</code> &amp; go"


def test_a_browser_has_a_name() -> None:
    agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36"

    assert markup.browser(agent) == "Chrome, Linux"
    assert markup.browser("curl/8") == "curl/8"


def test_names_of_variables_stay_as_they_are_in_the_log() -> None:
    ended = {"type": "agent_ended", "outcome": "needs", "reason": "needs OPENAI_API_KEY"}
    held = {"type": "checkpoint_created", "reason": "user_pause"}

    assert ("", "needs OPENAI_API_KEY") in log_lines.facts(ended, str)
    assert log_lines.facts(held, str) == [("", "user pause")]


def test_only_tasks_that_are_done_are_counted_as_done() -> None:
    assert BOARD["Done"] == (("done",), None)
    assert sorted({state for states, _ in BOARD.values() for state in states}) == sorted(STATES)
