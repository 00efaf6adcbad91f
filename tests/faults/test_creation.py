"""Making a store never costs one that is there already."""

from __future__ import annotations

from pathlib import Path

from .stage import Stage


def test_a_store_that_lost_its_format_file_keeps_its_ledger(folder: Path) -> None:
    """The first save of another folder finds no store, and makes one around what is there."""
    stage = Stage(folder / "one")
    stage.saved(6)
    stage.ask("forget", "--versions", "1,2")
    stage.ask("compact")
    (stage.store / "format").unlink()
    other = Stage(folder / "two", store=stage.store)
    other.put(1)

    assert other.hook().returncode == 0
    assert stage.audit({3, 4, 5, 6}, {1, 2}) == []
    assert other.audit({1}) == []
