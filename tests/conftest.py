"""What all tests share: a store and a workspace of their own, and longer runs on request."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.equipment import programs
from tests.equipment.residents import end_resident
from tests.equipment.saver import Saver

if TYPE_CHECKING:
    from tests.equipment.postgres import Cluster

SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]

LONGEST = 4 * 3600
"""Seconds that one campaign may take; `--minutes` ends it sooner."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--campaign", action="store_true", help="run the campaigns in full, not a sample of them")
    parser.addoption(
        "--database", choices=("sqlite", "postgresql"), default="", help="where tasks lie in all tests that have any"
    )
    parser.addoption("--minutes", type=float, help="end each series of faults after so long, and say how far it came")
    parser.addoption("--at-once", type=int, default=6, help="so many places side by side in series of kills")
    parser.addoption(
        "--part", default="1/1", help="of each series of restores only this part, as in 2/3: for processes side by side"
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background jobs so, and what tests start would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        programs.find("fuse3", "fusermount3")  # before workers decide what they cannot try
    # The same examples each time: a red run tells of a change. The campaign looks for new ones.
    settings.register_profile(
        "sample", max_examples=40, deadline=None, suppress_health_check=SLOW, derandomize=True, database=None
    )
    settings.register_profile("campaign", max_examples=1500, deadline=None, suppress_health_check=SLOW)
    if config.getoption("--hypothesis-profile", default=None) is None:
        settings.load_profile("campaign" if config.getoption("campaign") else "sample")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("campaign"):
        for item in items:
            if item.get_closest_marker("campaign"):
                item.add_marker(pytest.mark.timeout(LONGEST))


RESIDENT = ".local/share/keepfast/resident/started"


@pytest.fixture(autouse=True)
def no_resident_outlives_its_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hooks that a test runs as a client would start a resident; it would go on until its home is removed."""
    yield
    base = request.node.funcargs.get("tmp_path")
    for depth in ("", "*/", "*/*/") if base is not None else ():
        for stamp in base.glob(depth + RESIDENT):
            end_resident(stamp.parents[4], begun=stamp.stat().st_mtime)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    from tests.equipment import postgres  # with its client library, which few tests need

    found = postgres.find()
    if found is None:
        pytest.skip("PostgreSQL is not installed and could not be: NOTHING WAS TRIED ON IT")
    cluster = postgres.Cluster(found)
    yield cluster
    cluster.close()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str:
    """The address of an empty database for tasks; empty for the embedded one, which is the usual one."""
    if request.config.getoption("database") != "postgresql" or request.node.get_closest_marker("sqlite"):
        return ""
    return str(request.getfixturevalue("cluster").database())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty folder to protect."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def make_saver(root: Path, tmp_path: Path) -> Iterator[Callable[..., Saver]]:
    """Makes savers of `root`; settings are given by name, with `__` for the dot."""
    made: list[Saver] = []

    def make(**options: Any) -> Saver:
        made.append(Saver(root, tmp_path / f"store{len(made)}", **options))
        return made[-1]

    yield make
    for saver in made:
        saver.close()


@pytest.fixture
def saver(make_saver: Callable[..., Saver]) -> Saver:
    """Saves `root` with the default settings."""
    return make_saver()
