"""Recover lost parts: log lines and headers from the ledger, contents from packs and from files on disk."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from os import O_CLOEXEC, O_NONBLOCK, O_RDONLY, close, fstat, read
from os import open as open_fd
from stat import S_ISREG

from keepfast.model import document
from keepfast.model.entry import FILE
from keepfast.model.entry import SEALED as SEALED_FILE
from keepfast.model.errors import KeepfastError
from keepfast.store.digest import ZERO, digest
from keepfast.store.maintenance.verify import adds_up
from keepfast.store.packs import PackWriter, read_index
from keepfast.store.records import Record, format_line
from keepfast.store.repository import Repository
from keepfast.store.rows import CHUNKS, CONTENT, DOCUMENT, LIST, SEALED, CheckpointRow, Location, Query, WorkspaceRow
from keepfast.store.save import CHUNK_AVERAGE, CHUNK_MAX, CHUNK_MIN

LARGE = 4 << 20
"""Contents over this are stored in chunks."""
PART = 1 << 20
"""Sealed ones over this are stored in parts."""


def header_from_ledger(repository: Repository, row: CheckpointRow) -> document.Header:
    """Return the header of a version's document; if that cannot be read, make one from the ledger."""
    try:
        return repository.document(row)[0]
    except KeepfastError:
        pass
    counts: dict[str, int] = {}
    for entry in repository.ledger.state(row.workspace, row.version):
        counts[entry.kind] = counts.get(entry.kind, 0) + 1
        if entry.kind == FILE:
            counts["bytes"] = counts.get("bytes", 0) + entry.size
    members = {
        "v": 1, "workspace": row.workspace, "version": row.version, "parent": None, "id": row.id, "created_at": row.created_at,
        "event_at": row.created_at, "scan_started": row.created_at, "scan_ended": row.created_at,
        "trigger": row.trigger, "created_by": row.created_by, "message": row.message, "name": row.name or None,
        "tags": row.tags.split("\n") if row.tags else [], "pinned": bool(row.pinned),
        "session": row.session or None, "task": row.task or None, "cwd": "", "git": None,
        "notices": ["Rewritten by repair."], "counts": counts, "tree": row.tree, "tool": "repair",
    }  # fmt: skip
    return document.Header(members)


def log_from_ledger(repository: Repository, row: WorkspaceRow) -> tuple[bytes, bytes]:
    """Return a log from which the ledger's rows of a workspace follow, and the digest of its last line."""
    head, lines = ZERO, []
    for record in _records(repository, row):
        text, head = format_line(head, record)
        lines.append(text)
    return b"".join(lines), head


def _records(repository: Repository, row: WorkspaceRow) -> list[Record]:
    first: Record = {
        "r": "workspace", "id": row.id, "path": row.path.decode("utf-8", "surrogateescape"), "at": row.created_at,
    }  # fmt: skip
    if row.parent:
        first["parent"] = row.parent
    checkpoints = repository.ledger.find(Query(workspace=row.id, forgotten=True))[::-1]
    places = repository.ledger.locate([checkpoint.document for checkpoint in checkpoints])
    checkpoint_records: list[Record] = []
    named: list[Record] = []
    for checkpoint in checkpoints:
        place = places.get(checkpoint.document)
        checkpoint_records.append(
            {
                "r": "checkpoint", "v": checkpoint.version, "id": checkpoint.id, "doc": checkpoint.document.hex(),
                "packs": [place.pack] if place else [], "at": checkpoint.created_at, "seq": checkpoint.seq,
                "size": checkpoint.added,
            }
        )  # fmt: skip
        named.append({"r": "pin" if checkpoint.pinned else "unpin", "v": checkpoint.version})
        named.append({"r": "name", "v": checkpoint.version, "name": checkpoint.name or None})
    forgotten = [checkpoint.version for checkpoint in checkpoints if checkpoint.forgotten]
    hidden = [{"r": "forget", "v": forgotten, "why": "repair"}] if forgotten else []
    # Keyframes come after `forget`: only then do they make older documents unneeded.
    return [first, *checkpoint_records, *hidden, *_keyframes(repository, checkpoints), *named]


