"""Moments as documents and answers tell them: ISO 8601 in UTC, to the millisecond. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(nanoseconds: int) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    whole = datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    return whole.strftime("%Y-%m-%dT%H:%M:%S.") + f"{nanoseconds // 1_000_000 % 1000:03d}Z"


def nanoseconds(moment: str) -> int:
    """The other way round."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000) * 1_000_000
