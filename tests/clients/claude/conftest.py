"""Fixtures: the real client, newest and older, and benches to run it on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from keepfast.runner.process import shims
from tests.runner.place import QUICK

from .bench import Bench
from .client import OLDER, Client, Unavailable, fetch, newest
from .supervised import ClientPlace


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and "make_bench" in getattr(item, "fixturenames", ()):
            item.add_marker("client")


@pytest.fixture(scope="session")
def newest_client() -> Client:
    return _or_skip(newest)


@pytest.fixture(scope="session")
def older_client() -> Client:
    return _or_skip(lambda: fetch(OLDER))


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Client:
    """The newest one; a test that says `@both` runs with the older one too."""
    wanted: Client = request.getfixturevalue(getattr(request, "param", "newest_client"))
    return wanted


@pytest.fixture
def make_bench(tmp_path: Path, client: Client) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(name: str = "bench", **options: Any) -> Bench:
        made.append(Bench(tmp_path / name, client, **options))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()


@pytest.fixture
def here(make_bench: Callable[..., Bench], database: str) -> Iterator[ClientPlace]:
    """A supervisor whose agent is the real client; what still runs at the end is ended."""
    place = ClientPlace(make_bench(), QUICK.but(database=database))
    yield place
    for run in place.runtime.tables.runs("state != 'ended'"):
        shims.wish(run.folder, "kill")
    place.close()


@pytest.fixture
def hooked(bench: Bench) -> Bench:
    """A bench with our hooks in the client's settings."""
    bench.keepfast("install", "claude")
    return bench


def _or_skip(get: Callable[[], Client]) -> Client:
    try:
        return get()
    except Unavailable as reason:
        text = f"THE REAL CLIENT WAS NOT TESTED: {reason}"
        warnings.warn(text, stacklevel=1)
        pytest.skip(text)
