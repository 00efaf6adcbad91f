"""Which events make a checkpoint."""

from __future__ import annotations

ONLY_IF_CHANGED = frozenset(("auto", "turn", "prompt", "interval", "before_command"))
"""Triggers that come often: they make no version of a tree that has not changed."""


def takes(trigger: str, changed: bool, first: bool) -> bool:
    """Does this trigger make a version? The first checkpoint of a workspace is always made."""
    return changed or first or trigger not in ONLY_IF_CHANGED
