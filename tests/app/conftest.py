"""Fixtures that several use cases share: two machines, and a client's hooks."""

from __future__ import annotations

from tests.equipment.two_machines import box, other
from tests.hook.conftest import ground, started

__all__ = ["box", "ground", "other", "started"]
