"""Pin, unpin and name checkpoints."""

from __future__ import annotations

from typing import Any

from keepfast.model.errors import NotFound
from keepfast.store.ports import Transaction
from keepfast.store.records import Record
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, WorkspaceRow


def pin(repository: Repository, checkpoint: CheckpointRow, pinned: bool) -> bool:
    """Protect the checkpoint from retention, or stop protecting it. False if it was so already."""
    return _mark(
        repository, checkpoint, {"r": "pin" if pinned else "unpin", "v": checkpoint.version}, {"pinned": int(pinned)}
    )


def name(repository: Repository, checkpoint: CheckpointRow, text: str) -> bool:
    """Name the checkpoint; an empty text removes its name. False if it had that name already."""
    return _mark(repository, checkpoint, {"r": "name", "v": checkpoint.version, "name": text or None}, {"name": text})


def _mark(repository: Repository, checkpoint: CheckpointRow, record: Record, becomes: dict[str, Any]) -> bool:
    changed = False

    def work(tx: Transaction, row: WorkspaceRow | None) -> list[Record]:
        nonlocal changed
        now = repository.ledger.checkpoint(checkpoint.workspace, checkpoint.version)
        if now is None or now.forgotten:
            raise NotFound(f"v{checkpoint.version} was forgotten in the meantime.")
        changed = now._replace(**becomes) != now
        return [record] if changed else []

    repository.commit(checkpoint.workspace, work)
    return changed
