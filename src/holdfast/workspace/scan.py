"""What changed below the root, by any writer: a check of all known files, or a walk through everything."""

from __future__ import annotations

from _bisect import bisect_right
from _stat import S_IFDIR, S_IFLNK, S_IFMT, S_IFREG
from errno import ENOENT, ENOTDIR
from posix import O_DIRECTORY, O_RDONLY, close, fstat, read, scandir, stat_result
from sys import getfilesystemencodeerrors, getfilesystemencoding

from holdfast.core.entry import BY_IGNORE, BY_MARKER, BY_NAME, EXCLUDED, IGNORED, OVERSIZE, SPECIAL, UNREADABLE
from holdfast.core.errors import Refused
from holdfast.workspace.below import lstat_below, open_below
from holdfast.workspace.cache import Cache
from holdfast.workspace.capture import CACHE_TAG, NEVER, OWN_IGNORE, SUPERVISED, Capture
from holdfast.workspace.ignore import parse, verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.workspace.ignore import Rules

    Stack = tuple[tuple[bytes, Rules], ...]

ENCODING, ERRORS = getfilesystemencoding(), getfilesystemencodeerrors()
RULE_FILE = b".gitignore"
MOST_RULE_BYTES = 1 << 20
DAY = 86_400_000_000_000


class Scan:
    """What a scan found, and the columns from which the next stat cache is written."""

    __slots__ = (
        "candidates",
        "columns",
        "folders",
        "full",
        "gone",
        "left",
        "marks",
        "names",
        "notices",
        "paths",
        "places",
        "seen",
    )

    def __init__(self, full: bool) -> None:
        self.full = full
        self.candidates: list[tuple[bytes, stat_result]] = []
        """Files and links that must be read."""
        self.folders: list[tuple[bytes, stat_result]] = []
        """Folders that are new or whose mode may have changed."""
        self.left: list[tuple[bytes, str, int, stat_result | None]] = []
        """What is left out: path, kind, flags."""
        self.gone: list[bytes] = []
        """Known paths that are no longer there (after a check; after a walk everything not in `seen` is gone)."""
        self.seen: set[bytes] = set()
        self.notices: list[str] = []
        # The next stat cache.
        self.columns: list[list[int]] = [[] for _ in range(7)]
        self.names: list[bytes] = []
        self.paths: list[bytes] = []
        self.marks: list[bytes] = []
        self.places: dict[bytes, int] = {}
        """Where the stat columns of a candidate are."""

    def empty(self) -> bool:
        return not (self.full or self.candidates or self.folders or self.left or self.gone)


def recheck(root: int, cache: Cache, capture: Capture, now: int, files: Sequence[int], folders: Sequence[int]) -> Scan | None:
    """Look again at what `cache.check` named; None where only a walk can tell (ignore rules changed, and the like).

    `now` is the file system's clock less a margin: a time at or after it is not trusted.
    """
    return _Recheck(root, cache, capture, now).run(list(files), list(folders))


def walk(root: int, cache: Cache | None, capture: Capture, now: int, known: Callable[[bytes], bool]) -> Scan:
    """Look at everything below the descriptor `root`.

    `cache` may be old: it vouches for files whose stat has not moved, if `known(path)` says that the newest version has
    them. Raises `Refused` for a tree of more files than `capture.max_files`.
    """
    return _Walk(root, cache, capture, now, known).run()


