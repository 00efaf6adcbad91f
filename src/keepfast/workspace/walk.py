"""Walk through everything below the root; the visit of a single folder is shared with the re-check."""

from __future__ import annotations

from collections.abc import Callable
from errno import EACCES, EPERM
from os import stat_result

from keepfast.fsutil.descriptors import lstat_below
from keepfast.model.entry import BY_MARKER, BY_NAME, EXCLUDED, IGNORED, OVERSIZE, UNREADABLE, UNSTEADY
from keepfast.model.errors import TooMany
from keepfast.workspace.capture import Capture
from keepfast.workspace.directory import VANISHED as VANISHED
from keepfast.workspace.directory import list_folder
from keepfast.workspace.marker import show
from keepfast.workspace.plain_check import BITS
from keepfast.workspace.selection import SHORTAGE, Chooser, Listing, Rulebook, Stack
from keepfast.workspace.stat_cache import CROWDED as CROWDED
from keepfast.workspace.stat_cache import DISREGARDED as DISREGARDED
from keepfast.workspace.stat_cache import FORCED as FORCED
from keepfast.workspace.stat_cache import LEFT as LEFT
from keepfast.workspace.stat_cache import NOT_ENTERED as NOT_ENTERED
from keepfast.workspace.stat_cache import REPOSITORY as REPOSITORY
from keepfast.workspace.stat_cache import SMALL as SMALL
from keepfast.workspace.stat_cache import UNREAD as UNREAD
from keepfast.workspace.stat_cache import Cache
from keepfast.workspace.stat_cache_writer import empty_columns

Folder = tuple[bytes, Stack, bool]  # path, rules around it, whether it is ignored

DENIED = (EACCES, EPERM)


class Scan:
    """The result of a scan, and the columns of the next stat cache."""

    __slots__ = (
        "candidates",
        "columns",
        "emptied",
        "folders",
        "forced",
        "full",
        "left",
        "marks",
        "names",
        "notices",
        "paths",
        "places",
        "removed",
        "seen",
        "text",
    )

    def __init__(self, full: bool) -> None:
        self.full = full
        self.candidates: list[tuple[bytes, stat_result]] = []
        """Files and links that must be read."""
        self.folders: list[tuple[bytes, stat_result]] = []
        """Folders that are new or whose mode may have changed."""
        self.emptied: list[tuple[bytes, stat_result]] = []
        """Those of them that were empty and had just changed: their files may have been removed during the scan."""
        self.left: list[tuple[bytes, str, int, stat_result | None]] = []
        """What is left out: path, kind, flags."""
        self.forced: dict[bytes, tuple[bytes, str, int, stat_result | None] | None] = {}
        """Candidates that the rules leave out → what `left` would have had of them; None if they have not changed."""
        self.removed: list[bytes] = []
        """Known paths that are no longer there (after a check; after a walk everything not in `seen` is gone)."""
        self.seen: set[bytes] = set()
        self.notices: list[str] = []
        # The next stat cache.
        self.columns = empty_columns()
        self.names: list[bytes] = []
        self.text: bytes | None = None
        """All names, each followed by NUL, if most are unchanged; `names` is then unused."""
        self.paths: list[bytes] = []
        self.marks: set[bytes] = set()
        self.places: dict[bytes, int] = {}
        """Candidate → its position in the stat columns."""


def walk(root: int, cache: Cache | None, capture: Capture, now: int, is_known: Callable[[bytes], bool]) -> Scan:
    """Scan everything below the descriptor `root`.

    A file whose stat equals that in `cache` counts as unchanged if `is_known(path)`: the newest version has it. The cache
    must belong to that version. `now` is the file system's clock minus a margin: a time at or after it is not trusted.
    Raises `TooMany` if the tree has more files than `capture.max_files`.
    """
    scan = Scan(True)
    forced = {mark[1:] for mark in cache.marks() if mark[:1] == FORCED} if cache is not None else set()
    visitor = FolderVisitor(root, capture, now, scan, CachedTree(cache), is_known, forced.__contains__)
    visitor.enter((b"", (), False))
    return scan


class CachedTree:
    """The tree as a stat cache has it: folders, and the files in each."""

    def __init__(self, cache: Cache | None) -> None:
        self.cache = cache
        self._names: list[bytes] | None = None
        self.paths: list[bytes] = cache.paths() if cache is not None else []
        self.columns = cache.views() if cache is not None else empty_columns()
        self.starts: list[int] = [0]
        """Number of the first file of each folder, and of all files at the end."""
        total = 0
        for count in self.columns[6]:
            total += count
            self.starts.append(total)
        self.numbers = dict(zip(self.paths, range(len(self.paths)), strict=True))

    @property
    def names(self) -> list[bytes]:
        """Names of all files; takes milliseconds for a large tree."""
        if self._names is None:
            self._names = self.cache.names() if self.cache is not None else []
        return self._names

    def files(self, folder: bytes) -> dict[bytes, int]:
        """Return the number of each file directly in the folder by its name."""
        number = self.numbers.get(folder)
        if number is None:
            return {}
        start, end = self.starts[number], self.starts[number + 1]
        return dict(zip(self.names[start:end], range(start, end), strict=True))


