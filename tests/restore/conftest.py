"""What the tests of restoring share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "workspace"))  # the tree builder lives there

from .ground import Ground


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> bool:
    """Is this the full campaign, or the short sample?"""
    return bool(request.config.getoption("--campaign", default=False))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on a real disk that is gone afterwards."""
    with TemporaryDirectory(prefix="holdfast-restore-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


@pytest.fixture
def ground(folder: Path) -> Iterator[Ground]:
    made = Ground(folder)
    yield made
    made.close()
