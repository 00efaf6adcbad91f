"""A machine of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from .ground import Ground


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """A home without a store, and a project with a file in it."""
    made = Ground(tmp_path)
    (made.project / "a.txt").write_text("one\n")
    return made


@pytest.fixture
def started(ground: Ground) -> Ground:
    """The same, with the baseline of a session saved."""
    assert ground.hook("SessionStart", source="startup").returncode == 0
    ground.settle()
    return ground
