"""Fixtures of the store's tests."""

from __future__ import annotations

from tests.equipment.two_machines import box, other

__all__ = ["box", "other"]
