"""Packs: blobs in compressed frames with an index at the end (docs/format/store.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import pack as pack_numbers
from struct import unpack, unpack_from
from typing import Any
from zlib import compress as zlib_compress
from zlib import decompressobj

from keepfast.model.errors import Damaged, shortage
from keepfast.store.compression import Job, Workers, make_compressor, start_job, zstd_module
from keepfast.store.digest import digest
from keepfast.store.ports import Blobs, Upload
from keepfast.store.rows import SEALED, Location

MAGIC, END = b"HFPACK1\n", b"HFPEND1\n"
TRAILER = 64
RAW, ZLIB, ZSTD = 0, 1, 2
FRAME = 1 << 20
MAX_FRAME = 1 << 30
"""The largest frame; one that claims more is damaged, and no memory is allocated for it."""
MAX_SHARED_FRAME = 64 << 20
"""The largest frame of several blobs."""
PARTIAL_READ = 352 << 10
"""Up to this many bytes, only the beginning of a frame is decompressed: the first three allocations of Zstandard's module."""
COMPRESS_AHEAD = 128 << 10
"""From this many bytes on, a partly filled frame is compressed while a save works out what changed."""
COMPRESS_WITHOUT_THREADS = 512 << 10
"""Up to this many bytes, a save compresses in its own thread."""
COMPRESS_WITH_ZLIB = 48 << 10
"""Up to this many bytes, a save compresses with zlib."""


