"""Usage limits of model accounts: parse messages and events of clients into a limit and the time of its reset. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from keepfast.secrets.cuts import head

MINUTE, DAY = 60.0, 86_400.0
MIN_WAIT_SECONDS, MAX_WAIT_SECONDS = 60.0, 8 * DAY
"""Bounds in seconds from now for a reset time that was parsed from text."""
JUST_PASSED = 600.0
"""A clock time that passed less than this many seconds ago means today, not tomorrow."""

SESSION, WEEKLY, MODEL, SHORT, DAILY = "session", "weekly", "model", "minute", "day"
CREDITS, SPEND, OVERLOAD = "credits", "spend", "overload"
HUMAN = frozenset((CREDITS, SPEND))
"""Limits that no timer lifts: a person has to pay, or to raise the limit."""
EVENT, HOOK, TEXT, STATED = "event", "hook", "text", "block"


class LimitHit(NamedTuple):
    """An account reached a limit; `resets_at` is in seconds since 1970, None if unknown."""

    scope: str
    resets_at: float | None
    source: str
    raw: str
    model: str = ""

    @property
    def needs_human(self) -> bool:
        return self.scope in HUMAN


class LimitNear(NamedTuple):
    """An account is close to a limit; `used` is 0 to 1."""

    scope: str
    used: float
    resets_at: float | None


class Window(NamedTuple):
    """The used fraction of an account's window, 0 to 1, and when the window resets."""

    used: float
    resets_at: float | None


_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WHEN = (
    r"(?:(?P<day>mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+|"
    r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+(?P<date>\d{1,2})(?:st|nd|rd|th)?"
    r"(?:,?\s+(?P<year>\d{4}))?(?:,|\s+at)?\s+)?"
    r"(?:at\s+)?(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>[ap]\.?m\.?)?"
    r"(?:\s*\((?P<zone>[^)]{1,64})\)|\s+(?P<utc>UTC|GMT)\b)?"
)
_EPOCH = re.compile(r"limit reached\|(\d{10})(\d{3})?\b", re.IGNORECASE)
_PLAN = (
    r"(?:hit your (?:(?P<which>session|weekly|5-hour|7-day|opus|sonnet|haiku|fable|daily|monthly|usage) )?(?:usage )?limit"
    r"|(?P<named>5-hour|session|weekly|usage|opus|sonnet|daily) limit (?:reached|hit|exceeded)|limit reached"
    r"|rate limit (?:hit|reached|exceeded)"
    r"|out of extra usage)"
)
_RESETS = re.compile(_PLAN + r"[^\n]{0,60}?\b(?:resets?|resetting)\s+" + _WHEN, re.IGNORECASE)
_TRY_AT = re.compile(r"(?:try again|available again|retry) at\s+" + _WHEN, re.IGNORECASE)
_SIGNS = r"""[\s"'`*\\:=(\[~]{0,8}"""
"""Characters that may stand between a label such as `reset at` and the time, in JSON, headers and prose."""
_AFTER = r"(?:(?:try again|retry|resets?)[ _-]?(?:in|after))"
_SPAN = re.compile(
    rf"(?:{_AFTER}|\bwait(?: for)?){_SIGNS}((?:about\s+)?(?:\d+(?:\.\d+)?\s*"
    r"(?:days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|[dhms])(?![a-z])[\s,]*(?:and\s+)?)+)",
    re.IGNORECASE,
)
_BARE = re.compile(
    rf"{_AFTER}[ _-]?(?P<unit>ms|millis(?:econds)?|s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?)?{_SIGNS}"
    r"(?P<number>\d{1,15}(?:\.\d+)?)"
    r"""(?=["'`*\\]{0,3}\s*(?:$|[,;)\]}\n]|\.(?!\d)))""",
    re.IGNORECASE,
)
"""A number whose unit is part of its label; without one, as in the header `retry-after`, it is seconds."""
_UNTIL = (
    r"(?:reset(?:s|ting)?(?:[ _-]?(?:at|on|time|date|timestamp|epoch|is)){0,3}"
    r"|(?:try again|retry|available(?: again)?)[ _-]?(?:at|on|after)|\buntil)"
)
_EXACT = re.compile(
    rf"{_UNTIL}{_SIGNS}(?:"
    r"(?P<iso>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?)?)(?!\d)"
    r"(?:\s?(?P<offset>Z\b|UTC\b|GMT\b|[+-]\d\d:?\d\d(?!\d)))?"
    r"|(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\s+)?(?P<date>\d{1,2})[ -]"
    r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[ -]"
    r"(?P<year>\d{4})\s+(?P<clock>\d\d:\d\d(?::\d\d)?)\s*(?:GMT|UTC|Z\b)"
    r"|(?P<epoch>\d{10}(?:\d{3}){0,3}(?:\.\d+)?)(?!\d))",
    re.IGNORECASE,
)
"""An absolute time: ISO 8601, the date of an HTTP header, or the time since 1970."""
_MENTION = re.compile(r"reset|(?:retry|try again)[ _-]?(?:after|at|in)", re.IGNORECASE)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|m|s)", re.IGNORECASE)
_SECONDS = {"d": DAY, "h": 3600.0, "m": MINUTE, "s": 1.0}
_RETRY_DELAY = re.compile(r"retry-?delay\W{1,5}(\d+(?:\.\d+)?)s", re.IGNORECASE)