class _Rulebook:
    """The ignore rules in force anywhere below the root, read when first asked for."""

    def __init__(self, root: int, capture: Capture) -> None:
        self.root = root
        self.capture = capture
        self.stacks: dict[bytes, tuple[Stack, bool]] = {}
        self.disregarded: set[bytes] = set()

    def of(self, folder: bytes) -> tuple[Stack, bool]:
        """Return the rules for what lies in `folder`, and whether the folder itself is ignored."""
        if self.capture.ignored == "all":
            return (), False
        found = self.stacks.get(folder)
        if found is None:
            if folder:
                parent = folder.rpartition(b"/")[0]
                stack, ignored = self.of(parent)
                ignored = ignored or verdict(folder, True, stack)
            else:
                stack, ignored = (), False
            found = self.stacks[folder] = self.enter(folder, stack), ignored
        return found

    def enter(self, folder: bytes, stack: Stack, names: set[bytes] | None = None) -> Stack:
        """Return `stack` with the rules that `folder` adds. `names` are its entries, where they are known."""
        if folder in self.disregarded:
            return ()
        prefix = folder + b"/" if folder else b""
        if folder and (b".git" in names if names is not None else self._exists(prefix + b".git")):
            stack = ()  # a nested repository has rules of its own
        if not folder:
            stack = self._add((), b"", b".git/info/exclude")
        if names is not None and RULE_FILE not in names:
            return stack
        return self._add(stack, folder, prefix + RULE_FILE)

    def _add(self, stack: Stack, folder: bytes, path: bytes) -> Stack:
        try:
            fd = open_below(self.root, path, O_RDONLY)
        except OSError:
            return stack
        try:
            text = read(fd, MOST_RULE_BYTES)
        except OSError:
            return stack
        finally:
            close(fd)
        rules = parse(text)
        return (*stack, (folder, rules)) if rules else stack

    def _exists(self, path: bytes) -> bool:
        try:
            lstat_below(self.root, path)
        except OSError:
            return False
        return True


class _Sorter:
    """Decides for each name what becomes of it; shared by walk and re-check, so that both decide alike."""

    def __init__(self, root: int, capture: Capture, scan: Scan, rules: _Rulebook) -> None:
        self.root, self.capture, self.scan, self.rules = root, capture, scan, rules
        self.exclude, self.exclude_ignored = parse(capture.exclude), parse(capture.exclude_ignored)

    def file(self, path: bytes, seen: stat_result, stack: Stack, ignored: bool) -> str | None:
        """Return None if the file is captured, else the kind under which it is left out."""
        capture = self.capture
        kind = S_IFMT(seen.st_mode)
        if kind == S_IFLNK:
            return None
        if kind != S_IFREG:
            return SPECIAL
        if seen.st_size > capture.max_file_size:
            return OVERSIZE
        if capture.ignored == "all" or (capture.ignored == "small" and seen.st_size <= capture.ignored_file_size):
            return None
        return IGNORED if ignored or verdict(path, False, stack) else None

    def folder(self, path: bytes, name: bytes, stack: Stack, ignored: bool) -> tuple[int, bool]:
        """Return (flags, ignored): flags 0 if the folder is to be entered."""
        capture = self.capture
        if self.exclude.match(path, True):
            return BY_NAME, False
        if path == capture.outside:
            return BY_NAME, False
        if name == path and name in SUPERVISED and self._own(path):
            return BY_NAME, False
        if capture.ignored == "all":
            return 0, False
        if ignored:
            return 0, True
        if not verdict(path, True, stack):
            return 0, False
        if capture.ignored == "none" or self.exclude_ignored.match(path, True):
            return BY_IGNORE, True
        if self._count(path, capture.ignored_folder_files) > capture.ignored_folder_files:
            return BY_IGNORE, True
        self.scan.marks.append(b"k" + path)
        return 0, True

    def _own(self, path: bytes) -> bool:
        return self._starts(path + b"/" + RULE_FILE, OWN_IGNORE)

    def marked(self, path: bytes, names: set[bytes]) -> bool:
        """Does the folder carry a file that says: this can be made again?"""
        for name in self.capture.markers & names:
            if name != b"CACHEDIR.TAG" or self._starts(path + b"/" + name, CACHE_TAG):
                return True
        return False

    def _starts(self, path: bytes, text: bytes) -> bool:
        try:
            fd = open_below(self.root, path, O_RDONLY)
        except OSError:
            return False
        try:
            return read(fd, len(text)) == text
        except OSError:
            return False
        finally:
            close(fd)

    def _count(self, path: bytes, limit: int) -> int:
        """Count files below an ignored folder, excluded folders aside, until the limit is passed."""
        total, todo = 0, [path]
        while todo and total <= limit:
            folder = todo.pop()
            try:
                fd = open_below(self.root, folder, O_RDONLY | O_DIRECTORY)
            except OSError:
                continue
            try:
                with scandir(fd) as entries:
                    for entry in entries:
                        name = entry.name.encode(ENCODING, ERRORS)
                        below = folder + b"/" + name
                        if not entry.is_dir(follow_symlinks=False):
                            total += 1
                        elif name not in NEVER and not self.exclude.match(below, True):
                            todo.append(below)
            except OSError:
                pass
            finally:
                close(fd)
        return total


