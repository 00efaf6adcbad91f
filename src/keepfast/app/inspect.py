"""Looking without changing anything: what differs between two checkpoints, or between one and the disk now."""

from __future__ import annotations

from itertools import repeat
from posix import O_DIRECTORY, O_NONBLOCK, O_RDONLY, close, fstat, read
from posix import open as open_fd

from blake3 import blake3

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
from keepfast.model.light_json import loads
from keepfast.model.restore_plan import parents
from keepfast.store.bases import bases_before
from keepfast.store.digest import digest
from keepfast.store.rows import SAFETY_TRIGGERS, Query
from keepfast.store.sealed_copies import SealedCopies
from keepfast.workspace.marker import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from keepfast.app.checkpoint import Engine
    from keepfast.store.repository import Repository
    from keepfast.store.rows import CheckpointRow, WorkspaceRow

MOST_DOCUMENTS, MOST_ROWS = 200, 5_000
"""Up to here the change sets in between say which paths to compare; beyond, both states are read in full."""

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
        """`added`, `deleted`, `modified`, `mode`, `type`, or `left out` where a side was not kept."""
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
        """The old side's bytes, a link's target, or None if there is nothing of the kind. Raises `Damaged`."""
        return self._load_old(self.old) if self.old is not None and self.old.kind in (FILE, LINK) else None

    def new_content(self) -> bytes | None:
        return self._load_new(self.new) if self.new is not None and self.new.kind in (FILE, LINK) else None


class Coverage:
    """How much of a tree a checkpoint holds."""

    __slots__ = ("bytes", "files", "folders", "left_out", "links")

    def __init__(self, counts: dict[str, int]) -> None:
        self.files, self.links, self.folders = counts.get(FILE, 0), counts.get(LINK, 0), counts.get(FOLDER, 0)
        self.bytes = counts.get("bytes", 0)
        self.left_out = {kind: counts[kind] for kind in LEFT_OUT if counts.get(kind)}

    @property
    def is_poor(self) -> bool:
        """Is nothing captured, or more left out than captured?"""
        captured = self.files + self.links
        return captured == 0 or sum(self.left_out.values()) > captured


def coverage(row: WorkspaceRow) -> Coverage:
    """What the newest version of the workspace holds and leaves out."""
    return Coverage(loads(row.counts))


def not_covered(repository: Repository, checkpoint: CheckpointRow) -> list[bytes]:
    """Git's own folders in a version: named there, and never kept."""
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
    """Return what leads from `old` to `new`, sorted by path; `new` None is the disk now, `old` None an empty tree.

    `paths` limits it to those and what lies below them.
    """
    if new is not None:
        return [change for change in between(engine.repository(), row.id, old, new) if lies_below(change.path, paths)]
    return _with_disk(engine, root, row, old, paths)


def pending(engine: Engine, root: bytes, row: WorkspaceRow) -> tuple[list[Change], list[str]]:
    """Return what a save would record now, against the newest version, and what is odd about the tree."""
    changed, before, notices = engine.look(root, row.id, _Hashing(engine.repository(), row))
    load, read_disk = _stored(engine.repository()), _on_disk(root)
    return [Change(before.get(entry.path), _there(entry), load, read_disk) for entry in changed], notices


