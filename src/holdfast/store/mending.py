"""Mending a damaged log: lines behind the damage prove themselves, and documents tell of the versions between them."""

from __future__ import annotations

from holdfast.core import document
from holdfast.core.errors import HoldfastError
from holdfast.core.light_json import loads
from holdfast.store.digest import ZERO, digest
from holdfast.store.records import line
from holdfast.store.rows import DOCUMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holdfast.store.repository import Repository

    Record = dict[str, Any]


def mended(repository: Repository, log: str, path: bytes | None) -> bytes | None:
    """Return a whole log made of what can be had of the damaged one, or None if there is nothing to go by.

    `path` is where the workspace was last known to be, for a log that has lost its beginning.
    """
    records = [record for record in _that_hold(repository.records.read(log)) if _makes_sense(record)]
    made = [record for record in records if record["r"] == "checkpoint"]
    if not records or records[0]["r"] != "workspace":
        if path is None or not made:
            return None
        records.insert(
            0, {"r": "workspace", "id": log, "path": path.decode("utf-8", "surrogateescape"), "at": made[0]["at"]}
        )
    if records[0].get("id") != log:
        return None
    records = _without_gaps(repository, log, records)
    head, lines = ZERO, []
    for record in records:
        text, head = line(head, record)
        lines.append(text)
    return b"".join(lines)


def _that_hold(data: bytes) -> list[Record]:
    """Records of lines that follow from the line before them, as that one is written: whether it holds or not."""
    found, head = [], ZERO
    for text in data.split(b"\n")[:-1]:
        body, _, key = text.rpartition(b" ")
        if digest(head + body).hex().encode("ascii") == key:
            try:
                found.append(loads(body))
            except ValueError:
                pass
        try:
            head = bytes.fromhex(key.decode("ascii"))
        except ValueError:
            head = ZERO
    return found


def _makes_sense(record: object) -> bool:
    if not isinstance(record, dict) or not isinstance(record.get("r"), str):
        return False
    if record["r"] != "checkpoint":
        return True
    return all(type(record.get(key)) is int for key in ("v", "seq", "at")) and isinstance(record.get("doc"), str)


def _without_gaps(repository: Repository, log: str, records: list[Record]) -> list[Record]:
    """Put back the versions whose lines are lost: every document names the one before it."""
    result: list[Record] = []
    last: Record = {"v": 0, "doc": "", "seq": 0}
    known: set[object] = set()
    for record in records:
        if record["r"] == "checkpoint":
            if record["v"] <= last["v"]:
                continue
            found = [*_between(repository, log, last, record), record]
            known.update([each["v"] for each in found])
            result += found
            last = record
        elif isinstance(record.get("v"), list):
            result.append({**record, "v": [version for version in record["v"] if version in known]})
        elif "v" not in record or record["v"] in known:
            result.append(record)
    return result + _behind(repository, log, last)


def _between(repository: Repository, log: str, last: Record, record: Record) -> list[Record]:
    """Records of the versions between two, as far back as the documents lead."""
    found: list[Record] = []
    after = record
    while after["v"] > last["v"] + 1:
        header = _header(repository, log, after["doc"])
        parent = header.get("parent") if header is not None else None
        before = _header(repository, log, parent) if isinstance(parent, str) else None
        if before is None or not isinstance(parent, str):
            break
        after = _record(before, parent, after["v"] - 1, max(last["seq"], after["seq"] - 1))
        found.append(after)
    return found[::-1]


def _behind(repository: Repository, log: str, last: Record) -> list[Record]:
    """Records of the versions behind the last one, if no two documents claim to be the next."""
    by_parent: dict[object, list[tuple[str, Record]]] = {}
    for found_key, place in repository.ledger.locations():
        key = found_key.hex()
        header = _header(repository, log, key) if place.kind == DOCUMENT else None
        if header is not None and "changed" not in header:  # a keyframe that was written later follows nothing
            by_parent.setdefault(header.get("parent") or "", []).append((key, header))
    found: list[Record] = []
    while len(by_parent.get(last["doc"], ())) == 1:
        ((key, header),) = by_parent.pop(last["doc"])
        last = _record(header, key, last["v"] + 1, last["seq"] + 1)
        found.append(last)
    return found


def _record(header: Record, key: str, version: int, seq: int) -> Record:
    return {
        "r": "checkpoint", "v": version, "id": header["id"], "doc": key, "packs": [], "at": header["created_at"],
        "seq": seq, "size": 0,
    }  # fmt: skip


def _header(repository: Repository, log: str, key: str) -> Record | None:
    try:
        header = document.header(repository.load(bytes.fromhex(key)))
    except (HoldfastError, ValueError):
        return None
    return header if header.get("workspace") == log else None
