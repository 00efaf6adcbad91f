"""What changed below the root, by any writer: a second look at what the check named, or a walk through everything."""

from __future__ import annotations

from _bisect import bisect_left, bisect_right
from _stat import S_IFDIR, S_IFMT

from holdfast.workspace.below import lstat_below
from holdfast.workspace.cache import CODES, Cache
from holdfast.workspace.cache_writing import joined
from holdfast.workspace.capture import NEVER, Capture
from holdfast.workspace.choose import RULE_FILE, SHORTAGE
from holdfast.workspace.walk import (
    DISREGARDED,
    NOT_ENTERED,
    REPOSITORY,
    SMALL,
    UNREAD,
    VANISHED,
    Known,
    Scan,
    Visitor,
    list_folder,
    too_many,
    walk,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.workspace.cache import Column
    from holdfast.workspace.choose import Listing

__all__ = ["Scan", "recheck", "walk"]


def recheck(
    root: int, cache: Cache, capture: Capture, now: int, files: Sequence[int], folders: Sequence[int]
) -> Scan | None:
    """Look again at what `cache.check` named; None where only a walk can tell (ignore rules changed, and the like).

    `now` is the file system's clock less a margin: a time at or after it is not trusted.
    """
    try:
        return _Recheck(root, cache, capture, now).run(files, folders)
    except _OnlyAWalkCanTell:
        return None


class _OnlyAWalkCanTell(Exception):
    pass


class _Recheck:
    """Folders that changed are visited as in a walk, and new folders entered; the rest is taken over from the cache."""

    def __init__(self, root: int, cache: Cache, capture: Capture, now: int) -> None:
        self.root, self.capture, self.now = root, capture, now
        self.old, self.marks = Known(cache), set(cache.marks())
        self.scan = Scan(False)
        self.visitor = Visitor(root, capture, now, self.scan, self.old, lambda path: UNREAD + path not in self.marks)
        self.visitor.rules.repositories = self._marked(REPOSITORY)
        self.visitor.rules.disregarded = self._marked(DISREGARDED)
        self.visited: set[bytes] = set()
        self.lost: set[bytes] = set()
        """Folders that are gone with all below them."""
        self.unread = self._marked(UNREAD)
        self.kept: set[int] = set()
        """Files in folders that were visited, known to be as they were."""
        self.touched: list[tuple[int, bytes]] = []
        """Files that changed in folders that did not: number and path."""

    def run(self, files: Sequence[int], folders: Sequence[int]) -> Scan:
        old, scan = self.old, self.scan
        self.changed = sorted(files)
        for path in sorted([old.paths[number] for number in folders]):  # a folder before those in it
            if path not in self.visited and not self._is_lost(path):
                self._visit(path)
        for path in self._marked(SMALL):
            if self.visited and self._was_visited_in(path) and self.visitor.chooser.is_large(path):
                raise _OnlyAWalkCanTell
        for number in files:
            path = old.paths[bisect_right(old.starts, number) - 1]
            if path not in self.visited and not self._is_lost(path):
                self._look(number, path + b"/" + old.names[number] if path else old.names[number])
        for path in sorted(self.visitor.rules.disregarded):
            if not self._is_lost(path):
                self.visitor.disregard(path)
        self._take_over()
        if len(scan.names) > self.capture.max_files:
            raise too_many(self.capture.max_files)
        return scan

    def _visit(self, path: bytes) -> None:
        """List a folder again whose times moved, and enter the new ones in it."""
        visitor, old = self.visitor, self.old
        try:
            seen, entries, kept = list_folder(self.root, path, self._sure(path), self.capture.accelerated)
        except OSError as error:
            if not path or error.errno in SHORTAGE:
                raise
            if error.errno not in VANISHED:
                raise _OnlyAWalkCanTell from None
            self.lost.add(path)
            return
        names = {name for name, _, _ in entries}
        names.update([old.names[number] for number in kept])
        apart = NOT_ENTERED + path in self.marks
        if visitor.stands_apart(path, seen, entries, names):
            if not apart:
                raise _OnlyAWalkCanTell
            self.visited.add(path)
            return
        if apart or self._rules_moved(path, entries, names, kept):
            raise _OnlyAWalkCanTell
        self.visited.add(path)
        self.kept.update(kept)
        for folder in visitor.visit(path, seen, entries, names, *visitor.rules.of(path), kept):
            if folder[0] not in old.numbers:
                visitor.enter(folder)
            elif NOT_ENTERED + folder[0] in self.marks:
                self._visit(folder[0])
        prefix = path + b"/" if path else b""
        for below in [prefix + name for name, is_folder, _ in entries if is_folder]:
            if below in old.numbers and below not in self.visited and NOT_ENTERED + below in self.scan.marks:
                self.lost.add(below)  # known so far, and left out from now on

    def _sure(self, path: bytes) -> dict[bytes, int]:
        """Files of a folder that the check has seen to be as they were; what is decided by looking is not among them."""
        sure = self.old.files(path)
        if not sure:
            return sure
        first = next(iter(sure.values()))
        apart = [self.old.names[number] for number in self._changed_in(first, first + len(sure))]
        apart += [name for name in sure if name[0] == 46 and (name == RULE_FILE or name.lower() in NEVER)]  # "."
        apart += [name for name in self.capture.markers if name in sure]
        if self.unread:
            prefix = path + b"/" if path else b""
            apart += [name for name in sure if prefix + name in self.unread]
        for name in apart:
            sure.pop(name, None)
        return sure

    def _changed_in(self, start: int, end: int) -> list[int]:
        changed = self.changed
        return changed[bisect_left(changed, start) : bisect_left(changed, end)]

    def _rules_moved(self, path: bytes, entries: Listing, names: set[bytes], kept: Sequence[int]) -> bool:
        """Is it no longer sure that what was decided further down still holds?"""
        if self.capture.ignored == "all":
            return False
        old, rules = self.old, self.visitor.rules
        is_repository = b".git" in names
        if path and is_repository != (path in rules.repositories):
            return True
        number = old.files(path).get(RULE_FILE)
        before = [column[number] for column in old.columns[:3]] if number is not None else None
        found = [info for name, _, info in entries if name == RULE_FILE and info is not None]
        if before != ([found[0].st_ctime_ns, found[0].st_size, found[0].st_ino] if found else None):
            return True
        if path and not is_repository:
            return False
        everything: Listing = [*entries, *[(old.names[number], False, None) for number in kept]]
        hidden = self.visitor.chooser.hides_everything(path, everything, rules.enter(path, (), is_repository))
        return hidden != (path in rules.disregarded)

    def _look(self, number: int, path: bytes) -> None:
        """Look again at one file of a folder that did not change."""
        scan, visitor, columns = self.scan, self.visitor, self.old.columns
        name = path.rpartition(b"/")[2]
        if name in self.capture.markers or (name == RULE_FILE and self.capture.ignored != "all"):
            raise _OnlyAWalkCanTell
        try:
            seen = lstat_below(self.root, path)
        except OSError as error:
            if error.errno not in VANISHED:
                raise _OnlyAWalkCanTell from None
            scan.gone.append(path)
            columns[0][number] = -1
            return
        if S_IFMT(seen.st_mode) == S_IFDIR:
            raise _OnlyAWalkCanTell
        rules = visitor.rules.of(path.rpartition(b"/")[0]) if visitor.chooser.rules_matter(seen) else ((), False)
        kind = visitor.chooser.file(path, seen, *rules)
        if kind is not None:
            scan.left.append((path, kind, 0, seen))
        else:
            scan.candidates.append((path, seen))
            self.touched.append((number, path))
        self.marks.discard(UNREAD + path)
        columns[0][number] = seen.st_ctime_ns if 0 < seen.st_ctime_ns < self.now else -1
        columns[1][number], columns[2][number] = seen.st_size, seen.st_ino

    def _take_over(self) -> None:
        """Note what is gone, and add to the folders visited all those that are as they were."""
        old, scan, seen, kept = self.old, self.scan, self.scan.seen, self.kept
        dropped = sorted([old.numbers[path] for path in self.visited])
        if self.lost:
            dropped = [number for number, path in enumerate(old.paths) if path in self.visited or self._is_lost(path)]
        gone = [old.paths[number] for number in dropped]
        for number in dropped:
            prefix = old.paths[number] + b"/" if old.paths[number] else b""
            files = range(old.starts[number], old.starts[number + 1])
            gone += [prefix + old.names[file] for file in files if file not in kept]
        for mark in self.marks:
            path = mark[1:]
            made_anew = mark[:1] in (NOT_ENTERED, UNREAD) and (
                path in self.visited or path.rpartition(b"/")[0] in self.visited
            )
            if made_anew or self._is_lost(path):
                gone.append(path)
            else:
                scan.marks.add(mark)
        scan.gone += [path for path in gone if path not in seen]
        self._join(dropped)

    def _join(self, dropped: Iterable[int]) -> None:
        old, scan = self.old, self.scan
        offsets: list[tuple[int, int]] = []
        parts: list[list[Column]] = [[column] for column in scan.columns]
        first = 0
        for end in (*dropped, len(old.paths)):
            start, stop = old.starts[first], old.starts[end]
            offsets.append((start, len(scan.names) - start))
            scan.names += old.names[start:stop]
            scan.paths += old.paths[first:end]
            for number, column in enumerate(old.columns):
                parts[number].append(column[start:stop] if number < 3 else column[first:end])
            first = end + 1
        scan.columns = [joined(code, part) for code, part in zip(CODES, parts, strict=True)]
        for at, path in self.touched:
            scan.places[path] = at + offsets[bisect_right(offsets, (at, 1 << 62)) - 1][1]

    def _marked(self, letter: bytes) -> set[bytes]:
        return {mark[1:] for mark in self.marks if mark[:1] == letter}

    def _is_lost(self, path: bytes) -> bool:
        while self.lost and path:
            if path in self.lost:
                return True
            path = path.rpartition(b"/")[0]
        return False

    def _was_visited_in(self, folder: bytes) -> bool:
        return folder in self.visited or any(path.startswith(folder + b"/") for path in self.visited)
