"""Delete the whole history of a workspace, or a store with everything in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from shutil import rmtree

from keepfast.fsutil.durable import Lock, sync_folder
from keepfast.model.errors import Busy, KeepfastError, NotCompacted
from keepfast.state.mounts import Unmounted
from keepfast.store import known_stores as stores
from keepfast.store.maintenance.space import Compaction, compact, forget, store_size
from keepfast.store.place import Place
from keepfast.store.repository import Repository
from keepfast.store.reserve import with_reserve
from keepfast.store.rows import Query

OURS = (
    "format", "packs", "log", "tmp", "workspaces", "paths", "reserve", "over", "seal", "verified.json", "damaged",
    "mounted.lock", "compact.lock", "seal.lock", "lock",
)  # fmt: skip
"""The files of a store, in the order of removal: a folder without the format file is no store, and locks go last."""
DATABASES = ("ledger.db", "search.db")
"""Prefixes of databases and the files beside them: journals, locks, and copies."""


def remove_workspaces(repository: Repository, place: Place, workspaces: Sequence[str]) -> Compaction:
    """Remove these workspaces with all their checkpoints, and free their space.

    If this is interrupted, each workspace is removed, or still there with its versions possibly forgotten; running it again
    completes it. Raises `Conflict` if a restore was interrupted in one of them, `Busy` while the store is mounted, and
    `NotCompacted` if they were removed but their space was not freed.
    """
    with Unmounted(place.path):
        pass  # checked before anything is removed
    size = store_size(repository)
    for name in ("search.db", "search.db-journal"):  # it contains messages, and the next search recreates it
        _unlink(f"{place.path}/{name}")
    for workspace in workspaces:
        versions = [row.version for row in repository.ledger.find(Query(workspace=workspace))]
        forget(repository, workspace, versions, "purged", place.path)
        with_reserve(place.path, "Removing the workspace", partial(_remove_rows, repository, workspace))
        rmtree(place.folder(workspace), ignore_errors=True)
    try:
        place.list_paths([(row.id, row.path) for row in repository.ledger.workspaces()])
    except OSError:
        pass  # disposable: the store no longer knows a folder that the list still names
    try:
        done = compact(repository, place.path, everything=True)
    except KeepfastError as error:
        raise NotCompacted(f"Removed, but not compacted: {error}", error.hint or None) from None
    done.bytes_before = max(size, done.bytes_before)
    return done


def _remove_rows(repository: Repository, workspace: str) -> None:
    """Remove the rows, then the log. A log without rows is replayed; rows without a log would be damage."""
    while True:
        with repository.ledger.transaction() as tx:
            if repository.ledger.workspace(workspace) is None:
                repository.records.remove(workspace)
                return
            tx.drop_workspace(workspace)
            rows = repository.ledger.find(Query(forgotten=True, limit=1))
            tx.set_meta("seq", str(rows[0].seq if rows else 0))


def remove_store(place: Place) -> list[str]:
    """Remove the store and its keys; return names of foreign files that remain in its folder. Raises `Busy`."""
    identity = place.id()
    guard = Lock(place.path + "/compact.lock")
    if not guard.try_now():
        raise Busy("A compaction is running.")
    try:
        with Unmounted(place.path), Lock(place.path + "/lock"):
            databases = [name for name in os.listdir(place.path) if name.startswith(DATABASES)]
            for name in (OURS[0], *databases, *OURS[1:]):
                path = f"{place.path}/{name}"
                if os.path.isdir(path) and not os.path.islink(path):
                    rmtree(path)
                else:
                    _unlink(path)
    finally:
        guard.__exit__(None, None, None)
    left = sorted(os.listdir(place.path))
    if not left:
        os.rmdir(place.path)
        sync_folder(place.path.rpartition("/")[0] or "/")
    if os.path.isdir(place.keys):
        for name in os.listdir(place.keys):
            if name.startswith(identity):
                _unlink(f"{place.keys}/{name}")
        if not os.listdir(place.keys):
            os.rmdir(place.keys)
    stores.remove_store(place.list, identity)
    stores.drop_folders(place.folders, identity)
    return left


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
