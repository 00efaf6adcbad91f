"""Fixtures of the supervisor's tests. What is marked `databases` runs on SQLite and PostgreSQL; the campaign runs all on both,
and `--database` on the one that it names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .place import QUICK, Place


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        metafunc.parametrize("place", _databases(metafunc), indirect=True)


def _databases(metafunc: pytest.Metafunc) -> list[str]:
    if metafunc.definition.get_closest_marker("sqlite"):
        return ["sqlite"]
    if metafunc.config.getoption("database"):
        return [metafunc.config.getoption("database")]
    if metafunc.definition.get_closest_marker("databases") or metafunc.config.getoption("campaign"):
        return ["sqlite", "postgresql"]
    return ["sqlite"]


@pytest.fixture
def place(tmp_path: Path, request: Any) -> Iterator[Place]:
    database = request.getfixturevalue("cluster").database() if request.param == "postgresql" else ""
    place = Place(tmp_path, QUICK.but(database=database))
    yield place
    place.close()
