"""Renewals of the stat cache: what a save of some paths adds to it (cache.py has the bytes)."""

from __future__ import annotations

from posix import O_APPEND, O_CLOEXEC, O_RDONLY, O_WRONLY, close, fstat, pread
from posix import open as open_fd
from sys import byteorder

from keepfast.workspace.stat_cache import MAGIC, Cache, crc32
from keepfast.workspace.stat_cache_writer import write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

RENEWAL = 12
BEGINNING, MOST_RENEWALS = 64 << 10, 64 << 10
"""Beyond, the next save had better look at everything again."""


def _all(raw: bytes) -> list[tuple[bytes, list[bytes]]]:
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


def apply(cache: Cache, raw: bytes) -> None:
    """Let a cache speak of a version since which only some paths were saved: they are looked at again."""
    renewals = _all(raw)
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
        renewals = _all(pread(fd, size - cache.end, cache.end))
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
