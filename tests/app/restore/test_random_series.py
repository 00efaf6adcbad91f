"""Whatever was done in between: a restore ends at the checkpoint, an undo where it began, and nothing else is touched."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from keepfast.app.restore import MINE, THEIRS, Restored
from keepfast.model.entry import CAPTURED, LEFT_OUT
from keepfast.model.errors import Conflict, NotFound
from keepfast.store.maintenance.space import forget
from tests.equipment.trees import Agent, Step, disk, numbers, steps

from .ground import Ground, Stats, staging_left

OPTIONS = {
    "capture__ignored": "small",
    "capture__ignored_file_size": 64,
    "capture__max_file_size": 60_000,
    "capture__ignored_folder_files": 3,
}
Disk = dict[bytes, tuple[str, int, bytes]]


class Machine(RuleBasedStateMachine):
    """Work, save, restore, undo, redo and forget in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="keepfast-machine-"))
        self.ground = Ground(self.folder, **OPTIONS)
        self.root, self.saver = self.ground.root, self.ground.saver
        self.agent = Agent(self.root)
        self.undoable: list[tuple[Disk, Restored, list[bytes]]] = []
        """The disk before each restore that can be undone, as far as we know."""

    def teardown(self) -> None:
        self.ground.close()
        subprocess.run(["rm", "-rf", str(self.folder)], check=False)

    # Work

    @initialize(first=st.lists(steps, min_size=3, max_size=20))
    def begin(self, first: list[Step]) -> None:
        for step in first:
            self.agent.work(step)
        self.save()

    @rule(work=st.lists(steps, min_size=1, max_size=8))
    def work(self, work: list[Step]) -> None:
        for step in work:
            self.agent.work(step)

    @rule(a=numbers, b=numbers)
    def install(self, a: int, b: int) -> None:
        """Dependencies come, in a folder that is never looked at."""
        folder = self.agent.folder(a) + b"/node_modules"
        try:
            os.makedirs(folder, exist_ok=True)
            Path(os.fsdecode(folder + b"/%d" % (b % 3))).write_bytes(self.agent.content(b))
        except OSError:
            pass

    @rule()
    def save(self) -> None:
        self.ground.save()

    # Restoring

    @rule(a=numbers, b=numbers, scope=numbers, mine=st.booleans(), mtimes=st.booleans(), at_once=st.booleans())
    def restore(self, a: int, b: int, scope: int, mine: bool, mtimes: bool, at_once: bool) -> None:
        living = self.living()
        version = living[a % len(living)]
        paths = self.scope(version, scope, b)
        before, stats = disk(self.root), self.ground.stats()
        try:
            done = self.ground.restore(
                version, *paths, conflicts=MINE if mine else THEIRS, mtimes=mtimes, at_once=at_once
            )
        except Conflict:
            assert paths and (disk(self.root), self.ground.stats()) == (before, stats)
            return
        if done is None:
            assert (disk(self.root), self.ground.stats()) == (before, stats)
            return
        self.undoable.append((before, done, paths))
        self.is_at(version, paths, done)
        self.nothing_else_was_touched(before, stats, done)
        assert not self.left_to_do(version, paths, done) or mine or done.applied.untouched or done.applied.filled

    @precondition(lambda self: self.undoable)
    @rule(redo=st.booleans())
    def undo(self, redo: bool) -> None:
        now, stats = disk(self.root), self.ground.stats()
        before, done, paths = self.undoable.pop()
        try:
            undone = self.ground.undo()
        except (NotFound, Conflict):  # what it goes back to was forgotten, or a folder above it is none any more
            assert (disk(self.root), self.ground.stats()) == (now, stats)
            self.undoable = []
            return
        assert undone is not None
        self.is_as(before, paths, undone, done)
        self.nothing_else_was_touched(now, stats, undone)
        if redo:
            between = disk(
                self.root
            )  # what an undo of the redo comes back to: it need not be all that was there before
            again = self.ground.redo()
            assert again is not None
            self.is_as(now, paths, again, undone)
            self.undoable.append((between, again, paths))

    @rule(a=numbers)
    def forget(self, a: int) -> None:
        living = self.living()
        engine = self.saver.engine()
        try:
            version = living[a % len(living)]
            if len(living) > 1:
                forget(engine.repository(), self.saver.workspace, [version], "test", folder=engine.place.path)
        finally:
            engine.close()

    # What must hold

    def living(self) -> list[int]:
        from keepfast.store.rows import Query

        found = self.saver._read().ledger.find(Query(workspace=self.saver.workspace))
        return [row.version for row in found]

    def scope(self, version: int, scope: int, number: int) -> list[bytes]:
        if scope % 3 == 0:
            return []
        there = sorted(path for path, row in self.saver.state(version).items() if row.kind in CAPTURED)
        there += sorted(disk(self.root))
        picked = [there[(number * (scope + count)) % len(there)] for count in range(1 + scope % 2) if there]
        return picked or []

    def is_at(self, version: int, paths: list[bytes], done: Restored) -> None:
        rows, now = self.saver.state(version), disk(self.root)
        wanted = self.saver.contents(version)
        present = self.saver.state(done.before)
        excused = self.excused(done)
        for path, entry in wanted.items():
            if inside(path, paths) and not below(path, excused):
                assert now.get(path) == entry, (path, "is not as it was")
        for path, there in now.items():
            if not inside(path, paths) or path in wanted or below(path, excused):
                continue
            left_out = below(path, {one for one, row in rows.items() if row.kind in LEFT_OUT})
            outside = below(path, {one for one, row in present.items() if row.kind in LEFT_OUT})
            assert left_out or outside, (path, there[0], "should be gone")
        self.groups(done)
        assert not staging_left(self.root)

    def left_to_do(self, version: int, paths: list[bytes], done: Restored) -> set[bytes]:
        """Paths that another restore would touch, but for those that were outside of capture before.

        A restore may take away the rule that hid them.
        """
        hidden = {path for path, row in self.saver.state(done.before).items() if row.kind in LEFT_OUT}
        return {step.path for step in self.ground.plan(version, *paths).steps if not below(step.path, hidden)}

    def is_as(self, before: Disk, paths: list[bytes], done: Restored, undone: Restored) -> None:
        now = disk(self.root)
        excused = self.excused(done) | self.excused(undone)
        for version in (done.before, undone.before):  # what is outside of capture may have changed since, and stays so
            excused |= {path for path, row in self.saver.state(version).items() if row.kind in LEFT_OUT}
        for path in before.keys() | now.keys():
            if inside(path, paths) and not below(path, excused):
                assert now.get(path) == before.get(path), (path, "is not as it was before")
        assert not staging_left(self.root)

    def groups(self, done: Restored) -> None:
        """Files that were one are one again, if all of them had to be written."""
        stats, kept = self.ground.stats(), {path for path, _ in done.applied.untouched}
        groups: dict[tuple[int, bytes, int], set[int]] = defaultdict(set)
        for step in done.plan.steps:
            if step.action == "write" and step.new is not None and step.new.group and step.path not in kept:
                groups[step.new.group, step.new.content, step.new.mode].add(stats[step.path][0])
        for group, inodes in groups.items():
            assert len(inodes) == 1, group

    def nothing_else_was_touched(self, before: Disk, stats: Stats, done: Restored) -> None:
        now, planned = self.ground.stats(), {step.path for step in done.plan.steps}
        for path, seen in stats.items():
            if path not in planned:
                assert now.get(path) == seen, (path, "was touched")
        for path in now.keys() - stats.keys():
            assert path in planned, (path, "came from nowhere")

    def excused(self, done: Restored) -> set[bytes]:
        """Paths that the restore said it left alone, or moved aside because they cannot be captured."""
        applied = done.applied
        named = {path for path, _ in [*applied.untouched, *applied.aside]} | {path for path, _ in done.plan.untouched}
        return named | set(applied.filled)


def inside(path: bytes, paths: list[bytes]) -> bool:
    return not paths or any(path == one or path.startswith(one + b"/") for one in paths)


def below(path: bytes, roots: set[bytes]) -> bool:
    if b"node_modules" in path.split(b"/"):
        return True  # never captured, never touched: `nothing_else_was_touched` sees to it
    while path not in roots:
        if b"/" not in path:
            return False
        path = path.rpartition(b"/")[0]
    return True


@pytest.mark.timeout(7200)
def test_a_restore_ends_at_the_checkpoint_and_an_undo_where_it_began(campaign: bool) -> None:
    runs, length = (1000, 20) if campaign else (25, 12)
    profile = settings(settings.default, max_examples=runs, stateful_step_count=length)

    run_state_machine_as_test(Machine, settings=profile)
