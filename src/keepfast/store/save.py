"""Write one checkpoint: contents go into packs as they are read, then the document, then the log record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from keepfast.model import document
from keepfast.model.entry import FILE, GONE, LEFT_OUT, Entry, gone, same
from keepfast.model.errors import Failed
from keepfast.model.steps import step
from keepfast.model.strict_json import loads
from keepfast.store.digest import add, blake3, digest, weight
from keepfast.store.packs import PackWriter
from keepfast.store.ports import Transaction
from keepfast.store.records import Record
from keepfast.store.reserve import max_pack_size
from keepfast.store.rows import CHUNKS, CONTENT, DOCUMENT, LIST, SEALED, CheckpointRow, WorkspaceRow
from keepfast.store.sealed_copies import SealedCopies

if TYPE_CHECKING:
    from keepfast.store.repository import Repository

WAITING_BLOBS, WAITING_BYTES = 200, 1 << 20
"""Blobs, and their bytes, that are collected in memory before the ledger is asked which of them it has."""
SYNC_IN_BACKGROUND_ROWS = 200
"""From this many changed rows on, packs are synced while the rows are made. With fewer, other writers would wait for the
sync, because the ledger is locked then."""
ROWS_PER_PAGE = 5000
"""Rows of the newest version that are read and compared at a time."""
CHUNKED_FROM_BYTES = 4 << 20
PACK_BYTES = 256 << 20
CHUNK_MIN, CHUNK_AVERAGE, CHUNK_MAX = 16 << 10, 64 << 10, 256 << 10


class SaveConflict(Failed):
    """Compaction removed a blob that this save reuses, or another save made a newer version. Saving again solves it."""


class ReplacedRows:
    """The rows of the newest version that a save replaces: their paths and totals.

    The rows themselves are not kept: those of a large tree would take as much memory as all else that a save holds.
    """

    __slots__ = ("bytes", "counts", "paths", "tree")

    def __init__(self) -> None:
        self.paths: set[bytes] = set()
        self.counts: dict[str, int] = {}
        self.bytes = self.tree = 0

    def add(self, path: bytes, row: Entry) -> None:
        self.paths.add(path)
        self.counts[row.kind] = self.counts.get(row.kind, 0) + 1
        self.bytes += row.size if row.kind == FILE else 0
        self.tree = add(self.tree, plus=weight(row))


class CheckpointWriter:
    """Writes one checkpoint. `small`, `large` and `sealed` store contents; `finish` commits the checkpoint."""

    def __init__(self, repository: Repository, row: WorkspaceRow) -> None:
        self.repository, self.row = repository, row
        self.copies = SealedCopies(repository, row)
        self.writers: list[PackWriter] = []
        self.writer = self._new_writer()
        self._pack_limit = 0
        self.stored: set[bytes] = set()
        self.reused: set[bytes] = set()
        self.waiting_blobs: dict[bytes, tuple[bytes, int]] = {}
        self.waiting_bytes = 0
        self.has_packs = bool(repository.ledger.packs())
        self.whole = row.version == 0 or not row.tree
        """Write a keyframe: there is no version yet, or the state of the newest one could not be rebuilt."""
        self._state: dict[bytes, Entry] | None = None
        self.minor_changes: list[Entry] = []
        """Files that got or lost a hard link, and excluded ones with another size or time: no reason to make a version, but
        recorded in the one that is made."""

    def _new_writer(self) -> PackWriter:
        self.writers.append(PackWriter(self.repository.blobs))
        return self.writers[-1]

    # Contents: the sink of workspace.read

    def small(self, data: bytes) -> bytes:
        key: bytes = blake3(data).digest()
        self.store_blob(key, data, CONTENT)
        return key

    def store_content(self, data: bytes) -> bytes:
        """Store a content that is already in memory; return its digest."""
        if len(data) <= CHUNKED_FROM_BYTES:
            return self.small(data)
        rest = memoryview(data)

        def pull(most: int) -> bytes:
            nonlocal rest
            part, rest = bytes(rest[:most]), rest[most:]
            return part

        return self.large(pull)

    def large(self, read: Callable[[int], bytes]) -> bytes:
        from pyfastcdc import FastCDC

        cutter = FastCDC(avg_size=CHUNK_AVERAGE, min_size=CHUNK_MIN, max_size=CHUNK_MAX, normalized_chunking=1)
        whole, keys = blake3(), []
        for chunk in cutter.cut_stream(_ChunkerInput(read)):
            data = bytes(chunk.data)
            whole.update(data)
            key = digest(data)
            keys.append(key)
            self.store_blob(key, data, CONTENT)
        total = whole.digest()
        if len(keys) != 1:
            self.store_blob(total, b"".join(keys), CHUNKS)
        return total

    def sealed(self, read: Callable[[int], bytes]) -> bytes:
        """Store a content encrypted; return the id of its sealed form."""
        return self.copies.add(
            read,
            lambda pull: self.repository.contents.sealer().seal_stream(
                pull,
                lambda key, data, is_list: self.store_blob(key, data, LIST if is_list else SEALED),
                self.repository.contents.has,
            ),
        )

    def is_copy(self, size: int, data: bytes | None) -> bool:
        """Return whether this is the content of a sealed file, in this save or in the newest version."""
        return self.copies.has(size, data)

    def store_blob(self, key: bytes, data: bytes, kind: int) -> None:
        """Store a blob under its digest, unless the store has it."""
        if key in self.stored or key in self.reused or key in self.waiting_blobs:
            return
        if not self.has_packs:
            self._add_to_pack(key, data, kind)
            return
        # The ledger is asked for many digests at a time: one query costs as much as five rows of its result.
        self.waiting_blobs[key] = data, kind
        self.waiting_bytes += len(data)
        if len(self.waiting_blobs) >= WAITING_BLOBS or self.waiting_bytes >= WAITING_BYTES:
            self.store_waiting_blobs()

    def store_waiting_blobs(self) -> None:
        """Store the waiting blobs that the store does not have yet."""
        existing = self.repository.ledger.existing_digests(list(self.waiting_blobs)) if self.waiting_blobs else ()
        for key, (data, kind) in self.waiting_blobs.items():
            if key in existing:
                self.reused.add(key)
            else:
                self._add_to_pack(key, data, kind)
        self.waiting_blobs, self.waiting_bytes = {}, 0

    def _add_to_pack(self, key: bytes, data: bytes, kind: int) -> None:
        self.stored.add(key)
        if self.writer.size_bound > 0 and self.writer.size_bound + len(data) > self._max_pack_size():
            self.writer.end()
            self.writer = self._new_writer()
        self.writer.add(key, data, kind)

    def _max_pack_size(self) -> int:
        if not self._pack_limit:
            self._pack_limit = max_pack_size(self.repository.folder, PACK_BYTES)
        return self._pack_limit

    # The state so far

    def state(self) -> dict[bytes, Entry]:
        """Return all entries of the newest version by path."""
        if self._state is None:
            rows = () if self.whole else self.repository.ledger.state(self.row.id, self.row.version)
            self._state = {row.path: row for row in rows}
        return self._state

    def changes(self, rows: dict[bytes, Entry], seen: set[bytes] | None) -> tuple[list[Entry], ReplacedRows]:
        """Return what differs from the newest version, sorted, and what it replaces.

        `seen` is every path that exists, after a walk; None if `rows` alone says what is gone.
        """
        old = ReplacedRows()
        return self.compare(rows, seen, old.add), old

    def compare(
        self, rows: dict[bytes, Entry], seen: set[bytes] | None, replace: Callable[[bytes, Entry], None]
    ) -> list[Entry]:
        """Return what differs from the newest version, sorted; call `replace` with each path and row that is replaced."""
        self.store_waiting_blobs()
        self.writer.compress_ahead()
        changed: list[Entry] = []
        self.minor_changes = []
        if seen is None:
            paths = list(rows)
            for start in range(0, len(paths), ROWS_PER_PAGE):
                part = paths[start : start + ROWS_PER_PAGE]
                self._compare_paths(part, rows, self.repository.ledger.current(self.row.id, part), changed, replace)
        else:
            old = self.state()
            self._compare_paths(rows, rows, old, changed, replace)
            # Nobody needs the state any more: if a large tree was deleted, each row is freed as its change is added.
            self._state = None
            for path in [path for path in old if path not in seen and path not in rows]:
                changed.append(gone(path))
                replace(path, old.pop(path))
        changed.sort()
        return changed

    def _compare_paths(
        self,
        paths: Iterable[bytes],
        rows: dict[bytes, Entry],
        old: dict[bytes, Entry],
        changed: list[Entry],
        replace: Callable[[bytes, Entry], None],
    ) -> None:
        for path in paths:
            row, before = rows[path], old.get(path)
            if before is None:
                if row.kind != GONE:
                    changed.append(row)
                continue
            if row.kind == GONE or not same(before, row):
                changed.append(row)
            elif before.group != row.group or (row.kind in LEFT_OUT and before[4:6] != row[4:6]):
                self.minor_changes.append(row)
            else:
                continue
            replace(path, before)

    def rebase_on_newest(self) -> bool:
        """Continue from the version that is the newest now; False if there is none, or its state could not be rebuilt."""
        row = self.repository.workspace(self.row.id)
        if row is None or not row.version or not row.tree:
            return False
        self.row, self.whole, self._state = row, False, None
        return True

    def finish(self, members: dict[str, Any], changed: list[Entry], old: ReplacedRows) -> CheckpointRow:
        """Commit the checkpoint and return its row; `members` are the members of its header that the store does not add.

        Raises `SaveConflict` if the save must be repeated.
        """
        repository, row = self.repository, self.row
        self.store_waiting_blobs()
        changed = sorted([*changed, *self.minor_changes])
        header = self._make_header(members, changed, old)
        data = document.encode(header, changed)
        key = digest(data)
        self.writer.add(key, data, DOCUMENT)
        del data
        for writer in self.writers:
            writer.sync(wait=len(changed) < SYNC_IN_BACKGROUND_ROWS)
        record = {
            "r": "checkpoint", "v": row.version + 1, "id": header.id, "doc": key.hex(),
            "packs": [writer.name for writer in self.writers], "at": header.created_at, "seq": 0,
            "size": sum(writer.size for writer in self.writers),
        }  # fmt: skip

        def work(tx: Transaction, now: WorkspaceRow | None) -> list[Record]:
            if now is None or now.version != row.version:
                raise SaveConflict("The workspace got a newer version while it was being saved.")
            ledger = repository.ledger
            relied = list(self.reused)
            if len(ledger.existing_digests(relied)) != len(relied):
                raise SaveConflict("Contents were removed by a compaction while they were being saved again.")
            for writer in self.writers:
                tx.add_pack(writer.name, writer.size, writer.entries())
            record["seq"] = repository.sequence() + 1
            return [record]

        def name() -> None:
            for writer in self.writers:
                writer.finish()

        repository._fresh_documents = {key: (header, changed, old.paths)}
        try:
            final = repository.commit(row.id, work, name)
        except BaseException:
            repository.discard_packs([writer.name for writer in self.writers], row.id)
            raise
        finally:
            # If the record stays in the log although this failed, the process that replays it must read the pack itself.
            repository._fresh_documents = {}
        step("save:committed")
        checkpoint = repository.ledger.checkpoint(row.id, final.version)
        assert checkpoint is not None
        return checkpoint

    def abort(self) -> None:
        for writer in self.writers:
            writer.abort()

    def _make_header(self, members: dict[str, Any], changed: list[Entry], old: ReplacedRows) -> document.Header:
        row = self.row
        counts: dict[str, int] = {} if self.whole else loads(row.counts)
        tree = (0 if self.whole else int(row.tree, 16)) - old.tree
        size = counts.get("bytes", 0) - old.bytes
        for kind, number in old.counts.items():
            counts[kind] = counts.get(kind, 0) - number
        for entry in changed:
            if entry.kind != GONE:
                tree += weight(entry)
                counts[entry.kind] = counts.get(entry.kind, 0) + 1
                size += entry.size if entry.kind == FILE else 0
        counts["bytes"] = size
        whole = {
            "v": 1,
            "workspace": row.id,
            "version": row.version + 1,
            "parent": row.document.hex() or None,
            "keyframe": self.whole,
            **members,
            "counts": {kind: number for kind, number in counts.items() if number},
            "tree": f"{add(tree):064x}",
        }
        return document.Header(whole)


class _ChunkerInput:
    """A stream for the chunker around a read function."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self.read = read
