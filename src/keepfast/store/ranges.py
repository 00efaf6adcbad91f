"""Random access to stored contents: of a large file only the requested chunks are read."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable

from keepfast.model.errors import Damaged
from keepfast.store.repository import Repository
from keepfast.store.rows import CHUNKS, LIST, SEALED
from keepfast.store.sealed import length_of

MAX_BYTES = 32 << 20
MAX_LAYOUTS = 64


class Ranges:
    """Reads any range of any content, with a small cache.

    `repository` is called each time: a long-running reader may have to open the store again.
    """

    def __init__(self, repository: Callable[[], Repository]) -> None:
        self.repository = repository
        self._layouts: OrderedDict[bytes, tuple[list[int], list[bytes]]] = OrderedDict()
        self._pieces: OrderedDict[bytes, bytes] = OrderedDict()
        self._cached_bytes = 0

    def read(self, key: bytes, size: int, offset: int, length: int) -> bytes:
        """Return a range of a content. Raises `Damaged`: each chunk is checked, and the sum of their lengths."""
        end = min(offset + length, size)
        if offset >= end:
            return b""
        starts, keys = self._chunk_layout(key, size)
        parts, at = [], bisect_right(starts, offset) - 1
        while at < len(keys) and starts[at] < end:
            piece = self._piece(keys[at])
            parts.append(piece[max(offset - starts[at], 0) : end - starts[at]])
            at += 1
        return b"".join(parts)

    def _chunk_layout(self, key: bytes, size: int) -> tuple[list[int], list[bytes]]:
        if key in self._layouts:
            self._layouts.move_to_end(key)
            return self._layouts[key]
        repository, keys = self.repository(), [key]
        places = repository.ledger.locate(keys)
        if key in places and places[key].kind in (CHUNKS, LIST):
            chunks = repository.contents.blob(key)[0]
            keys = [chunks[at : at + 32] for at in range(0, len(chunks), 32)]
            places = repository.ledger.locate(list(set(keys)))
        starts, total = [], 0
        for part in keys:
            if part not in places:
                raise Damaged(f"The store has no content {part.hex()}.")
            starts.append(total)
            total += self._length(part) if places[part].kind == SEALED else places[part].length
        if total != size:
            raise Damaged(f"The content {key.hex()} has {total} bytes instead of {size}.")
        self._layouts[key] = starts, keys
        if len(self._layouts) > MAX_LAYOUTS:
            self._layouts.popitem(last=False)
        return starts, keys

    def _length(self, key: bytes) -> int:
        return length_of(self.repository().contents.blob(key)[0])

    def _piece(self, key: bytes) -> bytes:
        piece = self._pieces.get(key)
        if piece is None:
            data, kind = self.repository().contents.blob(key)
            piece = self._pieces[key] = self.repository().contents.sealer().open(data) if kind == SEALED else data
            self._cached_bytes += len(piece)
            while self._cached_bytes > MAX_BYTES and len(self._pieces) > 1:
                self._cached_bytes -= len(self._pieces.popitem(last=False)[1])
        self._pieces.move_to_end(key)
        return piece
