"""Build the engine from the settings, and choose the store of a folder. `store/factory.py` opens the store."""

from __future__ import annotations

from collections.abc import Callable

from keepfast.app.checkpoint import Engine
from keepfast.app.open_stores import OpenStores
from keepfast.settings import STORE_FLAGS, Settings
from keepfast.settings.ownership import (
    HERE,
    LOST,
    find_foreign,
    is_store_missing,
    judge,
    lost_store_path,
    names_known_store,
)
from keepfast.store.place import Place
from keepfast.store.small_files import id_or_empty, read_folder_list, read_store_list, store_path_of
from keepfast.workspace.marker import Marker, marker


def build(
    settings: Settings,
    data: str,
    home: bytes,
    clock: Callable[[], int],
    folder: bytes | None = None,
    own: bool = False,
    open_stores: OpenStores | None = None,
) -> Engine:
    """Return the engine for work in `folder`; `data` is the user's data folder. See `place` and `Engine`."""
    return Engine(place(settings, data, folder, own), settings, home, clock, open_stores)


def place(settings: Settings, data: str, folder: bytes | None = None, own: bool = False) -> Place:
    """Return the store's place: the store that the workspace around `folder` is saved in, else the one of the settings.

    `own`: only the folder's own marker counts, not that of a workspace around it.
    """
    # Keys stay in the user's data folder: beside a store on a shared disk, others could open it with them.
    default = Place(store_path(settings, data), settings["store.durable"], data + "/keys")
    if settings.origins.get("store.url") in STORE_FLAGS or folder is None:
        return default.expect(read_store_list(default.list).get(default.path, ""))
    folder_marker, is_own = _nearest_marker(default, folder, own)
    if not is_own:
        other = _other_store_by_path(default, folder, own)
        if other is not None:
            return other
    if folder_marker is None:
        missing = _missing_store_by_path(default, folder, own)
        if missing is not None:
            return missing
        strange_marker = find_foreign(folder, default.path, default.list, own)
        if strange_marker is not None and is_store_missing(strange_marker[1], default.path, default.list):
            workspace, path, identity = strange_marker[1]
            return default.expect(
                identity, workspace, path
            )  # its list of stores is missing, too: no new store takes its place
        return default.expect(read_store_list(default.list).get(default.path, ""))
    workspace, path, identity = folder_marker
    if path == default.path and identity:
        return default.expect(identity, workspace)
    listed = read_store_list(default.list)
    if not path or path == default.path:
        return default.expect(listed.get(default.path, ""), workspace)
    if identity and id_or_empty(default.path) == identity:
        return default  # the store moved, and the settings name its new path
    if path in listed and identity in ("", listed[path]):
        return Place(path, default.durable, default.keys).expect(listed[path], workspace)
    # Never open a store that this user has not used, whatever a marker says.
    return default.expect(identity, workspace, path)


def _nearest_marker(default: Place, folder: bytes, own: bool) -> tuple[Marker | None, bool]:
    """Return the nearest marker that counts, and whether it is of its own folder.

    A marker from a cloned repository leads to no store, and one of another folder counts only if no workspace is around it.
    """
    registered = default.registered()
    vouched: Marker | None = None
    while True:
        folder_marker = marker(folder)
        if folder_marker is not None:
            verdict = judge(folder, folder_marker, default.path, default.list)
            if verdict in (HERE, LOST):
                return folder_marker, True
            if names_known_store(folder_marker, default.path, default.list):
                vouched = vouched or folder_marker
        if folder in registered:
            return (registered[folder], default.path, ""), True
        if own or folder in (b"/", b""):
            return vouched, False
        folder = folder.rpartition(b"/")[0] or b"/"


def _other_store_by_path(default: Place, folder: bytes, own: bool) -> Place | None:
    """Return another store that lists the folder, or one above it, by path: its marker may have been deleted."""
    for path, identity in read_store_list(default.list).items():
        if path == default.path:
            continue
        other = Place(path, default.durable, default.keys)
        registered, above = other.registered(), folder
        while registered and above not in registered and above not in (b"/", b"") and not own:
            above = above.rpartition(b"/")[0] or b"/"
        if above in registered:
            return other.expect(identity, registered[above])
    return None


def _missing_store_by_path(default: Place, folder: bytes, own: bool) -> Place | None:
    """Return the missing store of the folder, or of one above it, according to the user's own list of folders."""
    listed = read_folder_list(default.folders)
    while listed and folder not in listed and folder not in (b"/", b"") and not own:
        folder = folder.rpartition(b"/")[0] or b"/"
    identity, workspace = listed.get(folder, ("", ""))
    path = lost_store_path(identity, default.path, default.list) if identity else ""
    return Place(path, default.durable, default.keys).expect(identity, workspace) if path else None


def store_path(settings: Settings, data: str) -> str:
    return store_path_of(settings["store.url"], data)
