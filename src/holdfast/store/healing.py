"""Healing: a damaged part is made again from another copy, from the files on disk, from the ledger, or from the logs."""

from __future__ import annotations

from posix import link, rename, urandom

from holdfast.core import document
from holdfast.core.entry import FILE
from holdfast.core.errors import Damaged, HoldfastError
from holdfast.core.steps import step
from holdfast.store.check import Problem, Report, rebuild, verify
from holdfast.store.digest import ZERO, digest
from holdfast.store.local import explain, make_folder, replace
from holdfast.store.open import describe, make_reserve
from holdfast.store.packs import PackWriter, read_index
from holdfast.store.place import Place
from holdfast.store.records import Chain, line
from holdfast.store.repository import CHUNK_AVERAGE, CHUNK_MAX, CHUNK_MIN, Repository
from holdfast.store.rows import CHUNKS, DOCUMENT, Location, Query
from holdfast.store.upkeep import STORE_LOG, append_store_record, contents_of, needed_documents, write_keyframe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.store.rows import CheckpointRow, WorkspaceRow

    Progress = Callable[[int, int], None]

LARGE = 4 << 20


class Repaired:
    """What was healed, and what is still wrong."""

    def __init__(self) -> None:
        self.healed: list[str] = []
        self.lost: list[Problem] = []


def repair(place: Place, *, progress: Progress | None = None) -> Repaired:
    """Heal what can be healed; name what cannot. Nothing damaged is thrown away: it is moved to `damaged/`."""
    try:
        return _Healing(place, progress).run()
    except OSError as error:
        raise explain(error, "Repairing the store", place.path) from None


