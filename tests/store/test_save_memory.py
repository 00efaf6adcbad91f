"""Memory of a save: what a version replaces is summed up, page by page, and not kept."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from keepfast.model.entry import Entry, gone
from keepfast.model.ids import checkpoint_id
from keepfast.store.digest import digest
from keepfast.store.factory import create_store

ROWS = 12_000
ROW = 150
"""Bytes for each row that is replaced; the row itself would take twice that at least."""


def header(number: int) -> dict[str, object]:
    return {
        "id": checkpoint_id(number, bytes([number] * 10)), "created_at": number, "trigger": "manual", "created_by": "user",
        "message": "", "name": None, "tags": [], "pinned": False, "session": None, "task": None, "cwd": "", "git": None,
        "tool": "0.1.0",
    }  # fmt: skip


@pytest.mark.parametrize("walked", [False, True])
def test_rows_that_a_version_replaces_are_not_kept_until_it_is_made(tmp_path: Path, walked: bool) -> None:
    repository = create_store(str(tmp_path / "store"), durable=False)
    repository.register("ws", b"/w", 1)
    paths = [b"folder/file %05d" % number for number in range(ROWS)]
    first = repository.begin("ws")
    rows = {
        path: Entry(path, "f", 0o644, 0, 1000 + at, at << 40, 0, digest(path), b"") for at, path in enumerate(paths)
    }
    first.finish(header(1), *first.changes(rows, None))
    rows = {path: gone(path) for path in paths}
    saving = repository.begin("ws")

    tracemalloc.start()
    try:
        changed, old = saving.changes({} if walked else rows, set() if walked else None)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert held < (ROW + 250 * walked) * ROWS  # after a walk, the rows that say what is gone are made here
    assert len(changed) == ROWS
    made = saving.finish(header(2), changed, old)
    assert (made.files, made.bytes, made.tree) == (0, 0, "0" * 64)
    assert list(repository.ledger.state("ws", 2)) == []
    assert len(list(repository.ledger.state("ws", 1))) == ROWS
    repository.close()
