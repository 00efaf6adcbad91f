"""The order in which a save makes things durable, read off its system calls: a crash test cannot see every omission.

ext4, btrfs and xfs hide a missing sync of a folder when a database commit follows it, so the rule is checked here.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .stage import Stage
from .tracing import Call, after_start, needs_strace, trace
from .workload import MANY

DISPOSABLE = re.compile(r"/store/(paths|workspaces/[^/]+/(cache|notices))$")
"""What may be lost: it is made again from the rest."""


class Order:
    """The state-changing calls of one save on its store, by what they touch."""

    def __init__(self, calls: list[Call], store: Path) -> None:
        self.store = str(store)
        self.calls = [call for call in calls if any(path.startswith(self.store) for path in call.paths())]

    def places(self, names: tuple[str, ...], pattern: str, start: int = 0) -> list[int]:
        """Where these calls touch a path below the store that matches, from `start` on."""
        wanted = re.compile(re.escape(self.store) + pattern + "$")
        return [
            at
            for at, call in enumerate(self.calls)
            if at >= start and call.name in names and any(wanted.match(path) for path in call.paths())
        ]

    def syncs(self, pattern: str, start: int = 0) -> list[int]:
        return self.places(("fsync", "fdatasync"), pattern, start)

    def renames(self) -> list[tuple[int, str, str]]:
        """(place, from, to) of every rename into the store that matters."""
        found = [(at, *call.renamed()) for at, call in enumerate(self.calls) if call.name == "rename"]
        return [(at, old, new) for at, old, new in found if not DISPOSABLE.search(new)]


def _order_of_a_save(folder: Path, saved: int, extra: str = "") -> Order:
    stage = Stage(folder, extra=extra)
    if saved:
        stage.saved(saved)
    stage.put(saved + 1)
    # A slow disk: whoever does not wait for it is found out.
    calls, done = trace(stage.hook_command(), folder / "trace", "-e", "inject=fsync:delay_enter=200000:when=1")
    assert done.returncode == 0, done.stderr
    return Order(after_start(calls, folder), stage.store)


@needs_strace
def test_every_rename_into_the_store_is_durable_before_the_acknowledgement(folder: Path) -> None:
    """The file is synced before it gets its name, its folder after."""
    for saved, extra in ((0, ""), (3, ""), (3, MANY)):
        order = _order_of_a_save(folder / f"{saved}{extra}", saved, extra)

        assert order.renames()
        for at, old, new in order.renames():
            inside, target = re.escape(old[len(order.store) :]), re.escape(new[len(order.store) :].rpartition("/")[0])
            written = order.places(("write", "pwrite64", "ftruncate"), inside)
            assert max(written) < max(order.syncs(inside)) < at, f"{new} was named before it was durable"
            assert order.syncs(target, at), f"the folder of {new} was not synced"


@needs_strace
@pytest.mark.parametrize("extra", ["", MANY])
def test_pack_and_record_are_durable_before_the_commit(extra: str, folder: Path) -> None:
    """Blobs, then the record, then the row: so every prefix is harmless. Of many files, rows are made while blobs are synced."""
    order = _order_of_a_save(folder, 3, extra)
    (named,) = order.places(("rename",), r"/packs/[0-9a-f]+\.pack")
    (recorded,) = order.syncs(r"/log/[0-9a-f]+\.log")
    pages = order.places(("pwrite64",), r"/ledger\.db")
    (synced,) = order.syncs(r"/ledger\.db")
    (committed,) = order.places(("ftruncate",), r"/ledger\.db-journal")
    released = order.places(("flock",), "/lock", committed)

    assert order.syncs("/tmp/[0-9a-f]+")[-1] < named < order.syncs("/packs")[0] < recorded
    assert max(order.places(("write",), r"/log/[0-9a-f]+\.log")) < recorded < min(pages)
    assert max(pages) < synced < committed < order.syncs(r"/ledger\.db-journal", committed)[0] < released[0]


@needs_strace
def test_a_record_whose_commit_failed_is_cut_off_under_the_lock(folder: Path) -> None:
    """Another process may already have built on it: whoever cuts must look again, with nobody writing meanwhile."""
    stage = Stage(folder)
    stage.saved(2)
    stage.put(3)
    stage.keep()
    calls, _ = trace(stage.hook_command(), folder / "trace")
    commit = next(call for call in calls if call.name == "fdatasync" and call.paths()[0].endswith("/ledger.db"))
    stage.reset()
    fault = f"inject=fdatasync:error=EIO:when={commit.number}"
    failing, done = trace(stage.hook_command(), folder / "trace", "-e", fault)
    order = Order(after_start(failing, folder), stage.store)

    assert done.returncode == 1
    (cut,) = order.places(("ftruncate",), r"/log/[0-9a-f]+\.log")
    locks = [order.calls[at].text for at in order.places(("flock",), "/lock") if at < cut]
    assert "LOCK_EX" in locks[-1]
    assert stage.audit() == []
