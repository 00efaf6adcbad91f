"""What was prepared goes into the tree and what was there goes out of it; nobody else's work is lost on the way."""

from __future__ import annotations

from errno import EEXIST, ENOTEMPTY
from posix import close, mkdir, rmdir, stat
from stat import S_ISDIR

from keepfast.model.entry import FILE, FOLDER, LINK, Entry
from keepfast.model.restore_plan import DELETE, Step
from keepfast.workspace.apply_result import GONE, REFUSED, Applied, reason
from keepfast.workspace.staged_files import MANY, Preparing, group_of
from keepfast.workspace.staging_folder import BUSY, CHANGED, REMOVED, Staging
from keepfast.workspace.system_calls import EXCHANGE, NOREPLACE, Folders, System

TYPE_CHECKING = False
if TYPE_CHECKING:
    from keepfast.workspace.new_folders import NewFolder

ATTEMPTS = 8
RACED = "it changed while it was being restored"


class Placing:
    """Puts what lies in the staging folder where it belongs below the root, and takes away what shall go."""

    def __init__(
        self, root: int, staging: Staging, folders: Folders, system: System, preparing: Preparing, done: Applied
    ) -> None:
        self.root, self.staging, self.folders, self.system = root, staging, folders, system
        self.preparing, self.done = preparing, done

    # Folders

    def folder(self, step: Step) -> None:
        try:
            parent, last = self.parent_made(step.path)
            mkdir(last, 0o700, dir_fd=parent)
            self.done.written += 1
        except FileExistsError:
            if not S_ISDIR(stat(last, dir_fd=parent, follow_symlinks=False).st_mode):
                self.done.keep(step.path, "another file took its place")
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            self.done.keep(step.path, reason(error))

    def whole(self, built: list[NewFolder]) -> dict[bytes, bool]:
        """Put them in place; return the paths of all folders in them, and whether they have their mode."""
        there: dict[bytes, bool] = {}
        for folder in built:
            try:
                parent, last = self.parent_made(folder.path)
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
            self.folder(step)
        for step in folder.files:
            self.one(step, folder.take_out(step, self.staging, self.system))

    # Files

    def all(self, staged: list[tuple[Step, bytes]]) -> None:
        if self.system.native is None or self.done.filled:
            for step, name in staged:
                self.one(step, name)
            return
        for at in range(0, len(staged), MANY):
            part = staged[at : at + MANY]
            new = [(step, name) for step, name in part if step.old is None]
            failed = set(
                self.system.native.place(self.staging.fd, self.root, [(name, step.path) for step, name in new])
            )
            for number, (step, name) in enumerate(new):
                if number in failed:
                    self.one(step, name)  # which finds out why
                else:
                    self._is_placed(step)
            for step, name in part:
                if step.old is not None:
                    self.one(step, name)

    def _is_placed(self, step: Step) -> None:
        self.done.written += 1
        if step.new is not None and step.new.group:
            self.preparing.placed.setdefault(group_of(step.new), step.path)

    def one(self, step: Step, name: bytes) -> None:
        assert step.new is not None
        try:
            if step.path in self.done.filled:
                raise FileExistsError(EEXIST, "a folder with excluded files is in its place")
            parent, last = self.parent_made(step.path)
            if not self._swap(step, name, parent, last):
                return
        except OSError as error:
            if error.errno not in (*REFUSED, EEXIST):
                raise
            self.done.keep(step.path, reason(error))
            self.staging.discard(name)
            return
        self._is_placed(step)

    def parent_made(self, path: bytes) -> tuple[int, bytes]:
        """The folder of `path`, made if it is missing: a checkpoint of a few paths need not have a row for it."""
        try:
            return self.folders.parent(path)
        except FileNotFoundError:
            self._make_parents(path.split(b"/")[:-1])
            return self.folders.parent(path)

    def _make_parents(self, parts: list[bytes]) -> None:
        """Make what is missing of a folder, from the top: there may be thousands above it."""
        there, missing = 0, len(parts)  # what lies between is found by halving: each look walks from the root
        while missing - there > 1:
            middle = (there + missing) // 2
            try:
                close(self.system.open_folder(self.root, b"/".join(parts[:middle])))
                there = middle
            except FileNotFoundError:
                missing = middle
        fd = self.system.open_folder(self.root, b"/".join(parts[:there]))
        try:
            for part in parts[there:]:
                try:
                    mkdir(part, 0o755, dir_fd=fd)
                except FileExistsError:
                    pass
                further = self.system.open_folder(fd, part)
                close(fd)
                fd = further
        finally:
            close(fd)

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
        self.done.keep(step.path, "other processes keep creating and deleting it")
        self.staging.settle(name, step.new)
        return False

    def _settle_displaced(self, step: Step, name: bytes, parent: int, last: bytes) -> bool:
        """After an exchange, `name` is what was there. If it is not what the plan saw, it goes back."""
        verdict = self.staging.settle(name, step.old)
        if verdict == BUSY:
            self._put_aside(step.path, name)
        if verdict != CHANGED:
            return True
        self.done.keep(step.path, RACED)
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

    def delete(self, steps: list[Step]) -> None:
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
                    self.done.keep(step.path, reason(error))
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
        self.done.keep(step.path, RACED)
        try:
            self.system.rename(self.staging.fd, name, parent, last, NOREPLACE)
        except OSError:
            self._put_aside(step.path, name)

    def _put_aside(self, path: bytes, name: bytes) -> None:
        self.done.aside.append((path, self.staging.put_aside(path, name)))
