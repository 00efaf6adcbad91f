"""Execute a restore plan: stage, sync, exchange into place. Nothing leaves the root, nothing unsaved is removed."""

from __future__ import annotations

from collections.abc import Callable
from os import fstat, stat

from keepfast.fsutil.threads import Beside
from keepfast.model.entry import FILE, FOLDER, LINK
from keepfast.model.errors import KeepfastError
from keepfast.model.restore_plan import DELETE, MODE, WRITE, Plan, Step
from keepfast.model.steps import step as note
from keepfast.workspace import staged_files as stager
from keepfast.workspace.apply_result import MOVED_AWAY, ApplyResult
from keepfast.workspace.case_folds import refuse_folded
from keepfast.workspace.modes import Modes
from keepfast.workspace.new_folders import FolderBuilder, NewFolder
from keepfast.workspace.placement import Placement
from keepfast.workspace.staged_files import ContentSource, FileStager, Group, Stopped
from keepfast.workspace.staging_folder import Ids, Staging
from keepfast.workspace.system_calls import Folders, System


class Apply:
    """The execution of one plan on one root.

    `anchors` are existing files that others of their hard link group are linked to; `contents` reads the contents of
    files; `ids` computes the content ids of a stream. `is_saved(digest)` and `is_saved_link(target)` say whether a
    checkpoint has a file that an interrupted restore left behind: otherwise it is never removed. `closed` are folders that
    must be made writable meanwhile, with the modes that they keep. `touched`: was anything in the tree changed?
    """

    def __init__(
        self,
        root: int,
        anchors: dict[Group, bytes],
        contents: ContentSource,
        ids: Ids,
        is_saved: Callable[[bytes], bool],
        *,
        is_saved_link: Callable[[bytes], bool] = lambda target: False,
        closed: dict[bytes, int] | None = None,
        mtimes: bool = False,
        privileged: bool = False,
        durable: bool = True,
        deleting_first: bool = False,
        by_folder: bool = True,
        accelerated: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.root, self.is_saved, self.is_saved_link = root, is_saved, is_saved_link
        self.closed, self.durable, self.progress = closed or {}, durable, progress
        self.deleting_first, self.by_folder = deleting_first, by_folder and not deleting_first
        self.done, self.touched = ApplyResult(), False
        self._begun: Beside | None = None
        self.system = System(accelerated)
        self.folders = Folders(root, self.system)
        self.staging = Staging(root, ids)
        owner = fstat(root)
        self.stager = FileStager(
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
        self.placement = Placement(root, self.staging, self.folders, self.system, self.stager, self.done)
        self.modes = Modes(self.folders, self.stager.attributes, self.closed, self.done)

    def begin(self, plan: Plan) -> None:
        """Start to build missing folders in a thread, without touching anything in the tree.

        Continue with `run` and the same plan, or call `clean_up`. Raises `OSError`.
        """
        self.staging.open()
        steps = self._without_shared_mode_changes(plan.steps)
        files = sum([step.action == WRITE and step.new is not None and step.new.kind in (FILE, LINK) for step in steps])
        self._begun = Beside(lambda: self._build(steps, files))

    def clean_up(self) -> None:
        """Stop the thread, and remove what was staged."""
        self._stop()  # first, because the thread uses the descriptors that are closed next
        self.folders.close()
        try:
            self.stager.ahead.wait()
            self._report_set_aside(self.staging.close(self.is_saved, self.is_saved_link))
        except OSError:
            pass  # the next restore sweeps it

    def _stop(self) -> None:
        """Wait until the thread has stopped writing."""
        if self._begun is None:
            return
        self.stager.stopped = True
        try:
            self._begun.result()
        except (Stopped, OSError, KeepfastError):
            pass  # `run` has raised it already, or the result is not needed

    def run(self, plan: Plan) -> ApplyResult:
        """Execute the plan. Raises `OSError` if the disk fails: completed steps stay, the journal has the rest."""
        try:
            if self._begun is None:
                self.staging.open()
            refuse_folded(plan, self.root, self.staging.fd, self.system)
            self._report_set_aside(self.staging.sweep_old(self.is_saved, self.is_saved_link))
            self._run(self._without_shared_mode_changes(plan.steps))
        finally:
            self.clean_up()
        return self.done

    def _run(self, steps: list[Step]) -> None:
        writes = [step for step in steps if step.action == WRITE and step.new is not None]
        files = [step for step in writes if step.new.kind in (FILE, LINK)]  # type: ignore[union-attr]
        folders = [step for step in writes if step.new.kind == FOLDER]  # type: ignore[union-attr]
        # Nothing is touched before the new contents are on disk, unless space requires to delete first.
        built: list[NewFolder] = self._build(steps, len(files)) if self._begun is None else self._begun.result()
        if built:
            inside = {step.path for folder in built for step in folder.files}
            files = [step for step in files if step.path not in inside]
        staged = [] if self.deleting_first else self._prepare(files, 0, bool(built))
        self.touched = True
        self.modes.open_closed()
        self.placement.delete([step for step in steps if step.action == DELETE or _changes_type(step)])
        note("restore:deleted")
        created = self.placement.whole(built)
        for step in folders:
            if step.path not in created:
                self.placement.folder(step)
        note("restore:folders")
        self._place(files, staged)
        unfinished = [step for step in folders if not created.get(step.path)]
        self._put_modes([step for step in steps if step.action == MODE] + unfinished)
        self.modes.close_again({step.path for step in steps})
        if self.durable:
            self._sync(steps)
        note("restore:synced")

    def _place(self, files: list[Step], staged: list[tuple[Step, bytes]]) -> None:
        """Put all files in place, batch by batch; the first batch is staged already."""
        done = 0
        while True:
            self.placement.all(staged)
            done += len(staged)
            note("restore:placed")
            if done == len(files):
                break
            staged = self._prepare(files, done)

    def _put_modes(self, steps: list[Step]) -> None:
        """Set modes bottom-up: a folder's own mode may make it inaccessible."""
        for step in sorted(steps, key=lambda one: one.path, reverse=True):
            self.modes.put(step)

    def _sync(self, steps: list[Step]) -> None:
        """Make the changes durable: sync the changed folders if they are few, otherwise the file system."""
        if len(steps) + len(self.closed) > stager.FEW:
            self.system.sync(self.root)
            return
        paths = {step.path.rpartition(b"/")[0] for step in steps}
        # Paths with a new mode, and new folders, must be synced themselves.
        paths |= {step.path for step in steps if step.action == MODE or (step.new and step.new.kind == FOLDER)}
        for path in sorted({*paths, *self.closed}):
            try:
                parent, last = self.folders.parent(path) if path else (self.root, b".")
                self.system.sync_file(parent, last)
            except OSError as error:
                if error.errno not in MOVED_AWAY:
                    raise
                self.system.sync(self.root)  # it was moved away: this syncs it wherever it is now

    def _prepare(self, files: list[Step], start: int, built: bool = False) -> list[tuple[Step, bytes]]:
        return self.stager.batch(files, start, self.progress, built)

    def _build(self, steps: list[Step], files: int) -> list[NewFolder]:
        """Build missing folders as a whole. If that is not possible, their files are placed one by one like all others."""
        if not self.by_folder or files <= stager.FEW or self.stager.contents.cloning or not self.stager.owns_new_files:
            return []
        return FolderBuilder(self.staging, self.system, self.stager).build(steps, self.progress, files)

    def _without_shared_mode_changes(self, steps: list[Step]) -> list[Step]:
        """Turn mode changes of files with other hard links into writes: the other links may lie outside of the workspace."""
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

    def _report_set_aside(self, places: list[bytes]) -> None:
        self.done.aside += [(b"left over from an interrupted restore", place) for place in places]


def _changes_type(step: Step) -> bool:
    """Return whether the old entry must be deleted first: a folder for a file, a file for a folder, something unreadable."""
    if step.action != WRITE or step.old is None or step.new is None:
        return False
    return (step.old.kind == FOLDER) != (step.new.kind == FOLDER) or step.old.kind not in (FILE, LINK, FOLDER)
