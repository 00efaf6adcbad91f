"""Compaction: choose packs, copy the needed contents into new packs, and replace the old packs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from keepfast.model.entry import FILE
from keepfast.model.errors import Damaged, DiskFull
from keepfast.model.steps import step
from keepfast.store.conversations import attachment_ids
from keepfast.store.digest import digest
from keepfast.store.keyframes import needed_documents
from keepfast.store.maintenance.arrangement import FRAME_OF_SIMILAR, arrange, batches
from keepfast.store.packs import MAX_SHARED_FRAME, PackWriter
from keepfast.store.records import STORE_LOG, Chain
from keepfast.store.repository import Repository
from keepfast.store.reserve import free_space, is_full, max_pack_size
from keepfast.store.restore_journal import Journal
from keepfast.store.rows import CHUNKS, LIST, Location, PackRow, Query
from keepfast.store.store_log import append_store_record, settle_after_failure

Progress = Callable[[int, int], None]

SMALL_PACK = 8 << 20
MERGE_SMALL_PACKS = 8
DEAD_SHARE, DEAD_SHARE_IF_TIGHT = 0.25, 0.05
"""A pack with at least this share of unneeded contents is rewritten; the second value counts on a nearly full disk."""
LEVEL = 9
"""Compression level of new packs, used by one thread: a second would need 40 MB more memory and help little."""
BATCH_BYTES = 48 << 20
"""Bytes that are read before they are written in their new order."""
MAX_PACK = 128 << 20
REPACK_BYTES = 256 << 20
"""Bytes of packs from saves that are recompressed at a time, at least one pack; that takes up to half a minute."""
INCOMPRESSIBLE_SHARE = 0.9
"""A pack of at least this share of its contents' size would not become smaller."""
REWRITE_WHOLE_BYTES = 64 << 20
"""Up to this size a store is rewritten as a whole; that takes some seconds."""
MIN_MISSING = 64 << 10
"""The least free space that an error asks for when needed contents unexpectedly did not fit."""
JOIN_FACTOR = 2
"""A pack up to this many times larger than all that is rewritten anyway is rewritten with it,"""
JOIN_BYTES = 64 << 20
"""unless it is larger than this."""


class NoRoom(DiskFull):
    """Packs hold unneeded data, and there is no space to rewrite any of them."""

    def __init__(self, left: int, missing: int) -> None:
        super().__init__("The disk is full: there is no space to rewrite packs.")
        self.bytes_left, self.missing = left, missing
        """Unneeded bytes that remain, and how many more must be free to rewrite the first pack."""


def contents_of(repository: Repository, keys: Iterable[bytes]) -> set[bytes]:
    """Return these digests and those that lists among them name, also through nested lists."""
    result = set(keys)
    new = list(result)
    while new:
        lists = [key for key, place in repository.ledger.locate(new).items() if place.kind in (CHUNKS, LIST)]
        list_contents = [repository.contents.blob(key)[0] for key in lists]
        named = {names[at : at + 32] for names in list_contents for at in range(0, len(names), 32)}
        new = list(named - result)
        result |= named
    return result


def _chosen_contents(repository: Repository, workspace: str) -> set[bytes]:
    """Return the contents of hunks that an interrupted restore needs to be continued: no version has them."""
    if not repository.folder:
        return set()
    restore = Journal(f"{repository.folder}/workspaces/{workspace}", durable=True).read()
    return {bytes.fromhex(row[0]) for row in restore.chosen.values()} if restore is not None else set()


