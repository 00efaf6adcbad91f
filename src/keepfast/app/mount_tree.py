"""The versions of a workspace as folders and files that can be read in any order: what a mount shows."""

from __future__ import annotations

from collections import Counter, OrderedDict
from errno import EIO, EISDIR, ENOENT, ENOTDIR
from posix import stat, strerror
from typing import NamedTuple

from keepfast.model.entry import CAPTURED, FILE, FOLDER, GONE, LEFT_OUT, LINK, REASONS, Entry
from keepfast.model.errors import Damaged
from keepfast.store.digest import add, weight
from keepfast.store.ranges import Ranges
from keepfast.store.records import Chain
from keepfast.store.rows import CheckpointRow, Query
from keepfast.workspace.marker import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from keepfast.app.checkpoint import Engine
    from keepfast.store.repository import Repository

LATEST, NAMES, LEFT_OUT_LIST = b"latest", b"names", b".keepfast-left-out"
TOP = 1
MOST_ROWS = 400_000
"""Rows of so many paths are kept in memory, over all versions; of the version in use, all of them."""


class Node(NamedTuple):
    """Something that can be looked at. `content` is a digest, a link's target, or the bytes of a list that we write."""

    kind: str
    mode: int
    size: int
    mtime: int
    links: int
    inode: int
    content: bytes
    stored: bool = False


class Browser:
    """Paths such as `v3/src/a.py` over all versions of a workspace; or the paths of one version, if one is given.

    What is not there raises `OSError` as a file system would, what cannot be read a `KeepfastError`. A version that was
    shown once stays, even if it is forgotten meanwhile: whoever browses holds `store.mounts.hold`.
    """

    def __init__(self, engine: Engine, workspace: str, only: CheckpointRow | None = None) -> None:
        self.engine, self.workspace, self.only = engine, workspace, only
        self.contents = Ranges(engine.repository)
        self._shown: dict[int, CheckpointRow] = {} if only is None else {only.version: only}
        self._states: OrderedDict[int, State] = OrderedDict()
        self._ledger = self._ledger_file()
        if only is None:
            self.versions()
        else:
            self._state(only.version)

    def versions(self) -> list[CheckpointRow]:
        """Every version that is shown, oldest first; those that were made meanwhile included."""
        if self.only is None:
            for row in self._repository().find(Query(workspace=self.workspace)):
                if row.trigger != "lost":
                    self._shown[row.version] = row
        return [self._shown[version] for version in sorted(self._shown)]

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
        """Return bytes of a file; fewer only at its end. Every part is checked before it is handed out."""
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
        return self._shown.setdefault(rows[0].version, rows[0])

    def _changed_at(self) -> int:
        return self._shown[max(self._shown)].created_at if self._shown else 0

    def _split(self, path: bytes) -> tuple[int, bytes]:
        if self.only is not None:
            return self.only.version, path
        first, _, rest = path.partition(b"/")
        return self._version(first), rest

    def _version(self, name: bytes) -> int:
        """The version that a folder's name speaks of. `v05` speaks of none: a version has one name."""
        digits = name[1:]
        if name[:1] != b"v" or not digits.isdigit() or len(digits) > 15 or digits[:1] == b"0":
            raise _error(ENOENT)
        version = int(digits)
        if version not in self._shown:
            row = self._repository().checkpoint(self.workspace, version)
            if row is None or row.forgotten or row.trigger == "lost":
                raise _error(ENOENT)
            self._shown[version] = row
        return version

    # Inside a version

    def _find(self, version: int, path: bytes) -> Node:
        row, state = self._shown[version], self._state(version)
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

    def _state(self, version: int) -> State:
        state = self._states.get(version)
        if state is None:
            rows = whole_state(self._repository(), self._shown[version])
            near = next(reversed(self._states.values())) if self._states else None
            state = self._states[version] = State(rows, near)
            while len(self._states) > 1 and sum([known.rows for known in self._states.values()]) > MOST_ROWS:
                self._states.popitem(last=False)
        self._states.move_to_end(version)
        return state

    # The store, which may get a new ledger while we look

    def _repository(self) -> Repository:
        now = self._ledger_file()
        if now != self._ledger:
            self.engine.close()
            self._ledger = now
        return self.engine.repository()

    def _ledger_file(self) -> tuple[int, int]:
        try:
            found = stat(self.engine.place.path + "/ledger.db")
        except OSError:
            return 0, 0
        return found.st_dev, found.st_ino


class State:
    """One version, folder by folder."""

    __slots__ = ("folders", "left_out", "links", "rows")

    def __init__(self, rows: Iterable[Entry], near: State | None) -> None:
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
            if near is not None:
                # Versions are much alike: what is equal is kept once.
                same = near.folders.get(folder, {}).get(name)
                row = same if same == row else row
            self.folders.setdefault(folder, {})[name] = row
            if row.kind == FOLDER:
                self.folders.setdefault(row.path, {})
            if row.group:
                self.links[row.group] += 1


def whole_state(repository: Repository, row: CheckpointRow) -> list[Entry]:
    """Return every row of a version, also of one that was forgotten but not swept. Raises `Damaged`."""
    rows = list(repository.state(row.workspace, row.version))
    now = repository.checkpoint(row.workspace, row.version)
    # Forgetting drops rows from the ledger; the documents stay until they are swept.
    if now is None or now.forgotten or not _adds_up(rows, row):
        rows = _from_documents(repository, row)
        if not _adds_up(rows, row):
            raise Damaged(f"The stored state of v{row.version} is inconsistent.")
    return rows


def left_out_text(entries: Iterable[Entry]) -> bytes:
    """One line for each path that a version does not hold, with the reason."""
    return "".join([f"{show(entry.path)}\t{REASONS[entry.kind]}\n" for entry in entries]).encode("utf-8")


def file_name(name: str) -> bytes:
    """A checkpoint's name as the name of a file: `/` cannot be in one, `.` and `..` are taken."""
    if name in (".", ".."):
        return name.replace(".", "%2E").encode("ascii")
    return name.replace("/", "%2F").encode("utf-8", "replace")


def _adds_up(rows: Iterable[Entry], row: CheckpointRow) -> bool:
    tree = 0
    for entry in rows:
        if entry.kind in CAPTURED:
            tree = add(tree, plus=weight(entry))
    return f"{tree:064x}" == row.tree


def _from_documents(repository: Repository, row: CheckpointRow) -> list[Entry]:
    """Newest document first, back to a whole one: what is said first of a path holds."""
    records = Chain(repository.records.read(row.workspace)).records
    keyframes = {record["v"]: bytes.fromhex(record["doc"]) for record in records if record["r"] == "keyframe"}
    state: dict[bytes, Entry] = {}
    for one in repository.find(Query(workspace=row.workspace, before=row.version + 1, forgotten=True)):
        key = keyframes.get(one.version, one.document)
        header, entries = repository.document(one._replace(document=key))
        for entry in entries:
            state.setdefault(entry.path, entry)
        if header.keyframe:
            break
    return sorted([entry for entry in state.values() if entry.kind != GONE])


def _inode(version: int, entry: Entry) -> int:
    """One number for each file of each version; hard links of a file share it."""
    return hash((version, entry.group or entry.path))


def _folder(inode: int, mtime: int) -> Node:
    return Node(FOLDER, 0o755, 0, mtime, 1, inode, b"")


def _link(inode: int, target: bytes, mtime: int) -> Node:
    return Node(LINK, 0o777, len(target), mtime, 1, inode, target)


def _error(number: int) -> OSError:
    return OSError(number, strerror(number))
