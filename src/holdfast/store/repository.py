"""The deep module of the store: save, load and find checkpoints; blobs first, then the record, then the row."""

from __future__ import annotations

from _thread import allocate_lock

from blake3 import blake3

from holdfast.core import document
from holdfast.core.entry import FILE, GONE, Entry, gone, same
from holdfast.core.entry import SEALED as SEALED_FILE
from holdfast.core.errors import Damaged, Failed, HoldfastError, NoWorkspace
from holdfast.core.light_json import dumps, loads
from holdfast.core.steps import step
from holdfast.store.digest import ZERO, add, digest, weight
from holdfast.store.packs import MOST_SHARED, PackWriter, beginning, decompress, read_index
from holdfast.store.records import TAIL, Chain, line
from holdfast.store.rows import CHUNKS, CONTENT, DOCUMENT, LIST, SEALED, CheckpointRow, Location, Query, WorkspaceRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from holdfast.store.ports import Blobs, Ledger, Records, Transaction
    from holdfast.store.sealed import Sealer

FRAMES_KEPT = 8
MOST_WAITING, MOST_WAITING_BYTES = 200, 1 << 20
"""What waits stays in memory: more of it would cost more to make room for than fewer questions save."""
LARGE = 4 << 20
MOST_PACK = 256 << 20
MOST_NESTED = 3
"""A list of sealed parts may name lists, which may name lists."""
CHUNK_MIN, CHUNK_AVERAGE, CHUNK_MAX = 16 << 10, 64 << 10, 256 << 10


class Swept(Failed):
    """A blob we relied on was swept while we saved; saving again stores it anew."""


