"""The page: `keepfast serve` shows every checkpoint in a browser and serves the same as an HTTP API (docs/web.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from keepfast.present.environment import Environment


def serve(options: Mapping[str, Any], environment: Environment, clock: Callable[[], int]) -> int:
    """Run the server until it is told to stop; return the exit code."""
    from keepfast.web.server import run

    return run(options, environment, clock)