# The first pattern that matches decides; a scope without a reset time means back-off or a person.
_KINDS: tuple[tuple[str, str], ...] = (
    (r"not your usage limit|temporarily limiting requests", OVERLOAD),
    (r"credit balance is too low|out of credits|credits_required|insufficient credits|purchase more credits", CREDITS),
    (r"spend(?:ing)? (?:limit|cap)|billing hard limit|monthly budget", SPEND),
    (r"\b529\b|overloaded", OVERLOAD),
    (r"opus limit|sonnet limit|haiku limit|fable limit", MODEL),
    (r"weekly limit|7-day limit", WEEKLY),
    (r"perday|per day|daily (?:limit|quota)|terminalquotaerror|quota.?exhausted", DAILY),
    (r"perminute|per minute", SHORT),
    (
        r"usage limit|session limit|5-hour limit|hit your (?:\w+ )?limit|out of extra usage|limit reached|usage_limit_reached",
        SESSION,
    ),
    (r"request rejected \(429\)|(?:error|status|http)\W{0,3}429\b|too many requests|rate.?limit|quota exceeded|resource_exhausted|"
     r"please wait.{0,40}before retrying|please retry in|retry.?after|try again in \d", SHORT),
)  # fmt: skip
_PER_MINUTE = re.compile(r"per.?minute", re.IGNORECASE)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), scope) for pattern, scope in _KINDS)
_EVENT_SCOPES = {
    "five_hour": SESSION, "seven_day": WEEKLY, "seven_day_opus": MODEL, "seven_day_sonnet": MODEL, "overage": SESSION,
}  # fmt: skip


def read_text(text: str, now: float, zone: tzinfo, source: str = TEXT) -> LimitHit | None:
    """Return the limit that a client's error text reports; None if it reports none.

    Pass only the client's own errors, never an agent's answer or a tool's output: those may talk about limits.
    """
    scope = next((scope for pattern, scope in _COMPILED if pattern.search(text)), None)
    if scope is None:
        return None
    raw = head(text.strip(), 500)
    if scope in HUMAN:
        return LimitHit(scope, None, source, raw)
    moment = _moment(text, now, zone)
    model = re.search(r"(opus|sonnet|haiku|fable) limit", text, re.IGNORECASE) if scope == MODEL else None
    if moment is None and _PER_MINUTE.search(text):
        moment = now + MINUTE
    if moment is not None:
        moment = min(
            max(moment, now + (MIN_WAIT_SECONDS if scope in (SESSION, WEEKLY, MODEL, DAILY) else 1.0)),
            now + MAX_WAIT_SECONDS,
        )
    return LimitHit(scope, moment, source, raw, model[1].lower() if model else "")


