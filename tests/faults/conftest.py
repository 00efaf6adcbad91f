"""Options and fixtures of the fault tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    try:
        parser.addoption("--campaign", action="store_true", help="run the campaigns in full, not a sample of them")
    except ValueError:
        pass  # the conftest above has it already


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> bool:
    """Is this the full campaign, or the short sample?"""
    return bool(request.config.getoption("campaign", default=False))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on a real disk that is gone afterwards: campaigns make many stores, and pytest would keep them."""
    with TemporaryDirectory(prefix="keepfast-faults-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()
