"""Carrying out a plan: staged, synced, exchanged into place; nothing leaves the root, nothing unsaved is removed."""

from __future__ import annotations

from posix import fstat, stat

from keepfast.fsutil.threads import Beside
from keepfast.model.entry import FILE, FOLDER, LINK
from keepfast.model.errors import KeepfastError
from keepfast.model.restore_plan import DELETE, MODE, WRITE, Plan, Step
from keepfast.model.steps import step as note
from keepfast.workspace import staged_files as preparing
from keepfast.workspace.apply_result import GONE, Applied
from keepfast.workspace.case_folds import refuse_folded
from keepfast.workspace.modes import Modes
from keepfast.workspace.placement import Placing
from keepfast.workspace.staged_files import Contents, Preparing, Stopped
from keepfast.workspace.staging_folder import Staging
from keepfast.workspace.system_calls import Folders, System

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from keepfast.workspace.new_folders import NewFolder
    from keepfast.workspace.staged_files import Group
    from keepfast.workspace.staging_folder import Ids


class Apply:
    """One plan on one root.

    `anchors` are files already in place to which others of their group are to be linked; `contents` gives what files
    hold; `ids` the ids that a stream has as a content. `known(digest)` and `known_link(target)` say whether a
    checkpoint has what a restore that was cut off left behind: what none has is never removed. `closed` are folders
    that must be opened for writing meanwhile, with the modes that they have and shall keep. `touched` tells whether
    anything in the tree was changed.
    """

    def __init__(
        self,
        root: int,
        anchors: dict[Group, bytes],
        contents: Contents,
        ids: Ids,
        known: Callable[[bytes], bool],
        *,
        known_link: Callable[[bytes], bool] = lambda target: False,
        closed: dict[bytes, int] | None = None,
        mtimes: bool = False,
        privileged: bool = False,
        durable: bool = True,
        deleting_first: bool = False,
        by_folder: bool = True,
        accelerated: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.root, self.known, self.known_link = root, known, known_link
        self.closed, self.durable, self.progress = closed or {}, durable, progress
        self.deleting_first, self.by_folder = deleting_first, by_folder and not deleting_first
        self.done, self.touched = Applied(), False
        self._begun: Beside | None = None
        self.system = System(accelerated)
        self.folders = Folders(root, self.system)
        self.staging = Staging(root, ids)
        owner = fstat(root)
        self.preparing = Preparing(
            self.staging,
            self.folders,
            self.system,
            contents,
            dict(anchors),
            (owner.st_uid, owner.st_gid),
            mtimes,
            durable,
            privileged,
        )
        self.placing = Placing(root, self.staging, self.folders, self.system, self.preparing, self.done)
        self.modes = Modes(self.folders, self.preparing.attributes, self.closed, self.done)

    def begin(self, plan: Plan) -> None:
        """Begin to build the folders that are not there, beside whatever the caller does next, and touch nothing in the tree.

        `run`, with the same plan, goes on from there; whoever has begun and does not run gives up. Raises `OSError`.
        """
        self.staging.open()
        steps = self._apart(plan.steps)
        files = sum([step.action == WRITE and step.new is not None and step.new.kind in (FILE, LINK) for step in steps])
        self._begun = Beside(lambda: self._build(steps, files))

    def give_up(self) -> None:
        """End what was begun, and take away what was written."""
        self._stop()  # before anything is closed that a thread may be using
        self.folders.close()
        try:
            self.preparing.ahead.wait()
            self._rescued(self.staging.close(self.known, self.known_link))
        except OSError:
            pass  # the next restore sweeps it

    def _stop(self) -> None:
        """Wait until no thread of ours writes any more."""
        if self._begun is None:
            return
        self.preparing.stopped = True
        try:
            self._begun.result()
        except (Stopped, OSError, KeepfastError):
            pass  # whoever wanted the result was told, and nobody else wants it

    def run(self, plan: Plan) -> Applied:
        """Carry out the plan. Raises `OSError` where the disk fails: what was done stays, the journal has the rest."""
        try:
            if self._begun is None:
                self.staging.open()
            refuse_folded(plan, self.root, self.staging.fd, self.system)
            self._rescued(self.staging.sweep_old(self.known, self.known_link))
            self._run(self._apart(plan.steps))
        finally:
            self.give_up()
        return self.done

    def _run(self, steps: list[Step]) -> None:
        writes = [step for step in steps if step.action == WRITE and step.new is not None]
        files = [step for step in writes if step.new.kind in (FILE, LINK)]  # type: ignore[union-attr]
        folders = [step for step in writes if step.new.kind == FOLDER]  # type: ignore[union-attr]
        # As a rule nothing is touched before the new contents are on disk.
        built: list[NewFolder] = self._build(steps, len(files)) if self._begun is None else self._begun.result()
        if built:
            inside = {step.path for folder in built for step in folder.files}
            files = [step for step in files if step.path not in inside]
        staged = [] if self.deleting_first else self._prepare(files, 0, bool(built))
        self.touched = True
        self.modes.open_closed()
        self.placing.delete([step for step in steps if step.action == DELETE or _changes_type(step)])
        note("restore:deleted")
        made = self.placing.whole(built)
        for step in folders:
            if step.path not in made:
                self.placing.folder(step)
        note("restore:folders")
        self._place(files, staged)
        unfinished = [step for step in folders if not made.get(step.path)]
        self._put_modes([step for step in steps if step.action == MODE] + unfinished)
        self.modes.close_again({step.path for step in steps})
        if self.durable:
            self._sync(steps)
        note("restore:synced")

    def _place(self, files: list[Step], staged: list[tuple[Step, bytes]]) -> None:
        """Put all files in place, batch by batch; the first of them is staged."""
        done = 0
        while True:
            self.placing.all(staged)
            done += len(staged)
            note("restore:placed")
            if done == len(files):
                break
            staged = self._prepare(files, done)

    def _put_modes(self, steps: list[Step]) -> None:
        """Set modes from below upwards: a folder may be closed by its own."""
        for step in sorted(steps, key=lambda one: one.path, reverse=True):
            self.modes.put(step)

    def _sync(self, steps: list[Step]) -> None:
        """Make the tree durable: the folders in which something was changed if they are few, else the file system."""
        if len(steps) + len(self.closed) > preparing.FEW:
            self.system.sync(self.root)
            return
        paths = {step.path.rpartition(b"/")[0] for step in steps}
        # What was given a mode, and folders that were made, are to be synced themselves.
        paths |= {step.path for step in steps if step.action == MODE or (step.new and step.new.kind == FOLDER)}
        for path in sorted({*paths, *self.closed}):
            try:
                parent, last = self.folders.parent(path) if path else (self.root, b".")
                self.system.sync_file(parent, last)
            except OSError as error:
                if error.errno not in GONE:
                    raise
                self.system.sync(self.root)  # somebody has moved it: wherever it is, it is synced

    def _prepare(self, files: list[Step], start: int, built: bool = False) -> list[tuple[Step, bytes]]:
        return self.preparing.batch(files, start, self.progress, built)

    def _build(self, steps: list[Step], files: int) -> list[NewFolder]:
        """Build the folders that are not there. Where that is not possible, they are made one by one, as all others."""
        if not self.by_folder or files <= preparing.FEW or self.preparing.contents.cloning or not self.preparing.ours:
            return []
        from keepfast.workspace.new_folders import Building

        return Building(self.staging, self.system, self.preparing).build(steps, self.progress, files)

    def _apart(self, steps: list[Step]) -> list[Step]:
        """A mode is not set on a file that has other names: they may be none of our business. It is written anew."""
        return [
            Step(WRITE, step.old, step.new) if step.action == MODE and self._is_shared(step) else step for step in steps
        ]

    def _is_shared(self, step: Step) -> bool:
        if step.new is None or step.new.kind != FILE:
            return False
        try:
            parent, last = self.folders.parent(step.path)
            return stat(last, dir_fd=parent, follow_symlinks=False).st_nlink > 1
        except OSError:
            return False

    def _rescued(self, places: list[bytes]) -> None:
        self.done.aside += [(b"what a restore that was cut off had taken away", place) for place in places]


def _changes_type(step: Step) -> bool:
    """Must what is there go first: a folder for a file, a file for a folder, something unreadable?"""
    if step.action != WRITE or step.old is None or step.new is None:
        return False
    return (step.old.kind == FOLDER) != (step.new.kind == FOLDER) or step.old.kind not in (FILE, LINK, FOLDER)
