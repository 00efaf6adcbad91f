"""New contents on their way into the tree: written into the staging folder, alone, linked, or many at once."""

from __future__ import annotations

from _thread import allocate_lock
from posix import (
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
    stat,
    symlink,
    unlink,
    utime,
    write,
)
from posix import open as open_fd
from stat import S_IMODE, S_ISREG

from keepfast.model.entry import ATTRIBUTES, FILE, LINK, SEALED, SPARSE, Entry
from keepfast.model.light_json import loads
from keepfast.model.restore_plan import Step
from keepfast.model.steps import step as note
from keepfast.workspace.free_space import BATCH_BYTES
from keepfast.workspace.system_calls import SyncAhead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from keepfast.workspace.block_clone import Cloning
    from keepfast.workspace.staging_folder import Staging
    from keepfast.workspace.system_calls import Folders, System

    Group = tuple[int, bytes, int]
    Take = Callable[[bytes, list[tuple[int, int, int]]], None]

ZEROS = bytes(4096)
MANY = 128
"""So many files are put in place with one call; more folders than that are made by two threads."""
FEW = 16
"""Up to so many files are synced one by one."""
AT_ONCE = 2048
"""Files of one frame that are named and written with one call: a frame of tiny ones has very many."""
TOLD = 512
"""Files after which it is told how far we are."""


class Stopped(Exception):
    """What was being written is not wanted any more."""


class Contents:
    """Where contents come from. `load(entry)` yields one in parts.

    `hand_over(digests, take)` calls `take(bytes, parts)` for many, in whatever order is cheapest and perhaps from two
    threads at once; a part is the number of a digest, and offset and length of its content in those bytes. It returns
    the numbers of those that must be loaded in parts, which two threads do, too. `cloning` takes contents from files
    that are there, as long as that is possible.
    """

    def __init__(
        self,
        load: Callable[[Entry], Iterator[bytes]],
        hand_over: Callable[[Sequence[bytes], Take], list[int]] | None = None,
        cloning: Cloning | None = None,
    ) -> None:
        self.load, self.cloning = load, cloning
        self.hand_over = hand_over or (lambda digests, take: list(range(len(digests))))


ANYBODY, LISTS = ("user.", "com.apple."), "system.posix_acl_"
"""Extended attributes that an owner may set by himself; others give rights, or belong to the system. Lists of who may read are
an owner's, too, but root's reach all that is his: as root, whoever made the checkpoint must not decide about them."""