class PackWriter:
    """Collects blobs into frames and writes them as one new pack, which is invisible until `finish`."""

    def __init__(self, blobs: Blobs, *, level: int = 1, frame: int = FRAME, threads: int = 2) -> None:
        self.blobs = blobs
        self.level = level
        self.frame_size = frame
        self.threads = threads
        self.upload: Upload | None = None
        self.size = 0
        self.frames: list[tuple[int, int, int, int]] = []
        self.digests: list[bytes] = []
        self.lengths: list[int] = []
        self.kinds = bytearray()
        self.name = ""
        self._open_blobs: list[bytes] = []
        self._open_bytes = 0
        self._total = self._pending = 0
        self._workers: Workers | None = None
        self._waiting: list[tuple[int, int, Job]] = []
        self._syncing: Job | None = None

    @property
    def size_bound(self) -> int:
        """Upper bound of the pack's size so far, without its index: uncompressed blobs count in full."""
        return self.size + self._pending + self._open_bytes

    def add(self, key: bytes, data: bytes, kind: int) -> None:
        if kind == SEALED:
            self._add_sealed(key, data)
            return
        if self._open_bytes + len(data) > self.frame_size and self._open_blobs:
            self._flush()
        self._open_blobs.append(data)
        self._open_bytes += len(data)
        self.digests.append(key)
        self.lengths.append(len(data))
        self.kinds.append(kind)

    def end_frame(self) -> None:
        """Begin a new frame with the next blob, even if this one is not full."""
        self._flush()

    def _add_sealed(self, key: bytes, data: bytes) -> None:
        """Add a sealed blob in a raw frame of its own: compressed with others, the frame's size would tell about them."""
        self._flush()
        self._drain(0)
        self._add_frame(len(data), 1, bytes([RAW]) + data)
        self.digests.append(key)
        self.lengths.append(len(data))
        self.kinds.append(SEALED)

    def compress_ahead(self) -> None:
        """Begin to compress a partly filled frame if it is large enough: no blob is added for a while."""
        if self._workers is not None and self._open_bytes >= COMPRESS_AHEAD:
            self._flush()

    def end(self) -> None:
        """Write the remaining frames and end the threads: no blob is added any more."""
        self._flush()
        self._drain(0)
        self._close_workers()

    def sync(self, *, wait: bool = True) -> None:
        """Write the remaining frames and the index, and sync the pack, which has no name yet.

        Not `wait`: sync in the background until `finish`, while the caller makes rows under the store's lock.
        """
        self.end()
        table = self.size or len(MAGIC)
        index = b"".join(
            [
                b"".join([pack_numbers("<QQQQ", *frame) for frame in self.frames]),
                b"".join(self.digests),
                pack_numbers(f"<{len(self.lengths)}Q", *self.lengths),
                bytes(self.kinds),
                pack_numbers("<QQQ", table, len(self.frames), len(self.digests)),
            ]
        )
        key = digest(index)
        self.name = key[:16].hex()
        self._write(index + key + END)
        upload = self.upload
        assert upload is not None

        def make_durable(nothing: bytes) -> bytes:
            upload.sync()
            return nothing

        self._syncing = None if wait else start_job(make_durable)
        if self._syncing is None:
            upload.sync()

    def finish(self) -> None:
        """Give the pack its name, once it is durable."""
        assert self.upload is not None
        if self._syncing is not None:
            self._syncing.result()
        self.upload.finish(self.name)

    def abort(self) -> None:
        self._close_workers()
        if self._syncing is not None:
            try:
                self._syncing.result()  # the file must stay open while the thread syncs it
            except OSError:
                pass
        if self.upload is not None:
            self.upload.abort()

    def _close_workers(self) -> None:
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def entries(self) -> Iterator[tuple[bytes, Location]]:
        return _entries(self.name, self.frames, self.digests, self.lengths, self.kinds)

    def _flush(self) -> None:
        if not self._open_blobs:
            return
        raw, count = b"".join(self._open_blobs), len(self._open_blobs)
        self._open_blobs, self._open_bytes = [], 0
        self._total += len(raw)
        if self._workers is None and self._total <= COMPRESS_WITHOUT_THREADS and self.level == 1:
            self._add_frame(len(raw), count, compress_small(raw))
            return
        if self._workers is None:
            level = self.level
            self._workers = Workers(self.threads, lambda: frame_compressor(level))
        self._waiting.append((len(raw), count, self._workers.submit(raw)))
        self._pending += len(raw)
        # Enough frames wait to keep the compressors busy, few enough to bound memory.
        self._drain(4 if len(raw) <= 2 * FRAME else 2)

    def _drain(self, most: int) -> None:
        while len(self._waiting) > most:
            raw, count, job = self._waiting.pop(0)
            self._pending -= raw
            self._add_frame(raw, count, job.result())

    def _add_frame(self, raw: int, count: int, stored: bytes) -> None:
        if self.size == 0:
            self._write(MAGIC)
        self.frames.append((self.size, len(stored), raw, count))
        self._write(stored)

    def _write(self, data: bytes) -> None:
        if self.upload is None:
            self.upload = self.blobs.create()
        if self.size == 0 and data is not MAGIC:
            self.upload.write(MAGIC)
            self.size += len(MAGIC)
        self.upload.write(data)
        self.size += len(data)


def compress_small(raw: bytes) -> bytes:
    """Return the stored form of a small save's only frame. Loading Zstandard takes longer than zlib takes for few bytes."""
    if len(raw) > COMPRESS_WITH_ZLIB:
        return compress(raw, 1)
    return bytes([ZLIB]) + zlib_compress(raw, 1)


def compress(raw: bytes, level: int) -> bytes:
    """Return a frame's stored form: Zstandard, or raw if that is not smaller."""
    return frame_compressor(level)(raw)


def frame_compressor(level: int) -> Callable[[bytes], bytes]:
    """Return a function like `compress` for many frames, one after another."""
    squeeze = make_compressor(level)

    def store(raw: bytes) -> bytes:
        packed = squeeze(raw)
        if len(packed) >= len(raw):
            return bytes([RAW]) + raw
        return bytes([ZSTD]) + packed

    return store


def decompress(stored: bytes, most: int = MAX_FRAME) -> bytes:
    """Return a frame's raw form. Raises `Damaged` if it is invalid or has more than `most` bytes."""
    data, is_whole = _decompress(stored, most)
    if not is_whole:
        raise Damaged("a frame is truncated or exceeds the size limit")
    return data


