"""The ports in memory: as strict as the real ones, and gone with the process."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from errno import ENOENT
from threading import Lock, get_ident
from types import TracebackType

from keepfast.model.entry import FILE, GONE, LEFT_OUT, SEALED, Entry
from keepfast.model.errors import Damaged
from keepfast.model.steps import step
from keepfast.store.rows import SAFETY_TRIGGERS, CheckpointRow, Location, PackRow, Query, WorkspaceRow

Interval = tuple[int, int | None, Entry]


class MemoryBlobs:
    """Immutable named objects in a dict."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    def create(self) -> MemoryUpload:
        return MemoryUpload(self._objects)

    def read(self, name: str, offset: int, length: int) -> bytes:
        data = self._object(name)[offset : offset + length]
        if len(data) != length:
            raise EOFError(f"object {name} ends before byte {offset + length}")
        return data

    def descriptor(self, name: str) -> int:
        return -1

    def size(self, name: str) -> int:
        return len(self._object(name))

    def names(self) -> list[str]:
        return sorted(self._objects)

    def delete(self, name: str) -> None:
        self._objects.pop(name, None)

    def sweep(self) -> int:
        return 0  # an unfinished upload is known to its writer only, and dies with it

    def _object(self, name: str) -> bytes:
        if name not in self._objects:
            raise FileNotFoundError(ENOENT, "No such object", name)
        return self._objects[name]

    def close(self) -> None:
        pass  # there is nothing to let go


class MemoryUpload:
    def __init__(self, objects: dict[str, bytes]) -> None:
        self._objects = objects
        self._parts: list[bytes] = []
        self._synced = False

    def write(self, data: bytes) -> None:
        self._parts.append(bytes(data))
        self._synced = False

    def sync(self) -> None:
        self._synced = True

    def finish(self, name: str) -> None:
        if not self._synced:
            raise ValueError("an object gets its name after `sync`, and only once")
        self._objects[name] = b"".join(self._parts)
        self.abort()

    def abort(self) -> None:
        self._parts, self._synced = [], False


class MemoryRecords:
    """Logs in a dict."""

    def __init__(self) -> None:
        self._logs: dict[str, bytes] = {}

    def append(self, log: str, lines: bytes) -> None:
        self._logs[log] = self.read(log) + lines

    def read(self, log: str) -> bytes:
        return self._logs.get(log, b"")

    def size(self, log: str) -> int:
        return len(self.read(log))

    def truncate(self, log: str, size: int) -> None:
        if log not in self._logs:
            raise FileNotFoundError(ENOENT, "No such log", log)
        self._logs[log] = self._logs[log][:size]

    def logs(self) -> list[str]:
        return sorted(self._logs)

    def remove(self, log: str) -> None:
        self._logs.pop(log, None)


