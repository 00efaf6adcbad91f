"""Read the candidates of a scan: complete, consistent, and never failing because of one bad file."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Container
from errno import EINVAL, ELOOP, ENXIO, ETIME
from io import BytesIO
from os import O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, close, fstat, geteuid, read, readlink, stat_result
from os import open as open_fd
from stat import S_IFDIR, S_IFLNK, S_IFMT, S_IFREG
from typing import Protocol

from keepfast.fsutil.descriptors import FOLDER as FOLDER_FLAGS
from keepfast.fsutil.descriptors import LONG, lstat_below, open_below
from keepfast.model.entry import (
    ATTRIBUTES,
    FILE,
    FOLDER,
    IGNORED,
    LINK,
    OVERSIZE,
    SEALED,
    SPARSE,
    SPECIAL,
    UNREADABLE,
    UNSTEADY,
    Entry,
    gone,
    vanished,
)
from keepfast.model.strict_json import dumps
from keepfast.secrets.marks import KEY, SECRET, kind_by_name
from keepfast.workspace.directory import O_NOATIME
from keepfast.workspace.secret_check import is_secret
from keepfast.workspace.selection import SHORTAGE
from keepfast.workspace.walk import DENIED, FORCED, LEFT, UNREAD, VANISHED, Scan

try:
    from os import getxattr, listxattr
except ImportError:
    listxattr = None  # type: ignore[assignment]


class Sink(Protocol):
    """Stores contents and returns their digests."""

    def small(self, data: bytes) -> bytes: ...
    def large(self, read: Callable[[int], bytes]) -> bytes: ...
    def sealed(self, read: Callable[[int], bytes]) -> bytes:
        """Store a content encrypted only."""

    def is_copy(self, size: int, data: bytes | None) -> bool:
        """Return whether it is the content of another, sealed file. `data` is None if it is too large to be inspected."""


# O_NONBLOCK: a pipe put in the file's place must not stop us.
FILE_FLAGS = O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC
LARGE = 4 << 20
"""Files over this are streamed and stored in chunks."""
SLACK = 16 << 20
"""A growing file is read this far beyond its size: its writer may be faster than we are."""
"""From this number of files on, memory is allocated once, not for each."""
ATTEMPTS = 3
MAX_ATTRIBUTES = 64 << 10
EARLIEST, LATEST = -(1 << 63), (1 << 63) - 1
"""Times that a document can hold; files may have others."""


class TimeLimit:
    """When reading of some files ends: they are read for a command, and once it runs nothing is gained by that."""

    def __init__(self, is_over: Callable[[], bool], paths: Container[bytes] | None) -> None:
        """`paths`: the files; None for all."""
        self._is_over, self._paths = is_over, paths
        self.unread: list[bytes] = []
        """Files that were not read in time."""

    def is_over(self, path: bytes) -> bool:
        return (self._paths is None or path in self._paths) and self._is_over()


class _OutOfTime(OSError):
    """The time for reading this file is over."""


def capture(
    root: int,
    scan: Scan,
    now: int,
    sink: Sink,
    progress: Callable[[int, int], None] | None = None,
    limit: TimeLimit | None = None,
) -> dict[bytes, Entry]:
    """Read all candidates of the scan and return their rows by path; removed paths have a row of kind `-`.

    The scan's stat columns are brought up to date with what was read, and its candidates and their places are used up. A
    file that cannot be read becomes a row that says so; an error of `sink` is raised as it is.
    """
    reader = _Reader(root, scan, now, sink, limit)
    rows = reader.rows
    for path in scan.removed:
        rows[path] = gone(path)
    for path, seen in scan.folders:
        rows[path] = reader.folder(path, seen)
    for path, seen in scan.emptied:
        rows[path] = vanished(path, seen.st_mode & 0o7777)
    for path, kind, flags, info in scan.left:
        rows[path] = _left_out(path, kind, flags, info)
    candidates = scan.candidates
    total = len(candidates)
    # Removed one by one: a stat is twice as large as its row, and both are never needed for all files.
    # Files that may be sealed come first: only then can copies of them be recognised.
    candidates.sort(key=_rank)
    candidates.reverse()
    try:
        for number in range(total):
            if progress is not None and not number & 255:
                progress(number, total)
            path, seen = candidates.pop()
            row = reader.candidate(path, seen)
            if row is not None:
                rows[path] = row
    finally:
        reader.close()
        scan.places = {}
    return rows


def _rank(candidate: tuple[bytes, stat_result]) -> int:
    kind = kind_by_name(candidate[0])
    return 0 if kind & (SECRET | KEY) else 1 if kind else 2


def _left_out(path: bytes, kind: str, flags: int, info: stat_result | None) -> Entry:
    mode = info.st_mode & 0o7777 if info is not None else 0
    size = info.st_size if info is not None and kind != UNREADABLE else 0
    mtime = info.st_mtime_ns if info is not None and kind in (OVERSIZE, IGNORED) else 0
    return Entry(path, kind, mode, flags, size, min(max(mtime, EARLIEST), LATEST), 0, b"", b"")


def _group(info: stat_result) -> int:
    """Return the number of a hard link group; 0 for a file with a single link."""
    return (info.st_ino ^ info.st_dev << 48) & LATEST if info.st_nlink > 1 else 0


class _Reader:
    def __init__(self, root: int, scan: Scan, now: int, sink: Sink, limit: TimeLimit | None) -> None:
        self.root, self.scan, self.now, self.sink, self.limit = root, scan, now, sink, limit
        self.rows: dict[bytes, Entry] = {}
        owner = fstat(root)
        self.owner = owner.st_uid, owner.st_gid
        self.user = geteuid()
        self.storing = False
        """Whether the store is being written right now; then an error does not concern the file."""
        self._sealed_groups: set[int] = set()
        """Hard link groups with a sealed file."""
        self._path: bytes | None = None
        """The folder whose descriptor is open."""
        self._fd = -1

    def close(self) -> None:
        if self._fd >= 0:
            close(self._fd)
        self._fd, self._path = -1, None

    def folder(self, path: bytes, seen: stat_result) -> Entry:
        flags, extra = self._attributes(seen, -1)
        return Entry(path, FOLDER, seen.st_mode & 0o7777, flags, 0, 0, 0, b"", extra)

    def candidate(self, path: bytes, seen: stat_result) -> Entry | None:
        """Return the row of a file or link; None if what the newest version says of it stays true."""
        try:
            self._check_time(path)
            return self._read(path, seen)
        except _OutOfTime:
            return self._unread(path, seen)
        except OSError as error:
            if self.storing or error.errno in SHORTAGE:
                raise
            if error.errno in VANISHED:
                # It existed when the folder was listed. If the version said it was absent, a restore would delete it.
                self._distrust(path)
                self.scan.marks.add(UNREAD + path)
                return vanished(path, seen.st_mode & 0o7777)
            if error.errno not in DENIED:
                self._distrust(path)  # it may be temporary: a bad sector, a lock of another system
            self.scan.marks.add(UNREAD + path)
            return _left_out(path, UNREADABLE, 0, seen)

    def _check_time(self, path: bytes) -> None:
        if self.limit is not None and self.limit.is_over(path):
            raise _OutOfTime(ETIME, "The time for reading it is over")

    def _unread(self, path: bytes, seen: stat_result) -> Entry | None:
        """Return the row of a file that was not read in time: as without the command, if the rules leave it out."""
        assert self.limit is not None
        self.limit.unread.append(path)
        if path not in self.scan.forced:
            return _left_out(path, UNREADABLE, 0, seen)
        self.scan.marks.discard(FORCED + path)
        self.scan.marks.add(LEFT + path)
        left = self.scan.forced[path]
        return _left_out(*left) if left is not None else None

    def _read(self, path: bytes, seen: stat_result) -> Entry:
        """Read what exists now; its kind may have changed since the scan, and it may change while it is read."""
        status, kind = seen, S_IFMT(seen.st_mode)
        for attempt in range(ATTEMPTS):
            last = attempt + 1 == ATTEMPTS
            try:
                if kind == S_IFLNK:
                    return self._link(path, status)
                row = self._file(path, seen, last) if kind == S_IFREG else None
                if row is not None:
                    return row
            except OSError as error:
                # ELOOP: it has become a link; EINVAL: it no longer is one; ENXIO: a socket.
                if self.storing or last or error.errno not in (ELOOP, EINVAL, ENXIO):
                    raise
            status = lstat_below(self.root, path)
            kind = S_IFMT(status.st_mode)
            if kind not in (S_IFREG, S_IFLNK):
                break
        self._distrust(path)
        # The contents of a folder in its place are unknown: the next save lists it.
        return _left_out(path, UNREADABLE if kind == S_IFDIR else SPECIAL, 0, status)

    def _file(self, path: bytes, seen: stat_result, last: bool) -> Entry | None:
        """Read a regular file; None if it is not one, or if it changed meanwhile and this is not the last attempt."""
        fd = self._open(path, seen)
        try:
            before = fstat(fd)
            if S_IFMT(before.st_mode) != S_IFREG:
                return None
            data, digest, is_sealed = b"", b"", False
            size = before.st_size
            if size > LARGE:
                is_sealed = self._is_sealed(path, None, size, _group(before))
                digest, length = self._stream(path, lambda most: read(fd, most), size + SLACK, is_sealed)
            else:
                data = read(fd, size + 1)
                if len(data) != size:
                    data = self._rest(fd, data, size)
                length = len(data)
            after = fstat(fd)
            # A file that was removed while we read is read to its end, and as it was.
            is_unchanged = before.st_ctime_ns == after.st_ctime_ns or (
                not after.st_nlink and before.st_mtime_ns == after.st_mtime_ns
            )
            steady = is_unchanged and length == after.st_size
            if not steady and not last:
                return None
            if not digest:
                is_sealed = self._is_sealed(path, data, length, _group(before))
                digest = self._keep(path, data, is_sealed)
            row = self._row(path, fd, after, seen, length, digest, steady)
            return row._replace(flags=row.flags | SEALED) if is_sealed else row
        finally:
            close(fd)

    def _is_sealed(self, path: bytes, data: bytes | None, size: int, group: int) -> bool:
        """Return whether the file must be sealed: because of its content, as a hard link to a sealed file, or as a copy of one."""
        if is_secret(path, data):
            if group and size:
                self._sealed_groups.add(group)
            return True
        return group in self._sealed_groups or self.sink.is_copy(size, data)

    def _open(self, path: bytes, seen: stat_result) -> int:
        """Open a file; if it is ours, without updating its access time, which our next sync would write."""
        if seen.st_uid == self.user:
            try:
                return self._open_with(path, FILE_FLAGS | O_NOATIME)
            except PermissionError:
                pass  # it was replaced by a file of another user
        return self._open_with(path, FILE_FLAGS)

    def _open_with(self, path: bytes, flags: int) -> int:
        """Open the file's folder once for all its files: the kernel then walks shorter paths."""
        if len(path) >= LONG:
            return open_below(self.root, path, flags)
        folder, _, name = path.rpartition(b"/")
        if folder != self._path:
            self._enter(folder)
        return open_fd(name, flags, dir_fd=self._fd)

    def _enter(self, folder: bytes) -> None:
        self.close()
        self._fd = open_fd(folder or b".", FOLDER_FLAGS, dir_fd=self.root)
        self._path = folder

    def _rest(self, fd: int, data: bytes, size: int) -> bytes:
        """Return the whole content of a small file whose first read was shorter or longer than its size."""
        parts = [data]
        while data and size + SLACK > sum(map(len, parts)):
            data = read(fd, 1 << 20)
            parts.append(data)
        return b"".join(parts)

    def _stream(self, path: bytes, more: Callable[[int], bytes], limit: int, is_sealed: bool) -> tuple[bytes, int]:
        """Pass a large file to the store in parts; return digest and length."""
        length = 0

        def pull(most: int) -> bytes:
            nonlocal length
            self.storing = False
            self._check_time(path)
            data = more(min(most, limit - length))
            self.storing = True
            length += len(data)
            return data

        self.storing = True
        digest = self.sink.sealed(pull) if is_sealed else self.sink.large(pull)
        self.storing = False
        return digest, length

    def _keep(self, path: bytes, data: bytes, is_sealed: bool) -> bytes:
        """Pass a file that was read at once to the store; return its digest."""
        if len(data) > LARGE or is_sealed:  # it grew while it was read, or goes another way
            return self._stream(path, BytesIO(data).read, len(data), is_sealed)[0]
        self.storing = True
        digest = self.sink.small(data)
        self.storing = False
        return digest

    def _row(
        self, path: bytes, fd: int, after: stat_result, seen: stat_result, length: int, digest: bytes, steady: bool
    ) -> Entry:
        flags, extra = self._attributes(after, fd)
        if after.st_blocks * 512 < after.st_size:
            flags |= SPARSE
        if not steady:
            flags |= UNSTEADY
        # Only what is still as the scan saw it is believed: what was decided about it rests on that.
        if not steady or (after.st_ctime_ns, after.st_ino) != (seen.st_ctime_ns, seen.st_ino):
            self._distrust(path)
        group = _group(after)
        mtime = after.st_mtime_ns
        if not EARLIEST <= mtime <= LATEST:
            mtime = min(max(mtime, EARLIEST), LATEST)
        return Entry(path, FILE, after.st_mode & 0o7777, flags, length, mtime, group, digest, extra)

    def _link(self, path: bytes, seen: stat_result) -> Entry:
        if len(path) < LONG:
            target = readlink(path, dir_fd=self.root)
        else:
            folder, _, name = path.rpartition(b"/")
            fd = open_below(self.root, folder, FOLDER_FLAGS)
            try:
                target = readlink(name, dir_fd=fd)
            finally:
                close(fd)
        flags, extra = self._attributes(seen, -1)
        mtime = min(max(seen.st_mtime_ns, EARLIEST), LATEST)
        return Entry(path, LINK, 0o777, flags, len(target), mtime, 0, target, extra)

    def _attributes(self, seen: stat_result, fd: int) -> tuple[int, bytes]:
        """Return owner and group if they differ from the root's, and extended attributes, as JSON."""
        names: list[str] = []
        if fd >= 0 and listxattr is not None:
            try:
                names = listxattr(fd)
            except OSError:
                pass
        owner = seen.st_uid, seen.st_gid
        if not names and owner == self.owner:
            return 0, b""
        extra: dict[str, object] = {}
        if owner != self.owner:
            extra["uid"], extra["gid"] = owner
        if names:
            values, size = {}, 0
            for name in names:
                try:
                    value = getxattr(fd, name)
                except OSError:
                    continue
                size += len(name) + len(value)
                values[name] = b2a_base64(value, newline=False).decode("ascii")
            if size <= MAX_ATTRIBUTES:
                extra["xattr"] = values
            else:
                extra["xattr_lost"] = True
        return ATTRIBUTES, dumps(extra).encode("ascii")

    def _distrust(self, path: bytes) -> None:
        """Make the next save check this file again."""
        place = self.scan.places.get(path)
        if place is not None:
            self.scan.columns[0][place] = -1
