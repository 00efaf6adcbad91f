"""Missing folders: built in the staging folder with their files, and put in place by one rename each."""

from __future__ import annotations

from collections.abc import Callable
from os import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_RDONLY, close, fchmod, mkdir, rename
from os import open as open_fd

from keepfast.fsutil.descriptors import LONG
from keepfast.fsutil.threads import share
from keepfast.model.entry import ATTRIBUTES, FOLDER
from keepfast.model.restore_plan import WRITE, Step
from keepfast.workspace.staged_files import MANY, FileStager, is_simple
from keepfast.workspace.staging_folder import Staging
from keepfast.workspace.system_calls import System

OPEN = 0o700
"""Permissions that we need on a folder until it is complete."""
ROOM = 32
"""Maximum by which a path in the staging folder may be longer than the final path."""


class NewFolder:
    """The topmost of some missing folders, with the steps for all folders and simple files in it."""

    __slots__ = ("files", "folders", "name", "path")

    def __init__(self, path: bytes) -> None:
        self.path, self.name = path, b""
        self.folders: list[Step] = []
        self.files: list[Step] = []

    def staged(self, path: bytes) -> bytes:
        """Return the path below the staging folder where `path` is built."""
        return self.name + path[len(self.path) :]

    @staticmethod
    def has_mode(step: Step) -> bool:
        """Return whether the folder is built with its final mode. One that its owner cannot write gets it after its contents."""
        return step.new is not None and not step.new.flags & ATTRIBUTES and step.new.mode & OPEN == OPEN

    def take_out(self, step: Step, staging: Staging, system: System) -> bytes:
        """Move a file out of a folder that could not be put in place; return the name that it has now."""
        above, _, last = self.staged(step.path).rpartition(b"/")
        name = staging.own()
        parent = system.open_folder(staging.fd, above)
        try:
            rename(last, name, src_dir_fd=parent, dst_dir_fd=staging.fd)
        finally:
            close(parent)
        return name


def new_folders(steps: list[Step]) -> list[NewFolder]:
    """Return every topmost missing folder that the steps, sorted by path, create, without entries that are not simple."""
    topmost: list[NewFolder] = []
    owners: dict[bytes, NewFolder] = {}
    for step in steps:
        new = step.new
        if new is None or step.old is not None or step.action != WRITE or len(step.path) > LONG - ROOM:
            continue
        owner = owners.get(step.path.rpartition(b"/")[0])
        if new.kind == FOLDER:
            if owner is None:
                owner = NewFolder(step.path)
                topmost.append(owner)
            owners[step.path] = owner
            owner.folders.append(step)
        elif owner is not None and is_simple(new):
            owner.files.append(step)
    return topmost


class FolderBuilder:
    """Builds new folders in the staging folder."""

    def __init__(self, staging: Staging, system: System, preparing: FileStager) -> None:
        self.staging, self.system, self.preparing = staging, system, preparing

    def build(self, steps: list[Step], progress: Callable[[int, int], None] | None, total: int) -> list[NewFolder]:
        """Build every missing folder, and return them."""
        folders = new_folders(steps)
        for folder in folders:
            folder.name = self.staging.own()
        left = sorted(folders, key=lambda folder: len(folder.folders))
        if sum(len(folder.folders) for folder in folders) > MANY:
            share(left, self._make)
        else:
            for folder in left:
                self._make(folder)
        entries = [step.new for folder in folders for step in folder.files if step.new is not None]
        owners = [folder for folder in folders for _ in folder.files]
        # Names are computed when needed: for a large tree, all names would take a third as much memory as the plan.
        self.preparing.write_many(entries, lambda number: owners[number].staged(entries[number].path), progress, total)
        return folders

    def _make(self, folder: NewFolder) -> None:
        """Create a new folder and those in it, top-down."""
        folders = [(folder.staged(step.path), _mode(step)) for step in folder.folders]
        if self.system.native is not None:
            self.system.native.make(self.staging.fd, [(path, b"", mode) for path, mode in folders])
            return
        for path, mode in folders:
            above, _, last = path.rpartition(b"/")
            parent = self.system.open_folder(self.staging.fd, above)
            try:
                mkdir(last, OPEN, dir_fd=parent)
                fd = open_fd(last, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=parent)
            finally:
                close(parent)
            try:
                fchmod(fd, mode)
            finally:
                close(fd)


def _mode(step: Step) -> int:
    assert step.new is not None
    return step.new.mode if NewFolder.has_mode(step) else OPEN
