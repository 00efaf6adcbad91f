"""Carrying out a plan: staged, synced, exchanged into place; nothing leaves the root, nothing unsaved is removed."""

from __future__ import annotations

from errno import EACCES, EBUSY, EEXIST, ELOOP, ENOENT, ENOTDIR, ENOTEMPTY, EPERM, ETXTBSY, EXDEV
from posix import O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, close, fchmod, fstat, geteuid, mkdir, rmdir, stat
from posix import open as open_fd
from stat import S_IMODE, S_ISDIR, S_ISREG

from holdfast.core.entry import FILE, FOLDER, LINK, Entry
from holdfast.core.planning import DELETE, MODE, WRITE, Plan, Step
from holdfast.core.steps import step as note
from holdfast.workspace import preparing
from holdfast.workspace.folding import refuse_folded
from holdfast.workspace.preparing import MANY, Contents, Preparing, group_of
from holdfast.workspace.staging import BUSY, CHANGED, REMOVED, Staging
from holdfast.workspace.system import EXCHANGE, NOREPLACE, Folders, System, chmod_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.workspace.building import NewFolder
    from holdfast.workspace.preparing import Group

ATTEMPTS = 8
GONE = (ENOENT, ENOTDIR, ELOOP)
"""Errors of a path that is no longer where it was."""
REFUSED = (EACCES, EPERM, EBUSY, EXDEV, ETXTBSY, *GONE)
"""Errors that speak of one path only: it is left as it is, and named. All others end the restore."""
RACED = "it was changed while it was being restored"


class Applied:
    """What was done, and what was left because somebody else was faster or nobody may touch it."""

    def __init__(self) -> None:
        self.written = self.deleted = self.modes = 0
        self.kept: list[tuple[bytes, str]] = []
        """Paths that are not as planned, and why."""
        self.filled: list[bytes] = []
        """Folders that stay because they hold something that is not captured."""
        self.aside: list[tuple[bytes, bytes]] = []
        """What was moved out of the way: from where, to where."""


