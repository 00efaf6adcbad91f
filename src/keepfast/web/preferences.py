"""Settings over the API. Only amounts, times and choices can be changed, never programs or paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keepfast.model.errors import Refused, Usage
from keepfast.model.schema import CHOICE, FLAG, HOURS, NUMBER, SIZE, TABLE, TIME
from keepfast.settings import Settings
from keepfast.settings.file import change as write
from keepfast.settings.file import proposed
from keepfast.web.queries import Backend

CHANGEABLE = frozenset((CHOICE, FLAG, HOURS, NUMBER, SIZE, TIME))
LOCAL_ONLY = ("store.", "web.")
"""Prefixes of settings that can be changed on this machine only: the store, and access to the page."""


def list_settings(settings: Settings) -> dict[str, Any]:
    return {
        key: {
            "value": settings[key],
            "origin": settings.origins.get(key, "default"),
            "meaning": TABLE[key].meaning,
            "changeable": may_change(key),
        }
        for key in TABLE
    }


def may_change(key: str) -> bool:
    return TABLE[key].kind in CHANGEABLE and not key.startswith(LOCAL_ONLY)


def change(backend: Backend, values: Mapping[str, Any]) -> dict[str, Any]:
    """Write values to the user's settings file; all of them, or none."""
    for key in values:
        if key not in TABLE:
            raise Usage(f"There is no setting {key[:80]!r}.")
        if not may_change(key):
            raise Refused(f"{key} cannot be changed over the API.", "Run `keepfast config set` on this machine.")
    if not backend.config:
        raise Refused("There is no settings file to change.")
    checked = {key: proposed(key, value, "the page") for key, value in values.items()}
    write(backend.config, checked)
    return {"changed": sorted(checked)}
