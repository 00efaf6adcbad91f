"""Assemble the next stat cache after a re-check from pieces of the last one and new entries, without unpacking names."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from keepfast.model.compiled import demand
from keepfast.workspace.stat_cache import CODES, Cache, Column
from keepfast.workspace.stat_cache_writer import joined, packed
from keepfast.workspace.walk import CachedTree, Scan

try:
    from keepfast.workspace import _check

    demand(_check)
    from keepfast.workspace._check import join_pieces
except ImportError:
    join_pieces = None  # type: ignore[assignment]


class Pieces:
    """Pieces in the order of the next cache: first visited and new folders, then all others.

    Until `finish`, columns and names of the scan hold only the new entries.
    """

    def __init__(self, cache: Cache, scan: Scan, old: CachedTree, accelerated: bool) -> None:
        self.cache, self.scan, self.old, self.accelerated = cache, scan, old, accelerated
        self.pieces: list[tuple[int, int, bool]] = []
        """(first file, number after the last file, whether these are numbers of the last cache or of the new entries)."""
        self.placed = 0
        """The number of new entries that have a piece."""
        self.touched: list[tuple[int, tuple[int, int, int], bytes]] = []
        """Changed files in unchanged folders: number, stat values, and the path if the file must be read."""

    def names(self, numbers: list[int]) -> list[bytes]:
        """Return the names of files in the last cache; numbers are sorted."""
        raw, base = self.cache.raw, self.cache.texts()
        starts = [base + offset for offset in self.cache.offsets(numbers, self.accelerated)] if numbers else []
        return [raw[start : raw.index(b"\0", start)] for start in starts]

    def keep(self, runs: list[int]) -> int:
        """Add a folder's unchanged files, before its other files follow; return how many."""
        self._place()
        self.pieces += [(start, end, True) for start, end in pairs(runs)]
        return sum(runs[1::2]) - sum(runs[::2])

    def touch(self, number: int, ctime: int, size: int = 0, inode: int = 0, path: bytes = b"") -> None:
        """Record new stat values of a file that stays."""
        self.touched.append((number, (ctime, size, inode), path))

    def finish(self, dropped: list[int]) -> None:
        """Add all folders except these, and complete the columns of the scan."""
        old, scan, first = self.old, self.scan, 0
        self._place()
        offsets = self._offsets(self.pieces, False)
        rest: list[tuple[int, int, bool]] = []
        folders: list[list[Column]] = [[column] for column in scan.columns[3:]]
        for end in (*dropped, len(old.paths)):
            if end > first:
                rest.append((old.starts[first], old.starts[end], True))
                scan.paths += old.paths[first:end]
                for parts, column in zip(folders, old.columns[3:], strict=True):
                    parts.append(column[first:end])
            first = end + 1
        others = self._offsets(rest, True, sum([end - start for start, end, _ in self.pieces]))
        self.pieces += rest
        files = self._joined()
        scan.columns = files + [joined(code, parts) for code, parts in zip(CODES[3:], folders, strict=True)]
        scan.names = []
        scan.places = {path: at + _offset(offsets, at) for path, at in scan.places.items()}
        for number, values, path in self.touched:
            at = number + _offset(others, number)
            for column, value in zip(files, values, strict=True):
                column[at] = value
            if path:
                scan.places[path] = at

    def _place(self) -> None:
        """Add a piece for the new files that have none yet."""
        end = len(self.scan.columns[0])
        if end > self.placed:
            self.pieces.append((self.placed, end, False))
            self.placed = end

    def _offsets(self, pieces: list[tuple[int, int, bool]], of_old: bool, at: int = 0) -> list[tuple[int, int]]:
        """Return pairs (first number in the old cache or the new files, shift of its position in the next cache)."""
        offsets = []
        for start, end, is_old in pieces:
            if is_old is of_old:
                offsets.append((start, at - start))
            at += end - start
        return offsets

    def _joined(self) -> list[Column]:
        """Return the columns of all files of the next cache; sets the scan's names."""
        scan, new = (
            self.scan,
            [packed(code, column) for code, column in zip(CODES[:3], self.scan.columns, strict=False)],
        )
        if not self.accelerated or join_pieces is None:
            scan.text = self._text()
            return self._columns(new)
        text = b"".join([name + b"\0" for name in scan.names])
        pieces = packed("I", [number for piece in self.pieces for number in piece])
        data, scan.text = join_pieces(self.cache.raw, b"".join(new), text, pieces)
        view, length = memoryview(data), len(data) // 3
        return [
            view[at * length : at * length + length].cast(code)  # type: ignore[call-overload]
            for at, code in enumerate(CODES[:3])
        ]

    def _columns(self, new: list[bytes]) -> list[Column]:
        """Do the same in Python."""
        files = []
        for code, column, packed_column in zip(CODES[:3], self.old.columns[:3], new, strict=True):
            fresh = memoryview(packed_column).cast(code)  # type: ignore[call-overload]
            files.append(joined(code, [(column if of_old else fresh)[start:end] for start, end, of_old in self.pieces]))
        return files

    def _text(self) -> bytes:
        """Return the names of all pieces."""
        numbers = sorted({number for start, end, of_old in self.pieces if of_old for number in (start, end)})
        places = dict(zip(numbers, self.cache.offsets(numbers, self.accelerated), strict=True))
        text, new = self.cache.text(), self.scan.names
        parts: list[bytes | memoryview] = []
        for start, end, of_old in self.pieces:
            if of_old:
                parts.append(text[places[start] : places[end]])
            else:
                parts.append(b"".join([name + b"\0" for name in new[start:end]]))
        return b"".join(parts)


def pairs(runs: list[int]) -> Iterator[tuple[int, int]]:
    """Yield each run as (first number, number after its last)."""
    return zip(runs[::2], runs[1::2], strict=True)


def _offset(offsets: list[tuple[int, int]], number: int) -> int:
    return offsets[bisect_right(offsets, (number, 1 << 62)) - 1][1]
