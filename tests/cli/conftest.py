"""Fixtures of the command line's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.equipment.box import Box


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A fresh home with a project in it that nobody protects."""
    return Box(tmp_path)


@pytest.fixture
def saved_box(box: Box) -> Box:
    """A protected project with three checkpoints an hour apart."""
    return fill(box)


@pytest.fixture
def visited() -> Iterator[Box]:
    """The same, in a home that another user can get to; pytest keeps its own folders for their owner."""
    with TemporaryDirectory(prefix="keepfast-cli-") as name:
        Path(name).chmod(0o755)
        box = fill(Box(Path(name)))
        (box.project / ".keepfast/workspace.json").chmod(0o644)
        yield box


def fill(box: Box) -> Box:
    assert box.call("init").code == 0
    box.put("src/a.py", "one\ntwo\nthree\n")
    box.put("README", "read me\n")
    box.save("-m", "first")
    box.now += 3600 * 1_000_000_000
    box.put("src/a.py", "one\n2\nthree\n")
    box.put("src/b.py", "b\n")
    box.save("-m", "둘째 체크포인트", "--name", "before-refactoring", "--tag", "work")
    box.now += 3600 * 1_000_000_000
    (box.project / "README").unlink()
    box.save("--pin")
    return box
