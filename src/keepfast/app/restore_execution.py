"""The execution of a restore plan: check the room, write the journal, then touch the tree."""

from __future__ import annotations

from posix import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close, fstat
from posix import open as open_fd

from keepfast.app.restore_journal import GO_ON, UNTOUCHED, explain, path_of, text
from keepfast.model.entry import FILE, LINK
from keepfast.model.errors import DiskFull, Failed, KeepfastError
from keepfast.model.restore_plan import UNREAD, Plan
from keepfast.model.steps import step
from keepfast.store.bulk_read import read_many
from keepfast.workspace.apply import Apply
from keepfast.workspace.free_space import Room
from keepfast.workspace.marker import show
from keepfast.workspace.modes import closed_folders
from keepfast.workspace.staged_files import Contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from keepfast.app.checkpoint import Engine
    from keepfast.app.preview import Preview
    from keepfast.store.repository import Repository
    from keepfast.store.restore_journal import Journal, RestoreInProgress
    from keepfast.store.rows import CheckpointRow
    from keepfast.workspace.apply_result import ApplyResult
    from keepfast.workspace.staged_files import Group


MANY = 1000
"""From so many steps on, new contents are written while the safety checkpoint is made."""


class Begun:
    """What was begun of a plan before its journal is there: new contents, in the staging folder, where nothing is in the way.

    It has a repository of its own: the other one is at work for the safety checkpoint. Without `apply` nothing was begun.
    """

    def __init__(
        self, plan: Plan, root: int = -1, apply: Apply | None = None, repository: Repository | None = None
    ) -> None:
        self.plan, self.root, self.apply, self.repository = plan, root, apply, repository

    def take(self, plan: Plan, root: int) -> Apply | None:
        """Whoever carries out this very plan, in this very folder, goes on with it; else it is given up."""
        apply, self.apply = self.apply, None
        if apply is None or (plan is self.plan and _identity(root) == _identity(self.root)):
            return apply
        apply.clean_up()
        return None

    def __enter__(self) -> Begun:
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

    def begin(self, preview: Preview, goal: CheckpointRow, mtimes: bool, room: Room) -> Begun:
        """Begin with a large plan: nothing of it is seen, and nothing is lost if it comes to nothing."""
        root, repository, made = -1, None, preview.plan
        saved = sum([entry.size for entry in preview.seen.values() if entry is not None])
        # What is begun must not take the room that the safety checkpoint needs.
        if len(made.steps) < MANY or 2 * (room.takes + saved) > room.free:
            return Begun(made)
        try:
            root = open_fd(self.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            if closed_folders(root, (one.path for one in made.steps)):
                return Begun(made, root)
            repository = self.engine.place.open(small_cache=True)
            apply = self._apply(root, made, goal, {}, mtimes, made, repository, room)
            begun = Begun(made, root, apply, repository)
        except (OSError, KeepfastError):
            return Begun(made, root, None, repository)  # whatever is wrong is found, and told, when it is carried out
        try:
            apply.begin(made)
        except OSError:
            begun.take(Plan(), root)
        return begun

    def carry_out(
        self,
        journal: Journal,
        restore: RestoreInProgress,
        made: Plan,
        goal: CheckpointRow,
        whole: Plan,
        begun: Begun | None = None,
    ) -> ApplyResult:
        """Write the journal, then touch the tree. What fails before anything was touched leaves no journal either.

        `whole` is what the restore was about in the beginning: the links in it are known.
        """
        applied = self._apply_plan(journal, restore, made, goal, whole, begun or Begun(made))
        applied.untouched += [(path, why) for path, why in made.untouched if why == UNREAD]
        return applied

    def _apply_plan(
        self, journal: Journal, restore: RestoreInProgress, made: Plan, goal: CheckpointRow, whole: Plan, begun: Begun
    ) -> ApplyResult:
        fresh, touched = journal.read() is None, False
        try:
            root = open_fd(self.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            try:
                closed = closed_folders(root, (one.path for one in made.steps))
                closed.update({path_of(text): mode for text, mode in restore.closed.items()})
                restore.closed = {text(path): mode for path, mode in closed.items()}
                journal.write(restore)
                step("restore:journal")
                # What was begun knows of no closed folders.
                ahead = begun.take(Plan() if closed else made, root)
                apply = ahead or self._apply(
                    root, made, goal, closed, restore.mtimes, whole, self.repository, Room(root, made)
                )
                try:
                    return apply.run(made)
                finally:
                    touched = apply.touched
            finally:
                close(root)
        except (OSError, KeepfastError, MemoryError) as error:
            if fresh and not touched:
                self._take_back(journal)
            raise explain(error, UNTOUCHED if fresh and not touched else GO_ON) from None

    def _take_back(self, journal: Journal) -> None:
        try:
            journal.remove()
        except OSError:
            pass  # then `status` speaks of a restore that was cut off, and --abort finds nothing to do

    def _apply(
        self,
        root: int,
        made: Plan,
        goal: CheckpointRow,
        closed: dict[bytes, int],
        mtimes: bool,
        whole: Plan,
        contents: Repository,
        room: Room,
    ) -> Apply:
        """`contents`: where they are read from, perhaps by other threads."""
        targets: set[bytes] | None = None

        def known_link(target: bytes) -> bool:
            nonlocal targets
            if targets is None:  # asked for only where a restore that was cut off has left links behind
                entries = [entry for one in whole.steps for entry in (one.old, one.new)]
                targets = {entry.content for entry in entries if entry is not None and entry.kind == LINK}
            return target in targets

        accelerated = self.engine.settings["capture.accelerator"]
        return Apply(
            root,
            self._anchors(made, goal),
            Contents(
                lambda entry: contents.contents.stream(entry.content),
                lambda digests, take: read_many(contents, digests, take, accelerated),
            ),
            self.repository.contents.ids,
            self.repository.contents.has,
            is_saved_link=known_link,
            closed=closed,
            mtimes=mtimes,
            durable=self.engine.place.durable,
            deleting_first=room.after_deleting,
            by_folder=room.ample,
            accelerated=accelerated,
            privileged=self.engine.settings["restore.privileged_attributes"],
            progress=self.engine.progress,
        )

    def _anchors(self, made: Plan, target: CheckpointRow) -> dict[Group, bytes]:
        """For each group of hard links that is to be written: a member that is in place already."""
        groups = {one.new.group for one in made.steps if one.new is not None and one.new.group}
        if not groups:
            return {}
        moving = {one.path for one in made.steps} | {path for path, _ in made.untouched}
        return {
            (row.group, row.content, row.mode): row.path
            for row in self.repository.state(target.workspace, target.version)
            if row.group in groups and row.kind == FILE and row.path not in moving
        }

    # What must be right before anything is touched

    def refuse_if_full(self, made: Plan) -> Room:
        try:
            root = open_fd(self.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        except OSError as error:
            raise Failed(f"{show(self.root)} cannot be opened: {error.strerror}.") from None
        try:
            room = Room(root, made)
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
    seen = fstat(folder)
    return seen.st_dev, seen.st_ino


def _megabytes(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MB"
