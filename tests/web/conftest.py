from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from web.served import Served


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
