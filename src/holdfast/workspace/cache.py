"""The stat cache: what `lstat` said of every known file and folder, in columns, and the check of all of them.

Bytes (native byte order, since it never leaves the machine):

    0   8  "HFSTAT2\\n"
    8   4  CRC-32 of everything from byte 12 to the end of the marks
    12  4  length of the identity, padded to a multiple of 8
    16 48  number of files, number of folders, bytes of file names, bytes of folder paths, bytes of marks,
           time of the last full scan in ns: six int64
    64  …  identity: whatever must be equal for the cache to be believed
        …  per file, in the order of the folders: ctime_ns, size, inode; per folder: mtime_ns, ctime_ns, inode,
           number of files directly in it (64-bit columns)
        …  file names, folder paths, marks; each followed by NUL
        …  any number of renewals: CRC-32 of what follows, its length, length of the identity: three 32-bit numbers;
           the identity that holds from then on; the paths that were saved, each followed by NUL

A renewal is what a save of some paths adds: they are looked at again, and all else holds for the new version too.
A ctime of -1 never equals a real one: such a file is read again, such a folder listed again, at the next save.
A mark is a letter and a path; `walk.py` says what the letters mean.
"""

from __future__ import annotations

import posix
from posix import (
    O_APPEND,
    O_CLOEXEC,
    O_CREAT,
    O_DIRECTORY,
    O_NOFOLLOW,
    O_RDONLY,
    O_TRUNC,
    O_WRONLY,
    close,
    fstat,
    pread,
    read,
    rename,
    stat,
    write,
)
from posix import open as open_fd
from sys import byteorder
from zlib import crc32

try:
    from holdfast.workspace import _check
except ImportError:  # no compiler when it was installed: the same check in Python, below
    _check = None  # type: ignore[assignment]

O_PATH: int = getattr(posix, "O_PATH", O_RDONLY)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    Column = Any  # a list of numbers while it grows, then a view of their bytes

MAGIC = b"HFSTAT2\n"
HEAD, RENEWAL = 64, 12
BEGINNING, MOST_RENEWALS = 64 << 10, 64 << 10
"""Beyond, the next save had better look at everything again."""
# ctime, size, inode of files; mtime, ctime, inode, number of files of folders. Inodes use all 64 bits on some file
# systems, and a folder's mtime is whatever somebody has set: both are kept modulo 2^64.
CODES = "qqQQqQq"
BITS = (1 << 64) - 1
MANY = 2_000
"""From this number of files on, the accelerator uses two threads."""


class Cache:
    """A loaded cache. Its columns are unpacked only when somebody asks for them."""

    __slots__ = (
        "end",
        "files",
        "folder_bytes",
        "folders",
        "full_scan_at",
        "identity",
        "mark_bytes",
        "name_bytes",
        "raw",
        "start",
    )

    def __init__(self, raw: bytes) -> None:
        """Raises `ValueError` unless the numbers in `raw` fit one another."""
        self._begin(raw, len(raw))
        if self.end != len(raw):
            raise ValueError("the stat cache has more than it says")
        names, paths, counts = self._texts(), self._texts() + self.name_bytes, self.counts()
        if (
            not _sound(raw, names, paths, self.files)
            or not _sound(raw, paths, paths + self.folder_bytes, self.folders)
            or min(counts, default=0) < 0
            or sum(counts) != self.files
        ):
            raise ValueError("the stat cache does not hold what it says")

    @classmethod
    def begun(cls, raw: bytes, size: int) -> Cache:
        """What the first bytes of a file of that size say. Raises `ValueError`."""
        cache = cls.__new__(cls)
        cache._begin(raw, size)
        return cache

    def _begin(self, raw: bytes, size: int) -> None:
        self.raw = raw
        if len(raw) < HEAD:
            raise ValueError("the stat cache is cut short")
        numbers = memoryview(raw)[16:HEAD].cast("q").tolist()
        self.files, self.folders, self.name_bytes, self.folder_bytes, self.mark_bytes, self.full_scan_at = numbers
        padded = memoryview(raw)[12:16].cast("I")[0]
        self.start = HEAD + padded
        if padded % 8 or min(numbers[:5]) < 0:
            raise ValueError("the stat cache has impossible numbers")
        self.end = self._texts() + self.name_bytes + self.folder_bytes + self.mark_bytes
        if size < self.end or len(raw) < self.start:
            raise ValueError("the stat cache is cut short")
        self.identity = raw[HEAD : HEAD + padded].rstrip(b"\n")

    def _texts(self) -> int:
        return self.start + 8 * (3 * self.files + 4 * self.folders)

    def columns(self) -> list[list[int]]:
        """ctime, size, inode of files; mtime, ctime, inode, number of files of folders."""
        view, result, at = memoryview(self.raw), [], self.start
        for code, length in zip(CODES, (self.files,) * 3 + (self.folders,) * 4, strict=True):
            result.append(view[at : at + 8 * length].cast(code).tolist())  # type: ignore[call-overload]
            at += 8 * length
        return result

    def arrays(self) -> list[Column]:
        """The same columns, to be changed in place: nothing is unpacked until it is looked at."""
        view, at = memoryview(self.raw), self.start
        result: list[Column] = []
        for code, length in zip(CODES, (self.files,) * 3 + (self.folders,) * 4, strict=True):
            result.append(joined(code, [view[at : at + 8 * length]]))
            at += 8 * length
        return result

    def counts(self) -> list[int]:
        """How many files lie directly in each folder."""
        at = self._texts()
        return memoryview(self.raw)[at - 8 * self.folders : at].cast("q").tolist()

    def names(self) -> list[bytes]:
        at = self._texts()
        return self.raw[at : at + self.name_bytes].split(b"\0")[:-1]

    def paths(self) -> list[bytes]:
        at = self._texts() + self.name_bytes
        return self.raw[at : at + self.folder_bytes].split(b"\0")[:-1]

    def marks(self) -> list[bytes]:
        at = self._texts() + self.name_bytes + self.folder_bytes
        return self.raw[at : at + self.mark_bytes].split(b"\0")[:-1]


