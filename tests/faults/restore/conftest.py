"""Fixtures of the campaigns against restores: those of their other tests."""

from __future__ import annotations

from tests.app.restore.conftest import campaign, folder, ground, points

__all__ = ["campaign", "folder", "ground", "points"]
