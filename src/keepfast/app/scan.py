"""What a save looks at: everything, what differs from the stat cache, or some paths; and whose folder it is."""

from __future__ import annotations

from _stat import S_ISDIR, S_ISLNK, S_ISREG
from posix import statvfs

from keepfast.model.entry import (
    BY_GIT,
    BY_NAME,
    EXCLUDED,
    FOLDER,
    GONE,
    IGNORED,
    OVERSIZE,
    SPECIAL,
    UNREADABLE,
    vanished,
)
from keepfast.model.errors import KeepfastError, TooMany
from keepfast.model.light_json import loads
from keepfast.settings.ownership import is_foreign
from keepfast.workspace.capture import GIT
from keepfast.workspace.marker import marker
from keepfast.workspace.scan import CROWDED, Scan, recheck, walk
from keepfast.workspace.walk import UNREAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from posix import stat_result
    from typing import Any

    from keepfast.app.checkpoint import Engine
    from keepfast.app.workspace_lock import Folder
    from keepfast.model.entry import Entry
    from keepfast.store.repository import Repository
    from keepfast.store.save import CheckpointWriter
    from keepfast.workspace.capture import Capture
    from keepfast.workspace.stat_cache import Cache

RESERVE = 64 << 20
"""Bytes that stay free for all else."""


def settle(folder: Folder, repository: Repository, now: int) -> None:
    """See to it that the store knows this folder, and its marker the store."""
    row = repository.workspace(folder.workspace)
    if row is None or not row.path:
        folder.engine.register(repository, folder.workspace, folder.root, now)
    _renew_marker(folder)


def _renew_marker(folder: Folder) -> None:
    """See to it that the marker says which store it is, and where: of an older keepfast, or of one that moved, it does not."""
    engine = folder.engine
    said = marker(folder.root)
    if said == (folder.workspace, engine.place.path, engine.place.id()):
        if not engine.place.is_in_data_folder():
            engine.list_store(folder.root, folder.workspace)  # an older keepfast did not note the folder
        return
    if said is not None and is_foreign(folder.root, said, engine.place.path, engine.place.list):
        return  # the folder is kept here by its path; what the other store has of it is not given up without a word
    try:
        engine.mark(folder.root, folder.workspace)
    except KeepfastError:
        pass  # the save does not depend on it


def scan(folder: Folder, saving: CheckpointWriter, changes: Any) -> Scan:
    """Look at what the check named, or walk through everything."""
    found = _scan(folder, saving, changes)
    # By ctime, because a folder's mtime can be set to any day.
    found.emptied = [(path, seen) for path, seen in found.emptied if seen.st_ctime_ns > folder.began]
    return found


def _scan(folder: Folder, saving: CheckpointWriter, changes: Any) -> Scan:
    rules = folder.capture
    if changes is not None and folder.cache is not None and not saving.whole:
        crowded = CROWDED in folder.cache.marks()
        try:
            found = recheck(
                folder.fd, folder.cache, rules.without_large_ignored() if crowded else rules, folder.now, *changes
            )
            if found is not None:
                return _crowded(found, rules) if crowded else found
        except TooMany:
            pass  # too many by now: the walk says what follows from that
    state = saving.state()
    folder.full_scan_at = folder.now
    cache = folder.vouching(saving.row.document)

    def is_known(path: bytes) -> bool:
        return path in state and state[path].kind in "fl"

    return _walk(folder.fd, cache, rules, folder.now, is_known)


def _walk(root: int, cache: Cache | None, rules: Capture, now: int, is_known: Callable[[bytes], bool]) -> Scan:
    """Look at everything; where that is too much, at all but the large ones of the ignored folders."""
    try:
        return walk(root, cache, rules, now, is_known)
    except TooMany:
        if rules.ignored != "all" or not rules.reads_rules:
            raise
    return _crowded(walk(root, cache, rules.without_large_ignored(), now, is_known), rules)


def _crowded(found: Scan, rules: Capture) -> Scan:
    """Let the scan say, and the stat cache know, that the large ones of the ignored folders are left out."""
    found.marks.add(CROWDED)
    found.notices.append(
        f"The tree has more than {rules.max_files:,} files including ignored ones:"
        f" ignored folders of more than {rules.ignored_folder_files:,} files are excluded."
    )
    return found