def empty_columns() -> list[Column]:
    return [[] for _ in CODES]


def joined(code: str, parts: Iterable[Column | memoryview]) -> Column:
    """One column of several parts, to be changed in place. Not an `array`: that loads `collections`, 4 ms."""
    data = bytearray().join([packed(code, part) if isinstance(part, list) else part for part in parts])
    return memoryview(data).cast(code)  # type: ignore[call-overload]


def packed(code: str, column: list[int]) -> bytes:
    from _struct import pack

    return pack(f"={len(column)}{code}", *column)


def _sound(raw: bytes, start: int, end: int, texts: int) -> bool:
    """Are there exactly so many texts between start and end, each followed by NUL?"""
    return raw.count(b"\0", start, end) == texts and (start == end or raw[end - 1] == 0)


def load(path: str) -> Cache | None:
    """Return the cache with all its renewals, or None if there is none that is whole."""
    try:
        fd = open_fd(path, O_RDONLY | O_CLOEXEC)
    except OSError:
        return None
    try:
        raw = _read(fd, fstat(fd).st_size)
    except OSError:
        return None
    finally:
        close(fd)
    try:
        end = Cache.begun(raw, len(raw)).end
        if raw[:8] != MAGIC or crc32(memoryview(raw)[12:end]) != int.from_bytes(raw[8:12], "little"):
            return None
        cache = Cache(raw[:end])
    except ValueError:
        return None
    if end < len(raw):
        _renew(cache, raw[end:])
    return cache


def _read(fd: int, size: int) -> bytes:
    raw = read(fd, size)
    while len(raw) < size:
        more = read(fd, size - len(raw))
        if not more:
            break
        raw += more
    return raw


def _renewals(raw: bytes) -> list[tuple[bytes, list[bytes]]]:
    """Identity and paths of each renewal, up to the first that is not whole."""
    found, at = [], 0
    while len(raw) - at >= RENEWAL:
        check, size, length = [int.from_bytes(raw[at + part : at + part + 4], "little") for part in (0, 4, 8)]
        body = raw[at + 4 : at + RENEWAL + size]
        if len(body) != 8 + size or crc32(body) != check or length > size:
            break
        found.append((body[8 : 8 + length], body[8 + length :].split(b"\0")[:-1]))
        at += RENEWAL + size
    return found


def _renew(cache: Cache, raw: bytes) -> None:
    """Let a cache speak of a version since which only some paths were saved: they are looked at again."""
    renewals = _renewals(raw)
    if not renewals:
        return
    cache.identity = renewals[-1][0]
    saved = {path for _, paths in renewals for path in paths}
    columns, counts = bytearray(cache.raw), cache.counts()
    names, never, folder_ctimes = (
        cache.names(),
        (-1).to_bytes(8, byteorder, signed=True),
        3 * cache.files + cache.folders,
    )
    unknown, above = set(saved), {path.rpartition(b"/")[0] for path in saved}
    at = 0
    for number, folder in enumerate(cache.paths()):
        end = at + counts[number]
        if folder in saved:
            unknown.discard(folder)
            place = cache.start + 8 * (folder_ctimes + number)
            columns[place : place + 8] = never
        if folder in above:
            for file in range(at, end):
                path = folder + b"/" + names[file] if folder else names[file]
                if path in saved:
                    unknown.discard(path)
                    place = cache.start + 8 * file
                    columns[place : place + 8] = never
        at = end
    cache.raw = bytes(columns)
    if unknown:
        # Of a path that it does not know, the cache could not say that it has gone: only a full scan can.
        cache.full_scan_at = 0


