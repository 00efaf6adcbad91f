"""Find what changed below the root: a re-check of what the stat cache's check named, or a walk through everything."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from os import stat_result
from stat import S_IFDIR, S_IFMT
from typing import NamedTuple

from keepfast.fsutil.descriptors import lstat_below
from keepfast.workspace.capture import Capture
from keepfast.workspace.directory import VANISHED, Listed, list_changed, list_folder, runs_of
from keepfast.workspace.selection import RULE_FILE, SHORTAGE, Listing
from keepfast.workspace.stat_cache import Cache
from keepfast.workspace.stat_cache_pieces import Pieces, pairs
from keepfast.workspace.walk import (
    CROWDED,
    DISREGARDED,
    FORCED,
    LEFT,
    NOT_ENTERED,
    REPOSITORY,
    SMALL,
    UNREAD,
    CachedTree,
    FolderVisitor,
    Scan,
    too_many_files,
    walk,
)

__all__ = ["CROWDED", "Scan", "recheck", "walk"]


class LightStat(NamedTuple):
    """The stat of a file as listed in C. Python's `stat_result` takes three times as much memory."""

    st_mode: int
    st_ino: int
    st_size: int
    st_uid: int
    st_gid: int
    st_dev: int
    st_mtime_ns: int
    st_ctime_ns: int


def recheck(
    root: int, cache: Cache, capture: Capture, now: int, files: Sequence[int], folders: Sequence[int]
) -> Scan | None:
    """Re-check the files and folders that `cache.check` named; None if a walk is needed (changed ignore rules, and the like).

    `now` is the file system's clock minus a margin: a time at or after it is not trusted.
    """
    try:
        return _Recheck(root, cache, capture, now).run(files, folders)
    except _WalkNeeded:
        return None


class _WalkNeeded(Exception):
    pass


def _light_stat(seen: stat_result) -> stat_result:
    """Return the stat in the form of a listing in C."""
    return LightStat(  # type: ignore[return-value]
        seen.st_mode,
        seen.st_ino,
        seen.st_size,
        seen.st_uid,
        seen.st_gid,
        seen.st_dev,
        seen.st_mtime_ns,
        seen.st_ctime_ns,
    )


