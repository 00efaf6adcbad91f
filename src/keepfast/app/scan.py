"""What a save scans: everything, what differs from the stat cache, or some paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close, stat_result, statvfs
from os import open as open_fd
from os import walk as walk_names
from os.path import islink
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import TYPE_CHECKING, Any

from keepfast.app.workspace_lock import Folder, capture_rules
from keepfast.fsutil.descriptors import lstat_below
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
    Entry,
    vanished,
)
from keepfast.model.errors import KeepfastError, TooMany
from keepfast.model.strict_json import loads
from keepfast.settings.ownership import is_foreign
from keepfast.store.repository import Repository
from keepfast.store.save import CheckpointWriter
from keepfast.workspace.capture import GIT, NEVER_ENTERED, Capture
from keepfast.workspace.marker import marker
from keepfast.workspace.scan import CROWDED, Scan, recheck, walk
from keepfast.workspace.selection import Chooser
from keepfast.workspace.stat_cache import Cache
from keepfast.workspace.walk import FORCED, LEFT, UNREAD, VANISHED, too_many_files

if TYPE_CHECKING:
    from keepfast.app.checkpoint import Engine

RESERVED_BYTES = 64 << 20
"""Disk space that saving excluded files leaves free."""


def ensure_registered(folder: Folder, repository: Repository, now: int) -> None:
    """Make sure that the store knows this folder, and that its marker names the store."""
    row = repository.workspace(folder.workspace)
    if row is None or not row.path:
        folder.engine.workspaces.register(repository, folder.workspace, folder.root, now)
    _renew_marker(folder)


def _renew_marker(folder: Folder) -> None:
    """Rewrite a marker that does not name this store at its present path: an older keepfast wrote it, or the store moved."""
    engine = folder.engine
    folder_marker = marker(folder.root)
    if folder_marker == (folder.workspace, engine.place.path, engine.place.id()):
        if not engine.place.is_in_data_folder():
            engine.workspaces.list_store(folder.root, folder.workspace)  # an older keepfast did not note the folder
        return
    if folder_marker is not None and is_foreign(folder.root, folder_marker, engine.place.path, engine.place.list):
        return  # the folder is protected here by its path; the marker leads to its history in the other store
    try:
        engine.workspaces.mark(folder.root, folder.workspace)
    except KeepfastError:
        pass  # the save does not depend on it


def scan(folder: Folder, saving: CheckpointWriter, changes: Any) -> Scan:
    """Scan what the check of the stat cache named, or walk through everything."""
    result = _scan(folder, saving, changes)
    # By ctime, because mtime can be set to any time.
    result.emptied = [(path, status) for path, status in result.emptied if status.st_ctime_ns > folder.began]
    return result


def _scan(folder: Folder, saving: CheckpointWriter, changes: Any) -> Scan:
    rules = folder.capture
    if changes is not None and folder.cache is not None and not saving.whole:
        crowded = CROWDED in folder.cache.marks()
        try:
            result = recheck(
                folder.fd, folder.cache, rules.without_large_ignored() if crowded else rules, folder.now, *changes
            )
            if result is not None:
                return _mark_crowded(result, rules) if crowded else result
        except TooMany:
            pass  # too many by now: the full walk below decides what to do
    state = saving.state()
    folder.full_scan_at = folder.now
    cache = folder.vouching(saving.row.document)

    def is_known(path: bytes) -> bool:
        return path in state and state[path].kind in "fl"

    return _walk(folder.fd, cache, rules, folder.now, is_known)


def _walk(root: int, cache: Cache | None, rules: Capture, now: int, is_known: Callable[[bytes], bool]) -> Scan:
    """Walk through everything; with too many files, skip large ignored folders."""
    try:
        return walk(root, cache, rules, now, is_known)
    except TooMany:
        if rules.ignored != "all" or not rules.reads_rules:
            raise
    return _mark_crowded(walk(root, cache, rules.without_large_ignored(), now, is_known), rules)


def _mark_crowded(scan: Scan, rules: Capture) -> Scan:
    """Record in the scan, and through it in the stat cache, that large ignored folders are excluded."""
    scan.marks.add(CROWDED)
    scan.notices.append(
        f"The tree has more than {rules.max_files:,} files including ignored ones:"
        f" ignored folders of more than {rules.ignored_folder_files:,} files are excluded."
    )
    return scan


def count(engine: Engine, root: bytes) -> int:
    """Return how many files of a folder a save would include. Raises `TooMany` if more than `capture.max_files`."""
    fd = open_fd(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        return len(_walk(fd, None, capture_rules(engine, root), 0, lambda path: False).names)
    finally:
        close(fd)


def list_below(root: bytes, paths: Sequence[bytes], rules: Capture) -> tuple[list[bytes], list[bytes]]:
    """Return these paths with everything below them, and the folders that were not entered.

    Those are git's own, and what the setting `capture.exclude` names. Raises `TooMany`.
    """
    exclude, paths_below, not_entered = Chooser(-1, rules).exclude, dict[bytes, None](), list[bytes]()
    for path in paths:
        if path.rpartition(b"/")[2] in NEVER_ENTERED or exclude.match(path, True):
            not_entered.append(path)
            continue
        paths_below[path] = None
        if islink(root + b"/" + path):
            continue  # `os.walk` would follow a link that it starts at
        for folder, folders, files in walk_names(root + b"/" + path):
            below = folder[len(root) + 1 :] + b"/"
            skipped = {name for name in folders if name in NEVER_ENTERED or exclude.match(below + name, True)}
            not_entered += [below + name for name in sorted(skipped)]
            folders[:] = [name for name in folders if name not in skipped]
            paths_below.update(dict.fromkeys([below + name for name in folders + files]))
            if len(paths_below) > rules.max_files:
                raise too_many_files(rules.max_files)
    return list(paths_below), not_entered


def scan_only(
    folder: Folder, paths: tuple[bytes, ...], saving: CheckpointWriter, included: tuple[bytes, ...] = ()
) -> Scan:
    """Scan these paths and nothing else; folders among them are recorded but not entered.

    `included`: the setting `capture.exclude` does not hold at and below these. A path that leads through a link counts as absent.
    """
    scan, folders, chooser = Scan(False), {b"": True}, Chooser(folder.fd, folder.capture)

    def is_folder(path: bytes) -> bool:
        missing = []
        while path not in folders:
            missing.append(path)
            path = path.rpartition(b"/")[0]
        for above in reversed(missing):
            try:
                folders[above] = folders[above.rpartition(b"/")[0]] and S_ISDIR(lstat_below(folder.fd, above).st_mode)
            except OSError:
                folders[above] = False
        return folders[missing[0]] if missing else folders[path]

    for path in paths:
        is_included = any(path == limit or path.startswith(limit + b"/") for limit in included)
        if not is_included and chooser.excludes(path):
            continue
        try:
            status = lstat_below(folder.fd, path) if is_folder(path.rpartition(b"/")[0]) else None
        except OSError as error:
            if error.errno not in VANISHED:
                raise
            status = None
        if status is not None and not is_included and chooser.exclude.match(path, S_ISDIR(status.st_mode)):
            scan.left.append((path, EXCLUDED, BY_NAME, None))
        else:
            _add_path(scan, path, status)
    _add_deleted_below(folder, scan, paths, saving)
    return scan


def _add_path(scan: Scan, path: bytes, status: stat_result | None) -> None:
    """Add to the scan what is at a path that no setting excludes; None: nothing."""
    if status is None:
        scan.removed.append(path)
    elif S_ISDIR(status.st_mode) and path.rpartition(b"/")[2] == GIT:
        scan.left.append((path, EXCLUDED, BY_GIT, None))
    elif S_ISDIR(status.st_mode):
        scan.folders.append((path, status))
    elif S_ISREG(status.st_mode) or S_ISLNK(status.st_mode):
        scan.candidates.append((path, status))
    else:
        scan.left.append((path, SPECIAL, 0, status))


def _add_deleted_below(folder: Folder, scan: Scan, paths: tuple[bytes, ...], saving: CheckpointWriter) -> None:
    """Record everything that was known below a deleted folder as deleted."""
    repository, existing = saving.repository, {path for path, _ in scan.folders}
    for path, row in repository.current(folder.workspace, [path for path in paths if path not in existing]).items():
        if row.kind == FOLDER:
            below = repository.state(folder.workspace, saving.row.version, path)
            scan.removed.extend([entry.path for entry in below if entry.path != path])


def include_files(folder: Folder, scan: Scan, paths: frozenset[bytes], saving: CheckpointWriter) -> None:
    """Include these files although the rules exclude them."""
    still_left, named = [], {path for path, _ in scan.candidates}
    for path, kind, flags, seen in scan.left:
        if path in paths and seen is not None and S_ISREG(seen.st_mode):
            scan.candidates.append((path, seen))
            named.add(path)
        else:
            still_left.append((path, kind, flags, seen))
    scan.left[:] = still_left
    counts = loads(saving.row.counts)
    if not any(counts.get(kind) for kind in OVERSIZE + IGNORED + UNREADABLE):
        return
    # The scan does not name excluded files that have not changed.
    for path, row in saving.repository.current(folder.workspace, sorted(paths - named)).items():
        if row.kind not in OVERSIZE + IGNORED + UNREADABLE:
            continue
        try:
            seen = lstat_below(folder.fd, path)
        except OSError:
            continue
        if S_ISREG(seen.st_mode):
            scan.candidates.append((path, seen))


def include_excluded(folder: Folder, scan: Scan, paths: tuple[bytes, ...], free_bytes: int) -> None:
    """Include excluded files at and below these paths, as long as the disk has space.

    Later versions include them until they change; then the rules hold again.
    """
    left = {entry[0]: entry for entry in scan.left}
    for mark in sorted([mark for mark in scan.marks if mark[:1] == LEFT]):
        path = mark[1:]
        if not any(not limit or path == limit or path.startswith(limit + b"/") for limit in paths):
            continue
        try:
            seen = lstat_below(folder.fd, path)
        except OSError:
            continue
        if not S_ISREG(seen.st_mode) or seen.st_size > free_bytes:
            continue
        free_bytes -= seen.st_size
        scan.forced[path] = left.get(path)
        scan.candidates.append((path, seen))
        scan.marks.discard(mark)
        scan.marks.add(FORCED + path)
    scan.left[:] = [entry for entry in scan.left if entry[0] not in scan.forced]


def mark_vanished(
    folder: Folder, scan: Scan, rows: dict[bytes, Entry], named: tuple[bytes, ...], saving: CheckpointWriter
) -> None:
    """Record paths that existed before the command but disappeared before they were saved as not saved."""
    for path in named:
        top = _topmost_absent(folder, path)
        if not top or _is_recorded(folder, scan, rows, top, saving):
            continue
        rows[top] = vanished(top)
        scan.seen.add(top)
        scan.marks.add(UNREAD + top)
        above = top.rpartition(b"/")[0]
        if above in scan.paths:  # makes the next save look again, whatever the folder's times say
            scan.columns[4][scan.paths.index(above)] = -1


def _topmost_absent(folder: Folder, path: bytes) -> bytes:
    """Return the path, or the highest folder above it, that does not exist; nothing if the path exists."""
    parts = path.split(b"/")
    for count in range(1, len(parts) + 1):
        above = b"/".join(parts[:count])
        try:
            lstat_below(folder.fd, above)
        except OSError:
            return above
    return b""


def _is_recorded(folder: Folder, scan: Scan, rows: dict[bytes, Entry], path: bytes, saving: CheckpointWriter) -> bool:
    """Return whether the version being made has something at this path: it was read in time, or is recorded already."""
    row = rows.get(path)
    if row is not None:
        return row.kind != GONE
    if scan.full:
        return path in scan.seen
    return path in saving.repository.current(folder.workspace, [path])


def free_room(store: str) -> int:
    """Return how many bytes excluded files may take on the store's disk."""
    disk = statvfs(store)
    return max(0, disk.f_bavail * disk.f_frsize - RESERVED_BYTES)
