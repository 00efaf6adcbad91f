"""Put staged entries into the tree and remove old ones, without losing what other processes write meanwhile."""

from __future__ import annotations

from errno import EEXIST, ENOTEMPTY
from os import close, mkdir, rmdir, stat
from stat import S_ISDIR

from keepfast.model.entry import FILE, FOLDER, LINK, Entry
from keepfast.model.restore_plan import DELETE, Step
from keepfast.workspace.apply_result import MOVED_AWAY, SINGLE_PATH_ERRORS, ApplyResult, reason
from keepfast.workspace.new_folders import NewFolder
from keepfast.workspace.staged_files import MANY, FileStager, group_of
from keepfast.workspace.staging_folder import BUSY, CHANGED, REMOVED, Staging
from keepfast.workspace.system_calls import EXCHANGE, NOREPLACE, Folders, System

ATTEMPTS = 8
CHANGED_MEANWHILE = "it changed while it was being restored"


class Placement:
    """Moves entries from the staging folder to their place below the root, and removes what the plan deletes."""

    def __init__(
        self, root: int, staging: Staging, folders: Folders, system: System, stager: FileStager, done: ApplyResult
    ) -> None:
        self.root, self.staging, self.folders, self.system = root, staging, folders, system
        self.stager, self.done = stager, done

    # Folders

    def folder(self, step: Step) -> None:
        try:
            parent, last = self.open_parent(step.path)
            mkdir(last, 0o700, dir_fd=parent)
            self.done.written += 1
        except FileExistsError:
            if not S_ISDIR(stat(last, dir_fd=parent, follow_symlinks=False).st_mode):
                self.done.leave(step.path, "another file took its place")
        except OSError as error:
            if error.errno not in SINGLE_PATH_ERRORS:
                raise
            self.done.leave(step.path, reason(error))

    def whole(self, built: list[NewFolder]) -> dict[bytes, bool]:
        """Put built folders in place; return, for the path of every folder in them, whether its mode is set."""
        is_mode_set: dict[bytes, bool] = {}
        for folder in built:
            try:
                parent, last = self.open_parent(folder.path)
                self.system.rename(self.staging.fd, folder.name, parent, last, NOREPLACE)
            except OSError as error:
                if error.errno not in (*SINGLE_PATH_ERRORS, EEXIST, ENOTEMPTY):
                    raise
                is_mode_set.update((step.path, False) for step in folder.folders)
                self._place_one_by_one(folder)
                continue
            self.done.written += len(folder.folders) + len(folder.files)
            is_mode_set.update((step.path, folder.has_mode(step)) for step in folder.folders)
        return is_mode_set

    def _place_one_by_one(self, folder: NewFolder) -> None:
        """Place everything in a built folder by itself: the folder exists by now, or cannot be put in place."""
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
                    self.one(step, name)  # this finds out why
                else:
                    self._note_placed(step)
            for step, name in part:
                if step.old is not None:
                    self.one(step, name)

    def _note_placed(self, step: Step) -> None:
        self.done.written += 1
        if step.new is not None and step.new.group:
            self.stager.placed.setdefault(group_of(step.new), step.path)

    def one(self, step: Step, name: bytes) -> None:
        assert step.new is not None
        try:
            if step.path in self.done.filled:
                raise FileExistsError(EEXIST, "a folder with excluded files is in its place")
            parent, last = self.open_parent(step.path)
            if not self._swap(step, name, parent, last):
                return
        except OSError as error:
            if error.errno not in (*SINGLE_PATH_ERRORS, EEXIST):
                raise
            self.done.leave(step.path, reason(error))
            self.staging.discard(name)
            return
        self._note_placed(step)

    def open_parent(self, path: bytes) -> tuple[int, bytes]:
        """Open the folder of `path`, creating it if missing: a checkpoint of a few paths may have no row for it."""
        try:
            return self.folders.parent(path)
        except FileNotFoundError:
            self._make_parents(path.split(b"/")[:-1])
            return self.folders.parent(path)

    def _make_parents(self, parts: list[bytes]) -> None:
        """Create the missing folders, from the top. There may be thousands."""
        existing, missing = 0, len(parts)  # binary search, because each check walks from the root
        while missing - existing > 1:
            middle = (existing + missing) // 2
            try:
                close(self.system.open_folder(self.root, b"/".join(parts[:middle])))
                existing = middle
            except FileNotFoundError:
                missing = middle
        fd = self.system.open_folder(self.root, b"/".join(parts[:existing]))
        try:
            for part in parts[existing:]:
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
        """Put the staged file in place. Return False if a file of another process is there and stays."""
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
                continue  # it was removed in between
            except OSError:
                self.staging.settle(name, step.new)
                raise
            return self._settle_displaced(step, name, parent, last)
        self.done.leave(step.path, "other processes keep creating and deleting it")
        self.staging.settle(name, step.new)
        return False

    def _settle_displaced(self, step: Step, name: bytes, parent: int, last: bytes) -> bool:
        """Settle the old entry, which is `name` after an exchange. If it is not what the plan expects, exchange it back."""
        verdict = self.staging.settle(name, step.old)
        if verdict == BUSY:
            self._put_aside(step.path, name)
        if verdict != CHANGED:
            return True
        self.done.leave(step.path, CHANGED_MEANWHILE)
        if not self._exchange_or_put(name, parent, last):
            self._put_aside(step.path, name)
        elif self._is_staged(name) and self.staging.settle(name, step.new) != REMOVED:
            # It was written again meanwhile: the newest stays in place, the one before it is moved aside.
            self._exchange_or_put(name, parent, last)
            if self._is_staged(name):
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

    def _is_staged(self, name: bytes) -> bool:
        try:
            stat(name, dir_fd=self.staging.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    # Deleting

    def delete(self, steps: list[Step]) -> None:
        for step in sorted(steps, key=lambda one: one.path, reverse=True):  # the contents of a folder before the folder
            assert step.old is not None
            try:
                parent, last = self.folders.parent(step.path)
                if step.old.kind == FOLDER:
                    rmdir(last, dir_fd=parent)
                    self.done.deleted += step.action == DELETE
                else:
                    self._remove(step, step.old, parent, last)
            except OSError as error:
                if error.errno in (ENOTEMPTY, EEXIST):
                    self.done.filled.append(step.path)
                elif error.errno in SINGLE_PATH_ERRORS and error.errno not in MOVED_AWAY:
                    self.done.leave(step.path, reason(error))
                elif error.errno not in MOVED_AWAY:
                    raise

    def _remove(self, step: Step, old: Entry, parent: int, last: bytes) -> None:
        name = self.staging.new()
        self.system.rename(parent, last, self.staging.fd, name, NOREPLACE)
        if old.kind not in (FILE, LINK):
            self._put_aside(step.path, name)  # never remove what cannot be captured
            return
        verdict = self.staging.settle(name, old)
        if verdict == BUSY:
            self._put_aside(step.path, name)
        if verdict != CHANGED:
            self.done.deleted += step.action == DELETE
            return
        self.done.leave(step.path, CHANGED_MEANWHILE)
        try:
            self.system.rename(self.staging.fd, name, parent, last, NOREPLACE)
        except OSError:
            self._put_aside(step.path, name)

    def _put_aside(self, path: bytes, name: bytes) -> None:
        self.done.aside.append((path, self.staging.put_aside(path, name)))