def _with_disk(
    engine: Engine, root: bytes, row: WorkspaceRow, old: CheckpointRow | None, paths: Sequence[bytes]
) -> list[Change]:
    repository = engine.repository()
    changed, before, _ = engine.look(root, row.id, _Hashing(engine.repository(), row))
    now = {entry.path: _there(entry) for entry in changed}
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

    Where `paths` are all files, only they are looked at.
    """
    above = parents(paths)
    repository, only = engine.repository(), (*sorted(above), *paths)
    for path in paths:
        known = repository.current(row.id, [path]).get(path)
        if not path or (known is not None and known.kind == FOLDER) or _is_folder(root, path):
            only = ()
    try:
        changed, _, _ = engine.look(root, row.id, _Hashing(engine.repository(), row), only)
    except TooMany:
        if not paths or b"" in paths:
            raise
        changed, _, _ = engine.look(root, row.id, _Hashing(engine.repository(), row), _all_at(engine, root, row, paths))
    return {entry.path: _there(entry) for entry in changed if entry.path in above or lies_below(entry.path, paths)}


def _all_at(engine: Engine, root: bytes, row: WorkspaceRow, paths: Sequence[bytes]) -> tuple[bytes, ...]:
    """These paths, those above them, and all below them, on disk or in the newest version. Raises `TooMany`."""
    from keepfast.app.scan import all_below
    from keepfast.app.workspace_lock import capture_rules

    repository = engine.repository()
    known = [entry.path for path in paths for entry in repository.state(row.id, row.version, path)]
    there, _ = all_below(root, [path for path in paths if _is_folder(root, path)], capture_rules(engine, root))
    return tuple(sorted({*parents(paths), *paths, *known, *there}))


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
    """Return what leads from `old` to `new`; `old` None is an empty tree."""
    load = _stored(repository)
    for before, after in pairs_between(repository, workspace, old, new):
        yield Change(before, after, load, load)


def pairs_between(
    repository: Repository, workspace: str, old: CheckpointRow | None, new: CheckpointRow
) -> Iterator[tuple[Entry | None, Entry | None]]:
    """The same as pairs of rows, of which one may be None."""
    if old is not None and (old.workspace, old.version) == (new.workspace, new.version):
        return
    touched = _touched(repository, workspace, old, new)
    if touched is None:
        yield from _merged(repository, old, new)
        return
    since = old.version if old is not None else 0
    for path in touched:
        pair = repository.at(workspace, since, path), repository.at(workspace, new.version, path)
        if differ(*pair):
            yield pair


def as_compared(repository: Repository, rows: Sequence[CheckpointRow]) -> list[CheckpointRow]:
    """The rows with `changed` counted from what was restored, where a restore came between a version and the one before it.

    Where that is no longer kept, it stays the number of paths that differed from the version directly before.
    """
    after = dict[str, set[int]]()
    for row in rows:
        before = repository.checkpoint(row.workspace, row.version - 1) if row.trigger not in SAFETY_TRIGGERS else None
        if before is not None and before.trigger in SAFETY_TRIGGERS:
            after.setdefault(row.workspace, set()).add(row.version)
    found: dict[tuple[str, int], int] = {}
    for workspace, versions in after.items():
        for version, base in bases_before(repository, workspace, versions).items():
            old = repository.checkpoint(workspace, base[1]) if base is not None and base[0] == workspace else None
            new = repository.checkpoint(workspace, version)
            if old is not None and new is not None and not old.forgotten:
                found[workspace, version] = sum(1 for _ in pairs_between(repository, workspace, old, new))
    return [row._replace(changed=found.get((row.workspace, row.version), row.changed)) for row in rows]


def _whole(repository: Repository, checkpoint: CheckpointRow) -> list[Entry] | None:
    """The state of a version whose document holds all of it, as the first one's does: then no history is in the way."""
    try:
        header, entries = repository.document(checkpoint)
    except Damaged:
        return None  # the ledger has it too
    return entries if header.keyframe else None


def _touched(
    repository: Repository, workspace: str, old: CheckpointRow | None, new: CheckpointRow
) -> list[bytes] | None:
    """Paths that the change sets between two versions speak of; None if both states had better be read."""
    low, high = sorted((old.version if old is not None else 0, new.version))
    if new.workspace != workspace or (old is not None and old.workspace != workspace):
        return None  # a folder that was copied has a history of its own, and that of its origin
    if low == 0 or high - low > MOST_DOCUMENTS:
        return None
    rows = repository.find(Query(workspace=workspace, before=high + 1, limit=high - low, forgotten=True))
    if sum(row.changed for row in rows) > MOST_ROWS or any(row.trigger == "lost" for row in rows):
        return None
    paths: set[bytes] = set()
    try:
        for row in rows:
            header, entries = repository.document(row)
            if header.keyframe:
                return None  # it names what there is, not what is gone
            paths.update([entry.path for entry in entries])
    except Damaged:
        return None  # the ledger has both states too
    return sorted(paths)


def _merged(
    repository: Repository, old: CheckpointRow | None, new: CheckpointRow
) -> Iterator[tuple[Entry | None, Entry | None]]:
    """Pairs of rows that differ, by path, from two states that are each sorted by path."""
    left: Iterator[Entry] = iter(()) if old is None else repository.state(old.workspace, old.version)
    whole = _whole(repository, new)
    right = repository.state(new.workspace, new.version) if whole is None else iter(whole)
    one, other = next(left, None), next(right, None)
    while one is not None and other is not None:
        if one.path < other.path:
            yield one, None
            one = next(left, None)
        elif other.path < one.path:
            yield None, other
            other = next(right, None)
        else:
            if not same(one, other):
                yield one, other
            one, other = next(left, None), next(right, None)
    if one is not None:
        yield one, None
    if other is not None:
        yield None, other
    yield from zip(left, repeat(None))
    yield from zip(repeat(None), right)


def differ(one: Entry | None, other: Entry | None) -> bool:
    """Is one not as the other is, or not there?"""
    if one is None or other is None:
        return one is not other
    return not same(one, other)


def _there(entry: Entry) -> Entry | None:
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
    """A sink that keeps nothing: what is looked at is not stored."""

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
        found = self.repository.contents.sealer().ids_of(read, self.repository.contents.has)
        # Without a key the id cannot be known; any other one says that a save would store it anew, and so it would.
        return next(filter(self.repository.contents.has, found), found[0] if found else self.large(read))
