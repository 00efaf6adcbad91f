"""The deep module of the store: save, load and find checkpoints; blobs first, then the record, then the row."""

from __future__ import annotations

from holdfast.core import document
from holdfast.core.errors import Failed, HoldfastError, NoWorkspace
from holdfast.store.digest import ZERO
from holdfast.store.records import line
from holdfast.store.replaying import Replay
from holdfast.store.saving import Saving

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.core.entry import Entry
    from holdfast.store.ports import Blobs, Ledger, Records, Transaction
    from holdfast.store.rows import CheckpointRow, WorkspaceRow


class Repository(Replay):
    """Checkpoints of all workspaces, over the three ports."""

    def __init__(self, store_id: str, blobs: Blobs, records: Records, ledger: Ledger) -> None:
        super().__init__(blobs, records, ledger)
        self.id = store_id

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
        self,
        workspace: str,
        work: Callable[[Transaction, WorkspaceRow | None], list[dict[str, Any]]],
        ready: Callable[[], None] | None = None,
    ) -> WorkspaceRow:
        """Run `work` inside one transaction and append the records it returns; the rows follow from the records.

        `ready` runs once all rows are made: what the records speak of is durable when it returns.

        This is the only way anything becomes true: record and rows together, durable when it returns. Raises a
        `HoldfastError` whatever goes wrong with the disk, and then nothing has become true.
        """
        try:
            return self._commit(workspace, work, ready)
        except OSError as error:
            from holdfast.store.local import explain

            raise explain(error, "Writing to the store") from None

    def _commit(
        self,
        workspace: str,
        work: Callable[[Transaction, WorkspaceRow | None], list[dict[str, Any]]],
        ready: Callable[[], None] | None,
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
                if ready is not None:
                    ready()
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

    # Loading

    def document(self, checkpoint: CheckpointRow) -> tuple[dict[str, Any], list[Entry]]:
        """Return header and changes of a checkpoint."""
        return document.decode(self.load(checkpoint.document))

    def close(self) -> None:
        self.ledger.close()
        self.blobs.close()


def _escape(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
