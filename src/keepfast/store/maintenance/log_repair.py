"""Repair logs: lines after a damaged one are checked by their digests, and lost ones are made again from documents."""

from __future__ import annotations

from keepfast.model import document
from keepfast.model.errors import KeepfastError
from keepfast.model.strict_json import loads
from keepfast.store.digest import ZERO, digest
from keepfast.store.ports import Records
from keepfast.store.records import STORE_LOG, Chain, Record, format_line
from keepfast.store.repository import Repository
from keepfast.store.rows import DOCUMENT

Documents = dict[str, tuple[document.Header, str]]
"""Documents of one workspace: header and pack, by digest in hex."""

LOST_ID = "cp-lost"
"""The id of a version of which only the number is known."""


def misplaced_logs(records: Records) -> dict[str, bytes]:
    """Return logs with the wrong file name, by the right name, which their first line gives."""
    logs = {name: records.read(name) for name in records.logs()}
    owners = {name: _owner(data) for name, data in logs.items()}
    right: dict[str, bytes] = {}
    for name, owner in owners.items():
        if owner and owner != name and owners.get(owner) != owner:
            right[owner] = max(right.get(owner, b""), logs[name], key=lambda data: Chain(data).size)
    return right


def _owner(data: bytes) -> str:
    first = data[: data.find(b"\n") + 1]
    records = Chain(first).records
    if not records:
        return ""
    identity = records[0].get("id")
    if records[0].get("r") == "workspace" and isinstance(identity, str) and _is_plain(identity):
        return identity
    return STORE_LOG if records[0].get("r") == "compact" else ""


def _is_plain(identity: str) -> bool:
    return len(identity) == 32 and not identity.strip("0123456789abcdef")


def workspaces_of_documents(repository: Repository) -> set[str]:
    """Return the workspaces that documents name, whether they have a log or not."""
    workspaces = set()
    for key, place in repository.ledger.locations():
        header = _header(repository, key) if place.kind == DOCUMENT else None
        if header is not None and _is_plain(header.workspace):
            workspaces.add(header.workspace)
    return workspaces


def mend_log(repository: Repository, log: str, path: bytes | None) -> bytes | None:
    """Return a whole log made from the good lines of this one and from documents; None if there is too little of both.

    `path` is the last known folder of the workspace, for a log that has lost its first line.
    """
    documents = _documents_of(repository, log)
    records = [record for record in _chained_records(repository.records.read(log)) if _makes_sense(record)]
    if records and records[0]["r"] == "workspace" and records[0].get("id") != log:
        records = []  # the log of another workspace
    if not records or records[0]["r"] != "workspace":
        checkpoint_times = [record["at"] for record in records if record["r"] == "checkpoint"]
        moments = checkpoint_times or sorted(header.created_at for header, _ in documents.values())
        if path is None or not moments:
            return None
        text = path.decode("utf-8", "surrogateescape")
        records.insert(0, {"r": "workspace", "id": log, "path": text, "at": moments[0]})
    head, lines = ZERO, []
    for record in _without_gaps(documents, records):
        text_line, head = format_line(head, record)
        lines.append(text_line)
    return b"".join(lines)


def _chained_records(data: bytes) -> list[Record]:
    """Return the records of lines whose digest matches the previous line's digest as written, even if that line is damaged."""
    records, head = [], ZERO
    for text in data.split(b"\n")[:-1]:
        body, _, key = text.rpartition(b" ")
        if digest(head + body).hex().encode("ascii") == key:
            try:
                records.append(loads(body))
            except ValueError:
                pass
        try:
            head = bytes.fromhex(key.decode("ascii"))
        except ValueError:
            head = ZERO
    return records


def _makes_sense(record: object) -> bool:
    if not isinstance(record, dict) or not isinstance(record.get("r"), str):
        return False
    if record["r"] != "checkpoint":
        return True
    return all(type(record.get(key)) is int for key in ("v", "seq", "at")) and isinstance(record.get("doc"), str)


def _documents_of(repository: Repository, log: str) -> Documents:
    documents: Documents = {}
    for key, place in repository.ledger.locations():
        header = _header(repository, key) if place.kind == DOCUMENT else None
        if header is not None and header.workspace == log:
            documents[key.hex()] = header, place.pack
    return documents


def _header(repository: Repository, key: bytes) -> document.Header | None:
    try:
        return document.header(repository.contents.load(key))
    except KeepfastError:
        return None


