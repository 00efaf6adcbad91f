"""Carry out a restore plan: check the disk space, write the journal, then change the tree."""

from __future__ import annotations

from os import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close, fstat
from os import open as open_fd

from keepfast.app.checkpoint import Engine
from keepfast.app.preview import Preview
from keepfast.app.restore_errors import CONTINUE_HINT, UNTOUCHED_HINT, explain, path_of, text
from keepfast.model.entry import FILE, LINK
from keepfast.model.errors import DiskFull, Failed, KeepfastError
from keepfast.model.restore_plan import UNREAD, Plan
from keepfast.model.steps import step
from keepfast.store.bulk_read import read_many
from keepfast.store.repository import Repository
from keepfast.store.restore_journal import Journal, RestoreInProgress
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.apply import Apply
from keepfast.workspace.apply_result import ApplyResult
from keepfast.workspace.free_space import Room
from keepfast.workspace.marker import show
from keepfast.workspace.modes import closed_folders
from keepfast.workspace.staged_files import ContentSource, Group

MIN_STEPS_TO_STAGE_EARLY = 1000
"""From so many steps on, new contents are staged while the safety checkpoint is made."""


class EarlyStaging:
    """The new contents of a plan, staged before its journal exists: nothing in the tree is changed yet.

    It has a repository of its own, because the safety checkpoint uses the other one at the same time. Without `apply` nothing
    was staged.
    """

    def __init__(
        self, plan: Plan, root: int = -1, apply: Apply | None = None, repository: Repository | None = None
    ) -> None:
        self.plan, self.root, self.apply, self.repository = plan, root, apply, repository

    def take(self, plan: Plan, root: int) -> Apply | None:
        """Return the staged work if this is its plan and its folder; else discard it."""
        apply, self.apply = self.apply, None
        if apply is None or (plan is self.plan and _identity(root) == _identity(self.root)):
            return apply
        apply.clean_up()
        return None

    def __enter__(self) -> EarlyStaging:
        return self

    def __exit__(self, *_: object) -> None:
        if self.apply is not None:
            self.apply.clean_up()
        if self.root >= 0:
            close(self.root)
        if self.repository is not None:
            self.repository.close()


