"""Whom a marker belongs to: it counts only if a store of this user knows the folder by the id in it."""

from __future__ import annotations

from os import geteuid, stat
from os.path import lexists, realpath

from keepfast.store.small_files import folder_list_path, id_or_empty, read_folder_list, read_pairs, read_store_list
from keepfast.workspace.marker import Marker, is_same_folder, marker

Found = tuple[bytes, str, str]
"""A folder, the id of its workspace, and the verdict about its marker."""

KERNEL = ("/proc", "/sys", "/dev")
"""Folders in which a name means something else for each process."""
HERE, ELSEWHERE, LOST, UNKNOWN = "here", "elsewhere", "lost", "unknown"
"""Verdicts: this folder is registered; another folder is, with the same id; this user's store is out of reach; or no list of
folders has the id (the ledger may have it)."""


def find(start: bytes, store: str, stores: str) -> Found | None:
    """Return the nearest folder at or above `start` (absolute, resolved) that is a workspace of this user.

    `store` is the one of the settings, `stores` the list of those that this user has used. Skips markers that this user
    does not know, and within a workspace those of other folders: there they are ordinary files. Opens only small files: if
    the verdict is neither `HERE` nor `LOST`, only an engine can tell.
    """
    folder, registered = start, {path: workspace for workspace, path in read_pairs(store + "/paths")}
    other_folder: Found | None = None
    registered_folders: dict[bytes, tuple[str, str]] | None = None
    while True:
        found_marker = marker(folder)
        if found_marker is not None:
            verdict = judge(folder, found_marker, store, stores)
            if verdict == ELSEWHERE and folder not in registered:
                other_folder = other_folder or (folder, found_marker[0], verdict)
            elif verdict != UNKNOWN or names_known_store(found_marker, store, stores):
                return folder, found_marker[0], verdict
        if folder in registered:
            return folder, registered[folder], HERE  # its marker was deleted or replaced
        if registered_folders is None:
            registered_folders = read_folder_list(folder_list_path(stores))
        if (
            found_marker is None
            and folder in registered_folders
            and lost_store_path(registered_folders[folder][0], store, stores)
        ):
            return folder, registered_folders[folder][1], LOST
        if folder in (b"/", b""):
            return other_folder
        folder = folder.rpartition(b"/")[0] or b"/"


def lost_store_path(identity: str, store: str, stores: str) -> str:
    """Return the last path of the store with this id if it is at none of its known paths; otherwise ""."""
    places = [path.decode("utf-8", "surrogateescape") for store_id, path in read_pairs(stores) if store_id == identity]
    if not places or any(id_or_empty(place) == identity for place in (store, *places)):
        return ""
    return places[-1]


def judge(folder: bytes, found_marker: Marker, store: str, stores: str) -> str:
    """Return the verdict about a folder's marker that small files allow."""
    workspace, path, identity = found_marker
    if path in ("", store) and (workspace, folder) in read_pairs(store + "/paths"):
        return HERE  # by far the most frequent case; needs no list of stores
    store_ids = read_store_list(stores)
    candidates = [path] if path in store_ids else []
    candidates += [
        other for other, store_id in store_ids.items() if identity and store_id == identity and other != path
    ]
    for other in dict.fromkeys([*candidates, store]):
        pairs = read_pairs(other + "/paths")
        if (workspace, folder) in pairs:
            return HERE
        for store_id, where in pairs:
            if store_id == workspace:
                return HERE if is_same_folder(folder, where) else ELSEWHERE
    return LOST if _is_lost(found_marker, store, stores) else UNKNOWN


def names_known_store(found_marker: Marker, store: str, stores: str) -> bool:
    """Return whether the marker names a store that this user has used. Nobody else knows its id."""
    _, path, identity = found_marker
    if not identity:
        return path in ("", store) or path in read_store_list(stores)
    return identity == id_or_empty(store) or any(store_id == identity for store_id, _ in read_pairs(stores))


def find_foreign(start: bytes, store: str, stores: str, own: bool = False) -> tuple[bytes, Marker] | None:
    """Return the nearest folder at or above `start` whose marker names a store that this user has not used, and that marker.

    It may come with a repository, or from another environment of the user. With `own`, only `start` is checked.
    """
    folder = start
    while True:
        found_marker = marker(folder)
        if found_marker is not None and is_foreign(folder, found_marker, store, stores):
            return folder, found_marker
        if own or folder in (b"/", b""):
            return None
        folder = folder.rpartition(b"/")[0] or b"/"


def is_foreign(folder: bytes, found_marker: Marker, store: str, stores: str) -> bool:
    """Return whether the marker names a store that this user has not used, for a folder that none of this user's stores knows."""
    if not found_marker[1] or names_known_store(found_marker, store, stores):
        return False
    return judge(folder, found_marker, store, stores) == UNKNOWN


def is_store_missing(found_marker: Marker, store: str, stores: str) -> bool:
    """Return whether the marker names this user's usual place for a store, while there is no store.

    Then the list of stores may be lost as well. A repository that names that place gains nothing: no store exists there.
    """
    places = (store, stores.rpartition("/")[0] + "/store")
    if not any(found_marker[1] == place or found_marker[1].startswith(place + "/") for place in places):
        return False
    return not any(id_or_empty(place) for place in (*places, found_marker[1]))


def is_genuine_store(found_marker: Marker, home: bytes) -> bool:
    """Return whether the store that the marker names exists, belongs to this user, and lies outside of any repository."""
    _, path, identity = found_marker
    real = realpath(path)
    if not identity or any(real == top or real.startswith(top + "/") for top in KERNEL):
        return False
    try:
        if stat(real).st_uid != geteuid() or id_or_empty(real) != identity:
            return False
    except (OSError, ValueError):
        return False
    above, within = real, home.decode("utf-8", "surrogateescape").rstrip("/") + "/"
    while above != "/" and not within.startswith(above + "/"):
        if lexists(above + "/.git") or lexists(above + "/.keepfast/workspace.json"):
            return False
        above = above.rpartition("/")[0] or "/"
    return True


def _is_lost(found_marker: Marker, store: str, stores: str) -> bool:
    """Return whether the store that the marker names is unreachable, and was this user's."""
    _, path, identity = found_marker
    if not identity:
        return read_store_list(stores).get(path or store, "") != "" and not id_or_empty(path or store)
    if not any(store_id == identity for store_id, _ in read_pairs(stores)):
        return False
    places = {path, store, *[other for other, store_id in read_store_list(stores).items() if store_id == identity]}
    return not any(id_or_empty(place) == identity for place in places if place)
