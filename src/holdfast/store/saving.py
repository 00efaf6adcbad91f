"""One save under way: contents go into packs as they are read, then the document, then the record."""

from __future__ import annotations

from holdfast.core import document
from holdfast.core.entry import FILE, GONE, gone, same
from holdfast.core.errors import Failed
from holdfast.core.light_json import loads
from holdfast.core.steps import step
from holdfast.store.digest import add, blake3, digest, weight
from holdfast.store.packs import PackWriter
from holdfast.store.rows import CHUNKS, CONTENT, DOCUMENT, LIST, SEALED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from holdfast.core.entry import Entry
    from holdfast.store.ports import Transaction
    from holdfast.store.repository import Repository
    from holdfast.store.rows import CheckpointRow, WorkspaceRow

MOST_WAITING, MOST_WAITING_BYTES = 200, 1 << 20
"""What waits stays in memory: more of it would cost more to make room for than fewer questions save."""
MANY_ROWS = 200
"""So many take longer to make than the disk needs for the packs. Of fewer it would be others who wait, for the lock."""
LARGE = 4 << 20
MOST_PACK = 256 << 20
CHUNK_MIN, CHUNK_AVERAGE, CHUNK_MAX = 16 << 10, 64 << 10, 256 << 10


class Swept(Failed):
    """A blob we relied on was swept while we saved; saving again stores it anew."""


