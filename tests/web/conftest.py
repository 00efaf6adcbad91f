from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.chromium import LOOKS
from tests.web.served import Served


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each story of a browser takes one of the looks, always the same; in the campaign, all of them."""
    if "look" in metafunc.fixturenames:
        names = list(LOOKS)
        mine = names[zlib.crc32(metafunc.function.__name__.encode()) % len(names)]
        chosen = names if metafunc.config.getoption("campaign") else [mine]
        metafunc.parametrize("look", [LOOKS[name] for name in chosen], ids=chosen)


@pytest.fixture
def served(tmp_path: Path, database: str) -> Iterator[Served]:
    made = Served(tmp_path, database=database)
    (made.root / "src").mkdir()
    (made.root / "src/main.py").write_text("def main():\n    return 1\n")
    made.saver.save("manual", message="the first")
    (made.root / "src/main.py").write_text("def main():\n    return 2\n")
    (made.root / "new.txt").write_text("new\n")
    made.saver.save("manual", message="the second")
    yield made
    made.close()
    assert not database or not list(tmp_path.rglob("tasks.db")), "tasks lay elsewhere"
