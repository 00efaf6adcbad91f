"""Repair a store: damaged parts are replaced from other copies, files on disk, the ledger, or the logs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from os import link, rename, urandom

from keepfast.fsutil.durable import Lock, explain, make_folder, replace
from keepfast.model.errors import Damaged, KeepfastError, NoWorkspace
from keepfast.model.steps import step
from keepfast.store.factory import CONTENT_FOLDERS, RECREATABLE_FOLDERS, recreate_folders, write_format_file
from keepfast.store.keyframes import write_keyframe
from keepfast.store.local import LocalRecords
from keepfast.store.maintenance.findings import Problem, Report
from keepfast.store.maintenance.rebuild import put_back_logs, replace_ledger, set_aside
from keepfast.store.maintenance.salvage import (
    RecoveredBlobs,
    find_on_disk,
    header_from_ledger,
    index_of,
    log_from_ledger,
)
from keepfast.store.maintenance.verify import verify_locked
from keepfast.store.packs import PackWriter
from keepfast.store.place import Place
from keepfast.store.records import STORE_LOG, Chain
from keepfast.store.repository import Repository
from keepfast.store.reserve import try_ensure_reserve
from keepfast.store.rows import CheckpointRow
from keepfast.store.search import remove as remove_search
from keepfast.store.store_log import append_store_record, settle_after_failure

Progress = Callable[[int, int], None]

ROUNDS = 8
"""One kind of damage is repaired per round, then everything is verified again."""


class RepairResult:
    """What was repaired, as texts, and the problems that remain."""

    def __init__(self) -> None:
        self.healed: list[str] = []
        self.lost: list[Problem] = []


def repair(place: Place, *, progress: Progress | None = None) -> RepairResult:
    """Repair what can be repaired, and report the rest. Damaged files are moved to `damaged/`, never deleted."""
    healing = _Repairer(place, progress)
    try:
        recreate_folders(place.path, RECREATABLE_FOLDERS)
        healing.repair_format_file()
        with Lock(place.path + "/compact.lock"):
            return healing.run()
    except OSError as error:
        raise explain(error, "Repairing the store", place.path) from None


class _Repairer:
    def __init__(self, place: Place, progress: Progress | None) -> None:
        self.place, self.progress = place, progress
        self.result = RepairResult()
        self.tried: set[str] = set()

    def repair_format_file(self) -> None:
        """Rewrite the format file if it is damaged, or missing in a folder that is a store otherwise."""
        try:
            self.place.id()
        except (Damaged, NoWorkspace) as error:
            if isinstance(error, NoWorkspace) and not LocalRecords(self.place.path).logs():
                raise
            write_format_file(self.place.path, self.place.expected or urandom(16).hex())
            self._healed("Rewrote the store's format file.")

    def run(self) -> RepairResult:
        for name in recreate_folders(self.place.path, CONTENT_FOLDERS):
            self._healed(f"The folder {name} was missing and was recreated empty; its contents are lost.")
        with Lock(self.place.path + "/lock"):
            self.result.healed += put_back_logs(self.place)
        for rounds in range(ROUNDS, -1, -1):
            repository = self.place.open()
            try:
                report = verify_locked(repository, self.place.path, progress=self.progress)
                if not rounds or not self._heal(repository, report):
                    break
            finally:
                repository.close()
        try_ensure_reserve(self.place.path)
        self.result.lost = report.problems
        return self.result

    def _heal(self, repository: Repository, report: Report) -> bool:
        """Repair one kind of damage, first the kind that other repairs depend on. False if there is nothing left to try."""
        rebuild = partial(self._rebuild, report)
        if report.ledger_unreadable:
            # The ledger is rebuilt from the indexes of packs, so each pack must have one.
            salvage = partial(self._salvage_packs, repository, set(report.unreadable))
            if report.unreadable and self._try_once(f"indexes {sorted(report.unreadable)}", salvage):
                return True
            self._rescue_from_ledger(repository, report)
            return self._try_once("the ledger that cannot be read", rebuild)
        for log in sorted(report.damaged_logs):
            if self._try_once(f"log {log}", partial(self._rewrite_log, repository, log)):
                return True
        for workspace, versions in report.lost.items():
            if self._try_once(
                f"documents {workspace} {versions}", partial(self._rewrite_documents, repository, workspace, versions)
            ):
                return True
        packs = report.damaged_packs() | report.missing
        if packs or report.lost_contents:
            what = f"packs {sorted(packs)} {sorted(report.lost_contents)}"
            if self._try_once(what, partial(self._replace_packs, repository, report, packs)):
                return True
        if report.seal_wrong and self._try_once("the sealed keys", partial(self._restore_seal_file, repository)):
            return True
        if report.search_wrong:
            return self._try_once("the index for searching", self._remove_search_index)
        return report.ledger_wrong and self._try_once("the ledger that is wrong", rebuild)

    def _try_once(self, what: str, heal: Callable[[], bool]) -> bool:
        """Try a repair unless it was tried before."""
        if what in self.tried:
            return False
        self.tried.add(what)
        return heal()

    def _healed(self, words: str) -> bool:
        self.result.healed.append(words)
        return True

    def _rebuild(self, report: Report) -> bool:
        aside = self.place.path + "/damaged"
        make_folder(aside)
        try:
            link(self.place.path + "/ledger.db", f"{aside}/ledger-{urandom(4).hex()}.db")
        except OSError:
            pass  # there is none, or the file system has no links: the packs and logs hold everything
        result = replace_ledger(
            self.place, frozenset(report.bad_copies), self.progress, by_documents=report.ledger_unreadable
        )
        step("repair:rebuilt")
        self.result.healed += result.notices
        return self._healed(
            f"The ledger was rebuilt: {result.checkpoints} checkpoints of {result.workspaces} workspaces."
        )

    def _remove_search_index(self) -> bool:
        remove_search(self.place.path)
        return self._healed("Removed the search index; the next search recreates it.")

    # Logs, from the ledger

    def _rescue_from_ledger(self, repository: Repository, report: Report) -> None:
        """Save from a damaged ledger, before it is rebuilt, what only it has: log lines, and states without a document."""
        for log in sorted(report.damaged_logs - {STORE_LOG}):
            try:
                row = repository.ledger.workspace(log)
                if row is not None:
                    self._replace_log(repository, log, log_from_ledger(repository, row)[0])
            except KeepfastError:
                continue  # the ledger is too damaged
        for workspace, versions in report.lost.items():
            try:
                self._rewrite_documents(repository, workspace, versions)
            except KeepfastError:
                continue  # the ledger is too damaged, or the log cannot be written

    def _replace_log(self, repository: Repository, log: str, data: bytes) -> None:
        set_aside(self.place, f"{log}.log", repository.records.read(log))
        replace(f"{self.place.path}/log/{log}.log", data, self.place.durable, growing=self.place.path + "/tmp")
        step("repair:log")
        self._healed(f"Rewrote the log {log}.")

    def _rewrite_log(self, repository: Repository, log: str) -> bool:
        with repository.ledger.transaction() as tx:
            if log == STORE_LOG:
                chain = Chain(repository.records.read(log))
                data = repository.records.read(log)[: chain.size]
                tx.set_meta("store_log", f"{chain.size} {chain.head.hex()}")
            else:
                row = repository.ledger.workspace(log)
                if row is None:
                    return False
                data, head = log_from_ledger(repository, row)
                tx.update_workspace(row._replace(log_size=len(data), log_head=head))
            self._replace_log(repository, log, data)
        return True

    # Documents, from the ledger

    def _rewrite_documents(self, repository: Repository, workspace: str, versions: list[int]) -> bool:
        """Write keyframes of versions whose documents are lost and whose states the ledger has."""
        before, healed = -1, False
        for version in sorted(versions):
            # The first version after a gap always needs a keyframe; the next ones only if their own document is lost.
            first, before = version != before + 1, version
            row = repository.ledger.checkpoint(workspace, version)
            readable = row is not None and _is_readable(repository, row)
            if row is None or (readable and not first):
                continue
            try:
                write_keyframe(repository, row, header_from_ledger(repository, row), instead=not readable)
            except KeepfastError:
                before = -1  # it stays lost, so the next one needs its own
                continue
            healed = self._healed(f"Rewrote the document of v{version} from the ledger.")
        return healed

    def _restore_seal_file(self, repository: Repository) -> bool:
        return repository.contents.sealer().keys.restore_seal_file() and self._healed(
            "Restored the sealed keys from their copy."
        )

    # Packs, from other copies and from the disk

    def _replace_packs(self, repository: Repository, report: Report, packs: set[str]) -> bool:
        """Write good and recovered contents into a new pack, and move damaged packs aside."""
        places = {key: place for key, place in repository.ledger.locations() if place.pack in packs}
        writer = PackWriter(repository.blobs, level=3)
        recovered = RecoveredBlobs(repository, writer)
        try:
            for key, place in places.items():
                if (place.pack, key) not in report.bad_copies:
                    recovered.copy(key, place)
            missing = (places.keys() | report.lost_contents) - recovered.keys
            for name in repository.blobs.names() if missing else ():
                for key, place in index_of(repository, name):
                    if (
                        key in missing
                        and (name, key) not in report.bad_copies
                        and recovered.copy(key, place, doubtful=True)
                    ):
                        missing.discard(key)
            copied = len(recovered.keys)
            for key, data, kind in find_on_disk(repository, missing):
                recovered.add(key, data, kind)
            if not packs and not recovered.keys:
                return False
            writer.sync()
            self._keep_twin(writer.name)
            self._swap(repository, sorted(packs - {writer.name}), writer)
        finally:
            writer.abort()  # nothing, once it has its name
        if len(recovered.keys) > copied:
            self._healed(f"{len(recovered.keys) - copied} contents were recovered from files on disk.")
        if packs:
            what = "1 damaged pack was" if len(packs) == 1 else f"{len(packs)} damaged packs were"
            self._healed(f"{what} replaced and moved to {self.place.path}/damaged.")
        return True

    def _salvage_packs(self, repository: Repository, packs: set[str]) -> bool:
        """Write readable contents of packs without a usable index into a new pack, using the old ledger's locations."""
        places = [entry for name in sorted(packs) for entry in index_of(repository, name, strict=False)]
        try:
            places += [entry for entry in repository.ledger.locations() if entry[1].pack in packs]
        except KeepfastError:
            pass  # the ledger is too damaged
        writer = PackWriter(repository.blobs, level=3)
        recovered = RecoveredBlobs(repository, writer)
        try:
            for key, place in places:
                recovered.copy(key, place)
            if recovered.keys:
                writer.sync()
                self._keep_twin(writer.name)
                writer.finish()
        finally:
            writer.abort()
        self._put_aside([name for name in packs if name != writer.name])
        return self._healed(f"{len(recovered.keys)} contents were recovered from {len(packs)} packs without an index.")

    def _keep_twin(self, name: str) -> None:
        """Keep a copy of a damaged pack whose name the new pack will get, as packs are named after their index."""
        make_folder(self.place.path + "/damaged")
        try:
            link(f"{self.place.path}/packs/{name}.pack", f"{self.place.path}/damaged/{name}.pack")
        except OSError:
            pass  # there is none, or it was copied before

    def _put_aside(self, packs: list[str]) -> None:
        make_folder(self.place.path + "/damaged")
        for name in packs:
            rename(f"{self.place.path}/packs/{name}.pack", f"{self.place.path}/damaged/{name}.pack")

    def _swap(self, repository: Repository, packs: list[str], writer: PackWriter) -> None:
        before: int | None = None
        # If the transaction fails, its record is cut off again, provided that all packs it names still exist.
        removed_packs = [name for name in packs if name in repository.blobs.names()]
        try:
            with repository.ledger.transaction() as tx:
                tx.add_pack(writer.name, writer.size, writer.entries())
                writer.finish()
                tx.drop_packs(packs, writer.entries())
                record = {"r": "compact", "new": [writer.name], "gone": removed_packs}
                before = append_store_record(repository, tx, record)
        except BaseException:
            if before is not None:
                settle_after_failure(repository)
            raise
        step("repair:swapped")
        repository.contents.forget_frames()
        self._put_aside(removed_packs)


def _is_readable(repository: Repository, row: CheckpointRow) -> bool:
    try:
        repository.document(row)
    except KeepfastError:
        return False
    return True
