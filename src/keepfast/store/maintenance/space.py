"""Free space: forget versions, and compact packs, using the reserve if the disk is full."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from keepfast.fsutil.durable import Lock, replace
from keepfast.model.entry import FILE
from keepfast.model.errors import Busy, Conflict, Damaged, DiskFull, Failed, KeepfastError, NotCompacted, NotFound
from keepfast.model.steps import step
from keepfast.state.mounts import Unmounted
from keepfast.store.conversations import conversation_from_json
from keepfast.store.keyframes import write_keyframe_if_due
from keepfast.store.maintenance.compaction import (
    DEAD_SHARE,
    DEAD_SHARE_IF_TIGHT,
    Compactor,
    NoRoom,
    Progress,
    contents_of,
)
from keepfast.store.ports import Transaction
from keepfast.store.records import STORE_LOG, Chain, Record
from keepfast.store.repository import Repository
from keepfast.store.reserve import disk_full_hint, free_space, reserve_size, try_ensure_reserve, with_reserve
from keepfast.store.restore_journal import Journal
from keepfast.store.rows import Query, WorkspaceRow
from keepfast.store.store_log import check_store_log, settle_store_log

ATTEMPTS = 3
OVER_CAP_FILE = "/over"
"""A file in the store; see `record_over_cap`."""


class Compaction:
    """The result of a compaction."""

    def __init__(self, bytes_before: int, packs_before: int) -> None:
        self.bytes_before = self.bytes_after = bytes_before
        self.packs_before = self.packs_after = packs_before
        self.bytes_left = 0
        """About how many unneeded bytes remain in packs that are not worth rewriting yet."""

    @property
    def given_back(self) -> int:
        return max(0, self.bytes_before - self.bytes_after)


def store_size(repository: Repository) -> int:
    """Return the bytes of all packs."""
    return sum(pack.size for pack in repository.ledger.packs())


def record_over_cap(folder: str, size: int) -> None:
    """Record the size of a store that could not be brought below its cap, so that not every save tries again."""
    try:
        replace(folder + OVER_CAP_FILE, str(size).encode("ascii"), durable=False, growing=folder + "/tmp")
    except OSError:
        pass  # then the next save tries again


def is_over_cap(folder: str, size: int, most: int) -> bool:
    """Return whether the store is over its cap, and a tenth larger than when it last could not be brought below it."""
    if size <= most:
        return False
    try:
        with open(folder + OVER_CAP_FILE, encoding="ascii") as file:
            tried = int(file.read(32) or 0)
    except (OSError, ValueError):
        tried = 0
    return size > tried + tried // 10


def bytes_freed_by(repository: Repository, workspace: str, versions: Sequence[int], with_newest: bool = False) -> int:
    """Return the bytes of contents that nothing would need any more if these versions were forgotten.

    Each content counts once, and not at all if another version, path or workspace has it. Contents of the newest version
    are kept even if it is forgotten, because the next save builds on them; `with_newest` counts those too.
    """
    row = repository.workspace(workspace)
    if row is None or not versions:
        return 0
    forgotten = set(versions)
    left = {row.version for row in repository.ledger.find(Query(workspace=workspace))} - forgotten
    living = sorted(left if with_newest and row.version in forgotten else left | {row.version})
    freed: dict[bytes, int] = {}
    needed: set[bytes] = set()
    for since, until, entry in repository.ledger.intervals(workspace):
        if entry.kind != FILE:
            continue
        at = bisect_left(living, since)
        if at < len(living) and (until is None or living[at] < until):
            needed.add(entry.content)
        else:
            freed[entry.content] = entry.size
    freed = {key: size for key, size in freed.items() if key not in needed}
    for other in repository.ledger.workspaces():
        if freed and other.id != workspace:
            for _, _, entry in repository.ledger.intervals(other.id):
                freed.pop(entry.content, None)
    return sum(freed.values())


def conversation_bytes_freed_by(repository: Repository, workspace: str, versions: Sequence[int]) -> int:
    """Return the stored bytes of conversations that nothing would need any more if these versions were forgotten."""
    chosen, staying = set[bytes](), set[bytes]()
    for other in repository.ledger.workspaces():
        for version, ids in repository.ledger.attachments(other.id).items():
            (chosen if other.id == workspace and version in versions else staying).update(ids)
    if not chosen:
        return 0
    freed = contents_of(repository, chosen) - contents_of(repository, staying)
    return sum(place.length for place in repository.ledger.locate(list(freed)).values())


def conversations_lost_by(repository: Repository, workspace: str, versions: Sequence[int]) -> dict[str, int]:
    """Return the sessions whose conversation no version would have any more, each with the newest version that has it."""
    lost, kept = dict[str, int](), set[str]()
    for version in sorted(repository.ledger.attachments(workspace)):
        row = repository.checkpoint(workspace, version)
        if row is None or row.forgotten:
            continue
        try:
            conversation = conversation_from_json(repository.document(row)[0].conversation)
        except KeepfastError:
            continue  # it cannot be read in any case
        if conversation is not None and version in versions:
            lost[conversation.session] = version
        elif conversation is not None:
            kept.add(conversation.session)
    return {session: version for session, version in lost.items() if session not in kept}


def forget(repository: Repository, workspace: str, versions: Sequence[int], why: str, folder: str = "") -> int:
    """Forget these versions, all or none; return an upper bound of the bytes that compaction can then free.

    `bytes_freed_by` counts exactly, but takes longer. On a full disk the reserve in the store's `folder` is used. Raises
    `NotFound` for a version that does not exist, and `Conflict` for one that an interrupted restore needs.
    """
    sorted_versions = sorted(set(versions))

    def work(tx: Transaction, row: WorkspaceRow | None) -> list[Record]:
        for version in sorted_versions:
            checkpoint = repository.ledger.checkpoint(workspace, version)
            if checkpoint is None or checkpoint.forgotten:
                raise NotFound(f"v{version} does not exist.")
        return [{"r": "forget", "v": sorted_versions, "why": why}] if sorted_versions else []

    step("forget:begun")
    if not sorted_versions:
        return 0
    busy = needed_by_restore(folder, workspace).intersection(sorted_versions)
    if busy:
        raise Conflict(
            f"v{min(busy)} is needed by an interrupted restore.",
            "Run `keepfast restore --continue` or `--abort` first.",
        )

    def commit() -> None:
        repository.dropped_bytes = 0
        try:
            repository.commit(workspace, work)
        except (DiskFull, Failed, OSError):
            if not _are_forgotten(repository, workspace, sorted_versions):
                raise

    with_reserve(folder, "Forgetting", commit)
    if folder:
        try_ensure_reserve(folder)
    step("forget:committed")
    return repository.dropped_bytes


def _are_forgotten(repository: Repository, workspace: str, versions: Sequence[int]) -> bool:
    """Return whether these versions were forgotten although the commit raised an error.

    The log decides, as the ledger may be what failed: the next process replays a record that could not be cut off.
    """
    try:
        records = Chain(repository.records.read(workspace)).records
    except OSError:
        return False
    return any(record.get("r") == "forget" and set(versions) <= set(record["v"]) for record in records)


def needed_by_restore(folder: str, workspace: str) -> set[int]:
    """Versions between which a restore is under way or was cut off: it can end at neither without them."""
    if not folder:
        return set()
    journal = Journal(f"{folder}/workspaces/{workspace}", durable=True).read()
    return {journal.target, journal.before} if journal is not None else set()


def compact(
    repository: Repository, folder: str, *, everything: bool = False, progress: Progress | None = None
) -> Compaction:
    """Merge small packs, drop what no checkpoint needs, and give the space back.

    Raises `Busy` if another one runs, or if the store is mounted: mounts show versions that were forgotten meanwhile.
    Raises `NotCompacted` where the disk is too full for all of it. Whatever it raises says how much was given back before.
    """
    guard = Lock(folder + "/compact.lock")
    if not guard.try_now():
        raise Busy("Another compaction is running.")
    try:
        with Unmounted(folder):
            before = store_size(repository)
            try:
                return _compact(repository, folder, everything, progress)
            except (DiskFull, Failed) as error:
                raise _compaction_error(repository, folder, before, error) from None
    finally:
        guard.__exit__(None, None, None)


def _compact(repository: Repository, folder: str, everything: bool, progress: Progress | None) -> Compaction:
    """Remove what needs no space to be removed; then, with the reserve allocated again, rewrite packs."""
    result = with_reserve(folder, "Compaction", lambda: _remove_leftovers(repository))
    # On a nearly full disk a keyframe is worth its space: packs whose documents it replaces can be removed unread.
    is_tight = bool(folder) and not _has_room(folder)
    with_reserve(folder, "Compaction", lambda: _drop_dead(repository, everything or is_tight))
    least = DEAD_SHARE_IF_TIGHT if is_tight else DEAD_SHARE
    result.bytes_left = with_reserve(folder, "Compaction", lambda: _rewrite(repository, everything, progress, least))
    packs = repository.ledger.packs()
    result.bytes_after, result.packs_after = sum(pack.size for pack in packs), len(packs)
    try:
        repository.ledger.vacuum()
    except (DiskFull, Failed):
        pass  # free pages stay in the ledger and are reused
    if folder:
        try_ensure_reserve(folder)
    return result


def _remove_leftovers(repository: Repository) -> Compaction:
    """Remove what killed writers left: unfinished uploads, and packs without a record."""
    for log in repository.records.logs():
        if log != STORE_LOG:
            repository.workspace(log)  # replay complete records first: packs that they name are no orphans
    repository.blobs.sweep()
    _remove_orphans(repository)
    return Compaction(store_size(repository), len(repository.ledger.packs()))


def _has_room(folder: str) -> bool:
    """Return whether the disk has more free space than a compaction is likely to need beside the reserve."""
    return free_space(folder) >= 2 * reserve_size(folder)


def _drop_dead(repository: Repository, every_keyframe: bool) -> None:
    for workspace in repository.ledger.workspaces():
        try:
            write_keyframe_if_due(repository, workspace.id, every_keyframe)
        except DiskFull:
            pass  # then older documents, and the packs that they are in, are kept
    for _ in range(ATTEMPTS):
        if Compactor(repository, False, None).drop_unneeded_packs():
            return


def _rewrite(repository: Repository, everything: bool, progress: Progress | None, least: float) -> int:
    """Rewrite packs; return how many unneeded bytes remain in packs that are not worth rewriting. Raises `NoRoom`."""
    compacting = Compactor(repository, everything, progress, least)
    for _ in range(ATTEMPTS):
        if compacting.run():
            break
    return compacting.bytes_left


def _compaction_error(repository: Repository, folder: str, before: int, error: KeepfastError) -> KeepfastError:
    """Return the error of a compaction that stopped, with the space that it freed before."""
    try:
        given_back = max(0, before - store_size(repository))
    except KeepfastError:
        given_back = 0
    freed_text = f"{given_back:,} bytes were freed before" if given_back else "no space was freed"
    if isinstance(error, NoRoom):
        return NotCompacted(
            f"The disk is full: {error.bytes_left:,} bytes of unneeded data remain in packs that cannot be "
            f"rewritten; {freed_text}.",
            f"Free {error.missing:,} bytes more on the disk of {folder}, and run `keepfast compact`, or "
            "forget more checkpoints.",
        )
    if isinstance(error, DiskFull):
        hint = disk_full_hint(folder) if folder and error.hint == DiskFull.hint else error.hint
        return NotCompacted(f"The disk is full: compaction stopped, {freed_text}.", hint)
    return Failed(f"{str(error).rstrip('.')}; {freed_text}.", error.hint)


def _remove_orphans(repository: Repository) -> None:
    """Remove packs without a row: a save was killed between naming its pack and writing its record."""
    with repository.ledger.transaction() as tx:
        # Under the writers' lock nobody else is between those two steps. Records without rows are replayed first: their
        # packs are no orphans.
        for log in repository.records.logs():
            if log != STORE_LOG:
                repository.reconcile(tx, log)
        settle_store_log(repository)
        check_store_log(repository)
        pack_names = {pack.name for pack in repository.ledger.packs()}
        present = set(repository.blobs.names())
        missing = pack_names - present
        if missing:
            raise Damaged(f"Pack {min(missing)} is missing; nothing was removed.", "Run `keepfast verify`.")
        for name in present - pack_names:
            repository.blobs.delete(name)
    step("compact:orphans")
