"""Write new contents into the staging folder: one file, a hard link, or many files at once."""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Iterator, Sequence
from os import (
    O_CLOEXEC,
    O_CREAT,
    O_EXCL,
    O_NOFOLLOW,
    O_RDWR,
    O_WRONLY,
    chown,
    close,
    fchmod,
    fstat,
    fsync,
    ftruncate,
    geteuid,
    link,
    lseek,
    setxattr,
    stat,
    symlink,
    unlink,
    utime,
    write,
)
from os import open as open_fd
from stat import S_IMODE, S_ISREG
from threading import Lock
from typing import Any

from keepfast.fsutil.threads import share
from keepfast.model.entry import ATTRIBUTES, FILE, LINK, SEALED, SPARSE, Entry
from keepfast.model.restore_plan import Step
from keepfast.model.steps import step as note
from keepfast.model.strict_json import loads
from keepfast.workspace.block_clone import Cloning
from keepfast.workspace.free_space import BATCH_BYTES
from keepfast.workspace.staging_folder import Staging
from keepfast.workspace.system_calls import Folders, SyncAhead, System

Group = tuple[int, bytes, int]
Take = Callable[[bytes, list[tuple[int, int, int]]], None]

ZEROS = bytes(4096)
MANY = 128
"""Files that are put in place with one call; more folders than that are created by two threads."""
FEW = 16
"""Up to this many files are synced one by one."""
MAX_FILES_PER_CALL = 2048
"""Files of one frame that are written with one call: a frame of tiny files has very many."""
PROGRESS_STEP = 512
"""Files between two reports of progress."""


class Stopped(Exception):
    """The restore was stopped: nothing more is written."""


class ContentSource:
    """The source of contents. `load(entry)` yields one in parts.

    `hand_over(digests, take)` calls `take(bytes, parts)` for many, in the cheapest order and perhaps from two threads; a
    part is the number of a digest, and offset and length of its content in those bytes. It returns the numbers of those
    that must be loaded in parts. `cloning` clones contents from existing files, as long as that is possible.
    """

    def __init__(
        self,
        load: Callable[[Entry], Iterator[bytes]],
        hand_over: Callable[[Sequence[bytes], Take], list[int]] | None = None,
        cloning: Cloning | None = None,
    ) -> None:
        self.load, self.cloning = load, cloning
        self.hand_over = hand_over or (lambda digests, take: list(range(len(digests))))


OWNER_ATTRIBUTES, ACL_ATTRIBUTES = ("user.", "com.apple."), "system.posix_acl_"
"""Extended attributes that a file's owner may set; others grant rights, or belong to the system. Owners may also set access
control lists, but as root they could grant anything: there the author of a checkpoint must not decide about them."""


