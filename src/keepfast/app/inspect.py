"""Inspect without changing anything: what differs between two checkpoints, or between one and the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from os import O_DIRECTORY, O_NONBLOCK, O_RDONLY, close, fstat, read
from os import open as open_fd

from blake3 import blake3

from keepfast.app.checkpoint import Engine
from keepfast.app.scan import list_below
from keepfast.app.workspace_lock import capture_rules
from keepfast.fsutil.descriptors import open_below
from keepfast.model.entry import (
    BY_GIT,
    EXCLUDED,
    FILE,
    FOLDER,
    GONE,
    LEFT_OUT,
    LINK,
    WHY_EXCLUDED,
    Entry,
    same,
)
from keepfast.model.errors import Damaged, Failed, TooMany
from keepfast.model.restore_plan import parents
from keepfast.model.strict_json import loads
from keepfast.store.bases import bases_before
from keepfast.store.digest import digest
from keepfast.store.repository import Repository
from keepfast.store.rows import SAFETY_TRIGGERS, CheckpointRow, Query, WorkspaceRow
from keepfast.store.sealed_copies import SealedCopies
from keepfast.workspace.marker import show

MAX_DOCUMENTS, MAX_ROWS = 200, 5_000
"""Up to these numbers the change sets between two versions name the paths to compare; beyond, both states are read."""

ADDED, DELETED, MODIFIED, MODE, TYPE, LEFT = "added", "deleted", "modified", "mode", "type", "left out"


class Change:
    """One path that differs. A side that is None is absent there."""

    __slots__ = ("_load_new", "_load_old", "new", "old", "path")

    def __init__(
        self,
        old: Entry | None,
        new: Entry | None,
        load_old: Callable[[Entry], bytes],
        load_new: Callable[[Entry], bytes],
    ) -> None:
        entry = new if new is not None else old
        assert entry is not None
        self.path, self.old, self.new, self._load_old, self._load_new = entry.path, old, new, load_old, load_new

    @property
    def kind(self) -> str:
        """`added`, `deleted`, `modified`, `mode`, `type`, or `left out` if a side is excluded."""
        old, new = self.old, self.new
        if (old is not None and old.kind in LEFT_OUT) or (new is not None and new.kind in LEFT_OUT):
            return LEFT
        if old is None:
            return ADDED
        if new is None:
            return DELETED
        if old.kind != new.kind:
            return TYPE
        return MODE if old.content == new.content else MODIFIED

    def old_content(self) -> bytes | None:
        """Return the old side's bytes or link target, or None if there is nothing of the kind. Raises `Damaged`."""
        return self._load_old(self.old) if self.old is not None and self.old.kind in (FILE, LINK) else None

    def new_content(self) -> bytes | None:
        return self._load_new(self.new) if self.new is not None and self.new.kind in (FILE, LINK) else None


class Coverage:
    """How much of a tree a checkpoint has."""

    __slots__ = ("bytes", "files", "folders", "left_out", "links")

    def __init__(self, counts: dict[str, int]) -> None:
        self.files, self.links, self.folders = counts.get(FILE, 0), counts.get(LINK, 0), counts.get(FOLDER, 0)
        self.bytes = counts.get("bytes", 0)
        self.left_out = {kind: counts[kind] for kind in LEFT_OUT if counts.get(kind)}

    @property
    def is_poor(self) -> bool:
        """Return whether nothing is saved, or less than is excluded."""
        captured = self.files + self.links
        return captured == 0 or sum(self.left_out.values()) > captured


def coverage(row: WorkspaceRow) -> Coverage:
    """Return what the newest version of the workspace has and excludes."""
    return Coverage(loads(row.counts))


def not_covered(repository: Repository, checkpoint: CheckpointRow) -> list[bytes]:
    """Return git's own folders in a version: listed in it, but never saved."""
    rows = repository.left_out(checkpoint.workspace, checkpoint.version)
    return [row.path for row in rows if row.kind == EXCLUDED and row.flags & WHY_EXCLUDED == BY_GIT]


def compare(
    engine: Engine,
    root: bytes,
    row: WorkspaceRow,
    old: CheckpointRow | None,
    new: CheckpointRow | None,
    paths: Sequence[bytes] = (),
) -> list[Change]:
    """Return the changes from `old` to `new`, sorted by path; `new` None is the disk now, `old` None an empty tree.

    `paths` limits them to these and what lies below.
    """
    if new is not None:
        return [change for change in between(engine.repository(), row.id, old, new) if lies_below(change.path, paths)]
    return _with_disk(engine, root, row, old, paths)


def pending(engine: Engine, root: bytes, row: WorkspaceRow) -> tuple[list[Change], list[str]]:
    """Return what a save would record now against the newest version, and notices about the tree."""
    changed, before, notices = engine.preview_save(root, row.id, _Hashing(engine.repository(), row))
    load, read_disk = _stored(engine.repository()), _on_disk(root)
    return [Change(before.get(entry.path), _or_none(entry), load, read_disk) for entry in changed], notices