class Compactor:
    """One attempt to compact: mark what is needed, choose packs, copy, swap."""

    def __init__(
        self, repository: Repository, everything: bool, progress: Progress | None, least: float = DEAD_SHARE
    ) -> None:
        self.repository, self.everything, self.progress, self.least = repository, everything, progress, least
        self.damaged_packs: set[str] = set()
        self.most_pack = max_pack_size(repository.folder, MAX_PACK)
        self.bytes_left = 0
        """About how many unneeded bytes remain in packs that are not worth rewriting."""

    def run(self) -> bool:
        """Compact. False if it must be tried again because a save intervened. Raises `NoRoom`."""
        self.seq = self.repository.sequence()
        self.living = self._mark()
        step("compact:marked")
        while True:
            usage = self._measure_packs()
            chosen = self._choose(usage)
            self.bytes_left = sum([pack.unneeded for pack in usage.values() if pack.name not in chosen])
            if not chosen:
                return True
            try:
                if sum([usage[name].needed for name in chosen]) > self._free_space():
                    return self._one_by_one(usage)
                writers, moved = self._copy(chosen)
                return self._swap(chosen, writers, moved)
            except _DamagedPack as damaged:
                self.damaged_packs.add(damaged.name)  # left for `verify` to report and `--repair` to repair
            except (DiskFull, OSError) as error:
                if not is_full(error) or isinstance(error, NoRoom):
                    raise
                return self._one_by_one(usage)

    def _one_by_one(self, usage: dict[str, PackUsage]) -> bool:
        """Rewrite one pack at a time, for lack of space; each removed pack makes space for the next. Packs are not merged.

        Of the packs for which there is space, the one with the largest unneeded share comes first.
        """
        due = [pack for pack in usage.values() if self._is_due(pack) and pack.name not in self.damaged_packs]
        stuck: list[PackUsage] = []
        while due:
            room = self._free_space()
            due.sort(key=lambda pack: (pack.needed > room, -pack.share, pack.name))
            pack = due.pop(0)
            try:
                if pack.needed > room:
                    raise DiskFull("There is no space for the pack's needed contents.")
                if not self._swap({pack.name}, *self._copy({pack.name})):
                    return False
            except _DamagedPack:
                self.damaged_packs.add(pack.name)
            except (DiskFull, OSError) as error:
                if not is_full(error):
                    raise
                stuck.append(pack)
            else:
                due, stuck = due + stuck, []
        if stuck:
            missing = min([pack.needed for pack in stuck]) - self._free_space()
            raise NoRoom(sum([pack.unneeded for pack in stuck]), max(missing, MIN_MISSING))
        self.bytes_left = sum(
            [pack.unneeded for pack in usage.values() if not self._is_due(pack) or pack.name in self.damaged_packs]
        )
        return True

    def _free_space(self) -> int:
        return free_space(self.repository.folder) if self.repository.folder else 1 << 62

    def drop_unneeded_packs(self) -> bool:
        """Remove packs without any needed content, without rewriting others. False if a save intervened."""
        self.seq = self.repository.sequence()
        self.living = self._mark()
        step("compact:marked")
        living = {place.pack for key, place in self.repository.ledger.locations() if key in self.living}
        packs = sorted(self.repository.ledger.packs(), key=lambda pack: -pack.size)
        dead = [pack.name for pack in packs if pack.name not in living]
        if not dead:
            return True
        try:
            return self._swap(set(dead), [], [])
        except (DiskFull, OSError) as error:
            if not is_full(error):
                raise
        # There was no space to remove all at once. One by one, the largest first, each makes space for the next.
        swapped = [self._swap({name}, [], []) for name in dead]
        return all(swapped)

    def _mark(self) -> set[bytes]:
        repository = self.repository
        keys = repository.ledger.needed_contents()
        for workspace in repository.ledger.workspaces():
            keys |= _chosen_contents(repository, workspace.id)
        living = contents_of(repository, keys)
        for workspace in repository.ledger.workspaces():
            living |= needed_documents(repository, workspace)
        return living

    def _measure_packs(self) -> dict[str, PackUsage]:
        """Return how much of every pack is needed. A pack that a save adds meanwhile is left for the next compaction."""
        usage = {pack.name: PackUsage(pack) for pack in self.repository.ledger.packs()}
        for key, place in self.repository.ledger.locations():
            pack_usage = usage.get(place.pack)
            if pack_usage is None:
                continue
            pack_usage.total += place.length
            if key not in self.living:
                pack_usage.dead += place.length
        return usage

    def _is_due(self, pack: PackUsage) -> bool:
        return pack.share >= self.least or (self.everything and pack.dead > 0)

    def _choose(self, usage: dict[str, PackUsage]) -> set[str]:
        small, wasteful, quickly_compressed, dense = set(), set(), [], self._packs_of_compactions()
        small_size = min(SMALL_PACK, self.most_pack // 2)
        packs = [pack for pack in usage.values() if pack.name not in self.damaged_packs]
        for pack in packs:
            if self._is_due(pack):
                wasteful.add(pack.name)
            elif pack.size < small_size:
                small.add(pack.name)
            elif pack.name not in dense and pack.size < INCOMPRESSIBLE_SHARE * pack.total:
                quickly_compressed.append(pack)  # compressed at a low level, because a user waited for the save
        wasteful |= self._to_recompress(quickly_compressed)
        chosen = wasteful
        if len(small) >= (2 if self.everything else MERGE_SMALL_PACKS) or (small and wasteful):
            chosen = small | wasteful
        return self._with_packs_worth_joining(chosen, {pack.name: pack.size for pack in packs})

    def _to_recompress(self, packs: list[PackUsage]) -> set[str]:
        """Return as many of these packs as are recompressed at a time, the smallest first."""
        chosen: set[str] = set()
        size = 0
        for pack in sorted(packs, key=lambda pack: pack.size):
            if chosen and size + pack.size > REPACK_BYTES and not self.everything:
                break
            chosen.add(pack.name)
            size += pack.size
        return chosen

    def _with_packs_worth_joining(self, chosen: set[str], sizes: dict[str, int]) -> set[str]:
        """Return these packs and others worth rewriting with them, because versions from different times compress well together.

        Of a small store all packs are. In a larger one a pack is added that is not much larger than what is rewritten
        anyway: so each byte is rewritten only a few times in its life.
        """
        if sum(sizes.values()) <= REWRITE_WHOLE_BYTES and len(sizes) > 1 and (chosen or self.everything):
            return set(sizes)
        written = sum([sizes[name] for name in chosen])
        for name in sorted(sizes.keys() - chosen, key=lambda name: (sizes[name], name)):
            if sizes[name] > (JOIN_FACTOR * written if self.everything else min(JOIN_FACTOR * written, JOIN_BYTES)):
                break
            written += sizes[name]
            chosen = chosen | {name}
        return chosen

    def _packs_of_compactions(self) -> set[str]:
        """Return the packs that earlier compactions made: they are compressed at the highest level already."""
        records = Chain(self.repository.records.read(STORE_LOG)).records
        return {name for record in records if record["r"] == "compact" for name in record["new"]}

    def _copy(self, chosen: set[str]) -> tuple[list[PackWriter], list[tuple[bytes, Location]]]:
        repository = self.repository
        entries: list[tuple[bytes, Location]] = []
        lists: set[bytes] = set()
        for key, place in repository.ledger.locations():
            if place.kind == CHUNKS and key in self.living:
                lists.add(key)
            if place.pack in chosen and key in self.living:
                entries.append((key, place))
        writers: list[PackWriter] = []
        done = 0
        try:
            most = min(FRAME_OF_SIMILAR, self.most_pack)
            for frames in batches(arrange(repository, entries, lists, most), BATCH_BYTES):
                contents = self._read(frames)
                for frame in frames:
                    if self.progress is not None:
                        self.progress(done, len(entries))
                    done += len(frame)
                    size = sum([place.length for _, place in frame])
                    if not writers or (writers[-1].size_bound and writers[-1].size_bound + size > self.most_pack):
                        if writers:
                            writers[-1].end()
                        writers.append(PackWriter(repository.blobs, level=LEVEL, frame=MAX_SHARED_FRAME, threads=1))
                    for key, place in frame:
                        writers[-1].add(key, contents.pop(key), place.kind)
                    writers[-1].end_frame()
            for writer in writers:
                writer.sync()
        except BaseException:
            for writer in writers:
                writer.abort()
            raise
        step("compact:copied")
        moved = [entry for writer in writers for entry in writer.entries()]
        return writers, moved

    def _read(self, frames: list[list[tuple[bytes, Location]]]) -> dict[bytes, bytes]:
        """Return the checked contents of these new frames. Each old frame is decompressed once."""
        entries_by_frame: dict[tuple[str, int], list[tuple[bytes, Location]]] = {}
        for frame in frames:
            for key, place in frame:
                entries_by_frame.setdefault((place.pack, place.frame), []).append((key, place))
        contents: dict[bytes, bytes] = {}
        for slot in sorted(entries_by_frame):
            try:
                most = max([place.offset + place.length for _, place in entries_by_frame[slot]])
                unpacked = self.repository.contents.frame(entries_by_frame[slot][0][1], most, keep=False)
                for key, place in entries_by_frame[slot]:
                    data = unpacked[place.offset : place.offset + place.length]
                    if len(data) != place.length or (place.kind != CHUNKS and digest(data) != key):
                        raise Damaged("digest")
                    contents[key] = data
            except (Damaged, FileNotFoundError):
                raise _DamagedPack(slot[0]) from None
        return contents

    def _swap(self, chosen: set[str], writers: list[PackWriter], moved: list[tuple[bytes, Location]]) -> bool:
        repository, before = self.repository, None
        # A pack is named after its index: a new pack equal to an old one has its name, and stays.
        old_packs = sorted(chosen - {writer.name for writer in writers})
        try:
            with repository.ledger.transaction() as tx:
                if not self._is_still_unneeded(chosen):
                    for writer in writers:
                        writer.abort()
                    return False
                for writer in writers:
                    tx.add_pack(writer.name, writer.size, ())
                    writer.finish()
                tx.drop_packs(old_packs, moved)
                before = append_store_record(
                    repository,
                    tx,
                    {"r": "compact", "new": [writer.name for writer in writers], "gone": old_packs},
                )
        except BaseException:
            if before is not None:
                settle_after_failure(repository)
            for writer in writers:
                writer.abort()
            repository.discard_packs([writer.name for writer in writers if writer.name not in chosen])
            raise
        step("compact:swapped")
        repository.contents.forget_frames()
        for name in old_packs:
            repository.blobs.delete(name)
            step("compact:removed")
        return True

    def _is_still_unneeded(self, chosen: set[str]) -> bool:
        """Return whether no checkpoint saved since the marking uses content that would be removed."""
        repository = self.repository
        if repository.sequence() == self.seq:
            return True
        needed: set[bytes] = set()
        for workspace in repository.ledger.workspaces():
            for row in repository.ledger.find(Query(workspace=workspace.id, forgotten=True)):
                if row.seq <= self.seq:
                    break
                needed.add(row.document)
                header, entries = repository.document(row)
                needed.update([entry.content for entry in entries if entry.kind == FILE])
                needed.update(attachment_ids(header))
        needed = contents_of(repository, needed) - self.living
        return not any(place.pack in chosen for place in repository.ledger.locate(list(needed)).values())


class PackUsage:
    """One pack: the bytes of its contents, and those that nothing needs (`dead`)."""

    __slots__ = ("dead", "name", "size", "total")

    def __init__(self, pack: PackRow) -> None:
        self.name, self.size = pack.name, pack.size
        self.total = self.dead = 0

    @property
    def share(self) -> float:
        return self.dead / self.total if self.total else 1.0

    @property
    def unneeded(self) -> int:
        """Return about how many compressed bytes of the pack are not needed."""
        return int(self.size * self.share)

    @property
    def needed(self) -> int:
        return self.size - self.unneeded


class _DamagedPack(Exception):
    def __init__(self, name: str) -> None:
        self.name = name