class Saving:
    """One save under way. Contents go in through `small` and `large`; `finish` makes the checkpoint."""

    def __init__(self, repository: Repository, row: WorkspaceRow) -> None:
        self.repository, self.row = repository, row
        self.writers: list[PackWriter] = []
        self.writer = self._new_writer()
        self.stored: set[bytes] = set()
        self.relied: set[bytes] = set()
        self.waiting: dict[bytes, tuple[bytes, int]] = {}
        self.waiting_bytes = 0
        self.anything = bool(repository.ledger.packs())
        self.whole = row.version == 0 or not row.tree
        """The document holds the whole state: there is nothing yet, or what there was could not be rebuilt."""
        self._state: dict[bytes, Entry] | None = None
        self.regrouped: list[Entry] = []
        """Files that got or lost a second name: no reason for a version, but part of the one that is made."""

    def _new_writer(self) -> PackWriter:
        self.writers.append(PackWriter(self.repository.blobs))
        return self.writers[-1]

    # Contents: the sink of workspace.read

    def small(self, data: bytes) -> bytes:
        key: bytes = blake3(data).digest()
        self.keep(key, data, CONTENT)
        return key

    def sink(self, data: bytes) -> bytes:
        """Keep a content of any size that is at hand whole."""
        if len(data) <= LARGE:
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
        for chunk in cutter.cut_stream(_Reading(read)):
            data = bytes(chunk.data)
            whole.update(data)
            key = digest(data)
            keys.append(key)
            self.keep(key, data, CONTENT)
        total = whole.digest()
        if len(keys) != 1:
            self.keep(total, b"".join(keys), CHUNKS)
        return total

    def sealed(self, read: Callable[[int], bytes]) -> bytes:
        """Keep a content that must not lie in the clear; its id says nothing of it."""
        return self.repository.sealing().parts(
            read,
            lambda key, data, is_list: self.keep(key, data, LIST if is_list else SEALED),
            lambda key: bool(self.repository.ledger.locate([key])),
        )

    def keep(self, key: bytes, data: bytes, kind: int) -> None:
        """Store a blob under its digest, unless it is there."""
        if key in self.stored or key in self.relied or key in self.waiting:
            return
        if not self.anything:
            self._store(key, data, kind)
            return
        # Whether the store has them already is asked for many at a time: one question costs as much as five answers.
        self.waiting[key] = data, kind
        self.waiting_bytes += len(data)
        if len(self.waiting) >= MOST_WAITING or self.waiting_bytes >= MOST_WAITING_BYTES:
            self.settle()

    def settle(self) -> None:
        """Store what waits and is not there yet."""
        known = self.repository.ledger.known(list(self.waiting)) if self.waiting else ()
        for key, (data, kind) in self.waiting.items():
            if key in known:
                self.relied.add(key)
            else:
                self._store(key, data, kind)
        self.waiting, self.waiting_bytes = {}, 0

    def _store(self, key: bytes, data: bytes, kind: int) -> None:
        self.stored.add(key)
        if self.writer.size > MOST_PACK:
            self.writer = self._new_writer()
        self.writer.add(key, data, kind)

    # The state so far

    def state(self) -> dict[bytes, Entry]:
        """The newest version, whole."""
        if self._state is None:
            rows = () if self.whole else self.repository.ledger.state(self.row.id, self.row.version)
            self._state = {row.path: row for row in rows}
        return self._state

    def changes(self, rows: dict[bytes, Entry], seen: set[bytes] | None) -> tuple[list[Entry], dict[bytes, Entry]]:
        """Return what differs from the newest version, sorted, and the rows that it replaces.

        `seen` is every path that exists, after a walk; None if `rows` alone says what is gone.
        """
        self.settle()
        self.writer.send()
        if seen is None:
            old = self.repository.ledger.current(self.row.id, list(rows))
            lost: Iterable[bytes] = ()
        else:
            old = self.state()
            lost = [path for path in old if path not in seen and path not in rows]
        changed: list[Entry] = []
        self.regrouped = []
        for path, row in rows.items():
            before = old.get(path)
            if row.kind == GONE:
                if before is not None:
                    changed.append(row)
            elif before is None or not same(before, row):
                changed.append(row)
            elif before.group != row.group:
                self.regrouped.append(row)
        changed += [gone(path) for path in lost]
        changed.sort()
        return changed, old

    def finish(self, header: dict[str, Any], changed: list[Entry], old: dict[bytes, Entry]) -> CheckpointRow:
        """Make the checkpoint durable and return its row. Raises `Swept` if it must be done again."""
        repository, row = self.repository, self.row
        self.settle()
        changed = sorted([*changed, *self.regrouped])
        header = self._complete(header, changed, old)
        data = document.encode(header, changed)
        key = digest(data)
        self.writer.add(key, data, DOCUMENT)
        for writer in self.writers:
            writer.sync(wait=len(changed) < MANY_ROWS)
        record = {
            "r": "checkpoint", "v": row.version + 1, "id": header["id"], "doc": key.hex(),
            "packs": [writer.name for writer in self.writers], "at": header["created_at"], "seq": 0,
            "size": sum(writer.size for writer in self.writers),
        }  # fmt: skip

        def work(tx: Transaction, now: WorkspaceRow | None) -> list[dict[str, Any]]:
            if now is None or now.version != row.version:
                raise Swept("The workspace got a newer version while it was saved.")
            ledger = repository.ledger
            relied = list(self.relied)
            if len(ledger.known(relied)) != len(relied):
                raise Swept("Contents were swept while they were saved again.")
            for writer in self.writers:
                tx.add_pack(writer.name, writer.size, writer.entries())
            record["seq"] = repository.sequence() + 1
            return [record]

        def name() -> None:
            for writer in self.writers:
                writer.finish()

        repository._at_hand = {key: (header, changed, old)}
        try:
            final = repository.commit(row.id, work, name)
        finally:
            # If the record stays although this failed, whoever adopts it must read the pack and register it.
            repository._at_hand = {}
        step("save:committed")
        found = repository.ledger.checkpoint(row.id, final.version)
        assert found is not None
        return found

    def abort(self) -> None:
        for writer in self.writers:
            writer.abort()

    def _complete(self, header: dict[str, Any], changed: list[Entry], old: dict[bytes, Entry]) -> dict[str, Any]:
        row = self.row
        counts: dict[str, int] = {} if self.whole else loads(row.counts)
        tree = 0 if self.whole else int(row.tree, 16)
        size = counts.get("bytes", 0)
        for entry in changed:
            before = old.get(entry.path)
            if before is not None:
                tree -= weight(before)
                counts[before.kind] = counts.get(before.kind, 0) - 1
                size -= before.size if before.kind == FILE else 0
            if entry.kind != GONE:
                tree += weight(entry)
                counts[entry.kind] = counts.get(entry.kind, 0) + 1
                size += entry.size if entry.kind == FILE else 0
        counts["bytes"] = size
        return {
            "v": 1,
            "workspace": row.id,
            "version": row.version + 1,
            "parent": row.document.hex() or None,
            "keyframe": self.whole,
            **header,
            "counts": {kind: number for kind, number in counts.items() if number},
            "tree": f"{add(tree):064x}",
        }


class _Reading:
    """A function that reads, as the stream that the chunker wants."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self.read = read