class _Walk:
    """The long way: list every folder. An older cache still vouches for files whose stat has not moved."""

    def __init__(
        self, root: int, cache: Cache | None, capture: Capture, now: int, known: Callable[[bytes], bool]
    ) -> None:
        self.root, self.capture, self.now, self.known = root, capture, now, known
        self.vouched = _vouched(cache)
        self.scan = Scan(True)
        self.rules = _Rulebook(root, capture)
        self.sorter = _Sorter(root, capture, self.scan, self.rules)

    def run(self) -> Scan:
        self.walk(b"", (), False)
        return self.scan

    def walk(self, start: bytes, stack: Stack, ignored: bool) -> None:
        todo: list[tuple[bytes, Stack, bool]] = [(start, stack, ignored)]
        while todo:
            path, stack, ignored = todo.pop()
            self._folder(path, stack, ignored, todo)

    def _folder(self, path: bytes, stack: Stack, ignored: bool, todo: list[tuple[bytes, Stack, bool]]) -> None:
        scan, capture, now = self.scan, self.capture, self.now
        try:
            seen, entries = list_folder(self.root, path)
        except OSError as error:
            if path and error.errno in (ENOENT, ENOTDIR):
                return
            if not path:
                raise
            try:
                seen, entries = lstat_below(self.root, path), None
            except OSError:
                return
        if entries is None:
            scan.left.append((path, UNREADABLE, 0, seen))
            self._note_folder(path, seen, 0)
            return
        names = {name for name, _, _ in entries}
        if path and capture.markers and not capture.markers.isdisjoint(names) and self.sorter.marked(path, names):
            scan.left.append((path, EXCLUDED, BY_MARKER, None))
            scan.marks.append(b"x" + path)
            scan.seen.add(path)
            return
        if path:
            scan.folders.append((path, seen))
        if capture.ignored != "all":
            stack = self.rules.enter(path, stack, names)
            if not path or b".git" in names:
                stack = self._unless_everything(path, stack, entries)
            self.rules.stacks[path] = stack, ignored
        prefix = path + b"/" if path else b""
        ctimes, sizes, inodes = scan.columns[:3]
        paths, vouched, count = scan.seen, self.vouched, 0
        for name, is_folder, info in entries:
            if name in NEVER:
                continue
            below = prefix + name
            if is_folder:
                flags, inside = self.sorter.folder(below, name, stack, ignored)
                if flags:
                    scan.left.append((below, EXCLUDED, flags, None))
                    scan.marks.append(b"x" + below)
                    paths.add(below)
                else:
                    todo.append((below, stack, inside))
                continue
            if info is None:
                continue
            if capture.excludes_files and self.sorter.exclude.match(below, False):
                scan.left.append((below, EXCLUDED, BY_NAME, None))
                scan.marks.append(b"x" + below)
                paths.add(below)
                continue
            paths.add(below)
            ctime = info.st_ctime_ns
            kind = self.sorter.file(below, info, stack, ignored)
            if kind is not None:
                scan.left.append((below, kind, 0, info))
            elif vouched.get(below) != (ctime, info.st_size, info.st_ino) or not self.known(below):
                scan.candidates.append((below, info))
                scan.places[below] = len(ctimes)
            scan.names.append(name)
            ctimes.append(ctime if 0 < ctime < now else -1)
            sizes.append(info.st_size)
            inodes.append(info.st_ino)
            count += 1
        if len(ctimes) > capture.max_files:
            raise too_many(capture.max_files)
        self._note_folder(path, seen, count)

    def _note_folder(self, path: bytes, seen: stat_result, count: int) -> None:
        scan, now = self.scan, self.now
        scan.seen.add(path)
        scan.paths.append(path)
        for column, value in zip(
            scan.columns[3:],
            (
                seen.st_mtime_ns if seen.st_mtime_ns < now else -1,
                seen.st_ctime_ns if seen.st_ctime_ns < now else -1,
                seen.st_ino,
                count,
            ),
            strict=True,
        ):
            column.append(value)

    def _unless_everything(self, path: bytes, stack: Stack, entries: list[tuple[bytes, bool, stat_result | None]]) -> Stack:
        """Drop a rule file that hides nearly all of its repository: a backup of nothing helps nobody."""
        if not stack:
            return stack
        prefix = path + b"/" if path else b""
        total = kept = 0
        for name, is_folder, _ in entries:
            if name in NEVER or name == RULE_FILE or (is_folder and self.sorter.exclude.match(prefix + name, True)):
                continue
            total += 1
            kept += not verdict(prefix + name, is_folder, stack)
        if total < 3 or kept * 10 >= total:
            return stack
        where = "the root" if not path else path.decode("utf-8", "replace")
        self.scan.notices.append(f"The ignore rules in {where} hide {total - kept} of {total} entries; they are disregarded.")
        self.scan.marks.append(b"!" + path)
        self.rules.disregarded.add(path)
        return ()


