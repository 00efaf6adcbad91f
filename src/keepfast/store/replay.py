"""Rows follow from records: saving, adopting what a killed process left, and rebuilding all pass through here."""

from __future__ import annotations

from keepfast.model import document
from keepfast.model.errors import Damaged
from keepfast.model.light_json import dumps
from keepfast.model.steps import step
from keepfast.store.contents import Contents
from keepfast.store.digest import ZERO
from keepfast.store.packs import read_index
from keepfast.store.records import TAIL, Chain
from keepfast.store.rows import CheckpointRow, Query, WorkspaceRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any

    from keepfast.model.entry import Entry
    from keepfast.store.ports import Blobs, Ledger, Records, Transaction


class Replay(Contents):
    """The rows of the ledger, made from the records of the logs and the documents that they name."""

    def __init__(self, blobs: Blobs, records: Records, ledger: Ledger) -> None:
        super().__init__(blobs, ledger)
        self.records = records
        self._at_hand: dict[bytes, tuple[dict[str, Any], list[Entry], Container[bytes]]] = {}
        """Documents that were just written and need not be read back."""
        self.dropped = 0
        """Bytes of contents that the last forgetting let go."""

    def reconcile(self, tx: Transaction, workspace: str) -> WorkspaceRow | None:
        """Bring the rows up to the end of the log; cut off the trace of a write that was never finished."""
        row = self.ledger.workspace(workspace)
        known, size = (row.log_size if row is not None else 0), self.records.size(workspace)
        if size == known:
            return row
        if size < known:
            raise Damaged(
                f"The log of workspace {workspace} is shorter than the ledger says: lines are missing at its end.",
                "Run `keepfast verify --repair`.",
            )
        data = self.records.read(workspace)
        if row is not None and data[known - TAIL : known] != row.log_head.hex().encode("ascii") + b"\n":
            # Without this, a wrong number in the ledger would pass a good line off as the trace of a broken write.
            raise Damaged(
                f"The log of workspace {workspace} does not go on where the ledger stopped.",
                "Run `keepfast verify --repair`.",
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
                    "Run `keepfast verify --repair`.",
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
        elif kind in ("restore", "base"):
            base = record.get("base")
            if kind == "restore" and not base:
                base = self.base_in_log(row.id, row.log_size, record)
            tx.set_meta(base_key(row.id), base_text(base, row.version))
        # An unknown kind is from a newer keepfast: it is kept in the log and changes nothing here.
        row = row._replace(log_size=log_size, log_head=log_head)
        tx.update_workspace(row)
        return row

    def base_in_log(self, workspace: str, size: int, *more: dict[str, Any]) -> list[Any] | None:
        """What the folder is at, by so many bytes of its log and these records after them."""
        from keepfast.store.bases import base_after

        records = Chain(self.records.read(workspace)[:size]).records
        return base_after(self.ledger, workspace, [*records, *more])

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
                    f"Checkpoint v{version} is in the log, but its pack {name} is missing.", "Run `keepfast rebuild`."
                ) from None
            tx.add_pack(name, size, entries)

    def apply(
        self,
        tx: Transaction,
        row: WorkspaceRow,
        record: dict[str, Any],
        header: dict[str, Any],
        rows: list[Entry],
        known: Container[bytes] | None = None,
    ) -> WorkspaceRow:
        """Add the rows of one checkpoint whose document is at hand; `known`: which of its paths were there up to now."""
        version, counts = record["v"], header["counts"]
        tx.apply(row.id, version, rows, whole=header["keyframe"], known=known)
        tx.add_checkpoint(checkpoint_row(row.id, record, header, len(rows)))
        if header.get("conversation"):
            from keepfast.store.conversations import ids_of

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
            raise Damaged(f"A log speaks of v{version}, which the ledger does not have.", "Run `keepfast rebuild`.")
        return found


def base_key(workspace: str) -> str:
    return f"base {workspace}"


def base_text(base: list[Any] | None, version: int) -> str:
    """What the ledger keeps of the version that a folder was set to: it counts until there is a version after `version`."""
    return f"{base[0]} {int(base[1])} {version}" if base else ""


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


def _unescape(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
