"""Every known wording of a limit, read to the right moment; and none where an agent only talks about limits."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from zoneinfo import ZoneInfo

import pytest

from keepfast.runner.domain.limits import LimitHit, LimitNear, read_error, read_event, read_rates, read_text

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC).timestamp()  # a Monday; noon in London, 7 am in New York


def at(*parts: int, zone: str = "UTC") -> float:
    return datetime(*parts, tzinfo=ZoneInfo(zone)).timestamp()  # type: ignore[arg-type,misc]


CORPUS = [
    ("Claude AI usage limit reached|1794834000", "session", 1794834000.0),
    ("Claude AI usage limit reached|1794834000000", "session", 1794834000.0),
    ("5-hour limit reached ∙ resets 3am", "session", at(2026, 11, 17, 3)),
    ("5-hour limit reached - resets 3pm (UTC)", "session", at(2026, 11, 16, 15)),
    ("Claude usage limit reached. Resets at 2pm", "session", at(2026, 11, 16, 14)),
    ("You've hit your limit · resets 2am (Europe/Paris)", "session", at(2026, 11, 17, 2, zone="Europe/Paris")),
    ("You've hit your limit · resets 3pm (Europe/Dublin)", "session", at(2026, 11, 16, 15, zone="Europe/Dublin")),
    ("You've hit your session limit · resets 3:45pm (America/New_York)", "session",
     at(2026, 11, 16, 15, 45, zone="America/New_York")),
    ("You've hit your 5-hour limit · resets 10:48pm (UTC)", "session", at(2026, 11, 16, 22, 48)),
    ("You've hit your weekly limit · resets Mon 12:00am", "weekly", at(2026, 11, 23, 0)),
    ("You've hit your weekly limit · resets Thu 9:30am (Asia/Seoul)", "weekly", at(2026, 11, 19, 9, 30, zone="Asia/Seoul")),
    ("You've hit your weekly limit · resets Nov 20, 3pm (UTC)", "weekly", at(2026, 11, 20, 15)),
    ("You've hit your weekly limit · resets Nov 20 at 3:05pm (UTC)", "weekly", at(2026, 11, 20, 15, 5)),
    ("You've hit your Opus limit · resets 5pm", "model", at(2026, 11, 16, 17)),
    ("You've hit your Sonnet limit · resets Tue 1am", "model", at(2026, 11, 17, 1)),
    ("You're out of extra usage · resets 11:30am (Asia/Colombo)", "session", at(2026, 11, 17, 11, 30, zone="Asia/Colombo")),
    ("You're out of extra usage · resets 3pm", "session", at(2026, 11, 16, 15)),
    ("You've hit your usage limit. Please try again in 5 hours", "session", NOW + 5 * 3600),
    ("Rate limit hit. Resets at 4pm", "minute", at(2026, 11, 16, 16)),
    ("You've hit your usage limit. Upgrade, or try again at 3:45 PM.", "session", at(2026, 11, 16, 15, 45)),
    ("You've hit your usage limit. Upgrade or try again at Nov 18th, 2026 3:45 PM.", "session", at(2026, 11, 18, 15, 45)),
    ("You've hit your usage limit. Try again in 2 days 17 hours 14 minutes.", "session",
     NOW + 2 * 86400 + 17 * 3600 + 14 * 60),
    ("API Error: Request rejected (429) · Too many requests", "minute", None),
    ("429 Too Many Requests", "minute", None),
    ("API Error: Server is temporarily limiting requests (not your usage limit) · Rate limited", "overload", None),
    ("API Error: 529 Overloaded. Try again later.", "overload", None),
    ("Repeated 529 Overloaded errors", "overload", None),
    ("Credit balance is too low", "credits", None),
    ("Your workspace is out of credits. Ask an admin to refill in order to continue.", "credits", None),
    ("spend limit reached", "spend", None),
    ("You hit your spend cap set by the owner of your workspace.", "spend", None),
    ("Please retry in 12.3s", "minute", NOW + 12.3),
    ("RESOURCE_EXHAUSTED: Quota exceeded. Please retry in 34s.", "minute", NOW + 34),
    ('{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"34s"}]}', "minute", NOW + 34),
    ("TerminalQuotaError: GenerateRequestsPerDay quota exceeded", "day", None),
    ("quota metric GenerateRequestsPerMinute exceeded, rate limit", "minute", NOW + 60),
    ("[API Error: You have exhausted your daily quota. reason: QUOTA_EXHAUSTED]", "day", None),
    ("ErrorInfo reason RATE_LIMIT_EXCEEDED quotaId GenerateContentRequestsPerMinutePerProject", "minute", NOW + 60),
    ("Please try again in 5 hours", "minute", NOW + 5 * 3600),
    ("exceeded retry limit, last status: 429 Too Many Requests", "minute", None),
    ("Last error: 429 rate limit", "minute", None),
    ("Error: rate limit", "minute", None),
    ("Retrying in 60s (attempt 1/10): [API Error: 429 provider returned error]", "minute", None),
    ("You've hit your usage limit. Try again in 2 days, 17 hours and 14 minutes.", "session",
     NOW + 2 * 86400 + 17 * 3600 + 14 * 60),
    ("You've hit your weekly limit · resets Mar 1 at 12am (Asia/Seoul)", "weekly", NOW + 8 * 86400),
    ("Usage limit reached · resets 10:48 PM", "session", at(2026, 11, 16, 22, 48)),
    ("error on line 429 of main.py", None, None),
    ("done in 429 ms", None, None),
    ("Rate limit exceeded, retry after 30 seconds", "minute", NOW + 30),
    ("Please wait a moment before retrying", "minute", None),
    ("Invalid API key · Please run /login", None, None),
    ("No conversation found with session ID", None, None),
]  # fmt: skip


SOON = at(2026, 11, 16, 13, 27) + 4
MOMENTS = [
    ("resets at 2026-11-16T13:27:04Z", SOON),
    ("resets at 2026-11-16T13:27:04.000Z", SOON),
    ("resets at 2026-11-16T14:27:04+01:00.", SOON),
    ("reset at 2026-11-16T08:27:04-0500", SOON),
    ("Resets 2026-11-16 13:27:04 UTC", SOON),
    ("reset time: 2026-11-16 13:27:04 +0000", SOON),
    ("resets at 2026-11-16T22:27:04", SOON),
    ("resets on 2026-11-17", at(2026, 11, 16, 15)),
    ("reset_time=2026-11-16T13:27:04Z", SOON),
    ('{"reset_at": "2026-11-16T13:27:04Z"}', SOON),
    ('{\\"resetsAt\\":\\"2026-11-16T13:27:04Z\\"}', SOON),
    ('{"limitResetTime": 1794835624}', SOON),
    ('{"resetsAt": 1794835624000, "limit": 50}', SOON),
    ('{"reset_at": 1794835624.5}', SOON + 0.5),
    ("x-ratelimit-reset: 1794835624", SOON),
    ("anthropic-ratelimit-tokens-reset: 2026-11-16T13:27:04Z", SOON),
    ("try again after 2026-11-16T13:27:04Z", SOON),
    ("blocked until 2026-11-16T13:27:04Z", SOON),
    ("Retry-After: Mon, 16 Nov 2026 13:27:04 GMT", SOON),
    ("retry after 16 Nov 2026 13:27:04 GMT", SOON),
    ("retry-after: 3600", NOW + 3600),
    ("retry-after:3600, then go on", NOW + 3600),
    ('{"retry_after": 3600}', NOW + 3600),
    ('{"retryAfterMs": "1500"}', NOW + 1.5),
    ("retry_after_minutes: 5", NOW + 300),
    ("reset_after: 12.5", NOW + 12.5),
    ("resets in 2h 5m", NOW + 7500),
    ("resets in 6m10s", NOW + 370),
    ("resets at 11pm", at(2026, 11, 16, 14)),
    ("resets at 3:45pm UTC", at(2026, 11, 16, 15, 45)),
    # What has just passed is over; what passed long ago, or is in no calendar, is not when this limit ends.
    ("resets at 2026-11-16T11:59:00Z", NOW + 1),
    ("resets at 2026-11-15T12:00:00Z", None),
    ("reset_at: 1000000000", None),
    ("last reset at 2026-11-01T00:00:00Z, retry after 30 seconds", NOW + 30),
    ("resets at 2026-13-45T99:00:00Z", None),
    ("resets at 0001-01-01T00:00:00+14:00", None),
    ("resets at 9999-12-31T23:59:59-14:00", NOW + 8 * 86400),
    ("reset_at: 9999999999", NOW + 8 * 86400),
    ("retry-after: 999999999999999", NOW + 8 * 86400),
    ("retry-after: 0", NOW + 1),
    ("retry-after: -5", None),
    ("resets soon", None),
    ("2026-11-16T13:27:04Z", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "moment"), MOMENTS, ids=[row[0] for row in MOMENTS])
def test_moments_in_forms_of_machines(text: str, moment: float | None) -> None:
    """Where no zone is named it is 9 hours later than in Greenwich."""
    found = read_text(f"Rate limit exceeded, {text}", NOW, ZoneInfo("Asia/Seoul"))

    assert found is not None
    assert found.scope == "minute"
    assert found.resets_at == (None if moment is None else pytest.approx(moment, abs=0.001))


@pytest.mark.parametrize(("text", "scope", "moment"), CORPUS, ids=[row[0][:50] for row in CORPUS])
def test_every_wording_is_read_to_the_right_moment(text: str, scope: str | None, moment: float | None) -> None:
    found = read_text(text, NOW, ZoneInfo("UTC"))

    assert (found.scope if found else None, found.resets_at if found else None) == (scope, moment)


def test_credits_and_spend_need_a_person() -> None:
    for text in ("Credit balance is too low", "spend limit reached"):
        found = read_text(text, NOW, UTC)

        assert found is not None
        assert found.needs_human


def test_a_time_without_zone_is_the_time_of_this_machine() -> None:
    found = read_text("You've hit your limit · resets 3pm", NOW, ZoneInfo("Asia/Seoul"))  # it is 9 pm there

    assert found is not None
    assert found.resets_at == at(2026, 11, 17, 15, zone="Asia/Seoul")


def test_an_unknown_zone_falls_back_to_this_machine() -> None:
    found = read_text("You've hit your limit · resets 3pm (Mars/Olympus)", NOW, UTC)

    assert found is not None
    assert found.resets_at == at(2026, 11, 16, 15)


@pytest.mark.parametrize(
    ("now", "text", "expected"),
    [
        # 2027-03-14 in New York: 2:30 am does not exist; the clock shows 3:30 instead.
        (at(2027, 3, 13, 23, zone="America/New_York"), "resets 2:30am (America/New_York)", at(2027, 3, 14, 7, 30)),
        # 2026-11-01 in New York: 1:30 am comes twice; the first that lies ahead is meant.
        (at(2026, 10, 31, 23, zone="America/New_York"), "resets 1:30am (America/New_York)", at(2026, 11, 1, 5, 30)),
        (at(2026, 11, 1, 5, 50), "resets 1:30am (America/New_York)", at(2026, 11, 1, 6, 30)),
        # The night is an hour longer: 6 am local is 6 am local.
        (at(2026, 10, 31, 22, zone="America/New_York"), "resets 6am (America/New_York)", at(2026, 11, 1, 11)),
        (at(2026, 12, 31, 23, 30), "resets Jan 2, 1am (UTC)", at(2027, 1, 2, 1)),
        # Weeks across a change of the clock: the same hour on the wall.
        (at(2026, 10, 30, 12, zone="Europe/Paris"), "resets Mon 9am (Europe/Paris)", at(2026, 11, 2, 8)),
        (at(2026, 10, 23, 12, zone="Europe/Paris"), "resets Mon 9am (Europe/Paris)", at(2026, 10, 26, 8)),
        # 2026-10-25 in Paris: 2:30 am comes twice; the second one lies ahead when the first has passed.
        (at(2026, 10, 25, 0, 45), "resets 2:30am (Europe/Paris)", at(2026, 10, 25, 1, 30)),
        # Lord Howe Island moves its clocks by half an hour; Kathmandu lies a quarter of an hour off.
        (at(2026, 10, 3, 12), "resets 6am (Australia/Lord_Howe)", at(2026, 10, 3, 19)),
        (at(2026, 11, 16, 12), "resets 6am (Asia/Kathmandu)", at(2026, 11, 17, 0, 15)),
        # Leap day, and midnight and noon by the half.
        (at(2028, 2, 28, 12), "resets Feb 29, 12am (UTC)", at(2028, 2, 29, 0)),
        (at(2026, 11, 16, 11), "resets 12pm (UTC)", at(2026, 11, 16, 12)),
    ],
)
def test_winter_and_summer_time_and_new_year(now: float, text: str, expected: float) -> None:
    found = read_text("You've hit your limit · " + text, now, UTC)

    assert found is not None
    assert found.resets_at == expected


def test_a_reset_that_has_just_passed_is_not_the_one_of_tomorrow() -> None:
    found = read_text("You've hit your limit · resets 12pm (UTC)", NOW + 20, UTC)

    assert found is not None
    assert found.resets_at == NOW + 20 + 60


def test_resets_are_clamped_to_eight_days() -> None:
    stamped = read_text("Claude AI usage limit reached|1999999999", NOW, UTC)
    event = read_event({"status": "rejected", "resetsAt": 1999999999, "rateLimitType": "five_hour"}, NOW)

    assert stamped is not None
    assert stamped.resets_at == NOW + 8 * 86400
    assert isinstance(event, LimitHit)
    assert event.resets_at == NOW + 8 * 86400


def test_events_of_the_client() -> None:
    rejected = read_event({"status": "rejected", "resetsAt": NOW + 5, "rateLimitType": "seven_day_opus"}, NOW)
    warned = read_event({"status": "allowed_warning", "resetsAt": NOW + 5, "utilization": 0.93}, NOW)
    credits = read_event({"status": "rejected", "errorCode": "credits_required", "resetsAt": NOW + 5}, NOW)
    codex = read_event({"type": "usage_limit_reached", "resets_in_seconds": 30}, NOW)

    assert rejected == LimitHit("model", NOW + 5, "event", "seven_day_opus", "opus")
    assert warned == LimitNear("session", 0.93, NOW + 5)
    assert isinstance(credits, LimitHit)
    assert credits.needs_human
    assert isinstance(codex, LimitHit)
    assert codex.resets_at == NOW + 30
    assert read_event({"status": "allowed", "resetsAt": NOW + 5}, NOW) is None


def test_rates_warn_before_the_wall() -> None:
    rates = {
        "primary": {"used_percent": 40.0, "resets_at": NOW + 9},
        "secondary": {"used_percent": 95.5, "resets_at": NOW + 99},
    }

    assert read_rates(rates, NOW) == LimitNear("weekly", 0.955, NOW + 99)
    assert read_rates({"primary": {"used_percent": 40.0}}, NOW) is None


def test_the_hook_of_a_failed_stop() -> None:
    found = read_error("rate_limit", "429", "You've hit your 5-hour limit · resets 10:48pm (UTC)", NOW, UTC)
    plain = read_error("rate_limit", "429 Too Many Requests", "", NOW, UTC)

    assert found is not None
    assert (found.source, found.resets_at) == ("hook", at(2026, 11, 16, 22, 48))
    assert plain is not None
    assert plain.resets_at is None
    assert read_error("authentication_failed", "401", "Invalid API key", NOW, UTC) is None


@pytest.mark.parametrize(
    "text", ["", "resets", "limit reached · resets 99:99pm", "hit your limit · resets 13pm", "limit|" * 999]
)
def test_odd_texts_never_raise(text: str) -> None:
    read_text(text, NOW, UTC)


def test_random_texts_never_raise_nor_leave_the_clamp() -> None:
    random = Random(7)
    words = [
        "You've hit your",
        "limit",
        "·",
        "resets",
        "at",
        "3pm",
        "25:61",
        "(Nowhere)",
        "Feb 30,",
        "|9999999999",
        "in",
        "5",
        "days",
    ]
    for _ in range(3000):
        found = read_text(" ".join(random.choices(words, k=random.randint(1, 9))), NOW, UTC)

        assert found is None or found.resets_at is None or NOW < found.resets_at <= NOW + 8 * 86400