def read_event(info: Mapping[str, Any], now: float) -> LimitHit | LimitNear | None:
    """Parse the `rate_limit_info` of a stream event, or a similar error body; None if no limit is reached or near.

    A `rejected` ends the run only together with a failing result: the caller waits for that.
    """
    kind = str(info.get("rateLimitType") or info.get("type") or "")
    scope = _EVENT_SCOPES.get(kind, SESSION)
    resets = info.get("resetsAt", info.get("resets_at"))
    moment = _epoch(resets, now)
    if moment is None and isinstance(info.get("resets_in_seconds"), int | float):
        moment = now + min(max(float(info["resets_in_seconds"]), 0.0), MAX_WAIT_SECONDS)
    code = str(info.get("errorCode") or info.get("overageDisabledReason") or "")
    status = info.get("status", "rejected" if kind == "usage_limit_reached" else "")
    if status == "rejected":
        if info.get("errorCode") == "credits_required":
            return LimitHit(CREDITS, None, EVENT, code)
        model = kind.rpartition("_")[2] if scope == MODEL else ""
        return LimitHit(scope, moment, EVENT, kind, model)
    if status == "allowed_warning":
        used = info.get("utilization")
        return LimitNear(scope, float(used) if isinstance(used, int | float) else 0.9, moment)
    # The window that counts now is not near its limit; another one may be.
    windows = info.get("unifiedWindows")
    for name, window in windows.items() if isinstance(windows, Mapping) else ():
        if isinstance(window, Mapping) and window.get("status") == "allowed_warning":
            return read_event({**window, "rateLimitType": name}, now)
    return None


def read_windows(info: Mapping[str, Any]) -> dict[str, Window]:
    """Return the use of each window of an account, by name, from a `rate_limit_info` or from `rate_limits`."""
    nested = info.get("unifiedWindows")
    named = dict(nested) if isinstance(nested, Mapping) else {}
    if isinstance(info.get("rateLimitType"), str):
        named.setdefault(str(info["rateLimitType"]), info)
    for name in ("primary", "secondary"):
        if isinstance(info.get(name), Mapping):
            named[name] = info[name]
    result: dict[str, Window] = {}
    for name, window in named.items():
        if not isinstance(window, Mapping):
            continue
        used, percent = window.get("utilization"), window.get("used_percent", window.get("used_percentage"))
        resets = window.get("resetsAt", window.get("resets_at"))
        if isinstance(percent, int | float) and not isinstance(used, int | float):
            used = percent / 100
        if isinstance(used, int | float) and not isinstance(used, bool) and used >= 0:
            at = float(resets) if isinstance(resets, int | float) and resets > 0 else None
            result[str(name)[:40]] = Window(round(float(used), 4), at)
    return result


def read_rates(rates: Mapping[str, Any], now: float, threshold: float = 0.9) -> LimitNear | None:
    """Return the fullest window in `rate_limits` of a usage event, if it is used to `threshold` or more."""
    close_windows: list[LimitNear] = []
    names = (("primary", SESSION), ("five_hour", SESSION), ("secondary", WEEKLY), ("seven_day", WEEKLY))
    for name, scope in names:
        window = rates.get(name)
        if not isinstance(window, Mapping):
            continue
        used = window.get("used_percent", window.get("used_percentage"))
        if isinstance(used, int | float) and used / 100 >= threshold:
            close_windows.append(LimitNear(scope, used / 100, _epoch(window.get("resets_at"), now)))
    return max(close_windows, key=lambda one: one.used) if close_windows else None


def read_error(kind: str, details: str, message: str, now: float, zone: tzinfo) -> LimitHit | None:
    """Parse the input of the client's StopFailure hook; None for errors that are not limits."""
    if kind not in ("rate_limit", "overloaded", "billing_error"):
        return None
    limit = read_text(message, now, zone, HOOK) or read_text(details, now, zone, HOOK)
    default = {"rate_limit": SHORT, "overloaded": OVERLOAD, "billing_error": CREDITS}[kind]
    return limit or LimitHit(default, None, HOOK, head(message or details, 500))


