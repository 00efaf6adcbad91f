"""Is there room for a restore? Counted before anything is touched."""

from __future__ import annotations

from posix import fstatvfs

from holdfast.core.entry import FILE, FOLDER, SPARSE
from holdfast.core.planning import DELETE, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.core.entry import Entry
    from holdfast.core.planning import Plan

BATCH_BYTES = 256 << 20
"""So much is written before it is put in place, which frees what was there."""


class Room:
    """What a plan takes at its peak. `after_deleting`: only if what it deletes goes before anything is written."""

    def __init__(self, root: int, plan: Plan) -> None:
        disk = fstatvfs(root)
        self.free, self.block = disk.f_bavail * disk.f_frsize, disk.f_frsize or 4096
        self.missing = self.missing_files = 0
        tight = self._count(plan)
        if disk.f_files:
            new = sum(step.action == WRITE and step.old is None for step in plan.steps)
            freed = sum(step.action == DELETE for step in plan.steps)
            self.missing_files = max(0, new + 1 - disk.f_favail - freed)
            tight |= new + 1 > disk.f_favail
        self.after_deleting = tight and not self.missing and not self.missing_files

    def _count(self, plan: Plan) -> bool:
        """Find out what is missing; return whether the first batch has no room before something is deleted."""
        tight = False
        deleted = sum(self._size(step.old) for step in plan.steps if step.action == DELETE)
        free, freed, batch, first = self.free, deleted, 0, True
        for step in plan.steps:
            if step.action != WRITE:
                continue
            size = self._size(step.new)
            free -= size
            batch += size
            tight |= first and free < 0
            self.missing = max(self.missing, -(free + deleted) if first else -free)
            freed += self._size(step.old)
            if batch > BATCH_BYTES:
                free, freed, batch, first = free + freed, 0, 0, False
        return tight

    def _size(self, entry: Entry | None) -> int:
        if entry is None:
            return 0
        if entry.kind == FOLDER:
            return self.block
        if entry.kind != FILE or entry.flags & SPARSE:
            return 0
        return -(-entry.size // self.block) * self.block
