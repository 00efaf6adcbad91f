"""The store's own log: records of compactions, written before old packs are removed."""

from __future__ import annotations

from keepfast.model.errors import Damaged, KeepfastError
from keepfast.store.digest import ZERO
from keepfast.store.ports import Transaction
from keepfast.store.records import STORE_LOG, Chain, Record, format_line
from keepfast.store.repository import Repository


def append_store_record(repository: Repository, tx: Transaction, record: Record) -> int:
    """Append to the store's own log inside a transaction; return the log's size before, for cutting the record off again."""
    before = repository.records.size(STORE_LOG)
    chain = Chain(repository.records.read(STORE_LOG))
    if chain.rest:
        repository.records.truncate(STORE_LOG, chain.size)
        before = chain.size
    text, head = format_line(chain.head if before else ZERO, record)
    tx.set_meta("store_log", _mark_of(before + len(text), head))
    repository.records.append(STORE_LOG, text)
    return before


def check_store_log(repository: Repository) -> None:
    """Raise `Damaged` if the ledger is older than the last compaction: packs that it does not know may hold all contents."""
    chain = Chain(repository.records.read(STORE_LOG))
    if (repository.ledger.meta("store_log") or _mark_of(0, ZERO)) != _mark_of(chain.size, chain.head):
        raise Damaged("The ledger does not match the packs.", "Run `keepfast rebuild`.")


def settle_store_log(repository: Repository) -> None:
    """Cut off the records of a compaction that was not committed. The caller is inside a transaction.

    A compaction removes old packs only after its commit. If one of them is gone, the ledger is older than the log, and
    the log is left as it is.
    """
    chain = Chain(repository.records.read(STORE_LOG))
    ledger_mark = repository.ledger.meta("store_log") or _mark_of(0, ZERO)
    marks = [_mark_of(0, ZERO), *map(_mark_of, chain.ends, chain.heads)]
    if ledger_mark not in marks[:-1]:
        return
    unknown = chain.records[marks.index(ledger_mark) :]
    replaced_packs = {name for record in unknown for name in record.get("gone", ())}
    if replaced_packs <= set(repository.blobs.names()):
        repository.records.truncate(STORE_LOG, int(ledger_mark.split(" ")[0]))


def settle_after_failure(repository: Repository) -> None:
    """Cut off a record whose transaction failed. If that fails too, the next compaction or verification does it."""
    try:
        with repository.ledger.transaction():
            settle_store_log(repository)
    except (OSError, KeepfastError):
        pass


def _mark_of(size: int, head: bytes) -> str:
    """Return the ledger's text for how far it has followed the store's log."""
    return f"{size} {head.hex()}"
