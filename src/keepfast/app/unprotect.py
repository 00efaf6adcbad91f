"""Stop protecting a folder: remove its marker and registration. Its history stays unless it is purged."""

from __future__ import annotations

import os
from functools import partial

from keepfast.app.checkpoint import Engine
from keepfast.model.errors import Conflict, DiskFull, Elsewhere, Failed, MissingStore, NoWorkspace
from keepfast.store.known_stores import (
    drop_folder,
    last_unprotected_folders,
    note_unprotected,
    read_unprotected,
)
from keepfast.store.maintenance.removal import remove_store, remove_workspaces
from keepfast.store.maintenance.space import Compaction, needed_by_restore
from keepfast.store.reserve import is_full, with_reserve
from keepfast.store.rows import Query
from keepfast.workspace.marker import identity, marker, open_marker, show

OWN_FILES = (b"workspace.json", b"notices")
"""Our files in the marker's folder. Project settings and files that a restore put aside are the user's."""
MIN_ID_CHARS = 8
"""As many characters of an id as are shown identify a workspace."""


class Protected:
    """A workspace to unprotect. `is_registered`: the store knows it, unlike a copy that was never saved."""

    def __init__(self, id: str, root: bytes, versions: int, is_registered: bool = True) -> None:
        self.id, self.root, self.versions, self.is_registered = id, root, versions, is_registered
        self.elsewhere: Elsewhere | None = None
        """The error about a marker that names the history of another folder, else None."""
        self.left: list[bytes] = []
        """What stays in its `.keepfast`."""
        self.was = b""
        """Its last known path if it is no longer protected."""


def around(engine: Engine, folder: bytes, with_former: bool = False) -> Protected:
    """Return the workspace around `folder`; `with_former`: also one that is no longer protected. Raises `NoWorkspace`."""
    try:
        location = engine.workspaces.locate(folder)
        if location is not None:
            return Protected(location[1], location[0], _versions(engine, location[1]))
    except Elsewhere as elsewhere:
        workspace = Protected(elsewhere.workspace, elsewhere.root, 0, is_registered=False)
        workspace.elsewhere = elsewhere
        return workspace
    except MissingStore:
        nearest = engine.workspaces.nearest(folder)
        if nearest is None:
            raise
        return Protected(nearest[1], nearest[0], 0, is_registered=False)
    former = _former_workspace(engine, folder)
    if former is None:
        raise NoWorkspace(f"{show(folder)} is not inside a workspace.")
    if not with_former:
        raise _no_longer_protected(former)
    return former


def at(engine: Engine, folder: bytes, with_former: bool = False) -> Protected:
    """Return the workspace whose root is `folder`, which may be missing. Raises `NoWorkspace`, also if one is around the folder.

    `with_former`: also one that is no longer protected.
    """
    registered = engine.place.registered().get(folder)
    if registered and not os.path.isdir(folder):
        return Protected(registered, folder, _versions(engine, registered))
    workspace = around(engine, folder) if marker(folder) is not None or registered else None
    if workspace is None or workspace.root != folder:
        former = _former_workspace(engine, folder)
        if former is not None and former.was == folder:
            if not with_former:
                raise _no_longer_protected(former)
            return former
        raise NoWorkspace(
            f"{show(folder)} is not a workspace.",
            ("Give the folder of a workspace; `keepfast status` in it shows the path."),
        )
    return workspace


def by_id(engine: Engine, word: str) -> Protected | None:
    """Return the workspace whose id is this word or begins with it, as it is shown; None if none or several do."""
    if len(word) < MIN_ID_CHARS or not word.isalnum():
        return None
    matches = [workspace for workspace in every(engine, with_folder=False) if workspace.id.startswith(word)]
    return matches[0] if len(matches) == 1 else None


def _former_workspace(engine: Engine, folder: bytes) -> Protected | None:
    """Return the workspace around the folder that is no longer protected, if the store still has its history."""
    listed, path = read_unprotected(engine.place.unprotected), folder
    while path not in listed and path != b"/":
        path = os.path.dirname(path)
    workspace = listed.get(path, "")
    try:
        row = engine.repository().workspace(workspace) if workspace else None
    except (MissingStore, NoWorkspace):
        return None
    if row is None or row.path:
        return None
    former = Protected(row.id, b"", _versions(engine, row.id))
    former.was = path
    return former


