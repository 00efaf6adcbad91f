"""The end of protection: a folder's marker and registration go; its history stays, unless it is purged too."""

from __future__ import annotations

import os
from functools import partial

from keepfast.model.errors import Conflict, DiskFull, Elsewhere, Failed, MissingStore, NoWorkspace
from keepfast.store.known_stores import drop_folder, last_unprotected_folders, note_unprotected, read_unprotected
from keepfast.store.maintenance.removal import remove_store, remove_workspaces
from keepfast.store.maintenance.space import needed_by_restore
from keepfast.store.reserve import is_full, with_reserve
from keepfast.store.rows import Query
from keepfast.workspace.marker import identity, marker, open_marker, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from keepfast.app.checkpoint import Engine
    from keepfast.store.maintenance.space import Compaction

OURS = (b"workspace.json", b"notices")
"""What of the marker's folder is ours alone; settings of the project and files put aside are the user's."""


FEWEST = 8
"""Characters of an id that name a workspace, as many as are shown."""


class Protected:
    """A workspace whose protection is to end. `known`: the store has it; a copy that was never saved it has not."""

    def __init__(self, id: str, root: bytes, versions: int, known: bool = True) -> None:
        self.id, self.root, self.versions, self.known = id, root, versions, known
        self.apart: Elsewhere | None = None
        """Why the history that the folder's marker names is not its own, if it is not."""
        self.left: list[bytes] = []
        """What stays in its `.keepfast`."""
        self.was = b""
        """Of one that has no folder: where it was when its protection was ended, if anybody knows."""


def around(engine: Engine, folder: bytes, with_former: bool = False) -> Protected:
    """The workspace that `folder` lies in; `with_former`: also one that is no longer protected. Raises `NoWorkspace`."""
    try:
        found = engine.locate(folder)
        if found is not None:
            return Protected(found[1], found[0], _versions(engine, found[1]))
    except Elsewhere as apart:
        one = Protected(apart.workspace, apart.root, 0, known=False)
        one.apart = apart
        return one
    except MissingStore:
        near = engine.near(folder)
        if near is None:
            raise
        return Protected(near[1], near[0], 0, known=False)
    former = _former(engine, folder)
    if former is None:
        raise NoWorkspace(f"{show(folder)} is not inside a workspace.")
    if not with_former:
        raise _no_longer(former)
    return former


def at(engine: Engine, folder: bytes, with_former: bool = False) -> Protected:
    """The workspace whose root is `folder`, which may be gone. Raises `NoWorkspace`: one around it is not meant.

    `with_former`: also one that is no longer protected.
    """
    registered = engine.place.registered().get(folder)
    if registered and not os.path.isdir(folder):
        return Protected(registered, folder, _versions(engine, registered))
    one = around(engine, folder) if marker(folder) is not None or registered else None
    if one is None or one.root != folder:
        former = _former(engine, folder)
        if former is not None and former.was == folder:
            if not with_former:
                raise _no_longer(former)
            return former
        raise NoWorkspace(
            f"{show(folder)} is not a workspace.",
            ("Give the folder of a workspace; `keepfast status` in it shows the path."),
        )
    return one


def by_id(engine: Engine, word: str) -> Protected | None:
    """The workspace of the store whose id is this word or, as it is shown, begins with it; None if no one is or several are."""
    if len(word) < FEWEST or not word.isalnum():
        return None
    found = [one for one in every(engine, with_folder=False) if one.id.startswith(word)]
    return found[0] if len(found) == 1 else None


def _former(engine: Engine, folder: bytes) -> Protected | None:
    """The workspace in which the folder was until its protection was ended, if the store still has its history."""
    known, path = read_unprotected(engine.place.unprotected), folder
    while path not in known and path != b"/":
        path = os.path.dirname(path)
    workspace = known.get(path, "")
    try:
        row = engine.repository().workspace(workspace) if workspace else None
    except (MissingStore, NoWorkspace):
        return None
    if row is None or row.path:
        return None
    one = Protected(row.id, b"", _versions(engine, row.id))
    one.was = path
    return one


def _no_longer(one: Protected) -> NoWorkspace:
    return NoWorkspace(
        f"{show(one.was)} is no longer protected.",
        f"Run `keepfast purge {show(one.was)}` to delete its history, or `keepfast init` there to continue it.",
    )


def every(engine: Engine, with_folder: bool) -> list[Protected]:
    """All workspaces of the store; with `with_folder` only those that are protected now."""
    rows, before = engine.repository().workspaces(), last_unprotected_folders(engine.place.unprotected)
    found = [Protected(row.id, row.path, _versions(engine, row.id)) for row in rows if row.path or not with_folder]
    for one in found:
        one.was = b"" if one.root else before.get(one.id, b"")
    return found


def _versions(engine: Engine, workspace: str) -> int:
    return len(engine.repository().find(Query(workspace=workspace)))


def unprotect(engine: Engine, one: Protected) -> None:
    """Let hooks leave the folder alone, take its marker away, and its path out of the store.

    On a full disk too, with the reserve: who wants his disk back must not be kept from it by a few bytes.
    """
    folder = engine.place.path if one.known else ""
    with_reserve(folder, "Removing the protection", partial(_unprotect, engine, one))


def _unprotect(engine: Engine, one: Protected) -> None:
    if one.root:
        try:
            # Before anything goes: a hook that comes now must not adopt the folder again.
            note_unprotected(engine.place.unprotected, one.root, "" if one.apart else one.id)
            drop_folder(engine.place.folders, one.root)
            if identity(one.root) == one.id:
                one.left = _unmark(one.root)
        except OSError as error:
            if is_full(error):
                raise DiskFull(f"{show(one.root)} is still protected: the disk is full.") from None
            raise Failed(
                f"{show(one.root)} is still protected: {error.strerror}.", "Check the write permissions."
            ) from None
    if one.known and one.root:
        engine.register(engine.repository(), one.id, b"", engine.clock())


def purge(engine: Engine, chosen: list[Protected]) -> Compaction:
    """Remove the history of these workspaces, and stop protecting their folders."""
    refuse_purge(engine, chosen)
    for one in chosen:
        unprotect(engine, one)
    return remove_workspaces(engine.repository(), engine.place, [one.id for one in chosen if one.known])


def purge_everything(engine: Engine, chosen: list[Protected]) -> list[str]:
    """Remove the store as a whole, with its keys; return what of its folder is not ours and stays."""
    refuse_purge(engine, chosen)
    for one in chosen:
        unprotect(engine, one)
    engine.close()
    return remove_store(engine.place)


def refuse_purge(engine: Engine, chosen: list[Protected]) -> None:
    """Raise what is against it before anything is touched: no store, a history of somebody else's, an open restore."""
    engine.repository()
    for one in chosen:
        if one.apart is not None:
            raise one.apart
        if needed_by_restore(engine.place.path, one.id):
            raise Conflict(
                f"A restore of {show(one.root or one.was)} was interrupted.",
                "Run `keepfast restore --continue` or `--abort` first.",
            )


def _unmark(root: bytes) -> list[bytes]:
    """Take our files out of `.keepfast`; return what stays in it. The marker is the first to go."""
    folder = open_marker(root)
    try:
        for name in OURS:
            _unlink(name, folder)
        left = sorted(os.fsencode(name) for name in os.listdir(folder) if name != ".gitignore")
        if not left:
            _unlink(b".gitignore", folder)
    finally:
        os.close(folder)
    if not left:
        os.rmdir(root + b"/.keepfast")
    return left


def _unlink(name: bytes, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