class _Recheck:
    """Visits changed folders as a walk does, and enters new ones; the rest is taken from the cache."""

    def __init__(self, root: int, cache: Cache, capture: Capture, now: int) -> None:
        self.root, self.cache, self.capture, self.now = root, cache, capture, now
        self.old = CachedTree(cache)
        # The lambdas below hold this set and not `self`: a reference cycle would keep the whole cache in memory.
        self.marks = marks = set(cache.marks())
        self.scan = Scan(False)
        self.visitor = FolderVisitor(
            root,
            capture,
            now,
            self.scan,
            self.old,
            lambda path: UNREAD + path not in marks,
            lambda path: FORCED + path in marks,
        )
        self.visitor.rules.repositories = self._marked(REPOSITORY)
        self.visitor.rules.disregarded = self._marked(DISREGARDED)
        self.visited: dict[bytes, list[int]] = {}
        """Listed folders → runs of their unchanged files."""
        self.lost: set[bytes] = set()
        """Deleted folders; folders below them are added when they are looked up."""
        self.existing: set[bytes] = set()
        """Paths known to have no deleted folder above them."""
        self.unread = self._marked(UNREAD)
        self.pieces = Pieces(cache, self.scan, self.old, capture.accelerated)

    def run(self, files: Sequence[int], folders: Sequence[int]) -> Scan:
        old, scan = self.old, self.scan
        self.changed = sorted(files)
        self.listed: dict[bytes, Listed] = {}
        if self.capture.accelerated:
            self.listed = list_changed(self.root, self.cache, old.paths, files, folders, self.capture.markers)
        for path in self.unread:  # the C code does not know which of its files are unchanged
            self.listed.pop(path.rpartition(b"/")[0], None)
        for path in sorted([old.paths[number] for number in folders]):  # a folder before those in it
            if path not in self.visited and not self._is_lost(path):
                self._visit(path)
        for path in self._marked(SMALL):
            if self.visited and self._was_visited_in(path) and self.visitor.chooser.is_large(path):
                raise _WalkNeeded
        alone = []
        for number in self.changed:
            path = old.paths[bisect_right(old.starts, number) - 1]
            if path not in self.visited and not self._is_lost(path):
                alone.append((number, path + b"/" if path else b""))
        names = self.pieces.names([number for number, _ in alone])
        for (number, prefix), name in zip(alone, names, strict=True):
            self._look(number, prefix + name)
        for path in sorted(self.visitor.rules.disregarded):
            if not self._is_lost(path):
                self.visitor.disregard(path)
        self._keep_unchanged()
        if len(scan.columns[0]) > self.capture.max_files:
            raise too_many_files(self.capture.max_files)
        return scan

    def _visit(self, path: bytes) -> None:
        """List a folder whose times changed, and enter new folders in it."""
        visitor, old = self.visitor, self.old
        try:
            seen, entries, before, runs = self.listed.get(path) or self._list(path)
        except OSError as error:
            if not path or error.errno in SHORTAGE:
                raise
            if error.errno not in VANISHED:
                raise _WalkNeeded from None
            self.lost.add(path)
            self.existing.clear()
            return
        # Unchanged files are not among these; none of them has a name that affects the rules.
        names = {name for name, _, _ in entries}
        was_not_entered = NOT_ENTERED + path in self.marks
        if visitor.leave_out_store_or_marked(path, seen, entries, names):
            if not was_not_entered:
                raise _WalkNeeded
            self.visited[path] = []
            return
        if was_not_entered or self._rules_moved(path, entries, names, before, runs):
            raise _WalkNeeded
        self.visited[path] = runs
        kept_count = self.pieces.keep(runs)
        for folder in visitor.visit(path, seen, entries, names, *visitor.rules.of(path), before, kept_count):
            if folder[0] not in old.numbers:
                visitor.enter(folder)
            elif NOT_ENTERED + folder[0] in self.marks:
                self._visit(folder[0])
        prefix = path + b"/" if path else b""
        for below in [prefix + name for name, is_folder, _ in entries if is_folder]:
            if below in old.numbers and below not in self.visited and NOT_ENTERED + below in self.scan.marks:
                self.lost.add(below)  # captured so far, and left out from now on
                self.existing.clear()

    def _list(self, path: bytes) -> Listed:
        cached_files = self.old.files(path)
        seen, entries, unchanged = list_folder(self.root, path, self._unchanged_files(path, cached_files))
        return seen, entries, cached_files, runs_of(unchanged)

    def _unchanged_files(self, path: bytes, cached_files: dict[bytes, int]) -> dict[bytes, int]:
        """Return the files of a folder that the check found unchanged, without those that must be looked at again."""
        first = next(iter(cached_files.values()), 0)
        changed = self._changed_in(first, first + len(cached_files))
        sure = {name: number for name, number in cached_files.items() if name[0] != 46 and number not in changed}  # "."
        for name in self.capture.markers:
            sure.pop(name, None)
        if self.unread:
            prefix = path + b"/" if path else b""
            sure = {name: number for name, number in sure.items() if prefix + name not in self.unread}
        return sure

    def _changed_in(self, start: int, end: int) -> set[int]:
        changed = self.changed
        return set(changed[bisect_left(changed, start) : bisect_left(changed, end)])

    def _rules_moved(
        self, path: bytes, entries: Listing, names: set[bytes], before: dict[bytes, int], runs: list[int]
    ) -> bool:
        """Return whether the folder's ignore rules may have changed, so that decisions below it are no longer valid."""
        if not self.capture.reads_rules:
            return False
        old, rules = self.old, self.visitor.rules
        is_repository = b".git" in names
        if path and is_repository != (path in rules.repositories):
            return True
        number = before.get(RULE_FILE)
        cached_rule_file = [column[number] for column in old.columns[:3]] if number is not None else None
        rule_files = [info for name, _, info in entries if name == RULE_FILE and info is not None]
        if cached_rule_file != (
            [rule_files[0].st_ctime_ns, rule_files[0].st_size, rule_files[0].st_ino] if rule_files else None
        ):
            return True
        if path and not is_repository:
            return False
        stack = rules.enter(path, (), is_repository)
        everything: Listing = list(entries)
        if stack:
            for start, end in pairs(runs):
                everything += [(name, False, None) for name in old.names[start:end]]
        return self.visitor.chooser.hides_everything(path, everything, stack) != (path in rules.disregarded)

    def _look(self, number: int, path: bytes) -> None:
        """Re-check one file of an unchanged folder."""
        scan, visitor = self.scan, self.visitor
        name = path.rpartition(b"/")[2]
        if name in self.capture.markers or (name == RULE_FILE and self.capture.reads_rules):
            raise _WalkNeeded
        self.marks -= {LEFT + path, FORCED + path}
        try:
            seen = lstat_below(self.root, path)
        except OSError as error:
            if error.errno not in VANISHED:
                raise _WalkNeeded from None
            scan.removed.append(path)
            self.pieces.touch(number, -1)
            return
        if S_IFMT(seen.st_mode) == S_IFDIR:
            raise _WalkNeeded
        rules = visitor.rules.of(path.rpartition(b"/")[0]) if visitor.chooser.rules_matter(seen) else ((), False)
        kind = visitor.chooser.file(path, seen, *rules)
        self.marks.discard(UNREAD + path)
        if kind is not None:
            visitor.leave_file(path, kind, seen)
        else:
            scan.candidates.append((path, _light_stat(seen)))
        ctime = seen.st_ctime_ns if 0 < seen.st_ctime_ns < self.now else -1
        self.pieces.touch(number, ctime, seen.st_size, seen.st_ino, path if kind is None else b"")

    def _keep_unchanged(self) -> None:
        """Record what was removed, and copy all unchanged folders and files to the next stat cache."""
        old, scan, seen = self.old, self.scan, self.scan.seen
        dropped = sorted([old.numbers[path] for path in self.visited])
        if self.lost:
            dropped = [number for number, path in enumerate(old.paths) if path in self.visited or self._is_lost(path)]
        removed = [old.paths[number] for number in dropped]
        files: list[int] = []
        prefixes: list[bytes] = []
        for number in dropped:
            path, start = old.paths[number], old.starts[number]
            prefix, before = path + b"/" if path else b"", len(files)
            for first, end in pairs(self.visited.get(path, [])):
                files += range(start, first)
                start = end
            files += range(start, old.starts[number + 1])
            prefixes += [prefix] * (len(files) - before)
        removed += [prefix + name for prefix, name in zip(prefixes, self.pieces.names(files), strict=True)]
        moved = seen.union(removed)
        for mark in self.marks:
            path = mark[1:]
            if mark[:1] in (LEFT, FORCED):
                if path not in moved and not self._is_lost(path):
                    scan.marks.add(mark)
                continue
            made_anew = mark[:1] in (NOT_ENTERED, UNREAD) and (
                path in self.visited or path.rpartition(b"/")[0] in self.visited
            )
            if made_anew or self._is_lost(path):
                removed.append(path)
            else:
                scan.marks.add(mark)
        scan.removed += [path for path in removed if path not in seen]
        self.pieces.finish(dropped)

    def _marked(self, letter: bytes) -> set[bytes]:
        return {mark[1:] for mark in self.marks if mark[:1] == letter}

    def _is_lost(self, path: bytes) -> bool:
        """Return whether it or a folder above it was deleted. Remembers the answer, because the way up may be long."""
        if not self.lost:
            return False
        above = path
        while above and above not in self.lost and above not in self.existing:
            above = above.rpartition(b"/")[0]
        is_lost = above in self.lost
        (self.lost if is_lost else self.existing).add(path)
        return is_lost

    def _was_visited_in(self, folder: bytes) -> bool:
        return folder in self.visited or any(path.startswith(folder + b"/") for path in self.visited)
