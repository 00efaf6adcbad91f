"""Reading what a scan named: whole, consistent, and never fatal for one bad file."""

from __future__ import annotations

from _stat import S_IFLNK, S_IFMT, S_IFREG
from binascii import b2a_base64
from errno import ELOOP, ENOENT, ENOTDIR
from posix import O_NONBLOCK, O_RDONLY, close, fstat, read, readlink, stat_result
from posix import open as open_fd

from holdfast.core.entry import (
    ATTRIBUTES,
    FILE,
    FOLDER,
    LINK,
    SPARSE,
    SPECIAL,
    UNREADABLE,
    UNSTEADY,
    Entry,
    gone,
)
from holdfast.core.light_json import dumps
from holdfast.workspace.below import FOLDER as FOLDER_FLAGS
from holdfast.workspace.below import LONG, lstat_below, open_below

try:
    from posix import getxattr, listxattr
except ImportError:
    listxattr = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from holdfast.workspace.scan import Scan

    class Sink(Protocol):
        """Where contents go; gives back their digests."""

        def small(self, data: bytes) -> bytes: ...
        def large(self, read: Callable[[int], bytes]) -> bytes: ...


LARGE = 4 << 20
"""Files over this are streamed and stored in chunks."""
ATTEMPTS = 3
MOST_ATTRIBUTES = 64 << 10


def capture(root: int, scan: Scan, now: int, sink: Sink, progress: Callable[[int, int], None] | None = None) -> dict[bytes, Entry]:
    """Read everything the scan named and return its rows by path; paths that are gone have a row of kind `-`.

    The scan's stat columns are brought up to date with what was read. A file that cannot be read becomes a row that
    says so.
    """
    reader = _Reader(root, scan, now, sink)
    rows = reader.rows
    for path in scan.gone:
        rows[path] = gone(path)
    for path, seen in scan.folders:
        rows[path] = reader.folder(path, seen)
    for path, kind, flags, info in scan.left:
        size = info.st_size if info is not None else 0
        rows[path] = Entry(path, kind, info.st_mode & 0o7777 if info is not None else 0, flags, size, 0, 0, b"", b"")
        if kind == UNREADABLE:
            rows[path] = rows[path]._replace(size=0)
    total = len(scan.candidates)
    for number, (path, seen) in enumerate(scan.candidates):
        if progress is not None and not number & 255:
            progress(number, total)
        reader.candidate(path, seen)
    reader.close()
    return rows


