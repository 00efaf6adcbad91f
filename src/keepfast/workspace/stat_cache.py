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
A mark is a letter and a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import O_CLOEXEC, O_RDONLY, close, fstat, pread, read
from os import open as open_fd
from struct import pack
from sys import byteorder
from typing import Any

from keepfast.model.compiled import demand
from keepfast.workspace.plain_check import check as check_plainly

try:
    from keepfast.workspace import _check

    demand(_check)
    from keepfast.workspace._check import crc32 as crc32
    from keepfast.workspace._check import lock as lock
    from keepfast.workspace._check import offsets as _offsets
except ImportError:  # installed without a compiler, or built from other sources: use Python
    from fcntl import LOCK_EX, flock
    from zlib import crc32 as crc32

    def lock(fd: int, /) -> None:
        """Wait for the lock on an open file."""
        flock(fd, LOCK_EX)

    _check = _offsets = None  # type: ignore[assignment]

Column = Any  # a list of numbers while it grows, then a view of their bytes

MAGIC = b"HFSTAT2\n"
# Marks: what the cache stores besides the columns. Each is a letter and a path.
NOT_ENTERED = b"x"  # a row of kind x
UNREAD = b"u"  # a row of kind u: retried when its folder is listed
SMALL = b"k"  # an ignored folder that is captured because it has few files: counted again when it changes
REPOSITORY = b"r"  # a folder below the root with a .git: ignore rules start afresh there
DISREGARDED = b"!"  # the rules of this repository hide everything and are not followed
LEFT = b"o"  # a row of kind o or i: saved after all if a command is about to destroy it
FORCED = b"f"  # a row of kind f in spite of the rules, as long as the file is unchanged
CROWDED = b"c"  # no path: large ignored folders are left out, because the tree would have too many files

HEAD = 64
# ctime, size, inode of files; mtime, ctime, inode, number of files of folders. Inodes use all 64 bits on some file
# systems, and a folder's mtime is whatever somebody has set: both are kept modulo 2^64.
CODES = "qqQQqQq"
RENEWAL = 12
BEGINNING, MAX_RENEWALS = 64 << 10, 64 << 10
"""Bytes that `peek` reads of the cache and of its renewals; with more renewals, the next save should be a full scan."""
MANY = 2_000
"""From this number of files on, the accelerator uses two threads."""


class Cache:
    """A loaded cache. Its columns are unpacked on demand."""

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
        """Take over the bytes. Raises `ValueError` unless the numbers in `raw` are consistent."""
        self._begin(raw, len(raw))
        if self.end != len(raw):
            raise ValueError("the stat cache has trailing data")
        names, paths, counts = self.texts(), self.texts() + self.name_bytes, self.counts()
        if (
            not _sound(raw, names, paths, self.files)
            or not _sound(raw, paths, paths + self.folder_bytes, self.folders)
            or min(counts, default=0) < 0
            or sum(counts) != self.files
        ):
            raise ValueError("the stat cache is inconsistent")

    @classmethod
    def begun(cls, raw: bytes, size: int) -> Cache:
        """Return the cache's header from the first bytes of a file of that size. Raises `ValueError`."""
        cache = cls.__new__(cls)
        cache._begin(raw, size)
        return cache

    def _begin(self, raw: bytes, size: int) -> None:
        self.raw = raw
        if len(raw) < HEAD:
            raise ValueError("the stat cache is truncated")
        numbers = memoryview(raw)[16:HEAD].cast("q").tolist()
        self.files, self.folders, self.name_bytes, self.folder_bytes, self.mark_bytes, self.full_scan_at = numbers
        padded = memoryview(raw)[12:16].cast("I")[0]
        self.start = HEAD + padded
        if padded % 8 or min(numbers[:5]) < 0:
            raise ValueError("the stat cache has invalid numbers")
        self.end = self.texts() + self.name_bytes + self.folder_bytes + self.mark_bytes
        if size < self.end or len(raw) < self.start:
            raise ValueError("the stat cache is truncated")
        self.identity = raw[HEAD : HEAD + padded].rstrip(b"\n")

    def texts(self) -> int:
        return self.start + 8 * (3 * self.files + 4 * self.folders)

    def columns(self) -> list[list[int]]:
        """ctime, size, inode of files; mtime, ctime, inode, number of files of folders."""
        view, result, offset = memoryview(self.raw), [], self.start
        for code, length in zip(CODES, (self.files,) * 3 + (self.folders,) * 4, strict=True):
            result.append(view[offset : offset + 8 * length].cast(code).tolist())  # type: ignore[call-overload]
            offset += 8 * length
        return result

    def views(self) -> list[Column]:
        """Return the same columns without unpacking them."""
        view, offset = memoryview(self.raw), self.start
        result: list[Column] = []
        for code, length in zip(CODES, (self.files,) * 3 + (self.folders,) * 4, strict=True):
            result.append(view[offset : offset + 8 * length].cast(code))  # type: ignore[call-overload]
            offset += 8 * length
        return result

    def counts(self) -> list[int]:
        """Return the number of files directly in each folder."""
        offset = self.texts()
        return memoryview(self.raw)[offset - 8 * self.folders : offset].cast("q").tolist()

    def names(self) -> list[bytes]:
        return bytes(self.text()).split(b"\0")[:-1]

    def text(self) -> memoryview:
        """Return all names, each followed by NUL."""
        offset = self.texts()
        return memoryview(self.raw)[offset : offset + self.name_bytes]

    def offsets(self, numbers: list[int], accelerated: bool = True) -> list[int]:
        """Return the offsets of these files' names in that text. Numbers are sorted; the one after the last file gives the end."""
        if accelerated and _offsets is not None:
            return _offsets(self.raw, pack(f"={len(numbers)}I", *numbers))
        names, result, offset, last = self.names(), [], 0, 0
        for number in numbers:
            offset += sum(map(len, names[last:number])) + number - last
            last = number
            result.append(offset)
        return result

    def paths(self) -> list[bytes]:
        offset = self.texts() + self.name_bytes
        return self.raw[offset : offset + self.folder_bytes].split(b"\0")[:-1]

    def marks(self) -> list[bytes]:
        offset = self.texts() + self.name_bytes + self.folder_bytes
        return self.raw[offset : offset + self.mark_bytes].split(b"\0")[:-1]


