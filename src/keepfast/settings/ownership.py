"""Whose marker it is: one counts only where a store of this user knows that very folder by the id in it."""

from __future__ import annotations

from keepfast.store.small_files import folder_list_path, id_or_empty, read_folder_list, read_pairs, read_store_list
from keepfast.workspace.marker import is_same_folder, marker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from keepfast.workspace.marker import Marker

    Found = tuple[bytes, str, str]
    """A folder, the id of its workspace, and the verdict about its marker."""

KERNEL = ("/proc", "/sys", "/dev")
"""Here a name means another folder for each process."""
HERE, ELSEWHERE, LOST, UNKNOWN = "here", "elsewhere", "lost", "unknown"
"""Verdicts: the folder is the one that is registered; another one is; the store is out of reach and was this user's; or no
list of folders has the id, which the ledger may."""


def find(start: bytes, store: str, stores: str) -> Found | None:
    """Return the nearest folder at or above `start` (absolute, resolved) that is a workspace of this user.

    `store` is the one of the settings, `stores` the list of those that this user has used. Markers of nobody here are
    passed over, and those of other folders within a workspace: there they are ordinary files. Nothing is opened but small
    files: where the verdict is neither `HERE` nor `LOST`, only an engine can tell.
    """
    folder, registered = start, {path: workspace for workspace, path in read_pairs(store + "/paths")}
    apart: Found | None = None
    away: dict[bytes, tuple[str, str]] | None = None
    while True:
        said = marker(folder)
        if said is not None:
            verdict = judge(folder, said, store, stores)
            if verdict == ELSEWHERE and folder not in registered:
                apart = apart or (folder, said[0], verdict)
            elif verdict != UNKNOWN or is_vouched(said, store, stores):
                return folder, said[0], verdict
        if folder in registered:
            return folder, registered[folder], HERE  # its marker was wiped, or something else lies in its place
        if away is None:
            away = read_folder_list(folder_list_path(stores))
        if said is None and folder in away and lost_store(away[folder][0], store, stores):
            return folder, away[folder][1], LOST
        if folder in (b"/", b""):
            return apart
        folder = folder.rpartition(b"/")[0] or b"/"


def lost_store(identity: str, store: str, stores: str) -> str:
    """Return where the store with this id was last, if it is in none of the places in which it may be; else nothing."""
    places = [path.decode("utf-8", "surrogateescape") for its, path in read_pairs(stores) if its == identity]
    if not places or any(id_or_empty(place) == identity for place in (store, *places)):
        return ""
    return places[-1]


def judge(folder: bytes, said: Marker, store: str, stores: str) -> str:
    """Return the verdict about a folder's marker, as far as small files tell."""
    workspace, path, identity = said
    if path in ("", store) and (workspace, folder) in read_pairs(store + "/paths"):
        return HERE  # as nearly always: the user's list is not even read
    known = read_store_list(stores)
    asked = [path] if path in known else []
    asked += [other for other, its in known.items() if identity and its == identity and other != path]
    for other in dict.fromkeys([*asked, store]):
        pairs = read_pairs(other + "/paths")
        if (workspace, folder) in pairs:
            return HERE
        for its, where in pairs:
            if its == workspace:
                return HERE if is_same_folder(folder, where) else ELSEWHERE
    return LOST if _is_lost(said, store, stores) else UNKNOWN


def is_vouched(said: Marker, store: str, stores: str) -> bool:
    """Does the marker name a store that this user has used? Its id is known to nobody else."""
    _, path, identity = said
    if not identity:
        return path in ("", store) or path in read_store_list(stores)
    return identity == id_or_empty(store) or any(its == identity for its, _ in read_pairs(stores))


def strange(start: bytes, store: str, stores: str, own: bool = False) -> tuple[bytes, Marker] | None:
    """Return the nearest folder at or above `start` whose marker names a store that this user has not used, and that marker.

    It may have come with a repository, or the user's other environment has written it. With `own` only `start` counts.
    """
    folder = start
    while True:
        said = marker(folder)
        if said is not None and is_strange(folder, said, store, stores):
            return folder, said
        if own or folder in (b"/", b""):
            return None
        folder = folder.rpartition(b"/")[0] or b"/"


def is_strange(folder: bytes, said: Marker, store: str, stores: str) -> bool:
    """Does the marker name a store that this user has not used, for a folder that no store of his knows by it?"""
    if not said[1] or is_vouched(said, store, stores):
        return False
    return judge(folder, said, store, stores) == UNKNOWN


def is_gone(said: Marker, store: str, stores: str) -> bool:
    """Does the marker name this user's own place for a store, and there is none at all?

    Then the list of stores may have gone with it. A repository that names it gains nothing: there is nothing to see.
    """
    places = (store, stores.rpartition("/")[0] + "/store")
    if not any(said[1] == place or said[1].startswith(place + "/") for place in places):
        return False
    return not any(id_or_empty(place) for place in (*places, said[1]))


def is_real(said: Marker, home: bytes) -> bool:
    """Is the store that the marker names really there, this user's own, and nothing that a repository can have brought?"""
    from os.path import lexists, realpath
    from posix import geteuid, stat

    _, path, identity = said
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


def _is_lost(said: Marker, store: str, stores: str) -> bool:
    """Is the store that the marker names out of reach, and was it this user's?"""
    _, path, identity = said
    if not identity:
        return read_store_list(stores).get(path or store, "") != "" and not id_or_empty(path or store)
    if not any(its == identity for its, _ in read_pairs(stores)):
        return False
    places = {path, store, *[other for other, its in read_store_list(stores).items() if its == identity]}
    return not any(id_or_empty(place) == identity for place in places if place)