class Repository:
    """Checkpoints of all workspaces, over the three ports."""

    def __init__(self, store_id: str, blobs: Blobs, records: Records, ledger: Ledger) -> None:
        self.id = store_id
        self.blobs, self.records, self.ledger = blobs, records, ledger
        self.keys: tuple[str, str, bool] | None = None
        """The store's folder, where its keys lie, and whether they are synced; none in memory."""
        self._sealer: Sealer | None = None
        self._frames: dict[tuple[str, int], bytes] = {}
        self._guard = allocate_lock()
        self._at_hand: dict[bytes, tuple[dict[str, Any], list[Entry]]] = {}
        """Documents that were just written and need not be read back."""
        self.dropped = 0
        """Bytes of contents that the last forgetting let go."""

    # Workspaces

    def workspace(self, workspace: str) -> WorkspaceRow | None:
        """Return the workspace's row, after adopting what a killed process had already made durable."""
        row = self.ledger.workspace(workspace)
        size = self.records.size(workspace)
        if row is None and not size:
            return None
        if row is None or size != row.log_size:
            with self.ledger.transaction() as tx:
                row = self.reconcile(tx, workspace)
        return row

    def register(self, workspace: str, path: bytes, now: int, parent: str = "") -> WorkspaceRow:
        """Make the folder a workspace, or note that a known one has moved here."""
        record = {"r": "workspace", "id": workspace, "path": _escape(path), "at": now}
        if parent:
            record["parent"] = parent
        self.commit(workspace, lambda tx, row: [record])
        row = self.ledger.workspace(workspace)
        assert row is not None
        return row

    # Saving

    def begin(self, workspace: str) -> Saving:
        row = self.workspace(workspace)
        if row is None:
            raise NoWorkspace(f"The store does not know the workspace {workspace}.")
        return Saving(self, row)

    def commit(
        self, workspace: str, work: Callable[[Transaction, WorkspaceRow | None], list[dict[str, Any]]]
    ) -> WorkspaceRow:
        """Run `work` inside one transaction and append the records it returns; the rows follow from the records.

        This is the only way anything becomes true: record and rows together, durable when it returns. Raises a
        `HoldfastError` whatever goes wrong with the disk, and then nothing has become true.
        """
        try:
            return self._commit(workspace, work)
        except OSError as error:
            from holdfast.store.local import explain

            raise explain(error, "Writing to the store") from None

    def _commit(
        self, workspace: str, work: Callable[[Transaction, WorkspaceRow | None], list[dict[str, Any]]]
    ) -> WorkspaceRow:
        before: int | None = None
        try:
            with self.ledger.transaction() as tx:
                row = self.reconcile(tx, workspace)
                records = work(tx, row)
                lines, head = [], row.log_head if row is not None else ZERO
                size = row.log_size if row is not None else 0
                for record in records:
                    text, head = line(head, record)
                    size += len(text)
                    row = self.replay(tx, row, record, size, head)
                    lines.append(text)
                if lines:
                    before = size - sum(map(len, lines))
                    self.records.append(workspace, b"".join(lines))
        except BaseException:
            if before is not None:
                self._cut_off(workspace, before)
            raise
        if row is None:
            raise Failed("Nothing was recorded.")
        return row

    def _cut_off(self, workspace: str, size: int) -> None:
        """Cut off records whose rows did not become durable: they must not speak of what nobody was promised."""
        try:
            # Under the lock again, and only if no row knows of them: the error may have come after all was durable, and
            # another process may have adopted them and built on them in the meantime.
            with self.ledger.transaction():
                row = self.ledger.workspace(workspace)
                if row is None or row.log_size <= size:
                    self.records.truncate(workspace, size)
        except (OSError, HoldfastError):
            pass  # then the next process adopts them: more is kept than was promised, never less

    def reconcile(self, tx: Transaction, workspace: str) -> WorkspaceRow | None:
        """Bring the rows up to the end of the log; cut off the trace of a write that was never finished."""
        row = self.ledger.workspace(workspace)
        known, size = (row.log_size if row is not None else 0), self.records.size(workspace)
        if size == known:
            return row
        if size < known:
            raise Damaged(
                f"The log of workspace {workspace} is shorter than the ledger says: lines are missing at its end.",
                "Run `holdfast verify --repair`.",
            )
        data = self.records.read(workspace)
        if row is not None and data[known - TAIL : known] != row.log_head.hex().encode("ascii") + b"\n":
            # Without this, a wrong number in the ledger would pass a good line off as the trace of a broken write.
            raise Damaged(
                f"The log of workspace {workspace} does not go on where the ledger stopped.",
                "Run `holdfast verify --repair`.",
            )
        chain = Chain(data[known:], row.log_head if row is not None else ZERO, known)
        for record, end, head in zip(chain.records, chain.ends, chain.heads, strict=True):
            try:
                if record.get("r") == "keyframe":
                    self._adopt_packs(tx, bytes.fromhex(record["doc"]), [record["pack"]], record["v"])
                row = self.replay(tx, row, record, end, head)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise Damaged(f"The log of workspace {workspace} has a line that makes no sense: {error!r}.") from None
        if row is not None and row.id != workspace:
            raise Damaged(f"The log of workspace {workspace} is that of {row.id}.")
        if chain.rest:
            if b"\n" in chain.rest[:-1]:  # more than one line: not the trace of one write
                raise Damaged(
                    f"The log of workspace {workspace} is damaged after byte {chain.size}.",
                    "Run `holdfast verify --repair`.",
                )
            self.records.truncate(workspace, chain.size)
        step("ledger:reconciled")
        return row

    def replay(
        self, tx: Transaction, row: WorkspaceRow | None, record: dict[str, Any], log_size: int, log_head: bytes
    ) -> WorkspaceRow:
        """Make the rows that follow from one record. Saving, adopting and rebuilding all pass through here."""
        kind = record.get("r")
        if kind == "workspace":
            if row is None:
                row = WorkspaceRow(
                    record["id"], _unescape(record["path"]), record["at"], record.get("parent", ""), 0, b"", log_size, log_head, 0,
                    "0" * 64, "{}",
                )  # fmt: skip
                tx.add_workspace(row)
                return row
            row = row._replace(path=_unescape(record["path"]))
        elif row is None:
            raise Damaged("A log does not begin with its workspace.")
        elif kind == "checkpoint":
            row = self._replay_checkpoint(tx, row, record)
        elif kind in ("pin", "unpin", "name"):
            checkpoint = self._row(row.id, record["v"])
            if kind == "name":
                checkpoint = checkpoint._replace(name=_storable(record["name"] or ""))
            else:
                checkpoint = checkpoint._replace(pinned=int(kind == "pin"))
            tx.update_checkpoint(checkpoint)
        elif kind == "forget":
            for version in record["v"]:
                tx.update_checkpoint(self._row(row.id, version)._replace(forgotten=1))
                tx.set_kept(row.id, version, ())
            self._drop_unneeded(tx, row, record["v"])
        elif kind == "keyframe":
            row = row._replace(keyframe=record["v"])
            if record.get("instead"):
                key = bytes.fromhex(record["doc"])
                tx.update_checkpoint(self._row(row.id, record["v"])._replace(document=key))
                row = row._replace(document=key) if row.version == record["v"] else row
        # An unknown kind is from a newer holdfast: it is kept in the log and changes nothing here.
        row = row._replace(log_size=log_size, log_head=log_head)
        tx.update_workspace(row)
        return row

    def _replay_checkpoint(self, tx: Transaction, row: WorkspaceRow, record: dict[str, Any]) -> WorkspaceRow:
        key = bytes.fromhex(record["doc"])
        if record["v"] <= row.version:
            raise Damaged(f"The log of workspace {row.id} has v{record['v']} after v{row.version}.")
        if key in self._at_hand:
            return self.apply(tx, row, record, *self._at_hand[key])
        self._adopt_packs(tx, key, record["packs"], record["v"])
        header, rows = document.decode(self.load(key))
        return self.apply(tx, row, record, header, rows)

    def _adopt_packs(self, tx: Transaction, key: bytes, packs: list[str], version: int) -> None:
        """Register the packs that a record speaks of, unless its document is known already."""
        if key in self.ledger.locate([key]):
            return
        for name in packs:
            try:
                size, entries, _ = read_index(self.blobs, name)
            except FileNotFoundError:
                raise Damaged(
                    f"Checkpoint v{version} is in the log, but its pack {name} is missing.", "Run `holdfast rebuild`."
                ) from None
            tx.add_pack(name, size, entries)

    def apply(
        self,
        tx: Transaction,
        row: WorkspaceRow,
        record: dict[str, Any],
        header: dict[str, Any],
        rows: list[Entry],
    ) -> WorkspaceRow:
        """Add the rows of one checkpoint whose document is at hand."""
        version, counts = record["v"], header["counts"]
        tx.apply(row.id, version, rows, whole=header["keyframe"])
        tx.add_checkpoint(checkpoint_row(row.id, record, header, len(rows)))
        if header.get("conversation"):
            from holdfast.store.conversations import ids_of

            tx.set_kept(row.id, version, ids_of(header))
        tx.set_meta("seq", str(max(record["seq"], self.sequence())))
        if version > 1 and row.version == version - 1:
            before = self.ledger.checkpoint(row.id, row.version)
            if before is not None and before.forgotten:
                tx.drop_intervals(row.id, self._living_before(row.id, version), version)
        return row._replace(
            version=version, document=bytes.fromhex(record["doc"]), tree=header["tree"], counts=dumps(counts),
            keyframe=row.keyframe or version,
        )  # fmt: skip

    def sequence(self) -> int:
        """The number of the newest checkpoint of the whole store."""
        known = self.ledger.meta("seq") or "0"
        if not known.isdecimal():
            raise Damaged("The ledger's sequence number is damaged.")
        return int(known)

    def _drop_unneeded(self, tx: Transaction, row: WorkspaceRow, versions: list[int]) -> None:
        """Drop the rows that only forgotten versions needed. The newest version's rows stay: the next save builds on them."""
        done = 0
        for version in sorted(versions):
            if version < done:
                continue
            after = version + 1
            while after < row.version:
                found = self.ledger.checkpoint(row.id, after)
                if found is not None and not found.forgotten:
                    break
                after += 1
            done = min(after, row.version)
            self.dropped += tx.drop_intervals(row.id, self._living_before(row.id, version), done)

    def _living_before(self, workspace: str, version: int) -> int:
        found = self.ledger.find(Query(workspace=workspace, before=version, limit=1))
        return found[0].version if found else 0

    def _row(self, workspace: str, version: int) -> CheckpointRow:
        found = self.ledger.checkpoint(workspace, version)
        if found is None:
            raise Damaged(f"A log speaks of v{version}, which the ledger does not have.", "Run `holdfast rebuild`.")
        return found

    # Loading

    def load(self, key: bytes) -> bytes:
        """Return the content with this digest, whole and checked. Raises `Damaged`."""
        return b"".join(self.stream(key))

    def stream(self, key: bytes) -> Iterator[bytes]:
        """Yield the content in parts; the last part comes only if the whole matches its digest."""
        data, kind = self.blob(key)
        if kind in (SEALED, LIST):
            yield from self._sealed(data, kind, MOST_NESTED)
            return
        if kind != CHUNKS:
            yield data
            return
        total, held = blake3(), b""
        for at in range(0, len(data), 32):
            yield_now, held = held, self.blob(data[at : at + 32])[0]
            total.update(held)
            if yield_now:
                yield yield_now
        if total.digest() != key:
            raise Damaged(f"The chunks of {key.hex()} do not add up to their digest.")
        yield held

    def _sealed(self, data: bytes, kind: int, deep: int) -> Iterator[bytes]:
        """Open a sealed content, part by part. Raises `WrongKey`."""
        if kind == SEALED:
            yield self.sealing().open(data)
            return
        for at in range(0, len(data), 32):
            part, kind = self.blob(data[at : at + 32])
            if kind not in (SEALED, LIST) or not deep:
                raise Damaged("A list of sealed parts names something else.")
            yield from self._sealed(part, kind, deep - 1)

    def closed(self, entries: Iterable[Entry | None]) -> set[bytes]:
        """Paths of files that are sealed with a key that is not at hand."""
        found, known = set(), dict[bytes, bool]()
        for entry in entries:
            if entry is not None and entry.kind == FILE and entry.flags & SEALED_FILE:
                if entry.content not in known:
                    known[entry.content] = self._opens(entry.content)
                if not known[entry.content]:
                    found.add(entry.path)
        return found

    def _opens(self, key: bytes) -> bool:
        data, kind = self.blob(key)
        if kind == LIST:  # the parts of one content are sealed with one key
            data, kind = self.blob(data[:32])
        return kind != SEALED or self.sealing().opens(data)

    def warnings(self) -> list[str]:
        """What whoever saves should be told about keys."""
        if self._sealer is None or not self._sealer.was_made:
            return []
        self._sealer.was_made = False
        return ["The key of what was sealed so far is missing; from now on a new one is used (`holdfast key`)."]

    def ids(self, read: Callable[[int], bytes], sealed: bool = True) -> list[bytes]:
        """Every id that these bytes have as a content of this store: in the clear, and sealed if that is wanted.

        Whoever knows that a file lies in the clear spares himself the cipher, which costs 20 ms to load.
        """
        total = blake3()

        def pull(most: int) -> bytes:
            data = read(most)
            total.update(data)
            return data

        found = self.sealing().ids_of(pull) if sealed and self.keys is not None else []
        while pull(1 << 20):
            pass
        return [total.digest(), *found]

    def sealing(self) -> Sealer:
        """Who seals and opens what must not lie here in the clear."""
        if self._sealer is None:
            if self.keys is None:
                raise Failed("This store has no place for keys.")
            from holdfast.store.sealed import Sealer

            self._sealer = Sealer(*self.keys)
        return self._sealer

    def blob(self, key: bytes) -> tuple[bytes, int]:
        """Return one stored blob (a chunk list as it is) and its kind, checked unless it is a list."""
        before: Location | None = None
        while True:
            place = self._place(key)
            try:
                data = self.fetch(place)
                break
            except FileNotFoundError:
                # Compaction may have moved it since we asked, and again while we were slow.
                if place == before:
                    raise Damaged(f"Pack {place.pack} is missing.", "Run `holdfast verify`.") from None
                before = place
        if place.kind != CHUNKS and digest(data) != key:
            raise Damaged(f"The content {key.hex()} in pack {place.pack} does not match its digest.")
        return data, place.kind

    def _place(self, key: bytes) -> Location:
        place = self.ledger.locate([key]).get(key)
        if place is None:
            raise Damaged(f"The store has no content {key.hex()}.")
        return place

    def fetch(self, place: Location) -> bytes:
        """Return the bytes at a location, unchecked."""
        data = self.frame(place, place.offset + place.length)[place.offset : place.offset + place.length]
        if len(data) != place.length:
            raise Damaged(f"A frame of pack {place.pack} is too short.")
        return data

    def frame(self, place: Location, least: int, keep: bool = True) -> bytes:
        """Return the frame that holds a location, unpacked: at least so many bytes of it are wanted.

        `keep`: it may be asked for again soon. Else no more than those bytes are unpacked, and nothing is remembered.
        """
        slot = place.pack, place.frame
        with self._guard:
            frame = self._frames.pop(slot, None)
        if frame is None:
            try:
                stored = self.blobs.read(place.pack, place.frame, place.stored)
                frame = decompress(stored, max(MOST_SHARED, least)) if keep else beginning(stored, max(least, 1))
            except EOFError:
                raise Damaged(f"Pack {place.pack} is cut short.") from None
        if not keep:
            return frame
        with self._guard:
            while len(self._frames) >= FRAMES_KEPT:
                del self._frames[next(iter(self._frames))]
            self._frames[slot] = frame
        return frame

    def forget_frames(self) -> None:
        """Let go of unpacked frames, after packs were replaced."""
        self._frames.clear()

    def document(self, checkpoint: CheckpointRow) -> tuple[dict[str, Any], list[Entry]]:
        """Return header and changes of a checkpoint."""
        return document.decode(self.load(checkpoint.document))

    def close(self) -> None:
        self.ledger.close()
        self.blobs.close()


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
        known = self.repository.ledger.locate(list(self.waiting)) if self.waiting else {}
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
            writer.sync()
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
            if len(ledger.locate(relied)) != len(relied):
                raise Swept("Contents were swept while they were saved again.")
            for writer in self.writers:
                tx.add_pack(writer.name, writer.size, writer.entries())
                writer.finish()
            record["seq"] = repository.sequence() + 1
            return [record]

        repository._at_hand = {key: (header, changed)}
        try:
            final = repository.commit(row.id, work)
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


def checkpoint_row(workspace: str, record: dict[str, Any], header: dict[str, Any], rows: int) -> CheckpointRow:
    """What the ledger keeps of a checkpoint, from the log's line, and its document's header and number of rows."""
    counts, changed = header["counts"], header.get("changed", rows)
    return CheckpointRow(
        workspace, record["v"], header["id"], bytes.fromhex(record["doc"]), record["seq"], header["created_at"],
        _storable(header["trigger"]), _storable(header["created_by"]), _storable(header["message"]),
        _storable(header["name"] or ""), _storable("\n".join(header["tags"])),
        _storable(header["session"] or ""), _storable(header["task"] or ""), int(header["pinned"]), 0, changed,
        counts.get("f", 0), counts.get("bytes", 0), record.get("size", 0), header["tree"],
    )  # fmt: skip


def _storable(text: str) -> str:
    """Half a character (a shell's stray byte, an emoji cut in two) stays in the document; the ledger gets a `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _escape(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _unescape(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