def count(engine: Engine, root: bytes) -> int:
    """Return how many files of a folder would be kept. Raises `TooMany` where they are more than `capture.max_files`."""
    from posix import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close
    from posix import open as open_fd

    from keepfast.app.workspace_lock import capture_rules

    fd = open_fd(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        return len(_walk(fd, None, capture_rules(engine, root), 0, lambda path: False).names)
    finally:
        close(fd)


def all_below(root: bytes, paths: Sequence[bytes], rules: Capture) -> tuple[list[bytes], list[bytes]]:
    """Return these paths with all that lies below them, and apart from that the folders there that are not looked into.

    Those are git's own, and what the setting `capture.exclude` names. Raises `TooMany`.
    """
    from os import walk as walk_names
    from os.path import islink

    from keepfast.workspace.capture import NEVER_ENTERED
    from keepfast.workspace.selection import Chooser
    from keepfast.workspace.walk import too_many_files

    exclude, found, left = Chooser(-1, rules).exclude, dict[bytes, None](), list[bytes]()
    for path in paths:
        if path.rpartition(b"/")[2] in NEVER_ENTERED or exclude.match(path, True):
            left.append(path)
            continue
        found[path] = None
        if islink(root + b"/" + path):
            continue  # else the walk would begin behind it
        for folder, folders, files in walk_names(root + b"/" + path):
            below = folder[len(root) + 1 :] + b"/"
            apart = {name for name in folders if name in NEVER_ENTERED or exclude.match(below + name, True)}
            left += [below + name for name in sorted(apart)]
            folders[:] = [name for name in folders if name not in apart]
            found.update(dict.fromkeys([below + name for name in folders + files]))
            if len(found) > rules.max_files:
                raise too_many_files(rules.max_files)
    return list(found), left


def scan_only(folder: Folder, paths: tuple[bytes, ...], saving: CheckpointWriter, kept: tuple[bytes, ...] = ()) -> Scan:
    """Look at these paths and nothing else; folders among them are looked at, not into.

    At and below those that are `kept` the setting `capture.exclude` does not hold.

    A path that leads through a link is not there, whatever lies behind the link.
    """
    from keepfast.fsutil.descriptors import lstat_below
    from keepfast.workspace.selection import Chooser
    from keepfast.workspace.walk import VANISHED

    found, folders, chooser = Scan(False), {b"": True}, Chooser(folder.fd, folder.capture)

    def is_folder(path: bytes) -> bool:
        missing = []
        while path not in folders:
            missing.append(path)
            path = path.rpartition(b"/")[0]
        for known in reversed(missing):
            try:
                folders[known] = folders[known.rpartition(b"/")[0]] and S_ISDIR(lstat_below(folder.fd, known).st_mode)
            except OSError:
                folders[known] = False
        return folders[missing[0]] if missing else folders[path]

    for path in paths:
        is_kept = any(path == limit or path.startswith(limit + b"/") for limit in kept)
        if not is_kept and chooser.excludes(path):
            continue
        try:
            seen = lstat_below(folder.fd, path) if is_folder(path.rpartition(b"/")[0]) else None
        except OSError as error:
            if error.errno not in VANISHED:
                raise
            seen = None
        if seen is not None and not is_kept and chooser.exclude.match(path, S_ISDIR(seen.st_mode)):
            found.left.append((path, EXCLUDED, BY_NAME, None))
        else:
            _note(found, path, seen)
    _note_gone_below(folder, found, paths, saving)
    return found


def _note(found: Scan, path: bytes, seen: stat_result | None) -> None:
    """Note what is at a path that no setting leaves out; None: nothing."""
    if seen is None:
        found.removed.append(path)
    elif S_ISDIR(seen.st_mode) and path.rpartition(b"/")[2] == GIT:
        found.left.append((path, EXCLUDED, BY_GIT, None))
    elif S_ISDIR(seen.st_mode):
        found.folders.append((path, seen))
    elif S_ISREG(seen.st_mode) or S_ISLNK(seen.st_mode):
        found.candidates.append((path, seen))
    else:
        found.left.append((path, SPECIAL, 0, seen))


def _note_gone_below(folder: Folder, found: Scan, paths: tuple[bytes, ...], saving: CheckpointWriter) -> None:
    """With a folder goes all that was known below it."""
    repository, there = saving.repository, {path for path, _ in found.folders}
    for path, row in repository.current(folder.workspace, [path for path in paths if path not in there]).items():
        if row.kind == FOLDER:
            below = repository.state(folder.workspace, saving.row.version, path)
            found.removed += [known.path for known in below if known.path != path]


def force(folder: Folder, scan: Scan, paths: frozenset[bytes], saving: CheckpointWriter) -> None:
    """Capture these files although they are, or were, left out."""
    from keepfast.fsutil.descriptors import lstat_below

    kept, known = [], {path for path, _ in scan.candidates}
    for path, kind, flags, seen in scan.left:
        if path in paths and seen is not None and S_ISREG(seen.st_mode):
            scan.candidates.append((path, seen))
            known.add(path)
        else:
            kept.append((path, kind, flags, seen))
    scan.left[:] = kept
    counts = loads(saving.row.counts)
    if not any(counts.get(kind) for kind in OVERSIZE + IGNORED + UNREADABLE):
        return
    # What was left out before and has not changed since is not named by the scan.
    for path, row in saving.repository.current(folder.workspace, sorted(paths - known)).items():
        if row.kind not in OVERSIZE + IGNORED + UNREADABLE:
            continue
        try:
            seen = lstat_below(folder.fd, path)
        except OSError:
            continue
        if S_ISREG(seen.st_mode):
            scan.candidates.append((path, seen))


def keep(folder: Folder, scan: Scan, paths: tuple[bytes, ...], room: int) -> None:
    """Capture the files at these paths and below that the rules leave out, as long as there is room for them.

    For as long as such a file stays as it is, later versions have it too; when it changes, the rules hold again.
    """
    from keepfast.fsutil.descriptors import lstat_below
    from keepfast.workspace.walk import FORCED, LEFT

    kept: set[bytes] = set()
    for mark in sorted([mark for mark in scan.marks if mark[:1] == LEFT]):
        path = mark[1:]
        if not any(not limit or path == limit or path.startswith(limit + b"/") for limit in paths):
            continue
        try:
            seen = lstat_below(folder.fd, path)
        except OSError:
            continue
        if not S_ISREG(seen.st_mode) or seen.st_size > room:
            continue
        room -= seen.st_size
        kept.add(path)
        scan.candidates.append((path, seen))
        scan.marks.discard(mark)
        scan.marks.add(FORCED + path)
    scan.left[:] = [one for one in scan.left if one[0] not in kept]


def mark_vanished(
    folder: Folder, scan: Scan, rows: dict[bytes, Entry], named: tuple[bytes, ...], saving: CheckpointWriter
) -> None:
    """Let the version say of what was there before the command, and could not be saved in time, that it was left out."""
    for path in named:
        top = _topmost_absent(folder, path)
        if not top or _is_known(folder, scan, rows, top, saving):
            continue
        rows[top] = vanished(top)
        scan.seen.add(top)
        scan.marks.add(UNREAD + top)
        above = top.rpartition(b"/")[0]
        if above in scan.paths:  # the next save looks again, whatever the folder's times say
            scan.columns[4][scan.paths.index(above)] = -1


def _topmost_absent(folder: Folder, path: bytes) -> bytes:
    """The path or the highest folder above it that is not there; nothing if it is there."""
    from keepfast.fsutil.descriptors import lstat_below

    parts = path.split(b"/")
    for count in range(1, len(parts) + 1):
        above = b"/".join(parts[:count])
        try:
            lstat_below(folder.fd, above)
        except OSError:
            return above
    return b""


def _is_known(folder: Folder, scan: Scan, rows: dict[bytes, Entry], path: bytes, saving: CheckpointWriter) -> bool:
    """Has the version that is being made something at this path? Then it was read in time, or is named already."""
    row = rows.get(path)
    if row is not None:
        return row.kind != GONE
    if scan.full:
        return path in scan.seen
    return path in saving.repository.current(folder.workspace, [path])


def room(store: str) -> int:
    """Bytes that may be written where the store is for what the rules leave out."""
    disk = statvfs(store)
    return max(0, disk.f_bavail * disk.f_frsize - RESERVE)
