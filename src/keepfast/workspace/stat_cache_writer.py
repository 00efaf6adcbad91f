"""Write the stat cache: its growing columns, its bytes, its file, and renewals appended to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import O_APPEND, O_CLOEXEC, O_CREAT, O_TRUNC, O_WRONLY, close, rename, write
from os import open as open_fd
from struct import pack

from keepfast.workspace.stat_cache import CODES, MAGIC, Column, crc32


def empty_columns() -> list[Column]:
    return [[] for _ in CODES]


def joined(code: str, parts: Iterable[Column | memoryview]) -> Column:
    """Return one mutable column from several parts."""
    data = bytearray().join([packed(code, part) if isinstance(part, list) else part for part in parts])
    return memoryview(data).cast(code)  # type: ignore[call-overload]


def packed(code: str, column: list[int]) -> bytes:
    return pack(f"={len(column)}{code}", *column)


def store(
    path: str,
    identity: bytes,
    full_scan_at: int,
    columns: Sequence[Column],
    names: list[bytes] | bytes,
    folders: list[bytes],
    marks: Iterable[bytes],
) -> None:
    """Write the cache to a temporary file and rename it. Not synced: a torn cache is detected and not used."""
    temporary = path + ".new"
    fd = open_fd(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    try:
        body = _body(identity, full_scan_at, columns, names, folders, marks)
        write_all(fd, _head(body))
        write_all(fd, body)
    finally:
        close(fd)
    rename(temporary, path)


def encode(
    identity: bytes,
    full_scan_at: int,
    columns: Sequence[Column],
    names: list[bytes] | bytes,
    folders: list[bytes],
    marks: Iterable[bytes],
) -> bytes:
    """Return the bytes of a cache. `names` may be one text with all names, each followed by NUL."""
    body = _body(identity, full_scan_at, columns, names, folders, marks)
    return _head(body) + body


def _head(body: bytes) -> bytes:
    return MAGIC + crc32(body).to_bytes(4, "little")


def _body(
    identity: bytes,
    full_scan_at: int,
    columns: Sequence[Column],
    names: list[bytes] | bytes,
    folders: list[bytes],
    marks: Iterable[bytes],
) -> bytes:
    identity += b"\n" * (-len(identity) % 8)
    texts = [b"\0".join([*part, b""]) if isinstance(part, list) else part for part in (names, folders, sorted(marks))]
    return b"".join(
        [
            packed("I", [len(identity)]),
            packed("q", [len(columns[0]), len(folders), *map(len, texts), full_scan_at]),
            identity,
            *[packed(code, one) if isinstance(one, list) else one for code, one in zip(CODES, columns, strict=True)],
            *texts,
        ]
    )


def renew(path: str, identity: bytes, saved: Iterable[bytes]) -> None:
    """Append a renewal. Not synced: a torn one is detected, and the cache then belongs to an older version."""
    texts = b"".join([one + b"\0" for one in saved])
    body = (len(identity) + len(texts)).to_bytes(4, "little") + len(identity).to_bytes(4, "little") + identity + texts
    fd = open_fd(path, O_WRONLY | O_APPEND | O_CLOEXEC)
    try:
        write_all(fd, crc32(body).to_bytes(4, "little") + body)
    finally:
        close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte: one call may write less than it was given."""
    view = memoryview(data)
    while view:
        view = view[write(fd, view) :]