class Apply:
    """One plan on one root.

    `anchors` are files already in place to which others of their group are to be linked; `contents` gives what files
    hold; `ids(read)` the ids that a stream has as a content. `known(digest)` and `known_link(target)` say whether a
    checkpoint has what a restore that was cut off left behind: what none has is never removed. `closed` are folders
    that must be opened for writing meanwhile, with the modes that they have and shall keep. `touched` tells whether
    anything in the tree was changed.
    """

    def __init__(
        self,
        root: int,
        anchors: dict[Group, bytes],
        contents: Contents,
        ids: Callable[[Callable[[int], bytes]], Sequence[bytes]],
        known: Callable[[bytes], bool],
        *,
        known_link: Callable[[bytes], bool] = lambda target: False,
        closed: dict[bytes, int] | None = None,
        mtimes: bool = False,
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
        )

    def run(self, plan: Plan) -> Applied:
        """Carry out the plan. Raises `OSError` where the disk fails: what was done stays, the journal has the rest."""
        try:
            self.staging.open()
            refuse_folded(plan, self.root, self.staging.fd, self.system)
            self._rescued(self.staging.sweep_old(self.known, self.known_link))
            self._run(self._apart(plan.steps))
        finally:
            self.folders.close()
            try:
                self.preparing.ahead.wait()
                self._rescued(self.staging.close(self.known, self.known_link))
            except OSError:
                pass  # the next restore sweeps it
        return self.done

    def _run(self, steps: list[Step]) -> None:
        writes = [step for step in steps if step.action == WRITE and step.new is not None]
        files = [step for step in writes if step.new.kind in (FILE, LINK)]  # type: ignore[union-attr]
        folders = [step for step in writes if step.new.kind == FOLDER]  # type: ignore[union-attr]
        # As a rule nothing is touched before the new contents are on disk.
        built = self._build(steps, len(files))
        if built:
            inside = {step.path for folder in built for step in folder.files}
            files = [step for step in files if step.path not in inside]
        staged = [] if self.deleting_first else self._prepare(files, 0, bool(built))
        self.touched = True
        self._open_closed()
        self._delete([step for step in steps if step.action == DELETE or _changes_type(step)])
        note("restore:deleted")
        made = self._put_folders(built)
        for step in folders:
            if step.path not in made:
                self._make_folder(step)
        note("restore:folders")
        done = 0
        while True:
            self._place_all(staged)
            done += len(staged)
            note("restore:placed")
            if done == len(files):
                break
            staged = self._prepare(files, done)
        unfinished = [step for step in folders if not made.get(step.path)]
        modes = [step for step in steps if step.action == MODE] + unfinished
        for step in sorted(modes, key=lambda one: one.path, reverse=True):
            self._mode(step)
        self._close_again({step.path for step in steps})
        if self.durable:
            self._sync(steps)
        note("restore:synced")

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

    # New folders, as a whole

    def _build(self, steps: list[Step], files: int) -> list[NewFolder]:
        """Build the folders that are not there. Where that is not possible, they are made one by one, as all others."""
        if not self.by_folder or files <= preparing.FEW or self.preparing.contents.cloning or not self.preparing.ours:
            return []
        from holdfast.workspace.building import Building

        return Building(self.staging, self.system, self.preparing).build(steps, self.progress, files)

    def _put_folders(self, built: list[NewFolder]) -> dict[bytes, bool]:
        """Put them in place; return the paths of all folders in them, and whether they have their mode."""
        there: dict[bytes, bool] = {}
        for folder in built:
            try:
                parent, last = self._parent_made(folder.path)
                self.system.rename(self.staging.fd, folder.name, parent, last, NOREPLACE)
            except OSError as error:
                if error.errno not in (*REFUSED, EEXIST, ENOTEMPTY):
                    raise
                there.update((step.path, False) for step in folder.folders)
                self._take_apart(folder)
                continue
            self.done.written += len(folder.folders) + len(folder.files)
            there.update((step.path, folder.has_mode(step)) for step in folder.folders)
        return there

    def _take_apart(self, folder: NewFolder) -> None:
        """Somebody has made the folder meanwhile, or it cannot be put there: everything in it goes its own way."""
        for step in folder.folders:
            self._make_folder(step)
        for step in folder.files:
            self._place(step, folder.take_out(step, self.staging, self.system))

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

    # Putting in place

    def _place_all(self, staged: list[tuple[Step, bytes]]) -> None:
        if self.system.native is None or self.done.filled:
            for step, name in staged:
                self._place(step, name)
            return
        for at in range(0, len(staged), MANY):
            part = staged[at : at + MANY]
            new = [(step, name) for step, name in part if step.old is None]
            failed = set(
                self.system.native.place(self.staging.fd, self.root, [(name, step.path) for step, name in new])
            )
            for number, (step, name) in enumerate(new):
                if number in failed:
                    self._place(step, name)  # which finds out why
                else:
                    self._is_placed(step)
            for step, name in part:
                if step.old is not None:
                    self._place(step, name)

    def _is_placed(self, step: Step) -> None:
        self.done.written += 1
        if step.new is not None and step.new.group:
            self.preparing.placed.setdefault(group_of(step.new), step.path)

    def _place(self, step: Step, name: bytes) -> None:
        assert step.new is not None
        try:
            if step.path in self.done.filled:
                raise FileExistsError(EEXIST, "a folder is in its place that holds something which is not captured")
            parent, last = self._parent_made(step.path)
            if not self._swap(step, name, parent, last):
                return
        except OSError as error:
            if error.errno not in (*REFUSED, EEXIST):
                raise
            self._keep(step.path, _reason(error))
            self.staging.discard(name)
            return
        self._is_placed(step)

    def _parent_made(self, path: bytes) -> tuple[int, bytes]:
        """The folder of `path`, made if it is missing: a checkpoint of a few paths need not have a row for it."""
        try:
            return self.folders.parent(path)
        except FileNotFoundError:
            folder = path.rpartition(b"/")[0]
            parent, last = self._parent_made(folder)
            try:
                mkdir(last, 0o755, dir_fd=parent)
            except FileExistsError:
                pass
            return self.folders.parent(path)

    def _swap(self, step: Step, name: bytes, parent: int, last: bytes) -> bool:
        """Put the staged file there. False if somebody else's work is there and stays."""
        for _ in range(ATTEMPTS):
            try:
                self.system.rename(self.staging.fd, name, parent, last, NOREPLACE)
                return True
            except FileExistsError:
                pass
            name = self.staging.lend(name)
            try:
                self.system.rename(self.staging.fd, name, parent, last, EXCHANGE)
            except FileNotFoundError:
                continue  # it went in between
            except OSError:
                self.staging.settle(name, step.new)
                raise
            return self._settle_displaced(step, name, parent, last)
        self._keep(step.path, "it comes and goes")
        self.staging.settle(name, step.new)
        return False

    def _settle_displaced(self, step: Step, name: bytes, parent: int, last: bytes) -> bool:
        """After an exchange, `name` is what was there. If it is not what the plan saw, it goes back."""
        verdict = self.staging.settle(name, step.old)
        if verdict == BUSY:
            self._put_aside(step.path, name)
        if verdict != CHANGED:
            return True
        self._keep(step.path, RACED)
        if not self._exchange_or_put(name, parent, last):
            self._put_aside(step.path, name)
        elif self._is_there(name) and self.staging.settle(name, step.new) != REMOVED:
            # They were there again in the meantime: the newest stays in place, the one before it is put aside.
            self._exchange_or_put(name, parent, last)
            if self._is_there(name):
                self._put_aside(step.path, name)
        return False

    def _exchange_or_put(self, name: bytes, parent: int, last: bytes) -> bool:
        for _ in range(ATTEMPTS):
            for flags in (EXCHANGE, NOREPLACE):
                try:
                    self.system.rename(self.staging.fd, name, parent, last, flags)
                    return True
                except (FileNotFoundError, FileExistsError):
                    continue
        return False

    def _is_there(self, name: bytes) -> bool:
        try:
            stat(name, dir_fd=self.staging.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    # Deleting

    def _delete(self, steps: list[Step]) -> None:
        for step in sorted(steps, key=lambda one: one.path, reverse=True):  # what lies in a folder goes before it
            assert step.old is not None
            try:
                parent, last = self.folders.parent(step.path)
                if step.old.kind == FOLDER:
                    rmdir(last, dir_fd=parent)
                    self.done.deleted += step.action == DELETE
                else:
                    self._take_away(step, step.old, parent, last)
            except OSError as error:
                if error.errno in (ENOTEMPTY, EEXIST):
                    self.done.filled.append(step.path)
                elif error.errno in REFUSED and error.errno not in GONE:
                    self._keep(step.path, _reason(error))
                elif error.errno not in GONE:
                    raise

    def _take_away(self, step: Step, old: Entry, parent: int, last: bytes) -> None:
        name = self.staging.new()
        self.system.rename(parent, last, self.staging.fd, name, NOREPLACE)
        if old.kind not in (FILE, LINK):
            self._put_aside(step.path, name)  # what cannot be captured cannot be removed either
            return
        verdict = self.staging.settle(name, old)
        if verdict == BUSY:
            self._put_aside(step.path, name)
        if verdict != CHANGED:
            self.done.deleted += step.action == DELETE
            return
        self._keep(step.path, RACED)
        try:
            self.system.rename(self.staging.fd, name, parent, last, NOREPLACE)
        except OSError:
            self._put_aside(step.path, name)

    # Folders and modes

    def _make_folder(self, step: Step) -> None:
        try:
            parent, last = self._parent_made(step.path)
            mkdir(last, 0o700, dir_fd=parent)
            self.done.written += 1
        except FileExistsError:
            if not S_ISDIR(stat(last, dir_fd=parent, follow_symlinks=False).st_mode):
                self._keep(step.path, "something else is in its place")
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            self._keep(step.path, _reason(error))

    def _mode(self, step: Step) -> None:
        entry = step.new
        assert entry is not None
        if entry.kind == LINK:
            return
        try:
            parent, last = self.folders.parent(entry.path)
            self._set_mode(parent, last, entry.mode, entry.kind == FOLDER, entry)
            self.done.modes += step.action == MODE
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            self._keep(entry.path, f"its mode could not be set ({_reason(error)})")

    def _set_mode(self, parent: int, last: bytes, mode: int, is_folder: bool, entry: Entry | None = None) -> None:
        """Set the mode of what is there now, if it is of that kind; never through a link. Raises `OSError`."""
        seen = stat(last, dir_fd=parent, follow_symlinks=False)
        if S_ISDIR(seen.st_mode) != is_folder or not (is_folder or S_ISREG(seen.st_mode)):
            raise NotADirectoryError(ENOTDIR, "something else is in its place")
        try:
            fd = open_fd(last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=parent)
        except PermissionError:
            chmod_below(parent, last, mode, is_folder)  # whoever may not open it may still be its owner
            return
        try:
            if S_ISDIR(fstat(fd).st_mode) != is_folder:
                raise NotADirectoryError(ENOTDIR, "something else is in its place")
            if entry is not None:
                self.preparing.attributes(entry, last, fd)
            fchmod(fd, mode)
        finally:
            close(fd)

    def _open_closed(self) -> None:
        """Let ourselves write into folders that are closed even to their owner."""
        for path, mode in sorted(self.closed.items()):  # a folder before those in it
            self._set_folder_mode(path, mode | 0o700)

    def _close_again(self, planned: set[bytes]) -> None:
        for path, mode in sorted(self.closed.items(), reverse=True):
            if path not in planned:
                self._set_folder_mode(path, mode)

    def _set_folder_mode(self, path: bytes, mode: int) -> None:
        try:
            parent, last = self.folders.parent(path)
            self._set_mode(parent, last, mode, True)
        except OSError as error:
            if error.errno not in REFUSED:
                raise  # else what cannot be written there is kept, and says so

    # What is told

    def _keep(self, path: bytes, why: str) -> None:
        self.done.kept.append((path, why))

    def _put_aside(self, path: bytes, name: bytes) -> None:
        self.done.aside.append((path, self.staging.put_aside(path, name)))

    def _rescued(self, places: list[bytes]) -> None:
        self.done.aside += [(b"what a restore that was cut off had taken away", place) for place in places]


def closed_folders(root: int, paths: Iterable[bytes]) -> dict[bytes, int]:
    """Folders that hold these paths and that we may not write into although they may be ours, with their modes."""
    found: dict[bytes, int] = {}
    if geteuid() == 0:
        return found
    folders, seen = Folders(root, System()), set[bytes]()
    try:
        for path in paths:
            folder = path.rpartition(b"/")[0]
            if not folder or folder in seen:
                continue
            seen.add(folder)
            try:
                parent, last = folders.parent(folder)
                mode = S_IMODE(stat(last, dir_fd=parent, follow_symlinks=False).st_mode)
            except OSError:
                continue  # it is not there yet
            if mode & 0o300 != 0o300:
                found[folder] = mode
    finally:
        folders.close()
    return found


def _changes_type(step: Step) -> bool:
    """Must what is there go first: a folder for a file, a file for a folder, something unreadable?"""
    if step.action != WRITE or step.old is None or step.new is None:
        return False
    return (step.old.kind == FOLDER) != (step.new.kind == FOLDER) or step.old.kind not in (FILE, LINK, FOLDER)


def _reason(error: OSError) -> str:
    if error.errno in GONE:
        return "its folder is not there any more, or something else is in its place"
    if error.errno == EXDEV:
        return "it lies on another file system"
    return error.strerror or str(error)