class Preparing:
    """Writes what a restore puts in place. `placed` are files of groups of hard links that are in the tree already."""

    def __init__(
        self,
        staging: Staging,
        folders: Folders,
        system: System,
        contents: Contents,
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
        """Nobody wants any more what a thread may still be writing."""

    @property
    def ours(self) -> bool:
        """Does a new file get the owner that it shall have: that of the folder which we have just made?"""
        made = fstat(self.staging.fd)
        return (made.st_uid, made.st_gid) == self.owner

    def batch(
        self,
        files: list[Step],
        start: int,
        progress: Callable[[int, int], None] | None,
        built: bool = False,
    ) -> list[tuple[Step, bytes]]:
        """Write the next files and sync once; at least one file, and not much more than a batch.

        `built`: new folders were built before, and are to be synced too.
        """
        end = _end_of_batch(files, start)
        groups: dict[Group, bytes] = {}
        names = self._clone(files, start, end, groups)
        if self.ours:  # else each file is given away by itself
            simple = [number for number in range(start + len(names), end) if is_simple(_entry(files[number]))]
            own = [self.staging.own() for _ in simple]
            self.many([_entry(files[number]) for number in simple], own.__getitem__, progress, len(files))
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
        """Clone files for as long as the file system does; return their names by their numbers."""
        names: dict[int, bytes] = {}
        cloning = self.contents.cloning
        for number in range(start, end):
            if cloning is None or not cloning.possible:
                break  # the file system has said no: the rest is written as always
            names[number] = self._one(_entry(files[number]), groups)
        return names

    def _sync(self, files: list[Step], names: dict[int, bytes], built: bool) -> None:
        """Make staged files durable: one by one if they are few, as a sync of the file system waits for all of its writers."""
        if 0 < len(names) <= FEW and not built:
            for number, name in names.items():
                if _entry(files[number]).kind == FILE:
                    self.system.sync_file(self.staging.fd, name)
            fsync(self.staging.fd)
        elif names or built:
            self.system.sync(self.staging.fd)

    def many(
        self,
        files: list[Entry],
        name: Callable[[int], bytes],
        progress: Callable[[int, int], None] | None,
        total: int,
    ) -> None:
        """Write files without anything odd about them; `name` says where below the staging folder each goes, by its number."""
        if not files:
            return
        wrote = self._counter(progress, total)
        take = self._writer(files, name, wrote)
        left = self.contents.hand_over([entry.content for entry in files], take)

        def write(number: int) -> None:
            self._write_parts(files[number], name(number))
            wrote(1, files[number].size)

        if len(left) > 1:
            from keepfast.fsutil.threads import share

            share(left, write)
        elif left:
            write(left[0])

    def _counter(self, progress: Callable[[int, int], None] | None, total: int) -> Callable[[int, int], None]:
        """What is to be told of files that were written and their bytes, by whichever thread."""
        guard, done = allocate_lock(), 0

        def wrote(more: int, size: int) -> None:
            nonlocal done
            if self.durable:
                self.ahead.wrote(self.staging.fd, size)
            if progress is None:
                return
            with guard:
                before, done = done, done + more
                if done // TOLD > before // TOLD:
                    progress(done, total)

        return wrote

    def _writer(self, files: list[Entry], name: Callable[[int], bytes], wrote: Callable[[int, int], None]) -> Take:
        def write(data: bytes, parts: list[tuple[int, int, int]]) -> None:
            for start in range(0, len(parts), AT_ONCE):
                if self.stopped:
                    raise Stopped
                some(data, parts[start : start + AT_ONCE])

        def some(data: bytes, parts: list[tuple[int, int, int]]) -> None:
            made: list[tuple[Any, ...]] = [
                (name(number), data, files[number].mode, offset, length) for number, offset, length in parts
            ]
            if self.mtimes:
                made = [(*one, files[part[0]].mtime) for one, part in zip(made, parts, strict=True)]
            if self.system.native is not None:
                self.system.native.stage(self.staging.fd, made)
            else:
                for one in made:
                    self._write(*one)
            wrote(len(parts), sum([length for _, _, length in parts]))

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
        """Make the staged file another name of one of its group: a hard link comes back as one."""
        try:
            if group in groups:
                link(groups[group], name, src_dir_fd=self.staging.fd, dst_dir_fd=self.staging.fd)
                return True
            if group not in self.placed:
                return False
            parent, last = self.folders.parent(self.placed[group])
            link(last, name, src_dir_fd=parent, dst_dir_fd=self.staging.fd, follow_symlinks=False)
        except OSError:
            return False  # no links here, or too many: a copy has to do
        seen = stat(name, dir_fd=self.staging.fd, follow_symlinks=False)
        # Somebody may have changed the one in place since the plan was made.
        alike = S_ISREG(seen.st_mode) and S_IMODE(seen.st_mode) == group[2]
        if alike and group[1] in self.staging.content(name, sealed):
            return True
        unlink(name, dir_fd=self.staging.fd)
        return False

    def attributes(self, entry: Entry, name: bytes, fd: int) -> None:
        """Owner, group and extended attributes, as far as we may. `name` is in our folder if there is no descriptor."""
        extra: dict[str, Any] = _extra(entry)
        wanted = extra.get("uid", self.owner[0]), extra.get("gid", self.owner[1])
        seen = fstat(fd) if fd >= 0 else stat(name, dir_fd=self.staging.fd, follow_symlinks=False)
        if wanted != (seen.st_uid, seen.st_gid):
            try:
                if fd >= 0:
                    chown(fd, *wanted)
                else:
                    chown(name, *wanted, dir_fd=self.staging.fd, follow_symlinks=False)
            except (OSError, TypeError, OverflowError):
                pass  # only root may give files away; `show` says what was recorded
        if fd >= 0 and isinstance(extra.get("xattr"), dict):
            from binascii import a2b_base64
            from posix import setxattr

            for key, value in extra["xattr"].items():
                if not self.privileged and not key.startswith(ANYBODY) and (not key.startswith(LISTS) or not geteuid()):
                    continue  # capabilities and labels: whoever made the checkpoint must not decide who may what here
                try:
                    setxattr(fd, key, a2b_base64(value))
                except (OSError, ValueError, TypeError):
                    continue  # not on this file system, or not for us


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
    """Is it a file without anything odd about it?"""
    return entry.kind == FILE and not entry.group and not entry.flags & (SPARSE | ATTRIBUTES)


def group_of(entry: Entry) -> Group:
    # Numbers of groups are inodes, and inodes are used again: only files that are alike can be one file.
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
