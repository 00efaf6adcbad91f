"""Making a ledger from packs and logs alone: for `rebuild`, and for `verify`, which compares it with the one in use."""

from __future__ import annotations

from holdfast.core import document
from holdfast.core.entry import Entry
from holdfast.core.errors import Damaged, HoldfastError
from holdfast.store.digest import add, weight
from holdfast.store.packs import read_index
from holdfast.store.records import Chain
from holdfast.store.repository import Repository
from holdfast.store.rows import CheckpointRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.store.ports import Transaction
    from holdfast.store.rows import WorkspaceRow

STORE_LOG = "store"


class Rebuilt:
    """What was made, and what could not be."""

    def __init__(self) -> None:
        self.workspaces = 0
        self.checkpoints = 0
        self.notices: list[str] = []
        self.lost: dict[str, list[int]] = {}
        """Versions per workspace that the logs speak of and that could not be made again."""
        self.cut_logs: dict[str, int] = {}
        """Logs with bytes after their last good line, and where that ends."""
        self.by_keyframe: set[tuple[str, int]] = set()
        """Versions whose own document could not be read, but a keyframe of the same state could."""


def fill(
    repository: Repository, skip: frozenset[str] = frozenset(), progress: Callable[[int, int], None] | None = None
) -> Rebuilt:
    """Fill the repository's empty ledger from its packs and logs. What cannot be had is named, never guessed."""
    return _Filling(repository, skip, progress).run()


class _Filling:
    def __init__(
        self, repository: Repository, skip: frozenset[str], progress: Callable[[int, int], None] | None
    ) -> None:
        self.repository, self.skip, self.progress = repository, skip, progress
        self.result = Rebuilt()

    def run(self) -> Rebuilt:
        repository = self.repository
        with repository.ledger.transaction() as tx:
            self._packs(tx)
            logs = repository.records.logs()
            chain = Chain(repository.records.read(STORE_LOG))
            if chain.size:
                tx.set_meta("store_log", f"{chain.size} {chain.head.hex()}")
            if chain.rest:
                self.result.cut_logs[STORE_LOG] = chain.size
            for number, log in enumerate(logs):
                if self.progress is not None:
                    self.progress(number, len(logs))
                if log != STORE_LOG:
                    self._log(tx, log)
        return self.result

    def _packs(self, tx: Transaction) -> None:
        for name in self.repository.blobs.names():
            if name in self.skip:
                continue
            try:
                size, entries, _ = read_index(self.repository.blobs, name)
            except Damaged as error:
                self.result.notices.append(f"{error}; its contents are taken for lost.")
                continue
            tx.add_pack(name, size, entries)

    def _log(self, tx: Transaction, log: str) -> None:
        chain = Chain(self.repository.records.read(log))
        if chain.rest:
            self.result.cut_logs[log] = chain.size
        keyframes = {record["v"]: record for record in chain.records if record["r"] == "keyframe"}
        self.forgotten = {version for record in chain.records if record["r"] == "forget" for version in record["v"]}
        row: WorkspaceRow | None = None
        self.sum: int | None = 0  # None: the state so far is not known
        for record, end, head in zip(chain.records, chain.ends, chain.heads, strict=True):
            if record["r"] == "checkpoint" and row is not None:
                row = self._checkpoint(tx, row, record, keyframes.get(record["v"]))
                row = row._replace(log_size=end, log_head=head)
                tx.update_workspace(row)
            else:
                row = self.repository.replay(tx, row, record, end, head)
        if row is None:
            if chain.rest:
                self.result.notices.append(f"The log {log} has no readable line.")
            return
        if self.sum is None:
            # The next save must not build on a state that is not known: it writes everything.
            tx.update_workspace(row._replace(tree=""))
        self.result.workspaces += 1

    def _checkpoint(
        self, tx: Transaction, row: WorkspaceRow, record: dict[str, Any], keyframe: dict[str, Any] | None
    ) -> WorkspaceRow:
        """Add one version: by its change set if the state before it is known, else by a keyframe, else as lost."""
        version, own = record["v"], self._document(record)
        for found in (own, self._document(keyframe) if keyframe else None):
            if found is None:
                continue
            header, rows = found
            if not header["keyframe"] and self.sum is None:
                continue
            total = self._sum(row.id, header, rows)
            if f"{total:064x}" != header["tree"]:
                continue
            self.sum = total
            row = self.repository.apply(tx, row, record, header, rows, len(own[1] if own else rows))
            self.result.checkpoints += version not in self.forgotten
            if own is None:
                self.result.by_keyframe.add((row.id, version))
            return row
        self.sum = None
        if version not in self.forgotten:
            self.result.lost.setdefault(row.id, []).append(version)
        tx.add_checkpoint(
            CheckpointRow(
                row.id, version, record["id"], bytes.fromhex(record["doc"]), record["seq"], record["at"], "lost", "system",
                "", "", "", "", "", 0, 1, 0, 0, 0, record.get("size", 0), "",
            )
        )  # fmt: skip
        tx.set_meta("seq", str(max(record["seq"], int(self.repository.ledger.meta("seq") or 0))))
        return row._replace(version=version, document=bytes.fromhex(record["doc"]))

    def _document(self, record: dict[str, Any]) -> tuple[dict[str, Any], list[Entry]] | None:
        try:
            return document.decode(self.repository.load(bytes.fromhex(record["doc"])))
        except HoldfastError:
            return None

    def _sum(self, workspace: str, header: dict[str, Any], rows: list[Entry]) -> int:
        """The sum over the tree after these rows, from the sum before them."""
        total = 0
        if not header["keyframe"]:
            assert self.sum is not None
            total = self.sum
            for old in self.repository.ledger.current(workspace, [row.path for row in rows]).values():
                total = add(total, minus=weight(old))
        for row in rows:
            total = add(total, plus=weight(row))
        return total
