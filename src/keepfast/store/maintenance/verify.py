"""Verify a store: read everything, and compare packs, logs and ledger with one another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from errno import EROFS
from os import urandom
from tempfile import TemporaryDirectory

from blake3 import blake3

from keepfast.fsutil.durable import FULL, Lock, explain
from keepfast.model.errors import Damaged, DiskFull, KeepfastError
from keepfast.store.digest import digest
from keepfast.store.ledger.sqlite import SqliteLedger
from keepfast.store.maintenance.comparison import compare
from keepfast.store.maintenance.findings import Problem, Report, label
from keepfast.store.maintenance.rebuild import fill_ledger, rebuild, remove_ledger
from keepfast.store.packs import decompress, read_index
from keepfast.store.ports import Records
from keepfast.store.records import STORE_LOG
from keepfast.store.repository import Repository
from keepfast.store.rows import CHUNKS, Location
from keepfast.store.search import is_damaged
from keepfast.store.store_log import settle_after_failure

Progress = Callable[[int, int], None]

__all__ = ["Problem", "Report", "adds_up", "label", "rebuild", "verify", "verify_locked"]


def verify(repository: Repository, folder: str, *, quick: bool = False, progress: Progress | None = None) -> Report:
    """Verify the store and return a report. `quick` checks structure only, not contents."""
    try:
        # Compaction would remove packs and scratch files under us; saves may go on.
        with Lock(folder + "/compact.lock"):
            return verify_locked(repository, folder, quick=quick, progress=progress)
    except OSError as error:
        if error.errno != EROFS:
            raise explain(error, "Verifying", folder) from None
    # Read-only: nobody can write, so no lock is needed, and scratch files are put elsewhere.
    with TemporaryDirectory(prefix="keepfast-") as elsewhere:
        report = _verify(repository, folder, elsewhere + "/verify", quick, progress, is_read_only=True)
    report.is_read_only = True
    return report


def verify_locked(
    repository: Repository, folder: str, *, quick: bool = False, progress: Progress | None = None
) -> Report:
    """Verify for a caller who holds `compact.lock`."""
    try:
        return _verify(repository, folder, f"{folder}/tmp/verify-{urandom(6).hex()}", quick, progress)
    except (DiskFull, OSError) as error:
        if not isinstance(error, DiskFull) and error.errno not in FULL:
            raise
    # The store's disk is full: put the scratch files elsewhere.
    with TemporaryDirectory(prefix="keepfast-") as elsewhere:
        return _verify(repository, folder, elsewhere + "/verify", quick, progress)


def _verify(
    repository: Repository,
    folder: str,
    scratch: str,
    quick: bool,
    progress: Progress | None,
    is_read_only: bool = False,
) -> Report:
    try:
        return _Verifier(repository, folder, scratch, quick, progress, is_read_only).run()
    finally:
        for ledger in (scratch, scratch + "-copy"):
            remove_ledger(ledger)


class _Verifier:
    def __init__(
        self,
        repository: Repository,
        folder: str,
        temporary: str,
        quick: bool,
        progress: Progress | None,
        is_read_only: bool,
    ) -> None:
        self.repository, self.folder, self.quick, self.progress = repository, folder, quick, progress
        self.is_read_only = is_read_only
        self.report = Report()
        self.lists: list[tuple[bytes, Location]] = []
        self.unreadable: KeepfastError | None = None
        self.actual = SqliteLedger(temporary + "-copy", temporary + "-copy-lock", durable=False)
        self.expected = SqliteLedger(temporary, temporary + "-lock", durable=False, create=True)

    def run(self) -> Report:
        try:
            self._replay_logs()
            packs, records = self._snapshot()
            scratch = Repository(self.repository.id, self.repository.blobs, records, self.expected)
            self._check_packs(packs)
            built = fill_ledger(scratch, frozenset(self.report.bad_copies))
            if not self.quick:
                self._check_chunk_lists(scratch)
            compare(self.actual, self.unreadable, self.expected, scratch, built, set(packs), self.report)
            self._check_keys()
            if not self.quick and not self.report.problems:
                self._check_search_index()
            return self.report
        finally:
            self.actual.close()
            self.expected.close()

    def _replay_logs(self) -> None:
        """Replay records that a killed process had made durable but not committed, as any command would."""
        for log in self.repository.records.logs():
            if log != STORE_LOG:
                try:
                    self.repository.workspace(log)
                except KeepfastError:
                    pass  # the problem is found below, and reported with the affected checkpoints
        if not self.is_read_only:
            settle_after_failure(self.repository)

    def _snapshot(self) -> tuple[list[str], Records]:
        """Copy the ledger under the lock, with the packs and log sizes of that moment; saves go on afterwards."""
        repository = self.repository
        ledger = SqliteLedger(self.folder + "/ledger.db", self.folder + "/lock")
        with nullcontext() if self.is_read_only else Lock(self.folder + "/lock"):
            try:
                ledger.file.copy(self.actual.file.path)
            except DiskFull:
                raise
            except KeepfastError as error:
                self.unreadable = error
            finally:
                ledger.close()
            logs = {log: repository.records.size(log) for log in repository.records.logs()}
            return repository.blobs.names(), _LogsAtMoment(repository.records, logs)

    def _check_packs(self, names: list[str]) -> None:
        """Check every index and, unless quick, every blob."""
        blobs, sizes = self.repository.blobs, {}
        for name in names:
            try:
                sizes[name] = blobs.size(name)
            except FileNotFoundError:
                self.report.missing.add(name)
        total, done = sum(sizes.values()), 0
        for name, size in sizes.items():
            try:
                self._check_pack(name, done, total)
            except Damaged as error:
                self.report.unreadable[name] = str(error)
            done += size
        self.report.bytes = total

    def _check_pack(self, name: str, done: int, total: int) -> None:
        _, entries, frames = read_index(self.repository.blobs, name)
        self.report.blobs += len(entries)
        at = 0
        for offset, stored, raw, count in () if self.quick else frames:
            if self.progress is not None:
                self.progress(done + offset, total)
            part = entries[at : at + count]
            at += count
            try:
                data = decompress(self.repository.blobs.read(name, offset, stored), raw)
            except (Damaged, EOFError):
                data = b""
            for key, place in part:
                content = data[place.offset : place.offset + place.length]
                if len(content) != place.length or (place.kind != CHUNKS and digest(content) != key):
                    self.report.bad_copies.add((name, key))
                elif place.kind == CHUNKS:
                    self.lists.append((key, place))

    def _check_chunk_lists(self, scratch: Repository) -> None:
        """Assemble each chunk list once: its digest is that of the whole content."""
        good: set[bytes] = set()
        doubtful = []
        for key, place in self.lists:
            try:
                if adds_up(scratch, key, scratch.contents.fetch(place)):
                    good.add(key)
                else:
                    self.report.bad_copies.add((place.pack, key))
            except KeepfastError:
                doubtful.append((place.pack, key))  # a chunk is missing, or the list names one that never was
        self.report.bad_copies.update([copy for copy in doubtful if copy[1] in good])
        self.report.lost_contents.update([key for _, key in doubtful if key not in good])

    def _check_keys(self) -> None:
        """Check the store's seal file: without it, the key in the key file opens nothing."""
        problem = (
            self.repository.contents.sealer().keys.problem() if self.repository.contents.key_place is not None else ""
        )
        if problem:
            self.report.seal_wrong = True
            self.report.add_problem(problem)

    def _check_search_index(self) -> None:
        """Check the search index: it is disposable, but nobody would notice what it fails to find."""
        if is_damaged(self.repository, self.folder):
            self.report.search_wrong = True
            self.report.add_problem("The search index is damaged")


def adds_up(repository: Repository, key: bytes, chunks: bytes) -> bool:
    """Return whether the contents in this chunk list together have this digest. Raises `Damaged` if one is missing."""
    total = blake3()
    for at in range(0, len(chunks), 32):
        total.update(repository.contents.blob(chunks[at : at + 32])[0])
    return total.digest() == key


class _LogsAtMoment:
    """Logs as they were at one moment, without later lines; read-only."""

    def __init__(self, records: Records, sizes: dict[str, int]) -> None:
        self.records, self.sizes = records, sizes

    def read(self, log: str) -> bytes:
        return self.records.read(log)[: self.size(log)]

    def size(self, log: str) -> int:
        return self.sizes.get(log, 0)

    def logs(self) -> list[str]:
        return sorted(self.sizes)

    def append(self, log: str, lines: bytes) -> None:
        raise TypeError("this log is read-only")

    def truncate(self, log: str, size: int) -> None:
        raise TypeError("this log is read-only")

    def remove(self, log: str) -> None:
        raise TypeError("this log is read-only")