class FolderVisitor:
    """Visits folders one by one and records in `scan` what to do with everything in them."""

    def __init__(
        self,
        root: int,
        capture: Capture,
        now: int,
        scan: Scan,
        old: CachedTree,
        is_known: Callable[[bytes], bool],
        is_forced: Callable[[bytes], bool],
    ) -> None:
        self.root, self.capture, self.now, self.scan, self.old = root, capture, now, scan, old
        self.is_known, self.is_forced = is_known, is_forced
        """`is_known`: does the newest version have this file, so that the stat cache can be trusted? `is_forced`: does it have
        this file although the rules leave it out?"""
        self.rules = Rulebook(root, capture)
        self.chooser = Chooser(root, capture)

    def enter(self, start: Folder) -> None:
        """Visit a folder and all below it."""
        todo = [start]
        while todo:
            path, stack, ignored = todo.pop()
            try:
                seen, entries, _ = list_folder(self.root, path)
            except OSError as error:
                if not path or error.errno in SHORTAGE:
                    raise
                if error.errno in VANISHED:
                    self._note_vanished(path)
                else:
                    self._note_unlistable(path, error.errno in DENIED)
                continue
            names = {name for name, _, _ in entries}
            if self.leave_out_store_or_marked(path, seen, entries, names):
                continue
            rules = self._rules(path, stack, entries, names)
            todo += self.visit(path, seen, entries, names, rules, ignored, self.old.files(path))

    def leave_out_store_or_marked(self, path: bytes, seen: stat_result, entries: Listing, names: set[bytes]) -> bool:
        """Leave the folder out if it is the store, or contains a marker file of generated folders; return whether it was."""
        if not path:
            return False
        if (seen.st_dev, seen.st_ino) == self.capture.store:
            self._leave(path, BY_NAME)
        elif not self.capture.markers.isdisjoint(names) and self.chooser.is_marked(path, names):
            self._leave(path, BY_MARKER)
            # Record folder and marker, to notice if the marker is removed.
            markers = [(name, info) for name, _, info in entries if name in self.capture.markers and info is not None]
            for name, info in markers:
                self._note_file(name, info)
            self._note(path, seen, len(markers))
        else:
            return False
        return True

    def visit(
        self,
        path: bytes,
        seen: stat_result,
        entries: Listing,
        names: set[bytes],
        stack: Stack,
        ignored: bool,
        before: dict[bytes, int],
        kept_count: int = 0,
    ) -> list[Folder]:
        """Record the folder's `entries`; return those of its folders that must be entered.

        `before` has the numbers of cached files. `kept_count` more files are unchanged, not among the entries, and treated
        as they were with the same settings.
        """
        scan, capture, chooser, now = self.scan, self.capture, self.chooser, self.now
        prefix = path + b"/" if path else b""
        old_ctimes, old_sizes, old_inodes = self.old.columns[:3]
        ctimes, sizes, inodes = scan.columns[:3]
        first, whole = len(ctimes), True
        further: list[Folder] = []
        if path:
            self._note_listed(path, seen, not entries and not kept_count)
        for name, is_folder, info in entries:
            below = prefix + name
            if name[0] == 46 and (never := chooser.never(prefix, name, names, is_folder)):  # "."
                if never > 0:
                    self._leave(below, never)
                continue
            if is_folder:
                further += self._choose(below, stack, ignored)
                continue
            if capture.excludes_files and chooser.exclude.match(below, False):
                self._leave(below, BY_NAME)
                continue
            scan.seen.add(below)
            if info is None:
                scan.left.append((below, UNREADABLE, 0, None))
                scan.marks.add(UNREAD + below)
                whole = False
                continue
            ctime = info.st_ctime_ns
            kind = chooser.file(below, info, stack, ignored)
            at = before.get(name, -1)
            moved = (
                at < 0
                or old_ctimes[at] != ctime
                or old_sizes[at] != info.st_size
                or old_inodes[at] != info.st_ino
                or not self.is_known(below)
            )
            if kind is None:
                if moved:
                    scan.candidates.append((below, info))
                    scan.places[below] = len(ctimes)
            else:
                self._leave_unless_forced(below, kind, info, moved)
            # Same as _note_file, without a call for every file of the tree.
            scan.names.append(name)
            ctimes.append(ctime if 0 < ctime < now else -1)
            sizes.append(info.st_size)
            inodes.append(info.st_ino)
        if len(ctimes) > capture.max_files:
            raise too_many_files(capture.max_files)
        self._note(path, seen, kept_count + len(ctimes) - first, whole)
        return further

    def _note_listed(self, path: bytes, seen: stat_result, is_empty: bool) -> None:
        self.scan.folders.append((path, seen))
        if is_empty and seen.st_ctime_ns > self.now:
            self.scan.emptied.append((path, seen))

    def _choose(self, path: bytes, stack: Stack, ignored: bool) -> list[Folder]:
        """Return the folder if it must be entered; otherwise leave it out."""
        flags, inside = self.chooser.folder(path, stack, ignored)
        if flags:
            self._leave(path, flags)
            return []
        if inside and not ignored and self.capture.leaves_large:
            self.scan.marks.add(SMALL + path)
        return [(path, stack, inside)]

    def _leave_unless_forced(self, path: bytes, kind: str, seen: stat_result, moved: bool) -> None:
        """Leave a file out, unless the newest version has it in spite of the rules and it is unchanged."""
        if not moved and kind in (OVERSIZE, IGNORED) and self.is_forced(path):
            self.scan.marks.add(FORCED + path)
        else:
            self.leave_file(path, kind, seen)

    def _rules(self, path: bytes, stack: Stack, entries: Listing, names: set[bytes]) -> Stack:
        """Return the rules in force in the folder."""
        if not self.capture.reads_rules:
            return ()
        is_repository = b".git" in names
        if path and is_repository:
            self.scan.marks.add(REPOSITORY + path)
        if not path or is_repository or b".gitignore" in names:
            stack = self.rules.enter(path, stack, is_repository)
        if (not path or is_repository) and self.chooser.hides_everything(path, entries, stack):
            self.disregard(path)
            return ()
        return stack

    def disregard(self, path: bytes) -> None:
        where = show(path) if path else "the root"
        self.scan.notices.append(f"The ignore rules in {where} hide nearly everything there; they are not applied.")
        self.scan.marks.add(DISREGARDED + path)

    def leave_file(self, path: bytes, kind: str, seen: stat_result) -> None:
        self.scan.left.append((path, kind, 0, seen))
        if kind in (OVERSIZE, IGNORED):
            self.scan.marks.add(LEFT + path)

    def _leave(self, path: bytes, flags: int) -> None:
        self.scan.left.append((path, EXCLUDED, flags, None))
        self.scan.marks.add(NOT_ENTERED + path)
        self.scan.seen.add(path)

    def _note_vanished(self, path: bytes) -> None:
        """Record a folder that disappeared after its parent was listed: its contents are unknown."""
        self.scan.left.append((path, UNREADABLE, UNSTEADY, None))
        self.scan.marks.add(UNREAD + path)
        self.scan.seen.add(path)

    def _note_unlistable(self, path: bytes, denied: bool) -> None:
        """Record a folder that cannot be listed. If permission is missing, a change of that shows in its stat."""
        try:
            seen = lstat_below(self.root, path)
        except OSError as error:
            if error.errno in VANISHED:
                return
            self.scan.left.append((path, UNREADABLE, 0, None))
            self.scan.marks.add(UNREAD + path)
            self.scan.seen.add(path)
            return
        self.scan.left.append((path, UNREADABLE, 0, seen))
        self._note(path, seen, 0, denied)

    def _note_file(self, name: bytes, info: stat_result) -> None:
        ctimes, sizes, inodes = self.scan.columns[:3]
        self.scan.names.append(name)
        ctimes.append(info.st_ctime_ns if 0 < info.st_ctime_ns < self.now else -1)
        sizes.append(info.st_size)
        inodes.append(info.st_ino)

    def _note(self, path: bytes, seen: stat_result, files: int, trusted: bool = True) -> None:
        """Record the folder; if it is not `trusted`, it is listed again next time, whatever its stat says."""
        scan = self.scan
        scan.seen.add(path)
        scan.paths.append(path)
        mtimes, ctimes, inodes, counts = scan.columns[3:]
        mtimes.append(seen.st_mtime_ns & BITS)
        ctimes.append(seen.st_ctime_ns if trusted and 0 < seen.st_ctime_ns < self.now else -1)
        inodes.append(seen.st_ino)
        counts.append(files)


def too_many_files(limit: int) -> TooMany:
    return TooMany(
        f"The tree has more than {limit:,} files.",
        "Exclude generated files (`keepfast config set capture.exclude …`), or raise the limit: `keepfast "
        f"config set capture.max_files {2 * limit}`.",
    )