class _Recheck:
    """The short way: only what the check named is looked at again."""

    def __init__(self, root: int, cache: Cache, capture: Capture, now: int) -> None:
        self.root, self.cache, self.capture, self.now = root, cache, capture, now
        self.scan = Scan(False)
        self.rules = _Rulebook(root, capture)
        self.sorter = _Sorter(root, capture, self.scan, self.rules)

    def run(self, files: list[int], folders: list[int]) -> Scan | None:
        """Return what changed, or None where only a walk can tell (ignore rules changed, an ignored folder grew)."""
        cache, scan = self.cache, self.scan
        scan.columns, scan.names, scan.paths, scan.marks = cache.columns(), cache.names(), cache.paths(), cache.marks()
        self.rules.disregarded = {mark[1:] for mark in scan.marks if mark[:1] == b"!"}
        if any(scan.paths[number] in self.rules.disregarded for number in folders):
            return None  # whether the rules still hide everything must be counted again
        starts, total = [], 0
        for count in scan.columns[6]:
            starts.append(total)
            total += count
        listed = set(folders)
        for number in files:
            folder = bisect_right(starts, number) - 1
            while scan.columns[6][folder] == 0:
                folder -= 1
            if folder not in listed and not self._file(number, scan.paths[folder]):
                return None
        if not folders:
            return scan
        return self._folders(folders, starts)

    def _file(self, number: int, folder: bytes) -> bool:
        scan = self.scan
        name = scan.names[number]
        path = folder + b"/" + name if folder else name
        if name == RULE_FILE:
            return False
        try:
            seen = lstat_below(self.root, path)
        except OSError:
            return False  # it went without its folder noticing: look at everything
        if S_IFMT(seen.st_mode) == S_IFDIR:
            return False
        self._take(path, seen, number)
        return True

    def _take(self, path: bytes, seen: stat_result, number: int) -> None:
        scan = self.scan
        stack, ignored = (), False
        if self._rules_matter(seen):
            stack, ignored = self.rules.of(path.rpartition(b"/")[0])
        kind = self.sorter.file(path, seen, stack, ignored)
        if kind is None:
            scan.candidates.append((path, seen))
            scan.places[path] = number
        else:
            scan.left.append((path, kind, 0, seen))
        ctimes, sizes, inodes = scan.columns[:3]
        ctimes[number] = seen.st_ctime_ns if 0 < seen.st_ctime_ns < self.now else -1
        sizes[number] = seen.st_size
        inodes[number] = seen.st_ino

    def _rules_matter(self, seen: stat_result) -> bool:
        mode = self.capture.ignored
        return mode == "none" or (mode == "small" and seen.st_size > self.capture.ignored_file_size)

    def _folders(self, folders: list[int], starts: list[int]) -> Scan | None:
        """List the folders again whose times moved; enter new ones; then write the columns anew."""
        scan, old = self.scan, self.scan.columns
        known_folders = dict.fromkeys(scan.paths)
        known_marks = {mark[1:]: mark[:1] for mark in scan.marks if mark[:1] in (b"x", b"u")}
        fresh: dict[int, list[tuple[bytes, stat_result, int]] | None] = {}
        fresh_stats: dict[int, stat_result] = {}
        entered: list[bytes] = []
        grown: list[bytes] = []
        for number in folders:
            path = scan.paths[number]
            start, end = starts[number], starts[number] + old[6][number]
            before = {scan.names[at]: at for at in range(start, end)}
            prefix = path + b"/" if path else b""
            try:
                seen, entries = list_folder(self.root, path)
            except OSError as error:
                if error.errno not in (ENOENT, ENOTDIR) or not path:
                    return None
                fresh[number] = None
                scan.gone.append(path)
                scan.gone.extend([prefix + name for name in before])
                if RULE_FILE in before:
                    return None
                continue
            names = {name for name, _, _ in entries}
            if (RULE_FILE in before) != (RULE_FILE in names):
                return None
            if path and not self.capture.markers.isdisjoint(names) and self.sorter.marked(path, names):
                return None
            fresh_stats[number] = seen
            if path:
                scan.folders.append((path, seen))
            kept: list[tuple[bytes, stat_result, int]] = []
            for name, is_folder, info in entries:
                if name in NEVER:
                    continue
                below = prefix + name
                if is_folder:
                    if below not in known_folders and below not in known_marks:
                        entered.append(below)
                    continue
                if info is None or known_marks.get(below) == b"x":
                    continue
                at = before.pop(name, -1)
                if at >= 0 and (old[0][at], old[1][at], old[2][at]) == (info.st_ctime_ns, info.st_size, info.st_ino):
                    kept.append((name, info, at))
                    if known_marks.get(below) == b"u":
                        scan.candidates.append((below, info))
                    continue
                if at >= 0 and name == RULE_FILE:
                    return None
                if at < 0 and self.capture.excludes_files and self.sorter.exclude.match(below, False):
                    scan.left.append((below, EXCLUDED, BY_NAME, None))
                    scan.marks.append(b"x" + below)
                    continue
                if at < 0:
                    grown.append(below)
                kept.append((name, info, -1))
            scan.gone.extend([prefix + name for name in before])
            for known, mark in known_marks.items():
                if known.rpartition(b"/")[0] == path and known.rpartition(b"/")[2] not in names:
                    if mark == b"x":
                        scan.gone.append(known)
                    scan.marks.remove(mark + known)
            fresh[number] = kept
        if self._ignored_folder_grew(grown):
            return None
        lost = {scan.paths[number] for number, kept in fresh.items() if kept is None}
        if lost and any(mark[:1] != b"!" and mark[1:].rpartition(b"/")[0] in lost for mark in scan.marks):
            return None
        self._rewrite(fresh, fresh_stats, starts)
        return self._enter(entered)

    def _ignored_folder_grew(self, grown: list[bytes]) -> bool:
        for mark in self.scan.marks:
            if mark[:1] == b"k":
                prefix = mark[1:] + b"/"
                if any(path.startswith(prefix) for path in grown):
                    return True
        return False

    def _rewrite(
        self,
        fresh: dict[int, list[tuple[bytes, stat_result, int]] | None],
        stats: dict[int, stat_result],
        starts: list[int],
    ) -> None:
        """Build columns and names again with the folders in `fresh` replaced."""
        scan, old, old_names, now = self.scan, self.scan.columns, self.scan.names, self.now
        moved = {at: path for path, at in scan.places.items()}
        columns: list[list[int]] = [[] for _ in range(7)]
        names: list[bytes] = []
        paths: list[bytes] = []
        pending: list[tuple[bytes, stat_result, int]] = []
        for number, path in enumerate(scan.paths):
            start, end = starts[number], starts[number] + old[6][number]
            if number not in fresh:
                offset = len(names) - start
                if moved:
                    for at in range(start, end):
                        if at in moved:
                            scan.places[moved[at]] = at + offset
                names += old_names[start:end]
                for column in range(3):
                    columns[column] += old[column][start:end]
                paths.append(path)
                for column in range(3, 7):
                    columns[column].append(old[column][number])
                continue
            kept = fresh[number]
            if kept is None:
                continue
            prefix = path + b"/" if path else b""
            for name, info, at in kept:
                if at < 0:
                    pending.append((prefix + name, info, len(names)))
                names.append(name)
                columns[0].append(old[0][at] if at >= 0 else -1)
                columns[1].append(info.st_size)
                columns[2].append(info.st_ino)
            seen = stats[number]
            paths.append(path)
            columns[3].append(seen.st_mtime_ns if seen.st_mtime_ns < now else -1)
            columns[4].append(seen.st_ctime_ns if seen.st_ctime_ns < now else -1)
            columns[5].append(seen.st_ino)
            columns[6].append(len(kept))
        scan.columns, scan.names, scan.paths = columns, names, paths
        for path, info, at in pending:
            self._take(path, info, at)

    def _enter(self, entered: list[bytes]) -> Scan | None:
        """Walk through folders that are new, with the rules of where they lie."""
        if not entered:
            return self.scan
        walk = _Walk(self.root, None, self.capture, self.now, lambda path: False)
        walk.scan, walk.rules = self.scan, self.rules
        walk.sorter = self.sorter
        for path in entered:
            parent, _, name = path.rpartition(b"/")
            stack, ignored = self.rules.of(parent)
            flags, inside = self.sorter.folder(path, name, stack, ignored)
            if flags:
                self.scan.left.append((path, EXCLUDED, flags, None))
                self.scan.marks.append(b"x" + path)
                continue
            if inside and ignored:
                return None  # inside an ignored folder that was small: count it again
            walk.walk(path, stack, inside)
        return self.scan