class _Reader:
    def __init__(self, root: int, scan: Scan, now: int, sink: Sink) -> None:
        self.root, self.scan, self.now, self.sink = root, scan, now, sink
        self.rows: dict[bytes, Entry] = {}
        owner = fstat(root)
        self.owner = owner.st_uid, owner.st_gid
        self.path: bytes | None = None
        self.fd = -1

    def close(self) -> None:
        if self.fd >= 0:
            close(self.fd)
            self.fd = -1

    def candidate(self, path: bytes, seen: stat_result) -> None:
        try:
            self.rows[path] = self._read(path, seen)
        except OSError as error:
            if error.errno in (ENOENT, ENOTDIR):
                self.rows[path] = gone(path)
                self._distrust(path)
                return
            self.rows[path] = Entry(path, UNREADABLE, seen.st_mode & 0o7777, 0, 0, 0, 0, b"", b"")
            mark = b"u" + path
            if mark not in self.scan.marks:
                self.scan.marks.append(mark)

    def folder(self, path: bytes, seen: stat_result) -> Entry:
        flags, extra = self._attributes(seen, -1)
        return Entry(path, FOLDER, seen.st_mode & 0o7777, flags, 0, 0, 0, b"", extra)

    def _read(self, path: bytes, seen: stat_result) -> Entry:
        if S_IFMT(seen.st_mode) == S_IFLNK:
            return self._link(path, seen)
        for attempt in range(ATTEMPTS):
            try:
                fd = self._open(path)
            except OSError as error:
                if error.errno == ELOOP:  # it has become a link
                    return self._link(path, lstat_below(self.root, path))
                raise
            try:
                before = fstat(fd)
                if S_IFMT(before.st_mode) != S_IFREG:
                    return Entry(path, SPECIAL, before.st_mode & 0o7777, 0, 0, 0, 0, b"", b"")
                digest, length = self._content(fd, before.st_size)
                after = fstat(fd)
                steady = before.st_ctime_ns == after.st_ctime_ns and length == after.st_size
                if steady or attempt + 1 == ATTEMPTS:
                    return self._file(path, fd, after, length, digest, steady)
            finally:
                close(fd)
        raise AssertionError

    def _open(self, path: bytes) -> int:
        """Files of one folder are opened from its descriptor: shorter walks for the kernel."""
        # O_NONBLOCK: a pipe put in the file's place must not stop us.
        folder, _, name = path.rpartition(b"/")
        if len(path) >= LONG:
            return open_below(self.root, path, O_RDONLY | O_NONBLOCK)
        if folder != self.path:
            self.close()
            self.fd = open_fd(folder or b".", FOLDER_FLAGS, dir_fd=self.root)
            self.path = folder
        return open_below(self.fd, name, O_RDONLY | O_NONBLOCK)

    def _content(self, fd: int, size: int) -> tuple[bytes, int]:
        if size <= LARGE:
            data = read(fd, size + 1)
            if len(data) != size:
                parts = [data]
                while data and sum(map(len, parts)) <= LARGE:
                    data = read(fd, 1 << 20)
                    parts.append(data)
                if data:  # it grew past the limit while we read
                    return self._stream(fd, parts)
                data = b"".join(parts)
            return self.sink.small(data), len(data)
        return self._stream(fd, [])

    def _stream(self, fd: int, parts: list[bytes]) -> tuple[bytes, int]:
        length = 0

        def pull(most: int) -> bytes:
            nonlocal length
            data = parts.pop(0) if parts else read(fd, most)
            if len(data) > most:
                parts.insert(0, data[most:])
                data = data[:most]
            length += len(data)
            return data

        return self.sink.large(pull), length

    def _file(self, path: bytes, fd: int, seen: stat_result, length: int, digest: bytes, steady: bool) -> Entry:
        flags, extra = self._attributes(seen, fd)
        if seen.st_blocks * 512 < seen.st_size:
            flags |= SPARSE
        if not steady:
            flags |= UNSTEADY
        place = self.scan.places.get(path)
        if place is not None:
            ctimes, sizes, inodes = self.scan.columns[:3]
            ctimes[place] = seen.st_ctime_ns if steady and 0 < seen.st_ctime_ns < self.now else -1
            sizes[place], inodes[place] = seen.st_size, seen.st_ino
        group = 0
        if seen.st_nlink > 1:
            group = (seen.st_ino ^ seen.st_dev << 48) & (1 << 63) - 1
        return Entry(path, FILE, seen.st_mode & 0o7777, flags, length, seen.st_mtime_ns, group, digest, extra)

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
        return Entry(path, LINK, 0o777, flags, len(target), seen.st_mtime_ns, 0, target, extra)

    def _attributes(self, seen: stat_result, fd: int) -> tuple[int, bytes]:
        """Owner and group where they differ from the root's, and extended attributes, as JSON."""
        extra: dict[str, object] = {}
        if (seen.st_uid, seen.st_gid) != self.owner:
            extra["uid"], extra["gid"] = seen.st_uid, seen.st_gid
        if fd >= 0 and listxattr is not None:
            try:
                names = listxattr(fd)
            except OSError:
                names = []
            if names:
                values, size = {}, 0
                for name in names:
                    try:
                        value = getxattr(fd, name)
                    except OSError:
                        continue
                    size += len(name) + len(value)
                    values[name] = b2a_base64(value, newline=False).decode("ascii")
                extra["xattr" if size <= MOST_ATTRIBUTES else "xattr_lost"] = values if size <= MOST_ATTRIBUTES else True
        if not extra:
            return 0, b""
        return ATTRIBUTES, dumps(extra).encode("ascii")

    def _distrust(self, path: bytes) -> None:
        place = self.scan.places.get(path)
        if place is not None:
            self.scan.columns[0][place] = -1
