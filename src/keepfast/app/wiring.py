"""Settings → Engine: the only file that names concrete backends."""

from __future__ import annotations

from keepfast.settings import STORE_FLAGS
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
from keepfast.workspace.marker import marker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from keepfast.app.checkpoint import Engine
    from keepfast.settings import Settings
    from keepfast.workspace.marker import Marker


def build(
    settings: Settings, data: str, home: bytes, clock: Callable[[], int], folder: bytes | None = None, own: bool = False
) -> Engine:
    """Return the engine for work in `folder`; `data` is the user's data folder. See `place`."""
    from keepfast.app.checkpoint import Engine  # a hook that has nothing to save does without

    return Engine(place(settings, data, folder, own), settings, home, clock)


def place(settings: Settings, data: str, folder: bytes | None = None, own: bool = False) -> Place:
    """Return where the store is: the one that the workspace around `folder` is kept in, else the one of the settings.

    With `own` only the folder's own marker counts, not that of a workspace around it.
    """
    # Keys stay in the user's own folder, also where the store is elsewhere: on a shared disk they would open it for others.
    asked = Place(store_path(settings, data), settings["store.durable"], data + "/keys")
    if settings.origins.get("store.url") in STORE_FLAGS or folder is None:
        return asked.expect(read_store_list(asked.list).get(asked.path, ""))
    found, is_own = _said(asked, folder, own)
    if not is_own:
        other = _by_path(asked, folder, own)
        if other is not None:
            return other
    if found is None:
        away = _lost_by_path(asked, folder, own)
        if away is not None:
            return away
        lost = find_foreign(folder, asked.path, asked.list, own)
        if lost is not None and is_store_missing(lost[1], asked.path, asked.list):
            workspace, path, identity = lost[1]
            return asked.expect(identity, workspace, path)  # gone with the list of stores: none is begun in its place
        return asked.expect(read_store_list(asked.list).get(asked.path, ""))
    workspace, path, identity = found
    if path == asked.path and identity:
        return asked.expect(identity, workspace)
    known = read_store_list(asked.list)
    if not path or path == asked.path:
        return asked.expect(known.get(asked.path, ""), workspace)
    if identity and id_or_empty(asked.path) == identity:
        return asked  # it moved, and the settings say where to
    if path in known and identity in ("", known[path]):
        return Place(path, asked.durable, asked.keys).expect(known[path], workspace)
    # No store is opened that this user has not used, whatever a marker says.
    return asked.expect(identity, workspace, path)


def _said(asked: Place, folder: bytes, own: bool) -> tuple[Marker | None, bool]:
    """What the nearest marker says that counts, and whether it is its folder's own: one of a cloned repository leads to no
    store, and one of another folder only where no workspace is around it."""
    registered = asked.registered()
    apart: Marker | None = None
    while True:
        said = marker(folder)
        if said is not None:
            verdict = judge(folder, said, asked.path, asked.list)
            if verdict in (HERE, LOST):
                return said, True
            if names_known_store(said, asked.path, asked.list):
                apart = apart or said
        if folder in registered:
            return (registered[folder], asked.path, ""), True
        if own or folder in (b"/", b""):
            return apart, False
        folder = folder.rpartition(b"/")[0] or b"/"


def _by_path(asked: Place, folder: bytes, own: bool) -> Place | None:
    """The other store that knows the folder, or one above it, by its path: its marker may have been wiped."""
    for path, identity in read_store_list(asked.list).items():
        if path == asked.path:
            continue
        other = Place(path, asked.durable, asked.keys)
        known, above = other.registered(), folder
        while known and above not in known and above not in (b"/", b"") and not own:
            above = above.rpartition(b"/")[0] or b"/"
        if above in known:
            return other.expect(identity, known[above])
    return None


def _lost_by_path(asked: Place, folder: bytes, own: bool) -> Place | None:
    """The store of the folder, or of one above it, which took its list of folders with it: the user's own names it."""
    known = read_folder_list(asked.folders)
    while known and folder not in known and folder not in (b"/", b"") and not own:
        folder = folder.rpartition(b"/")[0] or b"/"
    identity, workspace = known.get(folder, ("", ""))
    path = lost_store_path(identity, asked.path, asked.list) if identity else ""
    return Place(path, asked.durable, asked.keys).expect(identity, workspace) if path else None


def store_path(settings: Settings, data: str) -> str:
    return store_path_of(settings["store.url"], data)
