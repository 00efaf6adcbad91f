"""Set modes in the tree without following links; find folders that their owner cannot write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from errno import ENOTDIR
from os import O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, close, fchmod, fstat, geteuid, stat
from os import open as open_fd
from stat import S_IMODE, S_ISDIR, S_ISREG

from keepfast.model.entry import FOLDER, LINK, Entry
from keepfast.model.restore_plan import MODE, Step
from keepfast.workspace.apply_result import SINGLE_PATH_ERRORS, ApplyResult, reason
from keepfast.workspace.system_calls import Folders, System, chmod_below


class Modes:
    """Sets modes below one root. `closed` are folders to be opened for writing, with the modes that they shall keep.

    `attributes(entry, name, descriptor)` gives something its owner and its extended attributes.
    """

    def __init__(
        self,
        folders: Folders,
        attributes: Callable[[Entry, bytes, int], None],
        closed: dict[bytes, int],
        done: ApplyResult,
    ) -> None:
        self.folders, self.attributes, self.closed, self.done = folders, attributes, closed, done

    def put(self, step: Step) -> None:
        entry = step.new
        assert entry is not None
        if entry.kind == LINK:
            return
        try:
            parent, last = self.folders.parent(entry.path)
            self._set(parent, last, entry.mode, entry.kind == FOLDER, entry)
            self.done.modes += step.action == MODE
        except OSError as error:
            if error.errno not in SINGLE_PATH_ERRORS:
                raise
            self.done.leave(entry.path, f"its mode could not be set ({reason(error)})")

    def _set(self, parent: int, last: bytes, mode: int, is_folder: bool, entry: Entry | None = None) -> None:
        """Set the mode of the current entry, if it is of that type; never through a link. Raises `OSError`."""
        seen = stat(last, dir_fd=parent, follow_symlinks=False)
        if S_ISDIR(seen.st_mode) != is_folder or not (is_folder or S_ISREG(seen.st_mode)):
            raise NotADirectoryError(ENOTDIR, "another file took its place")
        try:
            fd = open_fd(last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=parent)
        except PermissionError:
            chmod_below(
                parent, last, mode, is_folder
            )  # its owner may change the mode even without permission to open it
            return
        try:
            if S_ISDIR(fstat(fd).st_mode) != is_folder:
                raise NotADirectoryError(ENOTDIR, "another file took its place")
            if entry is not None:
                self.attributes(entry, last, fd)
            fchmod(fd, mode)
        finally:
            close(fd)

    def open_closed(self) -> None:
        """Make folders writable that even their owner cannot write."""
        for path, mode in sorted(self.closed.items()):  # a folder before those in it
            self._set_folder(path, mode | 0o700)

    def close_again(self, planned: set[bytes]) -> None:
        for path, mode in sorted(self.closed.items(), reverse=True):
            if path not in planned:
                self._set_folder(path, mode)

    def _set_folder(self, path: bytes, mode: int) -> None:
        try:
            parent, last = self.folders.parent(path)
            self._set(parent, last, mode, True)
        except OSError as error:
            if error.errno not in SINGLE_PATH_ERRORS:
                raise  # otherwise, paths in it stay untouched and are reported


def closed_folders(root: int, paths: Iterable[bytes]) -> dict[bytes, int]:
    """Return the folders of these paths that their owner cannot write, with their modes."""
    modes: dict[bytes, int] = {}
    if geteuid() == 0:
        return modes
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
                continue  # it does not exist yet
            if mode & 0o300 != 0o300:
                modes[folder] = mode
    finally:
        folders.close()
    return modes
