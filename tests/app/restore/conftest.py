"""What the tests of restoring share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TypeVar

import pytest

from .ground import Ground

Point = TypeVar("Point")


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> bool:
    """Is this the full campaign, or the short sample?"""
    return bool(request.config.getoption("--campaign", default=False))


class Points:
    """Which of all points of a series are tried: a sample in an ordinary run, all in a campaign, in a random order."""

    def __init__(self, campaign: bool, minutes: float | None, part: str = "1/1") -> None:
        self.campaign, self.seconds = campaign, minutes * 60 if minutes else None
        self.first, self.every = map(int, part.split("/"))
        self.tried = 0

    def of(self, points: Sequence[Point], sample: int, seed: int = 11) -> Iterator[Point]:
        end = monotonic() + self.seconds if self.seconds else None
        chosen = Random(seed).sample(points, len(points) if self.campaign else min(sample, len(points)))
        for point in chosen[self.first - 1 :: self.every]:
            if end is not None and monotonic() > end:
                return
            self.tried += 1
            yield point


@pytest.fixture
def points(request: pytest.FixtureRequest, campaign: bool) -> Points:
    options = request.config
    return Points(campaign, options.getoption("--minutes", default=None), options.getoption("--part", default="1/1"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on a real disk that is gone afterwards."""
    with TemporaryDirectory(prefix="keepfast-restore-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


@pytest.fixture
def ground(folder: Path) -> Iterator[Ground]:
    made = Ground(folder)
    yield made
    made.close()
