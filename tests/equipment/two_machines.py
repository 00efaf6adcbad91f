"""Two homes with a store each, like two machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.equipment.box import Box

from .wild_tree import wild


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A protected project with three checkpoints of a wild tree."""
    box = Box(tmp_path / "here")
    assert box.call("init").code == 0
    wild(box.project)
    box.save("-m", "first", "--name", "start", "--tag", "work")
    box.now += 60_000_000_000
    box.put("plain.txt", "changed\n")
    (box.project / "empty").unlink()
    (box.project / "deep/new").mkdir()
    box.save("-m", "둘째")
    box.now += 60_000_000_000
    (box.project / "link").unlink()
    box.put("link", "a file now")
    (box.project / "run.sh").chmod(0o700)
    box.save("--pin")
    return box


@pytest.fixture
def other(tmp_path: Path) -> Box:
    """Another machine: nothing is protected yet."""
    return Box(tmp_path / "there")
