"""The versions of a workspace as folders and files: what a mount shows."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from errno import EIO, EISDIR, ENOENT, ENOTDIR
from os import stat, strerror
from typing import NamedTuple

from keepfast.app.checkpoint import Engine
from keepfast.model.entry import CAPTURED, FILE, FOLDER, GONE, LEFT_OUT, LINK, REASONS, Entry
from keepfast.model.errors import Damaged
from keepfast.store.digest import add, weight
from keepfast.store.ranges import Ranges
from keepfast.store.records import Chain
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, Query
from keepfast.workspace.marker import show

LATEST, NAMES, LEFT_OUT_LIST = b"latest", b"names", b".keepfast-left-out"
TOP = 1
MAX_CACHED_ROWS = 400_000
"""How many rows of all versions stay in memory; the version in use stays whole."""


class Node(NamedTuple):
    """A file, folder or link. `content` is a digest, a link's target, or the bytes of a generated list."""

    kind: str
    mode: int
    size: int
    mtime: int
    links: int
    inode: int
    content: bytes
    stored: bool = False


class Browser:
    """Resolves paths such as `v3/src/a.py` over all versions of a workspace, or the paths of one version.

    Missing paths raise `OSError` as a file system does, unreadable contents a `KeepfastError`. A version that was shown once
    stays, even if it is forgotten meanwhile: the caller holds `state.mounts.hold`.
    """

    def __init__(self, engine: Engine, workspace: str, only: CheckpointRow | None = None) -> None:
        self.engine, self.workspace, self.only = engine, workspace, only
        self.contents = Ranges(engine.repository)
        self._rows: dict[int, CheckpointRow] = {} if only is None else {only.version: only}
        self._states: OrderedDict[int, VersionState] = OrderedDict()
        self._ledger = self._ledger_file()
        if only is None:
            self.versions()
        else:
            self._state(only.version)

    def versions(self) -> list[CheckpointRow]:
        """Return every version that is shown, oldest first, with those made since the mount."""
        if self.only is None:
            for row in self._repository().find(Query(workspace=self.workspace)):
                if row.trigger != "lost":
                    self._rows[row.version] = row
        return [self._rows[version] for version in sorted(self._rows)]

    def find(self, path: bytes) -> Node:
        """Return what is at this path, relative to the top."""
        if self.only is not None:
            return self._find(self.only.version, path)
        first, _, rest = path.partition(b"/")
        if not first:
            return _folder(TOP, self._changed_at())
        if first == LATEST and not rest:
            return _link(TOP + 1, b"v%d" % self._newest().version, self._newest().created_at)
        if first == NAMES:
            if not rest:
                return _folder(TOP + 2, self._changed_at())
            row = self._names().get(rest)
            if row is None:
                raise _error(ENOENT)
            return _link(hash((NAMES, rest)), b"../v%d" % row.version, row.created_at)
        return self._find(self._version(first), rest)

    def names(self, path: bytes) -> Iterator[tuple[bytes, str, int]]:
        """Yield name, kind and inode of everything in a folder."""
        if self.only is None and path in (b"", NAMES):
            yield from self._names_above(path)
            return
        version, rest = self._split(path)
        state = self._state(version)
        folder = state.folders.get(rest)
        if folder is None:
            raise _error(ENOTDIR if self._find(version, rest).kind != FOLDER else ENOENT)
        for name, entry in folder.items():
            yield name, entry.kind, _inode(version, entry)
        if not rest and state.left_out and LEFT_OUT_LIST not in folder:
            yield LEFT_OUT_LIST, FILE, hash((version, LEFT_OUT_LIST))

    def read(self, node: Node, offset: int, length: int) -> bytes:
        """Return bytes of a file, fewer only at its end. Every part is verified first."""
        if node.kind != FILE:
            raise _error(EISDIR if node.kind == FOLDER else EIO)
        if not node.stored:
            return node.content[offset : offset + length]
        return self.contents.read(node.content, node.size, offset, length)

    # The top

    def _names_above(self, path: bytes) -> Iterator[tuple[bytes, str, int]]:
        if path == NAMES:
            for name in self._names():
                yield name, LINK, hash((NAMES, name))
            return
        rows = self.versions()
        for row in rows:
            yield b"v%d" % row.version, FOLDER, hash((row.version, b""))
        yield NAMES, FOLDER, TOP + 2
        if rows:
            yield LATEST, LINK, TOP + 1

    def _names(self) -> dict[bytes, CheckpointRow]:
        return {file_name(row.name): row for row in self.versions() if row.name}

    def _newest(self) -> CheckpointRow:
        rows = self._repository().find(Query(workspace=self.workspace, limit=1))
        if not rows:
            raise _error(ENOENT)
        return self._rows.setdefault(rows[0].version, rows[0])

    def _changed_at(self) -> int:
        return self._rows[max(self._rows)].created_at if self._rows else 0

    def _split(self, path: bytes) -> tuple[int, bytes]:
        if self.only is not None:
            return self.only.version, path
        first, _, rest = path.partition(b"/")
        return self._version(first), rest

    def _version(self, name: bytes) -> int:
        """Return the version of a folder's name. `v05` is none: a version has one name."""
        digits = name[1:]
        if name[:1] != b"v" or not digits.isdigit() or len(digits) > 15 or digits[:1] == b"0":
            raise _error(ENOENT)
        version = int(digits)
        if version not in self._rows:
            row = self._repository().checkpoint(self.workspace, version)
            if row is None or row.forgotten or row.trigger == "lost":
                raise _error(ENOENT)
            self._rows[version] = row
        return version

    # Inside a version

    def _find(self, version: int, path: bytes) -> Node:
        row, state = self._rows[version], self._state(version)
        if not path:
            return _folder(hash((version, b"")), row.created_at)
        folder, _, name = path.rpartition(b"/")
        entry = state.folders.get(folder, {}).get(name)
        if entry is None:
            if path == LEFT_OUT_LIST and state.left_out:
                text = left_out_text(state.left_out)
                return Node(FILE, 0o444, len(text), row.created_at, 1, hash((version, path)), text)
            raise _error(ENOTDIR if folder and folder not in state.folders else ENOENT)
        links = state.links[entry.group] if entry.group else 1
        inode, stored = _inode(version, entry), entry.kind == FILE
        mtime = entry.mtime or row.created_at  # of folders no time is recorded
        return Node(entry.kind, entry.mode, entry.size, mtime, links, inode, entry.content, stored)

    def _state(self, version: int) -> VersionState:
        state = self._states.get(version)
        if state is None:
            rows = whole_state(self._repository(), self._rows[version])
            similar = next(reversed(self._states.values())) if self._states else None
            state = self._states[version] = VersionState(rows, similar)
            while len(self._states) > 1 and sum([state.rows for state in self._states.values()]) > MAX_CACHED_ROWS:
                self._states.popitem(last=False)
        self._states.move_to_end(version)
        return state

    # The store, whose ledger may be rebuilt meanwhile

    def _repository(self) -> Repository:
        now = self._ledger_file()
        if now != self._ledger:
            self.engine.close()
            self._ledger = now
        return self.engine.repository()

    def _ledger_file(self) -> tuple[int, int]:
        try:
            status = stat(self.engine.place.path + "/ledger.db")
        except OSError:
            return 0, 0
        return status.st_dev, status.st_ino


