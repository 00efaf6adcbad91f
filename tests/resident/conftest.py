"""A home for each test, whose resident ends with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .home import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home with installed hooks and a project with one file, and no resident yet."""
    made = Home(tmp_path)
    (made.project / "a.txt").write_text("one\n")
    made.install()
    yield made
    made.stop()


@pytest.fixture
def begun(home: Home) -> Home:
    """The same, with a resident, and the baseline of a session saved."""
    home.start()
    home.begin()
    return home