def _no_longer_protected(former: Protected) -> NoWorkspace:
    return NoWorkspace(
        f"{show(former.was)} is no longer protected.",
        f"Run `keepfast purge {show(former.was)}` to delete its history, or `keepfast init` there to continue it.",
    )


def every(engine: Engine, with_folder: bool) -> list[Protected]:
    """Return all workspaces of the store; with `with_folder` only those that are protected now."""
    rows, before = engine.repository().workspaces(), last_unprotected_folders(engine.place.unprotected)
    workspaces = [Protected(row.id, row.path, _versions(engine, row.id)) for row in rows if row.path or not with_folder]
    for workspace in workspaces:
        workspace.was = b"" if workspace.root else before.get(workspace.id, b"")
    return workspaces


def _versions(engine: Engine, workspace: str) -> int:
    return len(engine.repository().find(Query(workspace=workspace)))


def unprotect(engine: Engine, workspace: Protected) -> None:
    """Make hooks ignore the folder, remove its marker, and its path from the store.

    On a full disk this uses the reserve: freeing space must not fail for a few bytes.
    """
    folder = engine.place.path if workspace.is_registered else ""
    with_reserve(folder, "Removing the protection", partial(_unprotect, engine, workspace))


def _unprotect(engine: Engine, workspace: Protected) -> None:
    if workspace.root:
        try:
            # First of all: a hook that runs now must not adopt the folder again.
            note_unprotected(engine.place.unprotected, workspace.root, "" if workspace.elsewhere else workspace.id)
            drop_folder(engine.place.folders, workspace.root)
            if identity(workspace.root) == workspace.id:
                workspace.left = _unmark(workspace.root)
        except OSError as error:
            if is_full(error):
                raise DiskFull(f"{show(workspace.root)} is still protected: the disk is full.") from None
            raise Failed(
                f"{show(workspace.root)} is still protected: {error.strerror}.", "Check the write permissions."
            ) from None
    if workspace.is_registered and workspace.root:
        engine.workspaces.register(engine.repository(), workspace.id, b"", engine.clock())


def purge(engine: Engine, chosen: list[Protected]) -> Compaction:
    """Remove the history of these workspaces, and stop protecting their folders."""
    refuse_purge(engine, chosen)
    for workspace in chosen:
        unprotect(engine, workspace)
    return remove_workspaces(
        engine.repository(), engine.place, [workspace.id for workspace in chosen if workspace.is_registered]
    )


def purge_everything(engine: Engine, chosen: list[Protected]) -> list[str]:
    """Remove the whole store with its keys; return the files in its folder that are not ours and stay."""
    refuse_purge(engine, chosen)
    for workspace in chosen:
        unprotect(engine, workspace)
    engine.close()
    return remove_store(engine.place)


def refuse_purge(engine: Engine, chosen: list[Protected]) -> None:
    """Raise an error before anything is changed: no store, a history of another folder, an interrupted restore."""
    engine.repository()
    for workspace in chosen:
        if workspace.elsewhere is not None:
            raise workspace.elsewhere
        if needed_by_restore(engine.place.path, workspace.id):
            raise Conflict(
                f"A restore of {show(workspace.root or workspace.was)} was interrupted.",
                "Run `keepfast restore --continue` or `--abort` first.",
            )


def _unmark(root: bytes) -> list[bytes]:
    """Remove our files from `.keepfast`, the marker first; return what stays in it."""
    folder = open_marker(root)
    try:
        for name in OWN_FILES:
            _unlink(name, folder)
        remaining = sorted(os.fsencode(name) for name in os.listdir(folder) if name != ".gitignore")
        if not remaining:
            _unlink(b".gitignore", folder)
    finally:
        os.close(folder)
    if not remaining:
        os.rmdir(root + b"/.keepfast")
    return remaining


def _unlink(name: bytes, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