def _sound(raw: bytes, start: int, end: int, texts: int) -> bool:
    """Return whether there are exactly `texts` texts between start and end, each followed by NUL."""
    return raw.count(b"\0", start, end) == texts and (start == end or raw[end - 1] == 0)


def load(path: str) -> Cache | None:
    """Return the cache with all its renewals; None if there is no valid one."""
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
        _apply_renewals(cache, raw[end:])
    return cache


def _read(fd: int, size: int) -> bytes:
    raw = read(fd, size)
    while len(raw) < size:
        more = read(fd, size - len(raw))
        if not more:
            break
        raw += more
    return raw


def peek(path: str) -> tuple[bytes, int] | None:
    """Return identity and time of the last full scan as the cache states them, without reading it all; None if there is none.

    Whoever loads it finds out whether the rest is whole.
    """
    try:
        fd = open_fd(path, O_RDONLY | O_CLOEXEC)
    except OSError:
        return None
    try:
        size, raw = fstat(fd).st_size, pread(fd, BEGINNING, 0)
        cache = Cache.begun(raw, size)
        if raw[:8] != MAGIC or size - cache.end > MAX_RENEWALS:
            return None
        renewals = _renewals_in(pread(fd, size - cache.end, cache.end))
        return (renewals[-1][0] if renewals else cache.identity), cache.full_scan_at
    except (OSError, ValueError):
        return None
    finally:
        close(fd)


def _apply_renewals(cache: Cache, raw: bytes) -> None:
    """Apply renewals: the cache then belongs to a later version, and the paths saved since are checked again."""
    renewals = _renewals_in(raw)
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
    offset = 0
    for number, folder in enumerate(cache.paths()):
        end = offset + counts[number]
        if folder in saved:
            unknown.discard(folder)
            place = cache.start + 8 * (folder_ctimes + number)
            columns[place : place + 8] = never
        if folder in above:
            for file in range(offset, end):
                path = folder + b"/" + names[file] if folder else names[file]
                if path in saved:
                    unknown.discard(path)
                    place = cache.start + 8 * file
                    columns[place : place + 8] = never
        offset = end
    cache.raw = bytes(columns)
    if unknown:
        # The cache would not notice the removal of a path that it does not have: only a full scan does.
        cache.full_scan_at = 0


def _renewals_in(raw: bytes) -> list[tuple[bytes, list[bytes]]]:
    """Return identity and paths of each renewal, up to the first damaged one."""
    renewals, offset = [], 0
    while len(raw) - offset >= RENEWAL:
        check, size, length = [int.from_bytes(raw[offset + part : offset + part + 4], "little") for part in (0, 4, 8)]
        body = raw[offset + 4 : offset + RENEWAL + size]
        if len(body) != 8 + size or crc32(body) != check or length > size:
            break
        renewals.append((body[8 : 8 + length], body[8 + length :].split(b"\0")[:-1]))
        offset += RENEWAL + size
    return renewals


def check(cache: Cache, root: int, accelerated: bool = True) -> tuple[Sequence[int], Sequence[int]]:
    """Return the numbers of the files and of the folders that differ from the cache. `root` is a descriptor."""
    if accelerated and _check is not None:
        files, folders = _check.check(cache.raw, root, 2 if cache.files > MANY else 1)
        return memoryview(files).cast("I"), memoryview(folders).cast("I")
    return check_plainly(cache, root)
