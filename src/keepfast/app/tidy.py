"""Keep the store small: retention policy, size limit, and compaction when packs pile up."""

from __future__ import annotations

from collections.abc import Callable

from keepfast.app.checkpoint import Engine
from keepfast.model.errors import Busy
from keepfast.model.retention import oldest_automatic, plan
from keepfast.state import rescues
from keepfast.store.maintenance.space import compact, forget, needed_by_restore, record_over_cap, store_size
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, Query


def tidy(engine: Engine, workspace: str) -> tuple[list[CheckpointRow], int]:
    """Apply the retention policy and the size limit, and compact. Return what the limit removed, and the bytes still over it.

    Does nothing while another process compacts.
    """
    repository, settings = engine.repository(), engine.settings
    busy = needed_by_restore(engine.place.path, workspace)
    chosen = [row for row in by_policy(engine, workspace, engine.clock()) if row.version not in busy]
    if chosen:
        forget(repository, workspace, [row.version for row in chosen], "policy", engine.place.path)
    rescues.sweep(engine.place.folder(workspace))
    try:
        compact(repository, engine.place.path)
        thinned = thin(repository, engine.place.path, settings["retention.max_size"])
    except Busy:
        return [], 0
    over = max(0, store_size(repository) - settings["retention.max_size"])
    record_over_cap(engine.place.path, store_size(repository) if over else 0)
    return thinned, over


def by_policy(engine: Engine, workspace: str, now: int) -> list[CheckpointRow]:
    """Return the checkpoints that the retention policy forgets, oldest first."""
    settings = engine.settings
    rows = engine.repository().find(Query(workspace=workspace))
    versions = plan(
        rows,
        now=now,
        keep_last=settings["retention.keep_last"],
        hourly_hours=settings["retention.hourly_hours"],
        daily_days=settings["checkpoint.cleanup_after_days"],
        rescued=rescues.read(engine.place.folder(workspace)),
    )
    by_version = {row.version: row for row in rows}
    return [by_version[version] for version in versions]


def thin(
    repository: Repository,
    folder: str,
    most: int,
    compacted: Callable[[], bool] | None = None,
) -> list[CheckpointRow]:
    """Forget the oldest automatic checkpoints of any workspace until the store is below `most` bytes; return them.

    `compacted` replaces the compaction, and returns whether it gave space back.
    """
    give_back = compacted or (lambda: compact(repository, folder) is not None)
    forgotten: list[CheckpointRow] = []
    over = store_size(repository) - most
    candidates = thinnable(repository, folder) if over > 0 else []
    while over > 0 and candidates:
        freed = 0
        while candidates and freed < over:
            row = candidates.pop(0)
            freed += forget(repository, row.workspace, [row.version], "size", folder)
            forgotten.append(row)
        if not give_back():
            break
        over = store_size(repository) - most
    return forgotten


def thinnable(repository: Repository, folder: str) -> list[CheckpointRow]:
    """Return the checkpoints that the size limit may remove, oldest of the whole store first."""
    candidates = []
    for workspace in repository.workspaces():
        rows = {row.version: row for row in repository.find(Query(workspace=workspace.id))}
        busy = needed_by_restore(folder, workspace.id)
        candidates += [rows[version] for version in oldest_automatic(list(rows.values()), 1) if version not in busy]
    return sorted(candidates, key=lambda row: row.seq)