def decompress_prefix(stored: bytes, least: int) -> bytes:
    """Return at least the first `least` bytes of a frame's raw form, fewer if it is truncated: the caller checks digests.

    For few bytes no more is decompressed. Otherwise the whole frame: Zstandard's module allocates in a few sizes that the
    next frame can reuse, and a limit of another size would cost more than it saves.
    """
    return _decompress(stored, max(least, 1) if least <= PARTIAL_READ else max(MAX_SHARED_FRAME, least))[0]


def _decompress(stored: bytes, most: int) -> tuple[bytes, bool]:
    """Return at most `most` bytes of a frame's raw form, and whether that is all of it. Raises `Damaged`."""
    if not stored:
        raise Damaged("a frame is empty")
    codec, body = stored[0], memoryview(stored)[1:]
    try:
        if codec == RAW:
            return bytes(body), True
        if codec == ZLIB:
            inflater: Any = decompressobj()
        elif codec == ZSTD:
            inflater = zstd_module().ZstdDecompressor()
        else:
            raise Damaged(f"a frame has the unknown codec {codec}")
        data: bytes = inflater.decompress(body, most)
    except Exception as error:
        # Errors are recognised by their names: the modules that define them are loaded only when needed.
        kind = type(error)
        if not (isinstance(error, (EOFError, ValueError)) or kind.__module__ == "zlib" or kind.__name__ == "ZstdError"):
            raise
        # A frame that did not fit into memory is not damaged, and must not be repaired or skipped.
        raise shortage(error) or Damaged(f"a frame does not decompress: {error}") from None
    return data, inflater.eof


def read_index(
    blobs: Blobs, name: str, *, strict: bool = True
) -> tuple[int, list[tuple[bytes, Location]], list[tuple[int, int, int, int]]]:
    """Return (size, entries, frames) of a pack from its own index. Raises `Damaged` if the index does not match its digest.

    Not `strict`: only if it makes no sense at all. Then the caller must check every blob against its digest.
    """
    size = blobs.size(name)
    if size < len(MAGIC) + TRAILER:
        raise Damaged(f"pack {name} is truncated")
    try:
        trailer = blobs.read(name, size - TRAILER, TRAILER)
        table, frame_count, blob_count = unpack("<QQQ", trailer[:24])
        if strict and (trailer[56:] != END or blobs.read(name, 0, 8) != MAGIC):
            raise Damaged(f"pack {name} has an invalid header or trailer")
        if table + 32 * frame_count + 41 * blob_count + TRAILER != size:
            raise Damaged(f"the index of pack {name} does not match its size")
        index = blobs.read(name, table, size - TRAILER - table)
    except EOFError:
        raise Damaged(f"pack {name} is truncated") from None
    key = digest(index + trailer[:24])
    if strict and (key != trailer[24:56] or key[:16].hex() != name):
        raise Damaged(f"the index of pack {name} does not match its digest")
    frames = [unpack_from("<QQQQ", index, 32 * number) for number in range(frame_count)]
    at = 32 * frame_count
    digests = [index[at + 32 * number : at + 32 * number + 32] for number in range(blob_count)]
    at += 32 * blob_count
    lengths = unpack_from(f"<{blob_count}Q", index, at)
    kinds = index[at + 8 * blob_count :]
    if sum(frame[3] for frame in frames) != blob_count or not _fits(frames, lengths, table):
        raise Damaged(f"the index of pack {name} contradicts itself")
    return size, list(_entries(name, frames, digests, lengths, kinds)), frames


def _fits(frames: Any, lengths: Any, table: int) -> bool:
    """Return whether the frames follow one another up to the table, each as large as its blobs together."""
    at, blob = len(MAGIC), 0
    for offset, stored, raw, count in frames:
        if offset != at or raw > MAX_FRAME or raw != sum(lengths[blob : blob + count]):
            return False
        at += stored
        blob += count
    return at == table


def _entries(name: str, frames: Any, digests: Any, lengths: Any, kinds: Any) -> Iterator[tuple[bytes, Location]]:
    blob = 0
    for frame_offset, stored, _, count in frames:
        offset = 0
        for _ in range(count):
            length = lengths[blob]
            yield digests[blob], Location(name, frame_offset, stored, offset, length, kinds[blob])
            offset += length
            blob += 1
