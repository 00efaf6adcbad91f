"""Giving space back: forgetting versions, and compaction, one at a time, with a reserve for a full disk."""

from __future__ import annotations

from posix import unlink

from holdfast.core.errors import Busy, Conflict, Damaged, DiskFull, NotFound
from holdfast.core.steps import step
from holdfast.store.compacting import Compacting
from holdfast.store.journal import Journal
from holdfast.store.keyframes import keyframe_if_worth_it
from holdfast.store.local import FULL, Lock, explain
from holdfast.store.mounts import Unmounted
from holdfast.store.open import make_reserve
from holdfast.store.records import STORE_LOG
from holdfast.store.store_log import check_store_log, settle_store_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from holdfast.store.compacting import Progress
    from holdfast.store.ports import Transaction
    from holdfast.store.repository import Repository
    from holdfast.store.rows import WorkspaceRow

    Done = TypeVar("Done")

ATTEMPTS = 3


class Compaction:
    """What compaction did."""

    def __init__(self, bytes_before: int, packs_before: int) -> None:
        self.bytes_before = self.bytes_after = bytes_before
        self.packs_before = self.packs_after = packs_before


def store_size(repository: Repository) -> int:
    """Bytes of all packs."""
    return sum(pack.size for pack in repository.ledger.packs())


def forget(repository: Repository, workspace: str, versions: Sequence[int], why: str, folder: str = "") -> int:
    """Hide these versions; return the bytes of contents that no version shows any more. Compaction gives them back.

    All of them, or none. On a full disk the reserve in the store's `folder` is used. Raises `NotFound` for a version that
    is not there.
    """
    wanted = sorted(set(versions))

    def work(tx: Transaction, row: WorkspaceRow | None) -> list[dict[str, Any]]:
        for version in wanted:
            found = repository.ledger.checkpoint(workspace, version)
            if found is None or found.forgotten:
                raise NotFound(f"There is no v{version} to forget.")
        return [{"r": "forget", "v": wanted, "why": why}] if wanted else []

    step("forget:begun")
    if not wanted:
        return 0
    busy = needed_by_restore(folder, workspace).intersection(wanted)
    if busy:
        raise Conflict(
            f"v{min(busy)} is needed by a restore that was cut off.",
            "Run `holdfast restore --continue` or `--abort` first.",
        )

    def commit() -> None:
        repository.dropped = 0
        repository.commit(workspace, work)

    _with_reserve(folder, "Forgetting", commit)
    step("forget:committed")
    return repository.dropped


def needed_by_restore(folder: str, workspace: str) -> set[int]:
    """Versions between which a restore is under way or was cut off: it can end at neither without them."""
    if not folder:
        return set()
    journal = Journal(f"{folder}/workspaces/{workspace}", durable=True).read()
    return {journal["target"], journal["before"]} if journal is not None else set()


def compact(
    repository: Repository, folder: str, *, everything: bool = False, progress: Progress | None = None
) -> Compaction:
    """Merge small packs, drop what no checkpoint needs, and give the space back.

    Raises `Busy` if another one runs, or if the store is mounted: mounts show versions that were forgotten meanwhile.
    """
    guard = Lock(folder + "/compact.lock")
    if not guard.try_now():
        raise Busy("Another compaction is running.")
    try:
        with Unmounted(folder):
            return _with_reserve(folder, "Compaction", lambda: _compact(repository, everything, progress))
    finally:
        guard.__exit__(None, None, None)


def _compact(repository: Repository, everything: bool, progress: Progress | None) -> Compaction:
    for log in repository.records.logs():
        if log != STORE_LOG:
            repository.workspace(log)  # adopt what is complete before anything is called an orphan
    repository.blobs.sweep()
    _remove_orphans(repository)
    result = Compaction(store_size(repository), len(repository.ledger.packs()))
    for workspace in repository.ledger.workspaces():
        keyframe_if_worth_it(repository, workspace.id, everything)
    attempts, size = ATTEMPTS, result.bytes_before
    while attempts and not Compacting(repository, everything, progress).run():
        before, size = size, store_size(repository)
        attempts -= size >= before  # where the disk is nearly full, every part that gives space back counts
    packs = repository.ledger.packs()
    result.bytes_after, result.packs_after = sum(pack.size for pack in packs), len(packs)
    try:
        getattr(repository.ledger, "vacuum", int)()
    except DiskFull:
        pass  # free pages stay in the ledger and are used again
    return result


def _with_reserve(folder: str, what: str, work: Callable[[], Done]) -> Done:
    """Do it; if the disk is full, once more with the space that the store keeps for this."""
    try:
        try:
            return work()
        except (DiskFull, OSError) as error:
            if not folder or not (isinstance(error, DiskFull) or error.errno in FULL):
                raise
            try:
                unlink(folder + "/reserve")
            except FileNotFoundError:
                raise error from None
        return work()
    except OSError as error:
        raise explain(error, what, folder) from None
    finally:
        if folder:
            make_reserve(folder)


def _remove_orphans(repository: Repository) -> None:
    """Remove packs that no row knows: a save was killed between naming its pack and its record."""
    with repository.ledger.transaction() as tx:
        # Under the writers' lock nobody else is between those two steps. A record that has no row yet is adopted first:
        # its pack is no orphan.
        for log in repository.records.logs():
            if log != STORE_LOG:
                repository.reconcile(tx, log)
        settle_store_log(repository)
        check_store_log(repository)
        known = {pack.name for pack in repository.ledger.packs()}
        present = set(repository.blobs.names())
        missing = known - present
        if missing:
            raise Damaged(f"Pack {min(missing)} is missing; nothing was removed.", "Run `holdfast verify`.")
        for name in present - known:
            repository.blobs.delete(name)
    step("compact:orphans")