def _with_disk(
    engine: Engine, root: bytes, row: WorkspaceRow, old: CheckpointRow | None, paths: Sequence[bytes]
) -> list[Change]:
    repository = engine.repository()
    changed, before, _ = engine.preview_save(root, row.id, _Hashing(engine.repository(), row))
    now = {entry.path: _or_none(entry) for entry in changed}
    earlier = {path: before.get(path) for path in now}
    if old is None or old.version != row.version:
        newest = repository.checkpoint(row.id, row.version) if row.version else None
        for change in between(repository, row.id, old, newest) if newest is not None else ():
            now.setdefault(change.path, change.new)
            earlier[change.path] = change.old
    load, read_disk = _stored(repository), _on_disk(root)
    return [
        Change(earlier[path], now[path], load, read_disk)
        for path in sorted(now)
        if lies_below(path, paths) and differ(earlier[path], now[path])
    ]


def disk_now(engine: Engine, root: bytes, row: WorkspaceRow, paths: Sequence[bytes] = ()) -> dict[bytes, Entry | None]:
    """Return what differs on disk from the newest version, at these paths, below and above them: path → row now.

    If all `paths` are files, only they are read.
    """
    above = parents(paths)
    repository, only = engine.repository(), (*sorted(above), *paths)
    for path in paths:
        entry = repository.current(row.id, [path]).get(path)
        if not path or (entry is not None and entry.kind == FOLDER) or _is_folder(root, path):
            only = ()
    try:
        changed, _, _ = engine.preview_save(root, row.id, _Hashing(engine.repository(), row), only)
    except TooMany:
        if not paths or b"" in paths:
            raise
        changed, _, _ = engine.preview_save(
            root, row.id, _Hashing(engine.repository(), row), _paths_at(engine, root, row, paths)
        )
    return {entry.path: _or_none(entry) for entry in changed if entry.path in above or lies_below(entry.path, paths)}


