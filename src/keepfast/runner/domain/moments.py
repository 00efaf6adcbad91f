"""Timestamps in documents and JSON: ISO 8601 in UTC, to the millisecond. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(nanoseconds: int) -> str:
    """Return a time as ISO 8601 in UTC, to the millisecond."""
    whole = datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    return whole.strftime("%Y-%m-%dT%H:%M:%S.") + f"{nanoseconds // 1_000_000 % 1000:03d}Z"


def nanoseconds(moment: str) -> int:
    """Return the nanoseconds since 1970 of an ISO 8601 timestamp."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000) * 1_000_000