class FileStager:
    """Writes the files that a restore puts in place. `placed`: hard link group → a file of it already in the tree."""

    def __init__(
        self,
        staging: Staging,
        folders: Folders,
        system: System,
        contents: ContentSource,
        placed: dict[Group, bytes],
        owner: tuple[int, int],
        mtimes: bool,
        durable: bool,
        privileged: bool = False,
    ) -> None:
        self.staging, self.folders, self.system, self.contents = staging, folders, system, contents
        self.placed, self.owner, self.mtimes, self.durable = placed, owner, mtimes, durable
        self.privileged = privileged
        self.ahead = SyncAhead(system)
        self.stopped = False
        """Set to stop a thread that is still writing."""

    @property
    def owns_new_files(self) -> bool:
        """Return whether a new file gets the right owner by itself, as our new staging folder did."""
        status = fstat(self.staging.fd)
        return (status.st_uid, status.st_gid) == self.owner

    def batch(
        self,
        files: list[Step],
        start: int,
        progress: Callable[[int, int], None] | None,
        built: bool = False,
    ) -> list[tuple[Step, bytes]]:
        """Write the next files and sync once; at least one file, and not much more than a batch.

        `built`: new folders were built before, and must be synced too.
        """
        end = _end_of_batch(files, start)
        groups: dict[Group, bytes] = {}
        names = self._clone(files, start, end, groups)
        if self.owns_new_files:  # else each file is given away by itself
            simple = [number for number in range(start + len(names), end) if is_simple(_entry(files[number]))]
            own = [self.staging.own() for _ in simple]
            self.write_many([_entry(files[number]) for number in simple], own.__getitem__, progress, len(files))
            names.update(zip(simple, own, strict=True))
        for number in range(start, end):
            if number not in names:
                names[number] = self._one(_entry(files[number]), groups)
                if progress is not None and not number & 63:
                    progress(number, len(files))
        note("restore:staged")
        self.ahead.wait()
        if self.durable:
            self._sync(files, names, built)
        note("restore:staged-synced")
        return [(files[number], names[number]) for number in range(start, end)]

    def _clone(self, files: list[Step], start: int, end: int, groups: dict[Group, bytes]) -> dict[int, bytes]:
        """Clone files as long as the file system can; return their names by number."""
        names: dict[int, bytes] = {}
        cloning = self.contents.cloning
        for number in range(start, end):
            if cloning is None or not cloning.possible:
                break  # the file system cannot clone: the rest is written as usual
            names[number] = self._one(_entry(files[number]), groups)
        return names

    def _sync(self, files: list[Step], names: dict[int, bytes], built: bool) -> None:
        """Make staged files durable: one by one if they are few, because a sync of the file system waits for all its writers."""
        if 0 < len(names) <= FEW and not built:
            for number, name in names.items():
                if _entry(files[number]).kind == FILE:
                    self.system.sync_file(self.staging.fd, name)
            fsync(self.staging.fd)
        elif names or built:
            self.system.sync(self.staging.fd)

    def write_many(
        self,
        files: list[Entry],
        name: Callable[[int], bytes],
        progress: Callable[[int, int], None] | None,
        total: int,
    ) -> None:
        """Write simple files; `name(number)` is the path of each below the staging folder."""
        if not files:
            return
        note_written = self._counter(progress, total)
        take = self._writer(files, name, note_written)
        left = self.contents.hand_over([entry.content for entry in files], take)

        def write(number: int) -> None:
            self._write_parts(files[number], name(number))
            note_written(1, files[number].size)

        if len(left) > 1:
            share(left, write)
        elif left:
            write(left[0])

    def _counter(self, progress: Callable[[int, int], None] | None, total: int) -> Callable[[int, int], None]:
        """Return the function that threads call with the numbers of files and bytes that they have written."""
        guard, done = Lock(), 0

        def note_written(more: int, size: int) -> None:
            nonlocal done
            if self.durable:
                self.ahead.note_written(self.staging.fd, size)
            if progress is None:
                return
            with guard:
                before, done = done, done + more
                if done // PROGRESS_STEP > before // PROGRESS_STEP:
                    progress(done, total)

        return note_written

    def _writer(
        self, files: list[Entry], name: Callable[[int], bytes], note_written: Callable[[int, int], None]
    ) -> Take:
        def write(data: bytes, parts: list[tuple[int, int, int]]) -> None:
            for start in range(0, len(parts), MAX_FILES_PER_CALL):
                if self.stopped:
                    raise Stopped
                some(data, parts[start : start + MAX_FILES_PER_CALL])

        def some(data: bytes, parts: list[tuple[int, int, int]]) -> None:
            jobs: list[tuple[Any, ...]] = [
                (name(number), data, files[number].mode, offset, length) for number, offset, length in parts
            ]
            if self.mtimes:
                jobs = [(*job, files[part[0]].mtime) for job, part in zip(jobs, parts, strict=True)]
            if self.system.native is not None:
                self.system.native.stage(self.staging.fd, jobs)
            else:
                for job in jobs:
                    self._write(*job)
            note_written(len(parts), sum([length for _, _, length in parts]))

        return write

    def _write(self, path: bytes, data: bytes, mode: int, offset: int, length: int, mtime: int | None = None) -> None:
        fd = self._create(path)
        try:
            write_all(fd, memoryview(data)[offset : offset + length])
            fchmod(fd, mode)
            if mtime is not None:
                utime(fd, ns=(mtime, mtime))
        finally:
            close(fd)

    def _write_parts(self, entry: Entry, path: bytes) -> None:
        fd = self._create(path)
        try:
            for part in self.contents.load(entry):
                if self.stopped:
                    raise Stopped
                write_all(fd, part)
            fchmod(fd, entry.mode)
            if self.mtimes:
                utime(fd, ns=(entry.mtime, entry.mtime))
        finally:
            close(fd)

    def _create(self, path: bytes) -> int:
        above, _, name = path.rpartition(b"/")
        folder = self.system.open_folder(self.staging.fd, above) if above else self.staging.fd
        try:
            return open_fd(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600, dir_fd=folder)
        finally:
            if above:
                close(folder)

    def _one(self, entry: Entry, groups: dict[Group, bytes]) -> bytes:
        name = self.staging.own()
        if entry.kind == LINK:
            symlink(entry.content, name, dir_fd=self.staging.fd)
            self.attributes(entry, name, -1)
            if self.mtimes:
                utime(name, ns=(entry.mtime, entry.mtime), dir_fd=self.staging.fd, follow_symlinks=False)
            return name
        group = group_of(entry)
        if entry.group and self._link(group, groups, name, bool(entry.flags & SEALED)):
            return name
        fd = open_fd(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600, dir_fd=self.staging.fd)
        try:
            if self.contents.cloning is None or not self.contents.cloning.clone(entry, fd):
                for part in self.contents.load(entry):
                    write_all(fd, part, bool(entry.flags & SPARSE))
            if entry.flags & SPARSE:
                ftruncate(fd, entry.size)
            self.attributes(entry, name, fd)
            fchmod(fd, entry.mode)
            if self.mtimes:
                utime(fd, ns=(entry.mtime, entry.mtime))
        finally:
            close(fd)
        groups[group] = name
        return name

    def _link(self, group: Group, groups: dict[Group, bytes], name: bytes, sealed: bool) -> bool:
        """Create the staged file as a hard link to another one of its group; return False if that is not possible."""
        try:
            if group in groups:
                link(groups[group], name, src_dir_fd=self.staging.fd, dst_dir_fd=self.staging.fd)
                return True
            if group not in self.placed:
                return False
            parent, last = self.folders.parent(self.placed[group])
            link(last, name, src_dir_fd=parent, dst_dir_fd=self.staging.fd, follow_symlinks=False)
        except OSError:
            return False  # no hard links here, or too many: write a copy
        seen = stat(name, dir_fd=self.staging.fd, follow_symlinks=False)
        # The file in place may have changed since the plan was made.
        alike = S_ISREG(seen.st_mode) and S_IMODE(seen.st_mode) == group[2]
        if alike and group[1] in self.staging.content(name, sealed):
            return True
        unlink(name, dir_fd=self.staging.fd)
        return False

    def attributes(self, entry: Entry, name: bytes, fd: int) -> None:
        """Set owner, group and extended attributes, as far as permitted. Without a descriptor, `name` is in the staging folder."""
        extra: dict[str, Any] = _extra(entry)
        owner = extra.get("uid", self.owner[0]), extra.get("gid", self.owner[1])
        seen = fstat(fd) if fd >= 0 else stat(name, dir_fd=self.staging.fd, follow_symlinks=False)
        if owner != (seen.st_uid, seen.st_gid):
            try:
                if fd >= 0:
                    chown(fd, *owner)
                else:
                    chown(name, *owner, dir_fd=self.staging.fd, follow_symlinks=False)
            except (OSError, TypeError, OverflowError):
                pass  # only root may give files away; `show` says what was recorded
        if fd >= 0 and isinstance(extra.get("xattr"), dict):
            for key, value in extra["xattr"].items():
                if not self._may_set(key):
                    continue
                try:
                    setxattr(fd, key, a2b_base64(value))
                except (OSError, ValueError, TypeError):
                    continue  # not supported by this file system, or not permitted

    def _may_set(self, attribute: str) -> bool:
        """Return whether an attribute may be set. Not capabilities and labels, unless privileged: they would grant rights here."""
        if self.privileged or attribute.startswith(OWNER_ATTRIBUTES):
            return True
        return attribute.startswith(ACL_ATTRIBUTES) and geteuid() != 0