def _without_gaps(documents: Documents, records: list[Record]) -> list[Record]:
    """Insert records of versions and keyframes whose lines are lost."""
    lost = _LostVersions(documents, [record for record in records if record["r"] == "checkpoint"])
    result: list[Record] = []
    versions_in_log: set[object] = set()
    last = 0
    for record in records:
        if record["r"] == "checkpoint":
            if record["v"] <= last:
                continue
            last = record["v"]
            added = [*lost.upto(last), record]
        else:
            # A record that names a version comes after that version's own record.
            spoken = [version for version in _versions_named(record) if version in lost.keys]
            added = lost.upto(max(spoken, default=0) + 1)
        result += added
        versions_in_log.update([each["v"] for each in added])
        if record["r"] == "checkpoint":
            continue
        if isinstance(record.get("v"), list):
            result.append({**record, "v": [version for version in record["v"] if version in versions_in_log]})
        elif "v" not in record or record["v"] in versions_in_log:
            result.append(record)
    result += lost.upto(None)
    return result + lost.keyframes(result)


def _versions_named(record: Record) -> list[int]:
    named = record.get("v")
    return [version for version in (named if isinstance(named, list) else [named]) if type(version) is int]


class _LostVersions:
    """The versions that documents prove and that have no line."""

    def __init__(self, documents: Documents, checkpoint_records: list[Record]) -> None:
        self.documents = documents
        self.own = {key: header for key, (header, _) in documents.items() if header.changed is None}
        """Documents of versions, without keyframes that were written later."""
        self.keys: dict[int, str] = {record["v"]: record["doc"] for record in checkpoint_records}
        self.seq: dict[int, int] = {record["v"]: record["seq"] for record in checkpoint_records}
        self._by_number()
        self._backwards()
        self._onwards()
        self.left = sorted(self.keys.keys() - self.seq.keys())

    def upto(self, version: int | None) -> list[Record]:
        """Return records of remaining lost versions before this one, also of versions without any document."""
        records: list[Record] = []
        while self.left and (version is None or self.left[0] < version):
            records.append(self._record(self.left.pop(0)))
        return records

    def keyframes(self, records: list[Record]) -> list[Record]:
        """Return records of keyframes that no line names, found by their headers."""
        ids = {header.id: version for version, key in self.keys.items() if (header := self.own.get(key)) is not None}
        spoken = {record.get("doc") for record in records}
        new_records: list[Record] = []
        for key, (header, pack) in self.documents.items():
            version = _number(header) or ids.get(header.id, 0)
            if header.changed is not None and key not in spoken and version in self.keys and self.keys[version] != key:
                new_records.append({"r": "keyframe", "v": version, "doc": key, "pack": pack})
        return sorted(new_records, key=lambda record: (record["v"], record["doc"]))

    def _by_number(self) -> None:
        claims: dict[int, list[str]] = {}
        for key, header in self.own.items():
            if _number(header) and key not in self.keys.values():
                claims.setdefault(_number(header), []).append(key)
        for version, keys in claims.items():
            document_key = self._believed(keys)
            if version not in self.keys and document_key:
                self.keys[version] = document_key
        for key, (
            header,
            _,
        ) in self.documents.items():  # repair may have replaced a version's own document by a keyframe
            if _number(header):
                self.keys.setdefault(_number(header), key)

    def _backwards(self) -> None:
        """Find versions backwards: every document names its parent."""
        for version in sorted(self.keys, reverse=True):
            while version > 1 and version - 1 not in self.keys:
                own = self.own.get(self.keys[version])
                if own is None or own.parent not in self.own:
                    break
                version -= 1
                self.keys[version] = own.parent
        for version in range(min(self.keys, default=0), max(self.keys, default=0)):
            self.keys.setdefault(version, "")

    def _onwards(self) -> None:
        children: dict[str, list[str]] = {}
        for key, header in self.own.items():
            children.setdefault(header.parent, []).append(key)
        last = max(self.keys, default=0)
        while key := self._believed(children.pop(self.keys.get(last, ""), [])):
            last += 1
            self.keys[last] = key

    def _believed(self, keys: list[str]) -> str:
        """Return, of several documents for one version, the one that is the parent of another; empty if that is unclear."""
        if len(keys) == 1:
            return keys[0]
        parents = {header.parent for header in self.own.values()}
        built_upon = [key for key in keys if key in parents]
        return built_upon[0] if len(built_upon) == 1 else ""

    def _record(self, version: int) -> Record:
        before = max([seq for version_in_log, seq in self.seq.items() if version_in_log < version], default=0)
        after = min([seq for version_in_log, seq in self.seq.items() if version_in_log > version], default=before + 2)
        seq = self.seq[version] = max(before, min(before + 1, after - 1))
        key = self.keys[version]
        header, pack = self.documents.get(key, (document.Header({"id": LOST_ID}), ""))
        return {
            "r": "checkpoint", "v": version, "id": header.id, "doc": key or "0" * 64, "packs": [pack] if pack else [],
            "at": header.created_at, "seq": seq, "size": 0,
        }  # fmt: skip


def _number(header: document.Header) -> int:
    """Return the version in a header; 0 if it has none."""
    return max(header.version, 0)