def _paths_at(engine: Engine, root: bytes, row: WorkspaceRow, paths: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return these paths, those above and all below them, on disk or in the newest version. Raises `TooMany`."""
    repository = engine.repository()
    saved = [entry.path for path in paths for entry in repository.state(row.id, row.version, path)]
    existing, _ = list_below(root, [path for path in paths if _is_folder(root, path)], capture_rules(engine, root))
    return tuple(sorted({*parents(paths), *paths, *saved, *existing}))


def _is_folder(root: bytes, path: bytes) -> bool:
    try:
        top = open_fd(root, O_RDONLY)
        try:
            close(open_below(top, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK))
        finally:
            close(top)
    except OSError:
        return False
    return True


def between(repository: Repository, workspace: str, old: CheckpointRow | None, new: CheckpointRow) -> Iterator[Change]:
    """Yield the changes from `old` to `new`; `old` None is an empty tree."""
    load = _stored(repository)
    for before, after in pairs_between(repository, workspace, old, new):
        yield Change(before, after, load, load)


def pairs_between(
    repository: Repository, workspace: str, old: CheckpointRow | None, new: CheckpointRow
) -> Iterator[tuple[Entry | None, Entry | None]]:
    """Yield the changes from `old` to `new` as pairs of rows; None where a path is absent."""
    if old is not None and (old.workspace, old.version) == (new.workspace, new.version):
        return
    paths = _changed_paths(repository, workspace, old, new)
    if paths is None:
        yield from _merged(repository, old, new)
        return
    since = old.version if old is not None else 0
    for path in paths:
        pair = repository.at(workspace, since, path), repository.at(workspace, new.version, path)
        if differ(*pair):
            yield pair


def as_compared(repository: Repository, rows: Sequence[CheckpointRow]) -> list[CheckpointRow]:
    """Return the rows; where a restore came before a version, `changed` counts what differs from the restored version.

    If that one no longer exists, `changed` stays the number of paths that differ from the version directly before.
    """
    follow_restores = dict[str, set[int]]()
    for row in rows:
        before = repository.checkpoint(row.workspace, row.version - 1) if row.trigger not in SAFETY_TRIGGERS else None
        if before is not None and before.trigger in SAFETY_TRIGGERS:
            follow_restores.setdefault(row.workspace, set()).add(row.version)
    counts: dict[tuple[str, int], int] = {}
    for workspace, versions in follow_restores.items():
        for version, base in bases_before(repository, workspace, versions).items():
            old = repository.checkpoint(workspace, base[1]) if base is not None and base[0] == workspace else None
            new = repository.checkpoint(workspace, version)
            if old is not None and new is not None and not old.forgotten:
                counts[workspace, version] = sum(1 for _ in pairs_between(repository, workspace, old, new))
    return [row._replace(changed=counts.get((row.workspace, row.version), row.changed)) for row in rows]


def _keyframe_rows(repository: Repository, checkpoint: CheckpointRow) -> list[Entry] | None:
    """Return the rows of a version from its document if that is a keyframe, as the first one's is; faster than the history."""
    try:
        header, entries = repository.document(checkpoint)
    except Damaged:
        return None  # the ledger has the rows, too
    return entries if header.keyframe else None


def _changed_paths(
    repository: Repository, workspace: str, old: CheckpointRow | None, new: CheckpointRow
) -> list[bytes] | None:
    """Return the paths in the change sets between two versions; None if reading both states is better."""
    low, high = sorted((old.version if old is not None else 0, new.version))
    if new.workspace != workspace or (old is not None and old.workspace != workspace):
        return None  # a copied folder has versions of two workspaces
    if low == 0 or high - low > MAX_DOCUMENTS:
        return None
    rows = repository.find(Query(workspace=workspace, before=high + 1, limit=high - low, forgotten=True))
    if sum(row.changed for row in rows) > MAX_ROWS or any(row.trigger == "lost" for row in rows):
        return None
    paths: set[bytes] = set()
    try:
        for row in rows:
            header, entries = repository.document(row)
            if header.keyframe:
                return None  # a keyframe does not list deleted paths
            paths.update([entry.path for entry in entries])
    except Damaged:
        return None  # the ledger has both states, too
    return sorted(paths)


def _merged(
    repository: Repository, old: CheckpointRow | None, new: CheckpointRow
) -> Iterator[tuple[Entry | None, Entry | None]]:
    """Yield pairs of rows that differ, by path, from two states that are each sorted by path."""
    left: Iterator[Entry] = iter(()) if old is None else repository.state(old.workspace, old.version)
    document_rows = _keyframe_rows(repository, new)
    right = repository.state(new.workspace, new.version) if document_rows is None else iter(document_rows)
    old_entry, new_entry = next(left, None), next(right, None)
    while old_entry is not None and new_entry is not None:
        if old_entry.path < new_entry.path:
            yield old_entry, None
            old_entry = next(left, None)
        elif new_entry.path < old_entry.path:
            yield None, new_entry
            new_entry = next(right, None)
        else:
            if not same(old_entry, new_entry):
                yield old_entry, new_entry
            old_entry, new_entry = next(left, None), next(right, None)
    if old_entry is not None:
        yield old_entry, None
    if new_entry is not None:
        yield None, new_entry
    yield from zip(left, repeat(None))
    yield from zip(repeat(None), right)


def differ(left: Entry | None, right: Entry | None) -> bool:
    """Return whether the two rows differ, or only one exists."""
    if left is None or right is None:
        return left is not right
    return not same(left, right)


def _or_none(entry: Entry) -> Entry | None:
    return None if entry.kind == GONE else entry


def lies_below(path: bytes, limits: Iterable[bytes]) -> bool:
    limits = list(limits)
    return not limits or any(not limit or path == limit or path.startswith(limit + b"/") for limit in limits)


def _stored(repository: Repository) -> Callable[[Entry], bytes]:
    return lambda entry: entry.content if entry.kind == LINK else repository.contents.load(entry.content)


def _on_disk(root: bytes) -> Callable[[Entry], bytes]:
    def load(entry: Entry) -> bytes:
        if entry.kind == LINK:
            return entry.content
        try:
            top = open_fd(root, O_RDONLY)
            try:
                fd = open_below(top, entry.path, O_RDONLY | O_NONBLOCK)
            finally:
                close(top)
            try:
                return _read_all(fd)
            finally:
                close(fd)
        except OSError as error:
            raise Failed(f"{show(entry.path)} cannot be read: {error.strerror}.") from None

    return load


def _read_all(fd: int) -> bytes:
    parts = [read(fd, fstat(fd).st_size + 1)]
    while parts[-1]:
        parts.append(read(fd, 1 << 20))
    return b"".join(parts)


class _Hashing:
    """A sink that computes digests and stores nothing."""

    def __init__(self, repository: Repository, row: WorkspaceRow) -> None:
        self.repository, self.copies = repository, SealedCopies(repository, row)

    def small(self, data: bytes) -> bytes:
        return digest(data)

    def large(self, read: Callable[[int], bytes]) -> bytes:
        total = blake3()
        while data := read(1 << 20):
            total.update(data)
        return total.digest()

    def sealed(self, read: Callable[[int], bytes]) -> bytes:
        return self.copies.add(read, self._id_of)

    def is_copy(self, size: int, data: bytes | None) -> bool:
        return self.copies.has(size, data)

    def _id_of(self, read: Callable[[int], bytes]) -> bytes:
        ids = self.repository.contents.sealer().ids_of(read, self.repository.contents.has)
        # Without a key the id is unknown: any new one tells that a save would store the content again, which is true.
        return next(filter(self.repository.contents.has, ids), ids[0] if ids else self.large(read))
