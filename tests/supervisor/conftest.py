"""Fixtures of the supervisor's tests. What is marked `databases` runs on SQLite and PostgreSQL; the campaign runs all on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postgres

from .place import QUICK, Place


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        both = metafunc.definition.get_closest_marker("databases")
        only = metafunc.definition.get_closest_marker("sqlite")
        wanted = ["sqlite"]
        if both or (metafunc.config.getoption("campaign") and not only):
            wanted.append("postgresql")
        metafunc.parametrize("place", wanted, indirect=True)


@pytest.fixture(scope="session")
def cluster() -> Iterator[postgres.Cluster]:
    found = postgres.find()
    if found is None:
        pytest.skip("PostgreSQL is not installed and could not be: NOTHING WAS TRIED ON IT")
    cluster = postgres.Cluster(found)
    yield cluster
    cluster.close()


@pytest.fixture
def place(tmp_path: Path, request: Any) -> Iterator[Place]:
    database = request.getfixturevalue("cluster").database() if request.param == "postgresql" else ""
    place = Place(tmp_path, QUICK.but(database=database))
    yield place
    place.close()