class MemoryLedger:
    """The ledger port on dicts. A transaction writes into a copy, which takes the place of the original at its end."""

    def __init__(self) -> None:
        self._committed = _Tables()
        self._draft = self._committed
        self._writers = Lock()
        self._writer = 0

    def transaction(self) -> MemoryTransaction:
        return MemoryTransaction(self)

    def workspace(self, workspace: str) -> WorkspaceRow | None:
        return self._tables().workspaces.get(workspace)

    def workspaces(self) -> list[WorkspaceRow]:
        return list(self._tables().workspaces.values())

    def checkpoint(self, workspace: str, version: int) -> CheckpointRow | None:
        return self._tables().checkpoints.get((workspace, version))

    def count(self, workspace: str) -> int:
        rows = self._tables().checkpoints.values()
        return sum(row.workspace == workspace and not row.forgotten for row in rows)

    def find(self, query: Query) -> list[CheckpointRow]:
        newest: Callable[[CheckpointRow], int] = (lambda row: row.version) if query.workspace else (lambda row: row.seq)
        rows = [row for row in self._tables().checkpoints.values() if _answers(row, query)]
        rows.sort(key=newest, reverse=True)
        return rows[: query.limit] if query.limit else rows

    def current(self, workspace: str, paths: Sequence[bytes]) -> dict[bytes, Entry]:
        newest = {path: self._tables().nodes.get((workspace, path), ())[-1:] for path in paths}
        return {path: last[0][2] for path, last in newest.items() if last and last[0][1] is None}

    def state(self, workspace: str, version: int, below: bytes = b"") -> Iterator[Entry]:
        rows = [interval[2] for interval in self.intervals(workspace) if _covers(interval, version)]
        return iter([row for row in rows if not below or (row.path + b"/").startswith(below + b"/")])

    def left_out(self, workspace: str, version: int, below: bytes = b"") -> list[Entry]:
        return [row for row in self.state(workspace, version, below) if row.kind in LEFT_OUT]

    def sealed(self, workspace: str, least: int) -> list[Entry]:
        rows = [row for _, until, row in self.intervals(workspace) if until is None]
        return [row for row in rows if row.flags & SEALED and row.size >= least]

    def at(self, workspace: str, version: int, path: bytes) -> Entry | None:
        rows = [interval[2] for interval in self.history(workspace, path) if _covers(interval, version)]
        return rows[0] if rows else None

    def history(self, workspace: str, path: bytes) -> list[Interval]:
        return list(self._tables().nodes.get((workspace, path), ()))

    def intervals(self, workspace: str) -> Iterator[Interval]:
        nodes = self._tables().nodes
        return iter([interval for key in sorted(nodes) if key[0] == workspace for interval in nodes[key]])

    def paths(self, workspace: str, text: bytes, limit: int) -> list[bytes]:
        # bytes.lower() changes ASCII letters only.
        paths = [path for owner, path in self._tables().nodes if owner == workspace and text.lower() in path.lower()]
        return sorted(paths)[:limit]

    def locate(self, digests: Sequence[bytes]) -> dict[bytes, Location]:
        blobs = self._tables().blobs
        return {digest: blobs[digest] for digest in digests if digest in blobs}

    def existing_digests(self, digests: Sequence[bytes]) -> set[bytes]:
        return set(digests) & self._tables().blobs.keys()

    def locations(self) -> Iterator[tuple[bytes, Location]]:
        return iter(sorted(self._tables().blobs.items()))

    def packs(self) -> list[PackRow]:
        return [PackRow(name, size) for name, size in self._tables().packs.items()]

    def needed_contents(self) -> set[bytes]:
        nodes, kept = self._tables().nodes, self._tables().attachments
        files = {row.content for known in nodes.values() for _, _, row in known if row.kind == FILE}
        return files.union(*kept.values())

    def attachments(self, workspace: str) -> dict[int, list[bytes]]:
        kept = self._tables().attachments
        return {version: list(ids) for (owner, version), ids in kept.items() if owner == workspace}

    def meta(self, key: str) -> str | None:
        return self._tables().meta.get(key)

    def vacuum(self) -> None:
        """Nothing to give back: there is no file."""

    def close(self) -> None:
        """Nothing to give back: whoever has the object has the data."""

    def _tables(self) -> _Tables:
        return self._draft if self._writer == get_ident() else self._committed


