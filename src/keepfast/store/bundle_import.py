"""Import checkpoints from a bundle: everything is checked first, then all of it is committed at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from keepfast.fsutil.durable import Lock, explain, make_folder
from keepfast.model import document
from keepfast.model.entry import FILE, Entry, gone
from keepfast.model.errors import Failed, NoWorkspace
from keepfast.model.retention import KEPT
from keepfast.model.steps import step
from keepfast.store.bundle import BundledVersion
from keepfast.store.bundle_check import CheckedBundle
from keepfast.store.digest import ZERO, digest
from keepfast.store.place import Place
from keepfast.store.ports import Transaction
from keepfast.store.records import Record
from keepfast.store.repository import Repository
from keepfast.store.rows import DOCUMENT, Query, WorkspaceRow
from keepfast.store.save import CheckpointWriter, SaveConflict

Progress = Callable[[int, int], None]

ATTEMPTS = 5
TRIGGER, TAG = "import", "imported from "


class ImportResult:
    """The imported checkpoints as (version in the bundle, version here, id here), and ids that were present already."""

    def __init__(self, workspace: str, is_new: bool) -> None:
        self.workspace, self.is_new = workspace, is_new
        self.versions: list[tuple[int, int, str]] = []
        self.skipped: list[str] = []


def import_bundle(
    repository: Repository,
    place: Place,
    checked: CheckedBundle,
    target: str,
    *,
    path: bytes,
    now: int,
    new_id: Callable[[], str],
    progress: Progress | None = None,
) -> ImportResult:
    """Import all checkpoints of a bundle into the workspace `target`, which is registered with `path` if it is unknown.

    All of them, or none. Raises `Damaged` if any content does not match its digest.
    """
    try:
        for _ in range(ATTEMPTS):
            try:
                return _Importer(repository, place, checked, target, path, now, new_id, progress).run()
            except SaveConflict:
                continue
        raise Failed("The store kept changing while the file was imported; nothing was changed.", "Try again.")
    except OSError as error:
        raise explain(error, "Importing", place.path) from None


class _Importer:
    """One attempt to import a bundle."""

    def __init__(
        self,
        repository: Repository,
        place: Place,
        checked: CheckedBundle,
        target: str,
        path: bytes,
        now: int,
        new_id: Callable[[], str],
        progress: Progress | None,
    ) -> None:
        self.repository, self.place, self.checked, self.bundle = repository, place, checked, checked.bundle
        self.target, self.path, self.now, self.new_id, self.progress = target, path, now, new_id, progress

    def run(self) -> ImportResult:
        row = self.repository.workspace(self.target)
        if row is None and self.target != self.bundle.workspace:
            raise NoWorkspace(f"The store does not know the workspace {self.target}.")
        self.repository.ensure_reserve()
        blank = WorkspaceRow(self.target, self.path, self.now, "", 0, b"", 0, ZERO, 0, "0" * 64, "{}")
        self.checkpoint_writer = CheckpointWriter(self.repository, row if row is not None else blank)
        try:
            self._copy_blobs()
            step("import:copied")
            folder = self.place.folder(self.target)
            make_folder(folder)
            with Lock(
                folder + "/lock", "this workspace"
            ):  # no save may come between the state we build on and our commit
                return self._add()
        except BaseException:
            self.checkpoint_writer.abort()
            raise

    def _copy_blobs(self) -> None:
        """Check every blob, also unneeded ones, and store those that are needed and not in the store yet."""
        checked, total = self.checked, len(self.bundle.entries)
        for number, (key, data, kind) in enumerate(self.bundle.all_blobs()):
            if kind != DOCUMENT and (key in checked.sizes or key in checked.chunks):
                self.checkpoint_writer.store_blob(key, data, kind)
            if self.progress is not None and not number & 63:
                self.progress(number, total)
        self.checkpoint_writer.store_waiting_blobs()

    def _add(self) -> ImportResult:
        repository = self.repository
        row = repository.workspace(self.target)
        is_new = row is None
        if row is not None:
            self.checkpoint_writer.row = row
            self.checkpoint_writer.whole = row.version == 0 or not row.tree
            self.checkpoint_writer._state = None
        row = self.checkpoint_writer.row
        result = ImportResult(self.target, is_new)
        new_versions = [bundled for bundled in self.bundle.versions if not self._is_present(bundled, is_new)]
        new_ids = {bundled.id for bundled in new_versions}
        result.skipped = [bundled.id for bundled in self.bundle.versions if bundled.id not in new_ids]
        if not new_versions:
            self.checkpoint_writer.abort()
            return result
        numbers = self._version_numbers(new_versions, is_new)
        records: list[Record] = []
        for header, key in self._write_documents(new_versions, numbers, is_new):
            number = header.version
            result.versions.append((new_versions[len(records)].version, number, header.id))
            records.append({"r": "checkpoint", "v": number, "id": header.id, "doc": key.hex(), "at": header.created_at})
        self._commit(records, is_new)
        return result

    def _is_present(self, bundled: BundledVersion, is_new: bool) -> bool:
        find = self.repository.ledger.find
        if is_new:  # it keeps its id, and no id is twice in a store
            return bool(find(Query(id_prefix=bundled.id, limit=1, forgotten=True)))
        if find(Query(workspace=self.target, id_prefix=bundled.id, limit=1)):
            return True
        return bool(find(Query(workspace=self.target, tag=TAG + bundled.id, limit=1)))

    def _version_numbers(self, new_versions: list[BundledVersion], is_new: bool) -> list[int]:
        versions = [bundled.version for bundled in new_versions]
        if is_new and versions == list(range(versions[0], versions[0] + len(versions))):
            return versions  # they keep their numbers
        first = self.checkpoint_writer.row.version + 1
        return list(range(first, first + len(versions)))

    def _write_documents(
        self, new_versions: list[BundledVersion], numbers: list[int], is_new: bool
    ) -> Iterator[tuple[document.Header, bytes]]:
        """Write documents for the new versions, each with its changes since the one before in this workspace."""
        checkpoint_writer, row = self.checkpoint_writer, self.checkpoint_writer.row
        state, whole = dict(checkpoint_writer.state()), checkpoint_writer.whole
        parent, left, number = row.document.hex() or None, set(new_versions), iter(numbers)
        touched, counts = set(state), _Counts(state.values())
        for bundled, header, rows, state_there in self.checked.versions():
            touched.update([entry.path for entry in rows])
            if bundled not in left:
                continue
            changed = []
            for path in sorted(touched):
                new, old = state_there.get(path), state.get(path)
                if new == old:
                    continue
                counts.change(old, new)
                changed.append(new if new is not None else gone(path))
                if new is not None:
                    state[path] = new
                else:
                    del state[path]
            touched.clear()
            header = header.with_members(
                **({} if is_new else self._members_of_import(bundled, header)),
                workspace=self.target, version=next(number), parent=parent, keyframe=whole, counts=counts.to_json(),
            )  # fmt: skip
            data = document.encode(header, changed)
            key = digest(data)
            checkpoint_writer.writer.add(key, data, DOCUMENT)
            parent, whole = key.hex(), False
            yield header, key

    def _members_of_import(self, bundled: BundledVersion, header: document.Header) -> dict[str, Any]:
        """Return the header members of a version that is imported into an existing workspace."""
        return {
            "id": self.new_id(),
            "created_at": self.now,
            "trigger": TRIGGER,
            "tags": [*header.tags, TAG + bundled.id],
            # A checkpoint that retention did not drop must not be dropped after an import.
            "pinned": header.pinned or header.trigger in KEPT,
            "origin": {
                "workspace": self.bundle.workspace, "folder": self.bundle.folder, "id": bundled.id, "version": bundled.version,
                "trigger": header.trigger, "created_at": header.created_at,
            },
        }  # fmt: skip

    def _commit(self, records: list[Record], is_new: bool) -> None:
        repository, checkpoint_writer, row = self.repository, self.checkpoint_writer, self.checkpoint_writer.row
        for writer in checkpoint_writer.writers:
            writer.sync()
        names = [writer.name for writer in checkpoint_writer.writers]

        def work(tx: Transaction, now: WorkspaceRow | None) -> list[Record]:
            ledger = repository.ledger
            if (now is None) != is_new or (now is not None and now.version != row.version):
                raise SaveConflict("The workspace got a newer version during the import.")
            relied = list(checkpoint_writer.reused)
            if len(ledger.locate(relied)) != len(relied):
                raise SaveConflict("Contents were removed by a compaction in the meantime.")
            for writer in checkpoint_writer.writers:
                tx.add_pack(writer.name, writer.size, writer.entries())
                writer.finish()
            seq = self.repository.sequence()
            for number, record in enumerate(records):
                size = 0 if number else sum(writer.size for writer in checkpoint_writer.writers)
                record.update({"packs": names, "seq": seq + 1 + number, "size": size})
            path = self.path.decode("utf-8", "surrogateescape")
            first = {"r": "workspace", "id": self.target, "path": path, "at": self.now}
            return [first, *records] if is_new else records

        try:
            repository.commit(self.target, work)
        except BaseException:
            repository.discard_packs(names, self.target)
            raise
        step("import:committed")


class _Counts:
    """Number of rows by kind, and bytes of files, of a state; updated with each change."""

    def __init__(self, rows: Iterable[Entry]) -> None:
        self._counts: dict[str, int] = {}
        for row in rows:
            self._add(row, 1)

    def change(self, old: Entry | None, new: Entry | None) -> None:
        for row, sign in ((old, -1), (new, 1)):
            if row is not None:
                self._add(row, sign)

    def to_json(self) -> dict[str, int]:
        return {
            name: count for name, count in self._counts.items() if count or (name == "bytes" and FILE in self._counts)
        }

    def _add(self, row: Entry, sign: int) -> None:
        self._counts[row.kind] = self._counts.get(row.kind, 0) + sign
        if row.kind == FILE:
            self._counts["bytes"] = self._counts.get("bytes", 0) + sign * row.size