class Execution:
    """Carries out plans in one workspace."""

    def __init__(self, engine: Engine, root: bytes) -> None:
        self.engine, self.root, self.repository = engine, root, engine.repository()

    def begin(self, preview: Preview, goal: CheckpointRow, mtimes: bool, room: Room) -> EarlyStaging:
        """Stage the contents of a large plan: nothing is visible yet, and discarding it loses nothing."""
        root, repository, plan = -1, None, preview.plan
        saved = sum([entry.size for entry in preview.seen.values() if entry is not None])
        # Staging must leave enough disk space for the safety checkpoint.
        if len(plan.steps) < MIN_STEPS_TO_STAGE_EARLY or 2 * (room.takes + saved) > room.free:
            return EarlyStaging(plan)
        try:
            root = open_fd(self.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            if closed_folders(root, (step.path for step in plan.steps)):
                return EarlyStaging(plan, root)
            repository = self.engine.place.open(small_cache=True)
            apply = self._apply(root, plan, goal, {}, mtimes, plan, repository, room)
            staging = EarlyStaging(plan, root, apply, repository)
        except (OSError, KeepfastError):
            return EarlyStaging(plan, root, None, repository)  # `carry_out` meets and reports the same error
        try:
            apply.begin(plan)
        except OSError:
            staging.take(Plan(), root)
        return staging

    def carry_out(
        self,
        journal: Journal,
        restore: RestoreInProgress,
        plan: Plan,
        goal: CheckpointRow,
        full_plan: Plan,
        staging: EarlyStaging | None = None,
    ) -> ApplyResult:
        """Write the journal, then change the tree. A failure before the first change leaves no journal.

        `full_plan` is the plan of the whole restore, also when a part of it is done: its links are known.
        """
        applied = self._apply_plan(journal, restore, plan, goal, full_plan, staging or EarlyStaging(plan))
        applied.untouched += [(path, why) for path, why in plan.untouched if why == UNREAD]
        return applied

    def _apply_plan(
        self,
        journal: Journal,
        restore: RestoreInProgress,
        plan: Plan,
        goal: CheckpointRow,
        full_plan: Plan,
        staging: EarlyStaging,
    ) -> ApplyResult:
        fresh, touched = journal.read() is None, False
        try:
            root = open_fd(self.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            try:
                closed_modes = closed_folders(root, (step.path for step in plan.steps))
                closed_modes.update({path_of(text): mode for text, mode in restore.closed.items()})
                restore.closed = {text(path): mode for path, mode in closed_modes.items()}
                journal.write(restore)
                step("restore:journal")
                # Early staging cannot open closed folders.
                ahead = staging.take(Plan() if closed_modes else plan, root)
                apply = ahead or self._apply(
                    root, plan, goal, closed_modes, restore.mtimes, full_plan, self.repository, Room(root, plan)
                )
                try:
                    return apply.run(plan)
                finally:
                    touched = apply.touched
            finally:
                close(root)
        except (OSError, KeepfastError, MemoryError) as error:
            if fresh and not touched:
                self._remove_journal(journal)
            raise explain(error, UNTOUCHED_HINT if fresh and not touched else CONTINUE_HINT) from None

    def _remove_journal(self, journal: Journal) -> None:
        try:
            journal.remove()
        except OSError:
            pass  # then `status` shows an interrupted restore, and --abort has nothing to do

    def _apply(
        self,
        root: int,
        plan: Plan,
        goal: CheckpointRow,
        closed_modes: dict[bytes, int],
        mtimes: bool,
        full_plan: Plan,
        contents: Repository,
        room: Room,
    ) -> Apply:
        """Return the executor of the plan. `contents`: the repository to read from, perhaps by other threads."""
        targets: set[bytes] | None = None

        def known_link(target: bytes) -> bool:
            nonlocal targets
            if targets is None:  # needed only where an interrupted restore left links behind
                entries = [entry for step in full_plan.steps for entry in (step.old, step.new)]
                targets = {entry.content for entry in entries if entry is not None and entry.kind == LINK}
            return target in targets

        accelerated = self.engine.settings["capture.accelerator"]
        return Apply(
            root,
            self._anchors(plan, goal),
            ContentSource(
                lambda entry: contents.contents.stream(entry.content),
                lambda digests, take: read_many(contents, digests, take, accelerated),
            ),
            self.repository.contents.ids,
            self.repository.contents.has,
            is_saved_link=known_link,
            closed=closed_modes,
            mtimes=mtimes,
            durable=self.engine.place.durable,
            deleting_first=room.after_deleting,
            by_folder=room.ample,
            accelerated=accelerated,
            privileged=self.engine.settings["restore.privileged_attributes"],
            progress=self.engine.progress,
        )

    def _anchors(self, plan: Plan, target: CheckpointRow) -> dict[Group, bytes]:
        """Return, for each group of hard links to be written, a member that is in place already."""
        groups = {step.new.group for step in plan.steps if step.new is not None and step.new.group}
        if not groups:
            return {}
        moving = {step.path for step in plan.steps} | {path for path, _ in plan.untouched}
        return {
            (row.group, row.content, row.mode): row.path
            for row in self.repository.state(target.workspace, target.version)
            if row.group in groups and row.kind == FILE and row.path not in moving
        }

    # Checks before anything is changed

    def refuse_if_full(self, plan: Plan) -> Room:
        try:
            root = open_fd(self.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        except OSError as error:
            raise Failed(f"{show(self.root)} cannot be opened: {error.strerror}.") from None
        try:
            room = Room(root, plan)
        finally:
            close(root)
        hint = "Free some space, or restore fewer paths at a time. Nothing was changed."
        if room.missing:
            raise DiskFull(
                f"Not enough disk space for this restore: {_megabytes(room.free)} free, "
                f"{_megabytes(room.missing)} more needed.",
                hint,
            )
        if room.missing_files:
            raise DiskFull(
                f"There is no room for this restore: {room.missing_files:,} files too many for this file system.", hint
            )
        return room


def _identity(folder: int) -> tuple[int, int]:
    status = fstat(folder)
    return status.st_dev, status.st_ino


def _megabytes(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MB"