class _Healing:
    def __init__(self, place: Place, progress: Progress | None) -> None:
        self.place, self.progress = place, progress
        self.result = Repaired()

    def run(self) -> Repaired:
        self._format()
        repository, report = self._look()
        if report.damaged_logs and not report.ledger_wrong:
            for log in sorted(report.damaged_logs):
                self._rewrite_log(repository, log)
            repository, report = self._again(repository)
        if report.lost and not report.ledger_wrong:
            for workspace, versions in report.lost.items():
                self._documents(repository, workspace, versions)
            repository, report = self._again(repository)
        if report.damaged_packs or report.damaged:
            self._packs(repository, report)
            repository, report = self._again(repository)
        if report.ledger_wrong:
            self._rebuild(repository)
            repository, report = self._again(repository)
        make_reserve(self.place.path)
        self.result.lost = report.problems
        repository.close()
        return self.result

    def _look(self) -> tuple[Repository, Report]:
        repository = self.place.open()
        try:
            repository.ledger.workspaces()
        except Damaged:
            repository.close()
            self._rebuild(repository)
            repository = self.place.open()
        return repository, verify(repository, self.place.path, progress=self.progress)

    def _again(self, repository: Repository) -> tuple[Repository, Report]:
        repository.close()
        return self._look()

    def _format(self) -> None:
        try:
            self.place.id()
        except Damaged:
            describe(self.place.path, urandom(16).hex())
            self.result.healed.append("The store's format file was written again.")

    def _rebuild(self, repository: Repository) -> None:
        repository.close()
        aside = self.place.path + "/damaged"
        make_folder(aside)
        try:
            link(self.place.path + "/ledger.db", f"{aside}/ledger-{urandom(4).hex()}.db")
        except OSError:
            pass  # there is none, or the file system has no links: the packs and logs hold everything
        result = rebuild(self.place, progress=self.progress)
        step("repair:rebuilt")
        self.result.healed.append(
            f"The ledger was rebuilt: {result.checkpoints} checkpoints of {result.workspaces} workspaces."
        )

    # Logs, from the ledger

    def _rewrite_log(self, repository: Repository, log: str) -> None:
        if log == STORE_LOG:
            with repository.ledger.transaction() as tx:
                chain = Chain(repository.records.read(log))
                repository.records.truncate(log, chain.size)
                tx.set_meta("store_log", f"{chain.size} {chain.head.hex()}")
            self.result.healed.append("The store's own log was cut back to its last good line.")
            return
        with repository.ledger.transaction() as tx:
            row = repository.ledger.workspace(log)
            if row is None:
                return
            head, lines = ZERO, []
            for record in self._records(repository, row):
                text, head = line(head, record)
                lines.append(text)
            data = b"".join(lines)
            tx.update_workspace(row._replace(log_size=len(data), log_head=head))
            replace(f"{self.place.path}/log/{log}.log", data)
        step("repair:log")
        self.result.healed.append(
            f"The log of {row.path.decode('utf-8', 'backslashreplace')} was written again from the ledger."
        )

    def _records(self, repository: Repository, row: WorkspaceRow) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = [
            {"r": "workspace", "id": row.id, "path": row.path.decode("utf-8", "surrogateescape"), "at": row.created_at}
        ]
        if row.parent:
            records[0]["parent"] = row.parent
        found = repository.ledger.find(Query(workspace=row.id, forgotten=True))[::-1]
        places = repository.ledger.locate([checkpoint.document for checkpoint in found])
        later: list[dict[str, Any]] = []
        for checkpoint in found:
            place = places.get(checkpoint.document)
            records.append(
                {
                    "r": "checkpoint", "v": checkpoint.version, "id": checkpoint.id, "doc": checkpoint.document.hex(),
                    "packs": [place.pack] if place else [], "at": checkpoint.created_at, "seq": checkpoint.seq,
                    "size": checkpoint.added,
                }
            )  # fmt: skip
            later.append({"r": "pin" if checkpoint.pinned else "unpin", "v": checkpoint.version})
            later.append({"r": "name", "v": checkpoint.version, "name": checkpoint.name or None})
        forgotten = [checkpoint.version for checkpoint in found if checkpoint.forgotten]
        if forgotten:
            later.append({"r": "forget", "v": forgotten, "why": "repair"})
        return records + self._keyframes(repository, found, row.keyframe) + later

    def _keyframes(self, repository: Repository, found: list[CheckpointRow], since: int) -> list[dict[str, Any]]:
        """Keyframes are found again by what their own headers say."""
        versions = {checkpoint.id: checkpoint.version for checkpoint in found}
        own = {checkpoint.document for checkpoint in found}
        result = []
        for key, place in repository.ledger.locations():
            if place.kind != DOCUMENT or key in own:
                continue
            try:
                header = document.header(repository.load(key))
            except HoldfastError:
                continue
            version = versions.get(header.get("id", ""), 0)
            if header.get("keyframe") and version >= since:
                result.append({"r": "keyframe", "v": version, "doc": key.hex(), "pack": place.pack})
        return sorted(result, key=lambda record: record["v"])

    # Documents, from the ledger

    def _documents(self, repository: Repository, workspace: str, versions: list[int]) -> None:
        """The ledger still knows the state of a version whose document is lost: write it as a keyframe."""
        before = -1
        for version in sorted(versions):
            # Behind a gap the first version needs a keyframe in any case; the next ones only if their own is lost.
            first, before = version != before + 1, version
            row = repository.ledger.checkpoint(workspace, version)
            if row is None or row.forgotten or (not first and self._readable(repository, row)):
                continue
            try:
                write_keyframe(repository, workspace, version, self._header(repository, row))
            except HoldfastError:
                continue
            self.result.healed.append(f"The document of v{version} was written again from the ledger.")

    def _readable(self, repository: Repository, row: CheckpointRow) -> bool:
        try:
            repository.document(row)
        except HoldfastError:
            return False
        return True

    def _header(self, repository: Repository, row: CheckpointRow) -> dict[str, Any]:
        counts: dict[str, int] = {}
        for entry in repository.ledger.state(row.workspace, row.version):
            counts[entry.kind] = counts.get(entry.kind, 0) + 1
            if entry.kind == FILE:
                counts["bytes"] = counts.get("bytes", 0) + entry.size
        return {
            "v": 1, "workspace": row.workspace, "parent": None, "id": row.id, "created_at": row.created_at,
            "event_at": row.created_at, "scan_started": row.created_at, "scan_ended": row.created_at,
            "trigger": row.trigger, "created_by": row.created_by, "message": row.message, "name": row.name or None,
            "tags": row.tags.split("\n") if row.tags else [], "pinned": bool(row.pinned), "session": row.session or None,
            "task": row.task or None, "cwd": "", "git": None, "notices": ["Written again by repair."], "counts": counts,
            "tree": row.tree, "tool": "repair",
        }  # fmt: skip

    # Packs, from other copies and from the disk

    def _packs(self, repository: Repository, report: Report) -> None:
        """Write what is good or can be found again into a new pack, and put the damaged ones aside."""
        wanted = contents_of_readable(repository)
        inside = [
            (key, place)
            for key, place in repository.ledger.locations()
            if place.pack in report.damaged_packs and key in wanted
        ]
        writer = PackWriter(repository.blobs, level=3)
        found: list[bytes] = []
        missing: dict[bytes, Location] = {}
        try:
            for key, place in inside:
                data = self._good_copy(repository, key, place)
                if data is None:
                    missing[key] = place
                else:
                    writer.add(key, data, place.kind)
            absent = {key for key in wanted | report.damaged if key not in repository.ledger.locate([key])}
            for key, data, kind in self._from_disk(repository, missing.keys() | (report.damaged & wanted) | absent):
                if key not in writer.digests:
                    writer.add(key, data, kind)
                    found.append(key)
            writer.sync()
            self._swap(repository, sorted(report.damaged_packs), writer)
        except BaseException:
            writer.abort()
            raise
        if found:
            self.result.healed.append(f"{len(found)} contents were found again on disk.")
        self.result.healed.append(
            f"{len(report.damaged_packs)} damaged packs were replaced and moved to {self.place.path}/damaged."
        )

    def _good_copy(self, repository: Repository, key: bytes, place: Location) -> bytes | None:
        candidates = [place]
        for name in repository.blobs.names():
            if name == place.pack:
                continue
            try:
                candidates += [other for other_key, other in read_index(repository.blobs, name)[1] if other_key == key]
            except (HoldfastError, FileNotFoundError):
                continue
            if len(candidates) > 1:
                break
        for candidate in candidates:
            try:
                data = repository.fetch(candidate)
            except (HoldfastError, OSError):
                continue
            if candidate.kind == CHUNKS or digest(data) == key:
                return data
        return None

    def _from_disk(self, repository: Repository, keys: set[bytes]) -> list[tuple[bytes, bytes, int]]:
        """Look for these contents among the files of the workspaces, whole or as chunks of large files."""
        if not keys:
            return []
        result: list[tuple[bytes, bytes, int]] = []
        open_keys = set(keys)
        for workspace in repository.ledger.workspaces():
            for _, until, row in repository.ledger.intervals(workspace.id):
                if row.kind != FILE or (row.content not in open_keys and (row.size <= LARGE or until is not None)):
                    continue
                try:
                    with open(workspace.path + b"/" + row.path, "rb") as file:
                        data = file.read()
                except OSError:
                    continue
                for key, part, kind in _pieces(data):
                    if key in open_keys:
                        open_keys.discard(key)
                        result.append((key, part, kind))
        return result

    def _swap(self, repository: Repository, damaged: list[str], writer: PackWriter) -> None:
        before: int | None = None
        try:
            with repository.ledger.transaction() as tx:
                tx.add_pack(writer.name, writer.size, writer.entries())
                writer.finish()
                tx.drop_packs(damaged, writer.entries())
                record = {"r": "compact", "new": [writer.name], "gone": damaged}
                before = append_store_record(repository, tx, record)
        except BaseException:
            if before is not None:
                repository.records.truncate(STORE_LOG, before)
            raise
        step("repair:swapped")
        repository.forget_frames()
        make_folder(self.place.path + "/damaged")
        for name in damaged:
            try:
                rename(f"{self.place.path}/packs/{name}.pack", f"{self.place.path}/damaged/{name}.pack")
            except FileNotFoundError:
                pass


def contents_of_readable(repository: Repository) -> set[bytes]:
    """Everything that checkpoints refer to, as far as chunk lists can be read."""
    result = repository.ledger.wanted()
    for workspace in repository.ledger.workspaces():
        result |= needed_documents(repository, workspace)
    for key in list(result):
        try:
            result |= contents_of(repository, [key])
        except HoldfastError:
            continue
    return result


def _pieces(data: bytes) -> list[tuple[bytes, bytes, int]]:
    """The blobs that saving this content would make."""
    whole = digest(data)
    if len(data) <= LARGE:
        return [(whole, data, 0)]
    from pyfastcdc import FastCDC

    cutter = FastCDC(avg_size=CHUNK_AVERAGE, min_size=CHUNK_MIN, max_size=CHUNK_MAX, normalized_chunking=1)
    pieces = [(digest(part), part, 0) for part in [bytes(chunk.data) for chunk in cutter.cut_buf(data)]]
    return [*pieces, (whole, b"".join([key for key, _, _ in pieces]), CHUNKS)]