def mentions_reset(text: str) -> bool:
    """Return whether this text may say when a limit ends."""
    return _MENTION.search(text) is not None


def zone_of(name: str) -> tzinfo | None:
    """Return the time zone of that name; None if there is none."""
    if name.strip().upper() in ("UTC", "GMT", "Z"):
        return UTC
    try:
        return ZoneInfo(name.strip())
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        return None


def _epoch(value: object, now: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    seconds = value / 1000 if value > 1e11 else float(value)
    return min(max(seconds, now + 1.0), now + MAX_WAIT_SECONDS)


def _moment(text: str, now: float, zone: tzinfo) -> float | None:
    stamped = _EPOCH.search(text)
    if stamped:
        return float(stamped[1])
    for match in _EXACT.finditer(text):
        named = _exact(match, zone)
        if named is not None and named > now - JUST_PASSED:  # one that passed long ago is not the end of this limit
            return named
    span = _SPAN.search(text)
    if span:
        return now + sum(float(number) * _SECONDS[unit.lower()] for number, unit in _PART.findall(span[1]))
    bare = _BARE.search(text)
    if bare:
        unit = (bare["unit"] or "s").lower()
        return now + float(bare["number"]) * (0.001 if unit.startswith(("ms", "milli")) else _SECONDS[unit[0]])
    delay = _RETRY_DELAY.search(text)
    if delay:
        return now + float(delay[1])
    clock = _RESETS.search(text) or _TRY_AT.search(text)
    return _clock(clock, now, zone) if clock else None


def _exact(match: re.Match[str], zone: tzinfo) -> float | None:
    """Return the time that was matched; None for a date that does not exist."""
    if match["epoch"]:
        whole, _, part = match["epoch"].partition(".")
        return float(f"{whole[:10]}.{whole[10:]}{part}")
    text, offset = (match["iso"] or "").upper(), (match["offset"] or "").upper()
    if match["date"]:
        month, offset = _MONTHS.index(match["month"].lower()) + 1, "Z"
        text = f"{match['year']}-{month:02}-{int(match['date']):02}T{match['clock']}"
    if len(text) == len("2026-11-18"):
        text += "T00:00"
    try:
        moment = datetime.fromisoformat(text + ("Z" if offset in ("UTC", "GMT") else offset))
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        return None


def _clock(match: re.Match[str], now: float, zone: tzinfo) -> float | None:
    """Return the next moment at which a clock in that zone shows the matched time."""
    hour, minute, half = int(match["hour"]), int(match["minute"] or 0), (match["half"] or "").lower()
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half.startswith("p") else 0)
    elif match["minute"] is None:
        return None  # a bare number is not a time of day
    if hour > 23 or minute > 59:
        return None
    named = match["zone"] or match["utc"]
    zone = (zone_of(named) if named else None) or zone
    today = datetime.fromtimestamp(now, zone)
    for day in _candidates(match, today):
        for fold in (0, 1):
            # Between winter and summer time an hour is missing or comes twice: the first of two that lies ahead is meant.
            wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone, fold=fold)
            if wall.timestamp() > now - JUST_PASSED:
                return wall.timestamp()
    return None


def _candidates(match: re.Match[str], today: datetime) -> list[datetime]:
    if match["month"]:
        month, date = _MONTHS.index(match["month"].lower()) + 1, int(match["date"])
        years = [int(match["year"])] if match["year"] else [today.year, today.year + 1]
        result = []
        for year in years:
            try:
                result.append(datetime(year, month, date))
            except ValueError:
                continue
        return result
    days = [today + timedelta(days=ahead) for ahead in range(9)]
    if match["day"]:
        weekday = _DAYS.index(match["day"].lower())
        days = [day for day in days if day.weekday() == weekday]
    return days
