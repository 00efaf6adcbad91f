"""Memory of a save: what a scan knows of a file goes when the file has been read."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

from keepfast.model.entry import Entry
from keepfast.store.digest import digest
from keepfast.workspace import stat_cache as cache
from keepfast.workspace import stat_cache_writer
from keepfast.workspace.capture import Capture
from keepfast.workspace.reader import capture
from keepfast.workspace.scan import recheck, walk
from keepfast.workspace.walk import Scan

KINDS = ("_Recheck", "Known", "Pieces")
"""Classes that know all names of a tree."""


class Watching:
    """A sink that keeps nothing, and notes how many stats the scan still holds whenever a file arrives."""

    def __init__(self, scan: Scan) -> None:
        self.scan, self.left = scan, list[int]()

    def small(self, data: bytes) -> bytes:
        self.left.append(len(self.scan.candidates))
        return digest(data)

    def large(self, read: Callable[[int], bytes]) -> bytes:
        raise AssertionError("all files are small")

    sealed = large

    def is_copy(self, size: int, data: bytes | None) -> bool:
        return False


def test_the_stat_of_a_file_is_let_go_once_it_was_read(tmp_path: Path) -> None:
    """A stat takes twice the memory of the row that comes of it: of a large tree it was the largest part."""
    for number in range(10):
        (tmp_path / f"{number}").write_text(f"{number}\n")
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        scan = walk(fd, None, Capture(), 0, lambda path: False)
        order = [path for path, _ in scan.candidates]
        sink = Watching(scan)
        rows: dict[bytes, Entry] = capture(fd, scan, 0, sink)
    finally:
        os.close(fd)

    assert sink.left == list(range(9, -1, -1))
    assert [path for path in rows if path in order] == order


def test_a_second_look_holds_little_of_each_file_and_nothing_of_the_cache(tmp_path: Path) -> None:
    """Commands do not collect garbage: what is in a circle stays, and that was all names of the tree, once for each look."""
    for name in ("changed", "deleted", "kept"):
        (tmp_path / name).write_text(name)
    fd = os.open(tmp_path, os.O_RDONLY)
    gc.collect()
    gc.disable()
    earlier = [one for one in gc.get_objects() if type(one).__name__ in KINDS]  # of tests that failed in this process
    try:
        first = walk(fd, None, Capture(), 1 << 62, lambda path: False)
        known = cache.Cache(stat_cache_writer.encode(b"", 0, first.columns, first.names, first.paths, first.marks))
        (tmp_path / "changed").write_text("now")
        (tmp_path / "changed").chmod(0o600)
        scan = recheck(fd, known, Capture(), 1 << 62, *cache.check(known, fd))
        left = [one for one in gc.get_objects() if type(one).__name__ in KINDS]
    finally:
        gc.enable()
        os.close(fd)

    assert len(left) == len(earlier)
    assert scan is not None
    [(path, seen)] = scan.candidates
    assert (path, seen.st_size, seen.st_mode & 0o7777) == (b"changed", 3, 0o600)
    assert not isinstance(seen, os.stat_result)  # three times as large
