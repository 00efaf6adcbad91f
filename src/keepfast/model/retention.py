"""The retention policy: which automatic checkpoints to forget.

Those before a destructive command stay for a day, so do the newest of each session; of the rest one per hour, then one per day.
Those of single tool calls stay while their session is one of the newest two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from keepfast.model.event import BETWEEN, TOOL


class Row(Protocol):
    @property
    def version(self) -> int: ...
    @property
    def created_at(self) -> int: ...
    @property
    def trigger(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def pinned(self) -> int: ...
    @property
    def session(self) -> str: ...
    @property
    def task(self) -> str: ...


LIGHT = frozenset((TOOL, BETWEEN))
"""Triggers of checkpoints around single tool calls."""
KEPT = frozenset(("manual", "phase_complete", "final", "before_restore"))
"""Triggers whose checkpoints are never dropped by count or age."""
RESCUE = "before_command"
"""Trigger of checkpoints before destructive commands: often the only copy of what the command removed."""
SESSIONS_WITH_TOOL_CALLS = 2
"""Of so many sessions, the newest, every tool call's checkpoint stays."""
HOUR = 3_600_000_000_000
DAY = 24 * HOUR


def is_automatic(row: Row) -> bool:
    return not (row.pinned or row.name or row.trigger in KEPT)


def plan(
    rows: Sequence[Row],
    *,
    now: int,
    keep_last: int,
    hourly_hours: int,
    daily_days: int,
    rescued: Mapping[int, int] | None = None,
    rescued_for: int = DAY,
    light_sessions: int = SESSIONS_WITH_TOOL_CALLS,
) -> list[int]:
    """Return the versions to forget, oldest first.

    A checkpoint from before a destructive command stays for `rescued_for` (ns), and does not count towards `keep_last`.
    `rescued` maps versions that already held everything such a command may destroy to the time of that command.

    Checkpoints are ordered by version. Age is counted back from the newest checkpoint, or from `now` if that is earlier,
    so that a clock that jumps ahead drops nothing.
    """
    ordered = sorted(rows, key=lambda row: row.version, reverse=True)
    if not ordered:
        return []
    present = min(now, ordered[0].created_at)
    forget: list[int] = []
    first_light = _first_light_version(ordered, light_sessions)
    in_session: dict[str, int] = {}
    hours: set[int] = set()
    days: set[int] = set()
    for position, row in enumerate(ordered):
        if not is_automatic(row):
            continue
        age = max(0, present - row.created_at)
        if _is_rescue(row, present, rescued or {}, rescued_for):
            continue
        if row.trigger in LIGHT and position:
            if row.version < first_light:
                forget.append(row.version)
            continue
        owner = f"task {row.task}" if row.task else f"session {row.session}"
        rank = in_session[owner] = in_session.get(owner, 0) + 1
        hour, day = row.created_at // HOUR, row.created_at // DAY
        keep = position == 0 or rank <= keep_last
        if age < hourly_hours * HOUR and hour not in hours:
            keep = True
        if age < daily_days * DAY and day not in days:
            keep = True
        if keep:
            hours.add(hour)
            days.add(day)
        else:
            forget.append(row.version)
    forget.reverse()
    return forget


def _first_light_version(ordered: Sequence[Row], most: int) -> int:
    """Return the version from which on checkpoints of tool calls stay; `ordered` has the newest first."""
    if not most:
        return ordered[0].version
    sessions: dict[str, int] = {}
    for row in ordered:
        if row.trigger == TOOL and (row.session in sessions or len(sessions) < most):
            sessions[row.session] = row.version
    return min(sessions.values(), default=0)


def _is_rescue(row: Row, present: int, rescued: Mapping[int, int], rescued_for: int) -> bool:
    since = rescued.get(row.version, 0)
    if row.trigger == RESCUE:
        since = max(since, row.created_at)
    return bool(since) and max(0, present - since) < rescued_for


def oldest_automatic(rows: Sequence[Row], keep_last: int) -> list[int]:
    """Return the versions that a size limit may remove, oldest first: automatic ones except each session's newest few."""
    return plan(rows, now=0, keep_last=keep_last, hourly_hours=0, daily_days=0, rescued_for=0, light_sessions=0)
