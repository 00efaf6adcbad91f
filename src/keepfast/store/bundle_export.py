"""Export checkpoints into a bundle: a chain of documents, and every content they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from blake3 import blake3

from keepfast.fsutil.durable import FULL, Lock
from keepfast.model import document
from keepfast.model.document import Header
from keepfast.model.entry import FILE, GONE, SEALED, UNREADABLE, Entry, gone
from keepfast.model.errors import Damaged, Failed, KeepfastError, NotFound
from keepfast.store.bundle_writer import BundleWriter, already_exists, exists
from keepfast.store.conversations import attachment_ids
from keepfast.store.digest import add, digest, weight
from keepfast.store.maintenance.salvage import header_from_ledger
from keepfast.store.place import Place
from keepfast.store.repository import Repository
from keepfast.store.rows import CHUNKS, DOCUMENT, LIST, CheckpointRow, WorkspaceRow

Progress = Callable[[int, int], None]


class LeftOut:
    """What was not exported because it is sealed: number of contents, their files, and number of conversations."""

    def __init__(self, contents: int, files: list[bytes], conversations: int) -> None:
        self.contents, self.files, self.conversations = contents, files, conversations


def export_bundle(
    repository: Repository,
    place: Place,
    workspace: WorkspaceRow,
    chosen: Sequence[CheckpointRow],
    path: str,
    *,
    tool: str,
    now: int,
    force: bool = False,
    progress: Progress | None = None,
    keys: dict[str, Any] | None = None,
) -> tuple[int, LeftOut]:
    """Write these checkpoints of one workspace into the file `path`; return its size, and what was left out.

    With `keys`, which are encrypted with a passphrase, sealed contents are exported too; without, they are left out. The
    file appears only when it is complete. Raises `Conflict` if it exists and `force` is not given.
    """
    if not force and exists(path):
        raise already_exists(path)
    guard = _without_compaction(place)
    try:
        writer = BundleWriter(path, place.durable)
        try:
            return _Exporter(repository, workspace, writer, progress, keys).run(chosen, tool, now, force)
        except BaseException:
            writer.abort()
            raise
    except OSError as error:
        if error.errno in FULL:
            raise Failed(f"The disk is full; {path} was not written.", "Write it to another disk.") from None
        raise Failed(f"{path} cannot be written: {error.strerror}.") from None
    finally:
        if guard is not None:
            guard.__exit__(None, None, None)


def _without_compaction(place: Place) -> Lock | None:
    """Lock out compaction during the export; None in a store that cannot be written, where nothing is compacted."""
    guard = Lock(place.path + "/compact.lock")
    try:
        return guard.__enter__()
    except OSError:
        return None


class _Exporter:
    def __init__(
        self,
        repository: Repository,
        workspace: WorkspaceRow,
        writer: BundleWriter,
        progress: Progress | None,
        keys: dict[str, Any] | None,
    ) -> None:
        self.repository, self.workspace, self.writer, self.progress = repository, workspace, writer, progress
        self.keys = keys
        self.exported_tree: int = 0
        """The tree sum over the rows as they are exported."""
        self.left_out: set[bytes] = set()
        self.left_files: set[bytes] = set()
        self.left_conversations: set[str] = set()
        self.state: dict[bytes, Entry] = {}
        self.saved_tree = 0
        self.written: set[bytes] = set()
        self.done = self.total = 0

    def run(self, chosen: Sequence[CheckpointRow], tool: str, now: int, force: bool) -> tuple[int, LeftOut]:
        chosen = sorted(chosen, key=lambda row: row.version)
        versions: list[dict[str, Any]] = []
        before: CheckpointRow | None = None
        for row in chosen:
            header, rows = self._next_version(before, row)
            self._add_contents({entry.content for entry in rows if entry.kind == FILE} | set(attachment_ids(header)))
            labels = {"name": row.name or None, "pinned": bool(row.pinned)}  # they may have been given later
            order = {"keyframe": before is None, "parent": versions[-1]["doc"] if versions else None}
            data = document.encode(header.with_members(**labels, **order, workspace=row.workspace), rows)
            key = digest(data)
            self.writer.pack.add(key, data, DOCUMENT)
            versions.append({"version": row.version, "id": row.id, "doc": key.hex(), "tree": header.tree})
            before = row
        workspace = self.workspace
        manifest: dict[str, Any] = {
            "v": 1,
            "workspace": workspace.id,
            "folder": workspace.path.rpartition(b"/")[2].decode("utf-8", "surrogateescape"),
            "created_at": now,
            "tool": tool,
            "versions": versions,
        }
        if self.keys is not None:
            manifest["keys"] = self.keys
        if self.left_out:
            manifest["left_out"] = len(self.left_out)
        left = LeftOut(len(self.left_out), sorted(self.left_files), len(self.left_conversations))
        return self.writer.finish(manifest, force), left

    def _next_version(self, before: CheckpointRow | None, row: CheckpointRow) -> tuple[Header, list[Entry]]:
        """Return the version's header and the rows that change since the state so far; update the state."""
        header = header_from_ledger(self.repository, row)
        rows = self._change_set(row) if before is not None and row.version == before.version + 1 else None
        if rows is None:
            new = {entry.path: entry for entry in self.repository.ledger.state(row.workspace, row.version)}
            rows = [entry for path, entry in new.items() if self.state.get(path) != entry]
            rows += [gone(path) for path in self.state if path not in new]
            rows.sort()
        for entry in rows:
            old = self.state.pop(entry.path, None)
            if old is not None:
                self.saved_tree = add(self.saved_tree, minus=weight(old))
                self.exported_tree = add(self.exported_tree, minus=weight(self._as_exported(old)))
            if entry.kind != GONE:
                self.state[entry.path] = entry
                self.saved_tree = add(self.saved_tree, plus=weight(entry))
                self.exported_tree = add(self.exported_tree, plus=weight(self._as_exported(entry)))
        if f"{self.saved_tree:064x}" != row.tree:
            now = self.repository.ledger.checkpoint(row.workspace, row.version)
            if now is None or now.forgotten:
                raise NotFound(f"v{row.version} was forgotten in the meantime.")
            raise Damaged(f"The stored state of v{row.version} is inconsistent; nothing was exported.")
        if self.keys is not None:
            return header.with_members(tree=row.tree), rows
        return self._header_without_sealed(header), [self._as_exported(entry) for entry in rows]

    def _as_exported(self, entry: Entry) -> Entry:
        """Return the row as it is exported: a sealed file that is left out becomes an unreadable one."""
        if self.keys is not None or not entry.flags & SEALED or entry.kind != FILE:
            return entry
        self.left_out.add(entry.content)
        self.left_files.add(entry.path)
        return entry._replace(kind=UNREADABLE, content=b"", group=0)

    def _header_without_sealed(self, header: Header) -> Header:
        counts = dict(header.counts)
        sealed = [entry for entry in self.state.values() if self._as_exported(entry) is not entry]
        if sealed:
            counts[FILE] = counts.get(FILE, 0) - len(sealed)
            counts["bytes"] = counts.get("bytes", 0) - sum(entry.size for entry in sealed)
            counts[UNREADABLE] = counts.get(UNREADABLE, 0) + len(sealed)
            counts = {kind: number for kind, number in counts.items() if number}
        header = header.with_members(counts=counts, tree=f"{self.exported_tree:064x}")
        if header.conversation:
            self.left_out.update(attachment_ids(header))
            self.left_conversations.add(str(header.conversation.get("session") or header.id))
            return header.with_members(conversation={"left_out": True})
        return header

    def _change_set(self, row: CheckpointRow) -> list[Entry] | None:
        try:
            header, rows = self.repository.document(row)
        except KeepfastError:
            return None  # the ledger has the state too
        return None if header.keyframe else rows

    def _add_contents(self, needed: set[bytes]) -> None:
        keys = list(needed - self.written)
        places = self.repository.ledger.locate(keys)
        self.total += len(keys)
        # In the order in which they lie in the packs, so that each frame is unpacked once.
        for key in sorted(keys, key=lambda key: places[key][:4] if key in places else ("", 0, 0, 0)):
            data, kind = self.repository.contents.blob(key)
            if kind == CHUNKS:
                self._add_chunks(key, data)
            elif kind == LIST:
                self._add_contents({data[at : at + 32] for at in range(0, len(data), 32)})
            self._add_blob(key, data, kind)
            self.done += 1
            if self.progress is not None and not self.done & 63:
                self.progress(self.done, self.total)

    def _add_chunks(self, key: bytes, chunks: bytes) -> None:
        total = blake3()
        for at in range(0, len(chunks), 32):
            chunk = chunks[at : at + 32]
            data, kind = self.repository.contents.blob(chunk)
            total.update(data)
            self._add_blob(chunk, data, kind)
        if total.digest() != key:
            raise Damaged(f"The chunks of {key.hex()} do not match their digest; nothing was exported.")

    def _add_blob(self, key: bytes, data: bytes, kind: int) -> None:
        if key not in self.written:
            self.written.add(key)
            self.writer.pack.add(key, data, kind)
