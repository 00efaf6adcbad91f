"""Fixtures of the tests of mounting."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.equipment.box import Box


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A protected project without a checkpoint."""
    box = Box(tmp_path)
    assert box.call("init").code == 0
    return box
