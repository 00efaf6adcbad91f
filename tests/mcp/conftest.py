"""Homes with a protected project, as the command line's tests have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.equipment.box import HOUR, Box


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A home with a project in it that nobody protects."""
    return Box(tmp_path)


@pytest.fixture
def saved_box(box: Box) -> Box:
    """A protected project with three checkpoints an hour apart."""
    assert box.call("init").code == 0
    box.put("src/a.py", "one\ntwo\nthree\n")
    box.put("README", "read me\n")
    box.save("-m", "first", "--tag", "begin")
    box.now += HOUR
    box.put("src/a.py", "one\n2\nthree\n")
    box.save("-m", "second")
    box.now += HOUR
    box.put("src/b.py", "def hello():\n    return 1\n\n\nclass Thing:\n    def act(self):\n        return hello()\n")
    box.save("-m", "셋째", "--name", "third")
    return box