def _keyframes(repository: Repository, checkpoints: list[CheckpointRow]) -> list[Record]:
    """Return records of the workspace's keyframes, found by their headers."""
    versions = {checkpoint.id: checkpoint.version for checkpoint in checkpoints}
    own = {checkpoint.document for checkpoint in checkpoints}
    result = []
    for key, place in repository.ledger.locations():
        if place.kind != DOCUMENT or key in own:
            continue
        try:
            header = document.header(repository.contents.load(key))
        except KeepfastError:
            continue
        version = versions.get(header.id, 0)
        if header.keyframe and version:
            result.append({"r": "keyframe", "v": version, "doc": key.hex(), "pack": place.pack})
    return sorted(result, key=lambda record: (record["v"], record["doc"]))


def find_on_disk(repository: Repository, keys: set[bytes]) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield (digest, bytes, kind) of those contents and chunks that files in the workspaces still have."""
    missing = set(keys)
    for workspace in repository.ledger.workspaces() if missing else ():
        for _, until, row in repository.ledger.intervals(workspace.id):
            if not missing:
                return
            # A missing chunk may be in any large file; a small file is read only if its content is missing.
            if row.kind != FILE or (row.content not in missing and (row.size <= PART or until is not None)):
                continue
            content = _read(workspace.path + b"/" + row.path)
            for key, data, kind in _sealed_pieces(repository, content) if row.flags & SEALED_FILE else _pieces(content):
                if key in missing:
                    missing.discard(key)
                    yield key, data, kind


def _read(path: bytes) -> bytes:
    """Return the file's bytes; empty if it is no regular file or cannot be read."""
    try:
        fd = open_fd(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
    except OSError:
        return b""
    try:
        if not S_ISREG(fstat(fd).st_mode):
            return b""
        parts = []
        while part := read(fd, 1 << 20):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        close(fd)


def _pieces(data: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield the blobs that saving this content would make."""
    whole = digest(data)
    if len(data) <= LARGE:
        yield whole, data, CONTENT
        return
    from pyfastcdc import FastCDC

    cutter = FastCDC(avg_size=CHUNK_AVERAGE, min_size=CHUNK_MIN, max_size=CHUNK_MAX, normalized_chunking=1)
    keys = []
    for chunk in cutter.cut_buf(data):
        part = bytes(chunk.data)
        keys.append(digest(part))
        yield keys[-1], part, CONTENT
    yield whole, b"".join(keys), CHUNKS


def _sealed_pieces(repository: Repository, data: bytes) -> list[tuple[bytes, bytes, int]]:
    """Return the blobs that saving this content sealed would make, under every key set that is here."""
    pieces: list[tuple[bytes, bytes, int]] = []
    if repository.contents.key_place is not None:
        repository.contents.sealer().forms_of(
            BytesIO(data).read,
            lambda key, part, is_list: pieces.append((key, part, LIST if is_list else SEALED)),
            repository.contents.has,
        )
    return pieces


class RecoveredBlobs:
    """Adds recovered blobs to the new pack: each digest once, and only if it is proven."""

    def __init__(self, repository: Repository, writer: PackWriter) -> None:
        self.repository, self.writer = repository, writer
        self.keys: set[bytes] = set()

    def copy(self, key: bytes, place: Location, *, doubtful: bool = False) -> bool:
        """Add the copy at this location if it is good; return whether it is.

        A chunk list can only be checked with its chunks. Unless it is `doubtful`, it is added unchecked: its chunks may be
        recovered only later.
        """
        try:
            data = self.repository.contents.fetch(place)
            is_whole = digest(data) == key
            good = is_whole or (place.kind == CHUNKS and (not doubtful or adds_up(self.repository, key, data)))
        except (KeepfastError, FileNotFoundError):
            return False
        if good and key not in self.keys:
            self.add(key, data, CONTENT if is_whole and place.kind == CHUNKS else place.kind)
        return good

    def add(self, key: bytes, data: bytes, kind: int) -> None:
        if key not in self.keys:
            self.keys.add(key)
            self.writer.add(key, data, kind)


def index_of(repository: Repository, name: str, *, strict: bool = True) -> list[tuple[bytes, Location]]:
    """Return the entries of a pack, or none if its index cannot be read; not `strict`: the caller must check each."""
    try:
        return read_index(repository.blobs, name, strict=strict)[1]
    except (KeepfastError, FileNotFoundError):
        return []
