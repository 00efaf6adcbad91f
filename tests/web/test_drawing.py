"""What is drawn on the server: plots of context and limits, the log in words, nothing that a browser would carry out."""

from __future__ import annotations

from typing import Any

from holdfast.frontends.web import drawing


def context(percent: float | None, **windows: float) -> dict[str, Any]:
    account = {name: {"used": used, "resetsAt": None} for name, used in windows.items()}
    return {"type": "context", "request": 1, "used": 1, "window": 2, "percent": percent, "account": account}


def test_context_and_windows_are_drawn_against_seventy_eighty_and_ninety() -> None:
    plot = drawing.filled([context(10, five_hour=0.2), context(75, five_hour=0.4), context(92, seven_day=0.1)], "x")

    assert plot.count("<polyline") == 3
    assert 'points="0.0,90.0 500.0,25.0 1000.0,8.0"' in plot
    assert 'points="0.0,80.0 500.0,60.0"' in plot
    assert [f'class="at{part}"' in plot for part in (70, 80, 90)] == [True] * 3
    assert "context 92 %" in plot and "five hour 40 %" in plot


def test_nothing_is_drawn_of_too_little_or_of_nonsense() -> None:
    odd: list[dict[str, Any]] = [
        {"type": "context", "percent": "x", "account": [1]},
        {"type": "context", "percent": None, "account": {"a": 1}},
    ]

    assert drawing.filled([context(5)], "x") == ""
    assert drawing.filled([*odd, {"type": "log", "percent": 5}], "x") == ""


def test_a_window_with_markup_for_a_name_is_text() -> None:
    plot = drawing.filled([context(1, **{"<script>": 0.1}), context(2, **{"<script>": 0.2})], '"><script>')

    assert "<script>" not in plot


def test_an_event_is_told_in_words() -> None:
    told = drawing.told(
        {**context(49.5, five_hour=0.5), "output": "long", "sequence": 7, "tokens": 12_345, "step": None}
    )

    assert ("five_hour", "50 %") in told
    assert ("tokens", "12,345") in told
    assert {key for key, _ in told} == {"request", "used", "window", "percent", "five_hour", "tokens"}


def test_what_stands_between_backticks_is_code_and_the_rest_is_text() -> None:
    assert drawing.coded("run `a < b` & go") == "run <code>a &lt; b</code> &amp; go"


def test_a_browser_has_a_name() -> None:
    agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36"

    assert drawing.browser(agent) == "Chrome, Linux"
    assert drawing.browser("curl/8") == "curl/8"
