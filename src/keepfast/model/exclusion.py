"""Which paths the patterns of `checkpoint.exclude_patterns` mean."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase


def excluded_by(path: str, patterns: Sequence[str]) -> str:
    """Return the first pattern that matches the path or its end after any slash; empty if none does."""
    parts = path.split("/")
    ends = ["/".join(parts[start:]) for start in range(len(parts))]
    return next((pattern for pattern in patterns if any(fnmatchcase(end, pattern) for end in ends)), "")
