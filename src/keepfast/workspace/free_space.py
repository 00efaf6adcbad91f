"""Check the free space for a restore before anything is touched."""

from __future__ import annotations

from os import fstatvfs

from keepfast.model.entry import FILE, FOLDER, SPARSE, Entry
from keepfast.model.restore_plan import DELETE, WRITE, Plan, Step

BATCH_BYTES = 256 << 20
"""Bytes that are staged before they are put in place, which frees the old files."""


class Room:
    """What a plan takes at its peak. `after_deleting`: only if what it deletes goes before anything is written.

    `ample`: everything new can be there before anything old goes. `takes`: how much that is, and rather more than less.
    """

    def __init__(self, root: int, plan: Plan) -> None:
        disk = fstatvfs(root)
        self.free, self.block = disk.f_bavail * disk.f_frsize, disk.f_frsize or 4096
        self.missing = self.missing_files = 0
        writes = [step for step in plan.steps if step.action == WRITE]
        deletes = [step for step in plan.steps if step.action == DELETE]
        # First estimate: every size rounded up, and no sparse files. Usually even that fits.
        self.takes = self.block * len(writes) + sum([step.new.size for step in writes if step.new is not None])
        self.ample, tight = self.takes <= self.free, False
        if not self.ample:
            sizes = self._sizes([step.new for step in writes])
            self.ample = sum(sizes) <= self.free
            tight = not self.ample and self._count(writes, sizes, deletes)
        if disk.f_files:
            new = sum(step.old is None for step in writes)
            self.missing_files = max(0, new + 1 - disk.f_favail - len(deletes))
            tight |= new + 1 > disk.f_favail
        self.after_deleting = tight and not self.missing and not self.missing_files

    def _count(self, writes: list[Step], sizes: list[int], deletes: list[Step]) -> bool:
        """Find out what is missing; return whether the first batch has no room before something is deleted."""
        tight = False
        deleted = sum(self._sizes([step.old for step in deletes]))
        free, freed, batch, first = self.free, deleted, 0, True
        for size, old in zip(sizes, self._sizes([step.old for step in writes]), strict=True):
            free -= size
            batch += size
            tight |= first and free < 0
            self.missing = max(self.missing, -(free + deleted) if first else -free)
            freed += old
            if batch > BATCH_BYTES:
                free, freed, batch, first = free + freed, 0, 0, False
        return tight

    def _sizes(self, entries: list[Entry | None]) -> list[int]:
        block = self.block
        return [
            0
            if entry is None
            else -(-entry.size // block) * block
            if entry.kind == FILE and not entry.flags & SPARSE
            else block * (entry.kind == FOLDER)
            for entry in entries
        ]
