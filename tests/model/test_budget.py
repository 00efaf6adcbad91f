"""Bands of the token budget, and what is said at each."""

from __future__ import annotations

from typing import Any

import pytest

from keepfast.app.messages import TEXTS, language, text
from keepfast.app.translations import catalogue
from keepfast.model.budget import band, usage, window


@pytest.mark.parametrize(
    ("percent", "threshold", "trigger"),
    [
        (0, 70, None), (69.99, 70, None), (70, 70, "auto_70"), (79.9, 70, "auto_70"), (80, 70, "auto_80"), (89.9, 70, "auto_80"),
        (90, 70, "auto_90"), (91, 70, "auto_90"), (250, 70, "auto_90"),
        (76, 75, "auto_75"), (74, 75, None),
        (79, 80, None), (81, 80, "auto_80"),
        (86, 85, "auto_85"), (82, 85, "auto_80"),
        (89, 90, "auto_80"), (90, 90, "auto_90"),
        (96, 95, "auto_95"), (94, 95, "auto_90"),
    ],
)  # fmt: skip
def test_only_the_highest_band_that_is_crossed_acts(percent: float, threshold: int, trigger: str | None) -> None:
    found = band(percent, threshold)

    assert (found.trigger if found else None) == trigger


@pytest.mark.parametrize(
    ("at", "quiet", "warning"), [(70, True, False), (80, False, False), (90, False, True), (95, True, False)]
)
def test_the_threshold_is_quiet_eighty_is_told_and_ninety_is_a_warning(at: int, quiet: bool, warning: bool) -> None:
    found = band(at, at if at in (70, 95) else 70)

    assert found is not None
    assert (found.is_quiet, found.is_warning) == (quiet, warning)


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-opus-5-5", 1_000_000), ("claude-sonnet-5-5-20260801", 1_000_000), ("claude-haiku-4-5", 200_000),
        ("claude-sonnet-4-5[1m]", 1_000_000), ("claude-sonnet-4-20250514", 200_000), ("claude-3-7-sonnet-latest", 200_000),
        ("gpt-of-tomorrow", 0), ("", 0),
    ],
)  # fmt: skip
def test_a_model_that_is_not_known_has_no_window(model: str, tokens: int) -> None:
    assert window(model) == tokens


@pytest.mark.parametrize(
    ("used", "model", "asked", "windows", "record", "expected"),
    [
        (50, "claude-opus-5-5", 0, {}, {}, (50, "the transcript", 967_000, "the table of models (claude-opus-5-5)")),
        (50, "claude-haiku-4-5", 0, {}, {}, (50, "the transcript", 200_000, "the table of models (claude-haiku-4-5)")),
        (50, "claude-opus-5-5", 0, {}, {"window": 200_000}, (50, "the transcript", 200_000, "the status line")),
        (50, "claude-opus-5-5", 0, {}, {"window": 1_000_000}, (50, "the transcript", 967_000, "the status line")),
        (50, "claude-opus-5-5", 1000, {}, {"window": 9}, (50, "the transcript", 1000, "the setting budget.tokens")),
        (50, "x-1", 0, {"x": 500}, {"window": 9}, (50, "the transcript", 500, "the setting budget.windows")),
        (0, "", 0, {}, {"used": 7, "window": 100, "model": "m"}, (7, "the status line", 100, "the status line")),
        (0, "", 0, {}, {"used": None, "window": None}, (0, "", 0, "")),
        (50, "unheard-of", 0, {}, {}, (50, "the transcript", 0, "")),
        (50, "unheard-of", 0, {}, {"window": "many", "used": [1]}, (50, "the transcript", 0, "")),
    ],
)
def test_each_figure_says_where_it_came_from(
    used: int, model: str, asked: int, windows: dict[str, int], record: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    found = usage(used, model, asked, windows, record)

    assert (found.used, found.used_from, found.budget, found.budget_from) == expected


@pytest.mark.parametrize(
    ("used", "shown"), [(79_500, 79), (79_999, 79), (80_000, 80), (82_000, 82), (89_900, 89), (100_400, 100)]
)
def test_a_percentage_is_shown_of_what_has_been_reached(used: int, shown: int) -> None:
    found = usage(used, "", 100_000, {}, {})

    assert found.reached == shown
    at = band(found.percent, 70)
    assert at is not None and at.at <= found.reached


def test_without_a_budget_nothing_is_crossed() -> None:
    assert usage(10**9, "unheard-of", 0, {}, {}).reached == 0
    assert usage(10**9, "unheard-of", 0, {}, {}).percent == 0.0


def test_the_words_of_the_source() -> None:
    assert text("budget", "ko", percent=82) == "체크포인트 생성됨 (토큰 82%)"
    assert text("budget_warning", "ko", percent=91) == "⚠️ 토큰 91% - 작업 마무리 권장"
    assert text("budget", "en", percent=82) == "Checkpoint created (tokens 82%)"


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_both_languages_say_the_same(name: str) -> None:
    import string

    forms = TEXTS[name], catalogue("ko")["messages"][name]
    english, korean = [{field for _, field, _, _ in string.Formatter().parse(form) if field} for form in forms]

    assert english == korean
    assert any("가" <= letter <= "힣" for letter in forms[1])


@pytest.mark.parametrize(
    ("setting", "locales", "expected"),
    [
        ("ko", ("en_US.UTF-8",), "ko"), ("en", ("ko_KR.UTF-8",), "en"), ("auto", ("", "", "ko_KR.UTF-8"), "ko"),
        ("auto", ("C", "", "ko_KR.UTF-8"), "en"), ("auto", ("", "", ""), "en"), ("", ("ko",), "ko"), ("auto", (), "en"),
    ],
)  # fmt: skip
def test_the_setting_wins_then_the_first_locale_that_is_set(
    setting: str, locales: tuple[str, ...], expected: str
) -> None:
    assert language(setting, *locales) == expected
