"""The base of a folder: the version that it was last saved as or restored to, derived from its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from keepfast.store.ports import Ledger
from keepfast.store.records import Chain, Record
from keepfast.store.rows import SAFETY_TRIGGERS, CheckpointRow, Query

if TYPE_CHECKING:
    from keepfast.store.repository import Repository

Base = list[Any] | None
"""Workspace and version; None if there is none."""


def previous_version(repository: Repository, row: CheckpointRow) -> CheckpointRow | None:
    """Return the version that this one is compared with: the folder's base before it.

    If that was forgotten, the newest older version that `list` shows; None if there is none.
    """
    records = []
    for record in Chain(repository.records.read(row.workspace)).records:
        if record.get("r") == "checkpoint" and record.get("v") == row.version:
            break
        records.append(record)
    base = _base_from_last_record(repository.ledger, row.workspace, records)
    if base is not None and base[0] == row.workspace:
        checkpoint = repository.ledger.checkpoint(*base)
        if checkpoint is not None and not checkpoint.forgotten:
            return checkpoint
    older = repository.ledger.find(Query(workspace=row.workspace, before=row.version, limit=1, safety=False))
    return older[0] if older else None


def _base_from_last_record(ledger: Ledger, workspace: str, records: list[Record]) -> Base:
    """Return the same as `base_after`, reading backwards: nearly always the last record is enough."""
    for record in reversed(records):
        kind = record.get("r")
        if kind == "checkpoint":
            row = ledger.checkpoint(workspace, record["v"])
            if row is not None and row.trigger not in SAFETY_TRIGGERS:
                return [workspace, record["v"]]
        elif kind in ("restore", "base") and record.get("base"):
            return [*record["base"]]
        elif kind == "restore":
            break
    return base_after(ledger, workspace, records)


def bases_before(repository: Repository, workspace: str, versions: set[int]) -> dict[int, Base]:
    """Return the folder's base before each of these versions, from one reading of its log."""
    bases: dict[int, Base] = {}
    for record, now in _walk(repository.ledger, workspace, Chain(repository.records.read(workspace)).records):
        if record.get("r") == "checkpoint" and record.get("v") in versions:
            bases[record["v"]] = now
    return bases


def base_after(ledger: Ledger, workspace: str, records: Iterable[Record]) -> Base:
    """Return the folder's base after these records of its log. Restore records of older releases do not name it."""
    return [now for _, now in _walk(ledger, workspace, (*records, {}))][-1]


def _walk(ledger: Ledger, workspace: str, records: Iterable[Record]) -> Iterator[tuple[Record, Base]]:
    """Yield each record with the folder's base before it."""
    now: Base = None
    done: list[tuple[Base, Base]] = []
    for record in records:
        yield record, now
        kind = record.get("r")
        if kind == "checkpoint":
            row = ledger.checkpoint(workspace, record["v"])
            now = now if row is None or row.trigger in SAFETY_TRIGGERS else [workspace, record["v"]]
        elif kind == "base":
            now = record.get("base") or now
        elif kind == "restore":
            was = record.get("was") or now
            now = record.get("base") or _restored_to(record, workspace, was, done)
            done.append((was, now))


def _restored_to(record: Record, workspace: str, was: Base, done: list[tuple[Base, Base]]) -> Base:
    """Return the base after a restore record that does not name it; `done`: bases before and after each earlier restore."""
    undone, redone = record.get("undo"), record.get("redo")
    if isinstance(undone, int) and 0 <= undone < len(done):
        return done[undone][0]
    if isinstance(redone, int) and 0 <= redone < len(done):
        return done[redone][1]
    if record.get("paths"):
        return was
    return [record.get("from") or workspace, record["target"]]


def base_key(workspace: str) -> str:
    return f"base {workspace}"


def base_text(base: list[Any] | None, version: int) -> str:
    """Return the ledger's text for the base that a restore set; it is valid until there is a version after `version`."""
    return f"{base[0]} {int(base[1])} {version}" if base else ""