def list_folder(root: int, path: bytes) -> tuple[stat_result, list[tuple[bytes, bool, stat_result | None]]]:
    """Return the folder's stat (taken before listing) and its entries by name: (name, is a folder, stat of a file)."""
    fd = open_below(root, path, O_RDONLY | O_DIRECTORY)
    try:
        seen = fstat(fd)
        found: list[tuple[bytes, bool, stat_result | None]] = []
        with scandir(fd) as entries:
            for entry in entries:
                name = entry.name.encode(ENCODING, ERRORS)
                try:
                    if entry.is_dir(follow_symlinks=False):
                        found.append((name, True, None))
                    else:
                        found.append((name, False, entry.stat(follow_symlinks=False)))
                except OSError:
                    continue  # it vanished in between
    finally:
        close(fd)
    found.sort()
    return seen, found


def too_many(limit: int) -> Refused:
    return Refused(
        f"The tree has more than {limit:,} files.",
        "Exclude what can be made again (`holdfast config set capture.exclude …`), or raise `capture.max_files`.",
    )


def _vouched(cache: Cache | None) -> dict[bytes, tuple[int, int, int]]:
    if cache is None:
        return {}
    ctimes, sizes, inodes, _, _, _, counts = cache.columns()
    names, result, at = cache.names(), {}, 0
    for number, path in enumerate(cache.paths()):
        prefix = path + b"/" if path else b""
        for file in range(at, at + counts[number]):
            result[prefix + names[file]] = (ctimes[file], sizes[file], inodes[file])
        at += counts[number]
    return result

