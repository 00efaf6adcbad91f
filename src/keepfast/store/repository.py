"""The repository: saves, finds and loads the checkpoints of all workspaces.

Order of writes: blobs first, then the record in the log, then the rows of the ledger, which follow from the records.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from keepfast.fsutil.durable import explain
from keepfast.model import document
from keepfast.model.document import Header
from keepfast.model.entry import CAPTURED, Entry
from keepfast.model.errors import Damaged, DiskFull, Failed, KeepfastError, NoWorkspace
from keepfast.model.steps import step
from keepfast.model.strict_json import dumps
from keepfast.store.bases import base_after, base_key, base_text
from keepfast.store.contents import Contents
from keepfast.store.conversations import attachment_ids
from keepfast.store.digest import ZERO
from keepfast.store.packs import read_index
from keepfast.store.ports import Blobs, Ledger, Records, Transaction
from keepfast.store.records import TAIL, Chain, Record, format_line
from keepfast.store.reserve import disk_full_hint, ensure_reserve
from keepfast.store.rows import SAFETY_TRIGGERS, CheckpointRow, PackRow, Query, WorkspaceRow, checkpoint_row, storable
from keepfast.store.save import CheckpointWriter

MAYBE_COMMITTED_HINT = "Its record is in the log, so it may exist. Run `keepfast list` when the disk is writable again."


class Repository:
    """Checkpoints of all workspaces, over the three ports: blobs, records and ledger."""

    def __init__(self, store_id: str, blobs: Blobs, records: Records, ledger: Ledger) -> None:
        self.id = store_id
        self.blobs, self.records, self.ledger = blobs, records, ledger
        self.contents = Contents(blobs, ledger)
        self.folder = ""
        """The store's folder; empty for one in memory. Saves there keep the reserve allocated."""
        self.dropped_bytes = 0
        """Bytes of contents that the last forgotten versions no longer need."""
        self._fresh_documents: dict[bytes, tuple[Header, list[Entry], Container[bytes]]] = {}
        """Documents that this process just wrote, so that `replay` need not read them back."""

    # Workspaces

    def workspace(self, workspace: str) -> WorkspaceRow | None:
        """Return the workspace's row, after replaying records that a killed process had made durable but not committed."""
        row = self.ledger.workspace(workspace)
        size = self.records.size(workspace)
        if row is None and not size:
            return None
        if row is None or size != row.log_size:
            with self.ledger.transaction() as tx:
                row = self.reconcile(tx, workspace)
        return row

    def register(self, workspace: str, path: bytes, now: int, parent: str = "") -> WorkspaceRow:
        """Register the folder as a workspace, or record that a known one has moved here."""
        record = {"r": "workspace", "id": workspace, "path": _path_text(path), "at": now}
        if parent:
            record["parent"] = parent
        self.commit(workspace, lambda tx, row: [record])
        row = self.ledger.workspace(workspace)
        assert row is not None
        return row

    def base(self, workspace: str) -> CheckpointRow | None:
        """Return the version that the folder was last saved as, or set to by a restore; None if there is none."""
        row = self.ledger.workspace(workspace)
        if row is not None:
            owner, _, rest = (self.ledger.meta(base_key(workspace)) or "").partition(" ")
            version, _, until = rest.partition(" ")
            if until == str(row.version) and version.isdecimal():
                checkpoint = self.ledger.checkpoint(owner, int(version))
                if checkpoint is not None and not checkpoint.forgotten:
                    return checkpoint
        newest = self.ledger.find(Query(workspace=workspace, limit=1))
        if row is None or not newest or newest[0].trigger not in SAFETY_TRIGGERS:
            return newest[0] if newest else None
        # A restore was interrupted after its safety checkpoint, or an older release did not record its target.
        base = self.base_in_log(workspace, row.log_size)
        checkpoint = self.ledger.checkpoint(*base) if base else None
        return checkpoint if checkpoint is not None and not checkpoint.forgotten else newest[0]

    # Queries, passed on to the ledger

    def workspaces(self) -> list[WorkspaceRow]:
        """Return every workspace that was ever registered."""
        return self.ledger.workspaces()

    def checkpoint(self, workspace: str, version: int) -> CheckpointRow | None:
        """Return one version, forgotten or not."""
        return self.ledger.checkpoint(workspace, version)

    def find(self, query: Query) -> list[CheckpointRow]:
        """Return the checkpoints that match, newest first; forgotten ones only if the query asks for them."""
        return self.ledger.find(query)

    def count(self, workspace: str) -> int:
        """Return the number of checkpoints, without forgotten ones."""
        return self.ledger.count(workspace)

    def current(self, workspace: str, paths: Sequence[bytes]) -> dict[bytes, Entry]:
        """Return the newest saved state of these paths; those that do not exist are missing."""
        return self.ledger.current(workspace, paths)

    def state(self, workspace: str, version: int, below: bytes = b"") -> Iterator[Entry]:
        """Yield every entry of a version, sorted by path; `below` limits it to one path and what lies under it."""
        return self.ledger.state(workspace, version, below)

    def left_out(self, workspace: str, version: int, below: bytes = b"") -> list[Entry]:
        """Return a version's excluded entries, sorted by path; `below` limits it as in `state`."""
        return self.ledger.left_out(workspace, version, below)

    def sealed(self, workspace: str, least: int) -> list[Entry]:
        """Return the sealed entries of the newest version that have at least this size."""
        return self.ledger.sealed(workspace, least)

    def at(self, workspace: str, version: int, path: bytes) -> Entry | None:
        """Return one path's entry in a version."""
        return self.ledger.at(workspace, version, path)

    def history(self, workspace: str, path: bytes) -> list[tuple[int, int | None, Entry]]:
        """Return (since, until, entry) of one path, oldest first."""
        return self.ledger.history(workspace, path)

    def holder(
        self, workspace: str, path: bytes, after: int = 0, is_meant: Callable[[Entry], bool] = lambda entry: True
    ) -> CheckpointRow | None:
        """Return the first version after `after` that holds this path in a state that is meant, else the newest that does."""
        holder = None
        for since, until, entry in self.ledger.history(workspace, path):
            if entry.kind not in CAPTURED or not is_meant(entry):
                continue
            rows = self.ledger.find(Query(workspace=workspace, before=until or 0, limit=1))
            if rows and rows[0].version >= since:
                holder = rows[0]
                if after and holder.version > after:
                    break
        return holder

    def paths(self, workspace: str, text: bytes, limit: int) -> list[bytes]:
        """Return paths of any version that contain `text` (ASCII letters in either case)."""
        return self.ledger.paths(workspace, text, limit)

    def packs(self) -> list[PackRow]:
        return self.ledger.packs()

    # Saving

    def begin(self, workspace: str) -> CheckpointWriter:
        row = self.workspace(workspace)
        if row is None:
            raise NoWorkspace(f"The store does not know the workspace {workspace}.")
        self.ensure_reserve()
        return CheckpointWriter(self, row)

    def ensure_reserve(self) -> None:
        """Allocate the reserve: without it, nothing could be forgotten on a full disk. Raises `DiskFull`."""
        if self.folder:
            ensure_reserve(self.folder)

    def commit(
        self,
        workspace: str,
        work: Callable[[Transaction, WorkspaceRow | None], list[Record]],
        ready: Callable[[], None] | None = None,
    ) -> WorkspaceRow:
        """Run `work` inside one transaction, append the records it returns to the log, and make the rows that follow from them.

        `ready` runs once all rows are made, before the records are written: it makes the packs durable that they name.

        Every change of the store is made here: record and rows together, durable when this returns. Raises a
        `KeepfastError` if the disk fails; then nothing was committed, or the error's hint says that it may have been.
        """
        try:
            return self._commit(workspace, work, ready)
        except (OSError, DiskFull) as error:
            explained = _explained(error) if isinstance(error, OSError) else error
            if self.folder and isinstance(explained, DiskFull) and explained.hint == DiskFull.hint:
                explained.hint = disk_full_hint(self.folder)
            raise explained from None

    def _commit(
        self,
        workspace: str,
        work: Callable[[Transaction, WorkspaceRow | None], list[Record]],
        ready: Callable[[], None] | None,
    ) -> WorkspaceRow:
        before: int | None = None
        size = 0
        try:
            with self.ledger.transaction() as tx:
                row = self.reconcile(tx, workspace)
                records = work(tx, row)
                lines, head = [], row.log_head if row is not None else ZERO
                size = row.log_size if row is not None else 0
                for record in records:
                    text, head = format_line(head, record)
                    size += len(text)
                    row = self.replay(tx, row, record, size, head)
                    lines.append(text)
                if ready is not None:
                    ready()
                if lines:
                    before = size - sum(map(len, lines))
                    self.records.append(workspace, b"".join(lines))
        except BaseException as error:
            stands = before is not None and self._is_committed(workspace, before, size)
            if stands is False or not isinstance(error, OSError | KeepfastError):
                raise
            if stands is None:
                explained = _explained(error) if isinstance(error, OSError) else error
                explained.hint = MAYBE_COMMITTED_HINT
                raise explained from None
        if row is None:
            raise Failed("Nothing was recorded.")
        return row

    def _is_committed(self, workspace: str, before: int, after: int) -> bool | None:
        """Return whether the records were committed although the commit raised an error. If not, cut them off the log.

        None if that failed too. SQLite may raise after all is durable, when it only empties its journal.
        """
        try:
            # Locked again: another process may have replayed them and built on them in the meantime.
            with self.ledger.transaction():
                row = self.ledger.workspace(workspace)
                if row is not None and row.log_size >= after:
                    return True
                self.records.truncate(workspace, before)
        except (OSError, KeepfastError):
            # If they are in the log, the next process replays them: more is kept than was promised, never less.
            return None if self._size(workspace) >= after else False
        return False

    def _size(self, workspace: str) -> int:
        """Return the size of the log; 0 if it cannot be read."""
        try:
            return self.records.size(workspace)
        except OSError:
            return 0

    def discard_packs(self, names: list[str], log: str = "") -> None:
        """Remove packs that were named before their commit failed. If that fails too, compaction does it.

        They stay if the log has records without rows: these may name the packs, and the next process replays them.
        """
        try:
            with self.ledger.transaction():
                row = self.ledger.workspace(log) if log else None
                if log and self.records.size(log) != (row.log_size if row is not None else 0):
                    return
                registered = {pack.name for pack in self.ledger.packs()}
                for name in set(names) - registered:
                    self.blobs.delete(name)
        except (OSError, KeepfastError):
            pass

    # Rows from records

    def reconcile(self, tx: Transaction, workspace: str) -> WorkspaceRow | None:
        """Replay the records that have no rows yet; cut off an incomplete last line."""
        row = self.ledger.workspace(workspace)
        known_size, size = (row.log_size if row is not None else 0), self.records.size(workspace)
        if size == known_size:
            return row
        if size < known_size:
            raise Damaged(
                f"The log of workspace {workspace} is truncated: the ledger has more lines.",
                "Run `keepfast verify --repair`.",
            )
        data = self.records.read(workspace)
        if row is not None and data[known_size - TAIL : known_size] != row.log_head.hex().encode("ascii") + b"\n":
            # Without this check, a wrong size in the ledger would make a good line look like an incomplete write.
            raise Damaged(
                f"The log of workspace {workspace} does not continue where the ledger ends.",
                "Run `keepfast verify --repair`.",
            )
        chain = Chain(data[known_size:], row.log_head if row is not None else ZERO, known_size)
        for record, end, head in zip(chain.records, chain.ends, chain.heads, strict=True):
            try:
                if record.get("r") == "keyframe":
                    self._register_packs(tx, bytes.fromhex(record["doc"]), [record["pack"]], record["v"])
                row = self.replay(tx, row, record, end, head)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise Damaged(f"The log of workspace {workspace} has an invalid line: {error!r}.") from None
        if row is not None and row.id != workspace:
            raise Damaged(f"The log of workspace {workspace} is that of {row.id}.")
        if chain.rest:
            if b"\n" in chain.rest[:-1]:  # more than one line: not an incomplete write
                raise Damaged(
                    f"The log of workspace {workspace} is damaged after byte {chain.size}.",
                    "Run `keepfast verify --repair`.",
                )
            self.records.truncate(workspace, chain.size)
        step("ledger:reconciled")
        return row

    def replay(
        self, tx: Transaction, row: WorkspaceRow | None, record: Record, log_size: int, log_head: bytes
    ) -> WorkspaceRow:
        """Make the rows that follow from one record. Saving, recovery after a crash and rebuilding all use this."""
        kind = record.get("r")
        if kind == "workspace":
            if row is None:
                row = WorkspaceRow(
                    record["id"], _path_bytes(record["path"]), record["at"], record.get("parent", ""), 0, b"", log_size,
                    log_head, 0, "0" * 64, "{}",
                )  # fmt: skip
                tx.add_workspace(row)
                return row
            row = row._replace(path=_path_bytes(record["path"]))
        elif row is None:
            raise Damaged("A log does not start with its workspace.")
        elif kind == "checkpoint":
            row = self._replay_checkpoint(tx, row, record)
        elif kind in ("pin", "unpin", "name"):
            checkpoint = self._checkpoint_row(row.id, record["v"])
            if kind == "name":
                checkpoint = checkpoint._replace(name=storable(record["name"] or ""))
            else:
                checkpoint = checkpoint._replace(pinned=int(kind == "pin"))
            tx.update_checkpoint(checkpoint)
        elif kind == "forget":
            for version in record["v"]:
                tx.update_checkpoint(self._checkpoint_row(row.id, version)._replace(forgotten=1))
                tx.set_attachments(row.id, version, ())
            self._drop_unneeded(tx, row, record["v"])
        elif kind == "keyframe":
            row = row._replace(keyframe=record["v"])
            if record.get("instead"):
                key = bytes.fromhex(record["doc"])
                tx.update_checkpoint(self._checkpoint_row(row.id, record["v"])._replace(document=key))
                row = row._replace(document=key) if row.version == record["v"] else row
        elif kind in ("restore", "base"):
            base = record.get("base")
            if kind == "restore" and not base:
                base = self.base_in_log(row.id, row.log_size, record)
            tx.set_meta(base_key(row.id), base_text(base, row.version))
        # A record of unknown kind is from a newer keepfast: it stays in the log and changes nothing here.
        row = row._replace(log_size=log_size, log_head=log_head)
        tx.update_workspace(row)
        return row

    def base_in_log(self, workspace: str, size: int, *more: Record) -> list[Any] | None:
        """Return the base version by the first `size` bytes of the log and these records after them."""
        records = Chain(self.records.read(workspace)[:size]).records
        return base_after(self.ledger, workspace, [*records, *more])

    def _replay_checkpoint(self, tx: Transaction, row: WorkspaceRow, record: Record) -> WorkspaceRow:
        key = bytes.fromhex(record["doc"])
        if record["v"] <= row.version:
            raise Damaged(f"The log of workspace {row.id} has v{record['v']} after v{row.version}.")
        if key in self._fresh_documents:
            return self.apply(tx, row, record, *self._fresh_documents[key])
        self._register_packs(tx, key, record["packs"], record["v"])
        header, rows = document.decode(self.contents.load(key))
        return self.apply(tx, row, record, header, rows)

    def _register_packs(self, tx: Transaction, key: bytes, packs: list[str], version: int) -> None:
        """Register the packs that a record names, unless its document is registered already."""
        if key in self.ledger.locate([key]):
            return
        for name in packs:
            try:
                size, entries, _ = read_index(self.blobs, name)
            except FileNotFoundError:
                raise Damaged(
                    f"Checkpoint v{version} is in the log, but its pack {name} is missing.", "Run `keepfast rebuild`."
                ) from None
            tx.add_pack(name, size, entries)

    def apply(
        self,
        tx: Transaction,
        row: WorkspaceRow,
        record: Record,
        header: Header,
        rows: list[Entry],
        existing_paths: Container[bytes] | None = None,
    ) -> WorkspaceRow:
        """Add the rows of one checkpoint from its document; `existing_paths`: which of its paths existed before."""
        version = record["v"]
        tx.apply(row.id, version, rows, whole=header.keyframe, existing_paths=existing_paths)
        tx.add_checkpoint(checkpoint_row(row.id, record, header, len(rows)))
        if header.conversation:
            tx.set_attachments(row.id, version, attachment_ids(header))
        tx.set_meta("seq", str(max(record["seq"], self.sequence())))
        if version > 1 and row.version == version - 1:
            before = self.ledger.checkpoint(row.id, row.version)
            if before is not None and before.forgotten:
                tx.drop_intervals(row.id, self._last_living_before(row.id, version), version)
        return row._replace(
            version=version, document=bytes.fromhex(record["doc"]), tree=header.tree, counts=dumps(header.counts),
            keyframe=row.keyframe or version,
        )  # fmt: skip

    def sequence(self) -> int:
        """Return the number of the newest checkpoint of the whole store."""
        sequence = self.ledger.meta("seq") or "0"
        if not sequence.isdecimal():
            raise Damaged("The ledger's sequence number is damaged.")
        return int(sequence)

    def _drop_unneeded(self, tx: Transaction, row: WorkspaceRow, versions: list[int]) -> None:
        """Drop the rows that only forgotten versions need. The newest version's rows stay: the next save builds on them."""
        done = 0
        for version in sorted(versions):
            if version < done:
                continue
            after = version + 1
            while after < row.version:
                checkpoint = self.ledger.checkpoint(row.id, after)
                if checkpoint is not None and not checkpoint.forgotten:
                    break
                after += 1
            done = min(after, row.version)
            self.dropped_bytes += tx.drop_intervals(row.id, self._last_living_before(row.id, version), done)

    def _last_living_before(self, workspace: str, version: int) -> int:
        older = self.ledger.find(Query(workspace=workspace, before=version, limit=1))
        return older[0].version if older else 0

    def _checkpoint_row(self, workspace: str, version: int) -> CheckpointRow:
        checkpoint = self.ledger.checkpoint(workspace, version)
        if checkpoint is None:
            raise Damaged(f"A log mentions v{version}, which the ledger does not have.", "Run `keepfast rebuild`.")
        return checkpoint

    # Loading

    def document(self, checkpoint: CheckpointRow) -> tuple[Header, list[Entry]]:
        """Return header and changes of a checkpoint."""
        return document.decode(self.contents.load(checkpoint.document))

    def close(self) -> None:
        self.ledger.close()
        self.blobs.close()


def _explained(error: OSError) -> KeepfastError:
    return explain(error, "Writing to the store")


def _path_text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _path_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