class MemoryTransaction:
    """One writer at a time, on tables of its own."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger
        self._tables = ledger._committed

    def __enter__(self) -> MemoryTransaction:
        ledger = self._ledger
        if ledger._writer == get_ident():
            raise RuntimeError("a transaction inside a transaction would wait for itself")
        ledger._writers.acquire()
        self._tables = ledger._draft = ledger._committed.copy()
        ledger._writer = get_ident()
        step("ledger:begun")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ledger = self._ledger
        try:
            if kind is None:
                ledger._committed = self._tables
                step("ledger:committed")
        finally:
            self._tables = ledger._draft = _Tables()
            ledger._writer = 0
            ledger._writers.release()

    def add_workspace(self, row: WorkspaceRow) -> None:
        if row.id in self._tables.workspaces:
            raise Damaged(f"The ledger has the workspace {row.id} already.")
        self._tables.workspaces[row.id] = row

    def update_workspace(self, row: WorkspaceRow) -> None:
        if row.id in self._tables.workspaces:
            self._tables.workspaces[row.id] = row

    def add_pack(self, name: str, size: int, entries: Iterable[tuple[bytes, Location]]) -> None:
        self._tables.packs.setdefault(name, size)
        for digest, place in entries:
            self._tables.blobs.setdefault(digest, place._replace(pack=name))

    def drop_packs(self, names: Sequence[str], moved: Iterable[tuple[bytes, Location]]) -> None:
        packs, blobs = self._tables.packs, self._tables.blobs
        for digest, place in moved:
            if place.pack not in packs:
                raise KeyError(place.pack)
            if digest in blobs:
                blobs[digest] = place
        for digest in [digest for digest, place in blobs.items() if place.pack in names]:
            del blobs[digest]
        for name in names:
            packs.pop(name, None)

    def add_checkpoint(self, row: CheckpointRow) -> None:
        known = self._tables.checkpoints
        if (row.workspace, row.version) in known or any(other.id == row.id for other in known.values()):
            raise Damaged(f"The ledger has the checkpoint {row.id} (v{row.version}) already.")
        known[row.workspace, row.version] = row

    def update_checkpoint(self, row: CheckpointRow) -> None:
        if (row.workspace, row.version) in self._tables.checkpoints:
            self._tables.checkpoints[row.workspace, row.version] = row

    def apply(
        self,
        workspace: str,
        version: int,
        rows: Iterable[Entry],
        whole: bool = False,
        existing_paths: Container[bytes] | None = None,
    ) -> None:
        nodes, rows = self._tables.nodes, list(rows)
        ended = [key for key in nodes if key[0] == workspace]
        if not whole:
            ended = [(workspace, row.path) for row in rows if existing_paths is None or row.path in existing_paths]
        for key in ended:
            intervals = nodes.get(key, ())
            if intervals and intervals[-1][1] is None:
                nodes[key] = (*intervals[:-1], (intervals[-1][0], version, intervals[-1][2]))
        for row in rows:
            intervals = nodes.get((workspace, row.path), ())
            if row.kind == GONE:
                continue
            if intervals and intervals[-1][0] >= version:
                raise Damaged(f"The ledger has {row.path!r} at v{version} already.")
            nodes[workspace, row.path] = (*intervals, (version, None, row))

    def drop_intervals(self, workspace: str, after: int, upto: int) -> int:
        nodes, dropped = self._tables.nodes, 0
        for key in [key for key in nodes if key[0] == workspace]:
            for interval in nodes[key]:
                since, until, row = interval
                if after < since and until is not None and until <= upto:
                    nodes[key] = tuple(other for other in nodes[key] if other is not interval)
                    dropped += row.size if row.kind == FILE else 0
            if not nodes[key]:
                del nodes[key]
        return dropped

    def drop_workspace(self, workspace: str) -> None:
        tables = self._tables
        tables.workspaces.pop(workspace, None)
        tables.checkpoints = {key: row for key, row in tables.checkpoints.items() if key[0] != workspace}
        tables.nodes = {key: rows for key, rows in tables.nodes.items() if key[0] != workspace}
        tables.attachments = {key: ids for key, ids in tables.attachments.items() if key[0] != workspace}
        tables.meta.pop(f"base {workspace}", None)

    def set_meta(self, key: str, value: str) -> None:
        self._tables.meta[key] = value

    def set_attachments(self, workspace: str, version: int, ids: Sequence[bytes]) -> None:
        if ids:
            self._tables.attachments[workspace, version] = tuple(ids)
        else:
            self._tables.attachments.pop((workspace, version), None)


class _Tables:
    """Everything a ledger knows. Values never change in place, so a copy of the dicts is a copy of everything."""

    def __init__(self) -> None:
        self.meta: dict[str, str] = {}
        self.attachments: dict[tuple[str, int], tuple[bytes, ...]] = {}
        self.workspaces: dict[str, WorkspaceRow] = {}
        self.checkpoints: dict[tuple[str, int], CheckpointRow] = {}
        self.nodes: dict[tuple[str, bytes], tuple[Interval, ...]] = {}
        self.packs: dict[str, int] = {}
        self.blobs: dict[bytes, Location] = {}

    def copy(self) -> _Tables:
        other = _Tables()
        for name, table in vars(self).items():
            setattr(other, name, dict(table))
        return other


def _covers(interval: Interval, version: int) -> bool:
    since, until, _ = interval
    return since <= version and (until is None or until > version)


def _answers(row: CheckpointRow, query: Query) -> bool:
    return (
        query.workspace in ("", row.workspace)
        and query.session in ("", row.session)
        and query.task in ("", row.task)
        and query.trigger in ("", row.trigger)
        and query.name in ("", row.name)
        and (not query.tag or query.tag in row.tags.split("\n"))
        and row.id.startswith(query.id_prefix)
        and (not query.before or row.version < query.before)
        and (not query.created_until or row.created_at <= query.created_until)
        and (bool(query.forgotten) or not row.forgotten)
        and (query.safety or row.trigger not in SAFETY_TRIGGERS)
    )