def peek(path: str) -> tuple[bytes, int] | None:
    """Identity and time of the last full scan as the cache says, without reading all of it; None if there is none.

    Whoever loads it finds out whether the rest is whole.
    """
    try:
        fd = open_fd(path, O_RDONLY | O_CLOEXEC)
    except OSError:
        return None
    try:
        size, raw = fstat(fd).st_size, pread(fd, BEGINNING, 0)
        cache = Cache.begun(raw, size)
        if raw[:8] != MAGIC or size - cache.end > MOST_RENEWALS:
            return None
        renewals = _renewals(pread(fd, size - cache.end, cache.end))
        return (renewals[-1][0] if renewals else cache.identity), cache.full_scan_at
    except (OSError, ValueError):
        return None
    finally:
        close(fd)


def renew(path: str, identity: bytes, saved: Iterable[bytes]) -> None:
    """Add a renewal. It is not synced: a torn one is noticed, and then the cache speaks of an older version."""
    texts = b"".join([one + b"\0" for one in saved])
    body = (len(identity) + len(texts)).to_bytes(4, "little") + len(identity).to_bytes(4, "little") + identity + texts
    fd = open_fd(path, O_WRONLY | O_APPEND | O_CLOEXEC)
    try:
        write_all(fd, crc32(body).to_bytes(4, "little") + body)
    finally:
        close(fd)


def check(cache: Cache, root: int, accelerated: bool = True) -> tuple[Sequence[int], Sequence[int]]:
    """Return the numbers of the files and of the folders that are not as the cache has them. `root` is a descriptor."""
    if accelerated and _check is not None:
        files, folders = _check.check(cache.raw, root, 2 if cache.files > MANY else 1)
        return memoryview(files).cast("I"), memoryview(folders).cast("I")
    return _check_in_python(cache, root)


def _check_in_python(cache: Cache, root: int) -> tuple[list[int], list[int]]:
    ctimes, sizes, inodes, folder_mtimes, folder_ctimes, folder_inodes, counts = cache.columns()
    names = cache.names()
    changed: list[int] = []
    changed_folders: list[int] = []
    at = 0
    for number, path in enumerate(cache.paths()):
        end = at + counts[number]
        try:
            folder = open_fd(path or b".", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=root)
        except OSError:
            changed_folders.append(number)
            changed.extend(range(at, end))  # nobody has looked at them
            at = end
            continue
        try:
            seen = fstat(folder)
            if (
                seen.st_mtime_ns & BITS != folder_mtimes[number]
                or seen.st_ctime_ns != folder_ctimes[number]
                or seen.st_ino != folder_inodes[number]
            ):
                changed_folders.append(number)
            for file in range(at, end):
                try:
                    seen = stat(names[file], dir_fd=folder, follow_symlinks=False)
                except OSError:
                    changed.append(file)
                    continue
                if seen.st_ctime_ns != ctimes[file] or seen.st_size != sizes[file] or seen.st_ino != inodes[file]:
                    changed.append(file)
        finally:
            close(folder)
        at = end
    return changed, changed_folders


def store(
    path: str,
    identity: bytes,
    full_scan_at: int,
    columns: Sequence[Column],
    names: list[bytes],
    folders: list[bytes],
    marks: Iterable[bytes],
) -> None:
    """Write the cache beside `path` and rename it there. It is not synced: a torn one is noticed and not believed."""
    temporary = path + ".new"
    fd = open_fd(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    try:
        write_all(fd, encode(identity, full_scan_at, columns, names, folders, marks))
    finally:
        close(fd)
    rename(temporary, path)


def encode(
    identity: bytes,
    full_scan_at: int,
    columns: Sequence[Column],
    names: list[bytes],
    folders: list[bytes],
    marks: Iterable[bytes],
) -> bytes:
    """Return the bytes of a cache."""
    identity += b"\n" * (-len(identity) % 8)
    texts = [b"\0".join([*part, b""]) for part in (names, folders, sorted(marks))]
    body = b"".join(
        [
            packed("I", [len(identity)]),
            packed("q", [len(names), len(folders), *map(len, texts), full_scan_at]),
            identity,
            *[joined(code, [column]) for code, column in zip(CODES, columns, strict=True)],
            *texts,
        ]
    )
    return MAGIC + crc32(body).to_bytes(4, "little") + body


def write_all(fd: int, data: bytes) -> None:
    """Write every byte: one call may write less than it was given."""
    view = memoryview(data)
    while view:
        view = view[write(fd, view) :]