def _entry(step: Step) -> Entry:
    assert step.new is not None
    return step.new


def _end_of_batch(files: list[Step], start: int) -> int:
    end, size = start, 0
    while end < len(files) and size <= BATCH_BYTES:
        size += _entry(files[end]).size
        end += 1
    return end


def is_simple(entry: Entry) -> bool:
    """Return whether this is a regular file without hard links, holes or attributes."""
    return entry.kind == FILE and not entry.group and not entry.flags & (SPARSE | ATTRIBUTES)


def group_of(entry: Entry) -> Group:
    # Group numbers are inodes, and inodes are reused: only files with equal content and mode can be the same file.
    return entry.group, entry.content, entry.mode


def _extra(entry: Entry) -> dict[str, Any]:
    if not entry.flags & ATTRIBUTES:
        return {}
    try:
        extra = loads(entry.extra)
    except ValueError:
        return {}
    return extra if isinstance(extra, dict) else {}


def write_all(fd: int, data: bytes | memoryview, sparse: bool = False) -> None:
    view = memoryview(data)
    while view:
        if not sparse:
            view = view[write(fd, view) :]
        elif view[:4096] == ZEROS[: len(view)]:
            lseek(fd, min(4096, len(view)), 1)
            view = view[4096:]
        else:
            view = view[write(fd, view[:4096]) :]