class VersionState:
    """The rows of one version, by folder."""

    __slots__ = ("folders", "left_out", "links", "rows")

    def __init__(self, rows: Iterable[Entry], similar: VersionState | None) -> None:
        self.folders: dict[bytes, dict[bytes, Entry]] = {b"": {}}
        self.left_out: list[Entry] = []
        self.links: Counter[int] = Counter()
        self.rows = 0
        for row in rows:
            self.rows += 1
            if row.kind in LEFT_OUT:
                self.left_out.append(row)
                continue
            folder, _, name = row.path.rpartition(b"/")
            if similar is not None:
                # Versions are similar: equal rows are kept once.
                same = similar.folders.get(folder, {}).get(name)
                row = same if same == row else row
            self.folders.setdefault(folder, {})[name] = row
            if row.kind == FOLDER:
                self.folders.setdefault(row.path, {})
            if row.group:
                self.links[row.group] += 1


def whole_state(repository: Repository, row: CheckpointRow) -> list[Entry]:
    """Return every row of a version, also of one that is forgotten but not swept. Raises `Damaged`."""
    rows = list(repository.state(row.workspace, row.version))
    now = repository.checkpoint(row.workspace, row.version)
    # Forgetting drops rows from the ledger; the documents stay until they are swept.
    if now is None or now.forgotten or not _matches_tree(rows, row):
        rows = _from_documents(repository, row)
        if not _matches_tree(rows, row):
            raise Damaged(f"The stored state of v{row.version} is inconsistent.")
    return rows


def left_out_text(entries: Iterable[Entry]) -> bytes:
    """Return one line for each path that a version excludes, with the reason."""
    return "".join([f"{show(entry.path)}\t{REASONS[entry.kind]}\n" for entry in entries]).encode("utf-8")


def file_name(name: str) -> bytes:
    """Return a checkpoint's name as a file name: `/` is not allowed in one, `.` and `..` are taken."""
    if name in (".", ".."):
        return name.replace(".", "%2E").encode("ascii")
    return name.replace("/", "%2F").encode("utf-8", "replace")


def _matches_tree(rows: Iterable[Entry], row: CheckpointRow) -> bool:
    tree = 0
    for entry in rows:
        if entry.kind in CAPTURED:
            tree = add(tree, plus=weight(entry))
    return f"{tree:064x}" == row.tree


def _from_documents(repository: Repository, row: CheckpointRow) -> list[Entry]:
    """Read the documents, newest first, back to a keyframe: the first row of a path counts."""
    records = Chain(repository.records.read(row.workspace)).records
    keyframes = {record["v"]: bytes.fromhex(record["doc"]) for record in records if record["r"] == "keyframe"}
    state: dict[bytes, Entry] = {}
    for version in repository.find(Query(workspace=row.workspace, before=row.version + 1, forgotten=True)):
        key = keyframes.get(version.version, version.document)
        header, entries = repository.document(version._replace(document=key))
        for entry in entries:
            state.setdefault(entry.path, entry)
        if header.keyframe:
            break
    return sorted([entry for entry in state.values() if entry.kind != GONE])


def _inode(version: int, entry: Entry) -> int:
    """Return one number for each file of each version; hard links share it."""
    return hash((version, entry.group or entry.path))


def _folder(inode: int, mtime: int) -> Node:
    return Node(FOLDER, 0o755, 0, mtime, 1, inode, b"")


def _link(inode: int, target: bytes, mtime: int) -> Node:
    return Node(LINK, 0o777, len(target), mtime, 1, inode, target)


def _error(number: int) -> OSError:
    return OSError(number, strerror(number))
