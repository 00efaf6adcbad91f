"""The deep module of the store: save, load and find checkpoints; blobs first, then the record, then the row."""

from __future__ import annotations

from keepfast.model import document
from keepfast.model.errors import DiskFull, Failed, KeepfastError, NoWorkspace
from keepfast.store.digest import ZERO
from keepfast.store.records import line
from keepfast.store.replay import Replay, base_key
from keepfast.store.rows import SAFETY, Query
from keepfast.store.save import Saving

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from keepfast.model.entry import Entry
    from keepfast.store.ports import Blobs, Ledger, Records, Transaction
    from keepfast.store.rows import CheckpointRow, WorkspaceRow

MAY_STAND = (
    "Its record is in the log, so it may be there all the same: see `keepfast list`, once the disk can be written."
)


class Repository(Replay):
    """Checkpoints of all workspaces, over the three ports."""

    def __init__(self, store_id: str, blobs: Blobs, records: Records, ledger: Ledger) -> None:
        super().__init__(blobs, records, ledger)
        self.id = store_id
        self.folder = ""
        """Where it lies, if that is a disk: what is saved there leaves room for the reserve."""

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

    def base(self, workspace: str) -> CheckpointRow | None:
        """Return the version that the folder was last saved as, or set to by a restore; None if there is none."""
        row = self.ledger.workspace(workspace)
        if row is not None:
            owner, _, rest = (self.ledger.meta(base_key(workspace)) or "").partition(" ")
            version, _, until = rest.partition(" ")
            if until == str(row.version) and version.isdecimal():
                found = self.ledger.checkpoint(owner, int(version))
                if found is not None and not found.forgotten:
                    return found
        newest = self.ledger.find(Query(workspace=workspace, limit=1))
        if row is None or not newest or newest[0].trigger not in SAFETY:
            return newest[0] if newest else None
        # A restore was cut off after its safety checkpoint, or an older program made one and did not note where to.
        base = self.base_in_log(workspace, row.log_size)
        found = self.ledger.checkpoint(*base) if base else None
        return found if found is not None and not found.forgotten else newest[0]

    # Saving

    def begin(self, workspace: str) -> Saving:
        row = self.workspace(workspace)
        if row is None:
            raise NoWorkspace(f"The store does not know the workspace {workspace}.")
        self.renew_reserve()
        return Saving(self, row)

    def renew_reserve(self) -> None:
        """Before anything takes room: without its reserve a full store could never give any back. Raises `DiskFull`."""
        if self.folder:
            from keepfast.store.reserve import renew

            renew(self.folder)

    def commit(
        self,
        workspace: str,
        work: Callable[[Transaction, WorkspaceRow | None], list[dict[str, Any]]],
        ready: Callable[[], None] | None = None,
    ) -> WorkspaceRow:
        """Run `work` inside one transaction and append the records it returns; the rows follow from the records.

        `ready` runs once all rows are made: what the records speak of is durable when it returns.

        This is the only way anything becomes true: record and rows together, durable when it returns. Raises a
        `KeepfastError` whatever goes wrong with the disk, and then nothing has become true, or the error says that it may have.
        """
        try:
            return self._commit(workspace, work, ready)
        except (OSError, DiskFull) as error:
            told = _explained(error) if isinstance(error, OSError) else error
            if self.folder and isinstance(told, DiskFull) and told.hint == DiskFull.hint:
                from keepfast.store.reserve import way_out

                told.hint = way_out(self.folder)
            raise told from None

    def _commit(
        self,
        workspace: str,
        work: Callable[[Transaction, WorkspaceRow | None], list[dict[str, Any]]],
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
                    text, head = line(head, record)
                    size += len(text)
                    row = self.replay(tx, row, record, size, head)
                    lines.append(text)
                if ready is not None:
                    ready()
                if lines:
                    before = size - sum(map(len, lines))
                    self.records.append(workspace, b"".join(lines))
        except BaseException as error:
            stands = before is not None and self._stands(workspace, before, size)
            if stands is False or not isinstance(error, OSError | KeepfastError):
                raise
            if stands is None:
                told = _explained(error) if isinstance(error, OSError) else error
                told.hint = MAY_STAND
                raise told from None
        if row is None:
            raise Failed("Nothing was recorded.")
        return row

    def _stands(self, workspace: str, before: int, after: int) -> bool | None:
        """Did records become true although their commit ended with an error? Else they are cut off: they must not speak
        of what nobody was promised. None where neither can be had.

        SQLite may fail when all is durable, and only its journal is to be emptied yet.
        """
        try:
            # Under the lock again: another process may have adopted them and built on them in the meantime.
            with self.ledger.transaction():
                row = self.ledger.workspace(workspace)
                if row is not None and row.log_size >= after:
                    return True
                self.records.truncate(workspace, before)
        except (OSError, KeepfastError):
            # If they are there, the next process adopts them: more is kept than was promised, never less.
            return None if self._size(workspace) >= after else False
        return False

    def _size(self, workspace: str) -> int:
        """Bytes of the log, as far as it can be asked."""
        try:
            return self.records.size(workspace)
        except OSError:
            return 0

    def take_back(self, names: list[str], log: str = "") -> None:
        """Remove packs that got their names before their commit failed. If that fails too, compaction does it.

        Not if the log has records that no row knows: they may speak of these packs, and the next process adopts them.
        """
        try:
            with self.ledger.transaction():
                row = self.ledger.workspace(log) if log else None
                if log and self.records.size(log) != (row.log_size if row is not None else 0):
                    return
                known = {pack.name for pack in self.ledger.packs()}
                for name in set(names) - known:
                    self.blobs.delete(name)
        except (OSError, KeepfastError):
            pass

    # Loading

    def document(self, checkpoint: CheckpointRow) -> tuple[dict[str, Any], list[Entry]]:
        """Return header and changes of a checkpoint."""
        return document.decode(self.load(checkpoint.document))

    def close(self) -> None:
        self.ledger.close()
        self.blobs.close()


def _explained(error: OSError) -> KeepfastError:
    from keepfast.fsutil.durable import explain

    return explain(error, "Writing to the store")


def _escape(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
