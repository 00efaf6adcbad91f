"""Opening a store, making a new one, and what may be wrong with either."""

from __future__ import annotations

from posix import stat, urandom

from holdfast.core.errors import NoWorkspace
from holdfast.store.local import LocalBlobs, LocalRecords, Lock, explain, make_folder, replace, sync_folder
from holdfast.store.place import FORMAT, store_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.store.repository import Repository

RESERVE = 1 << 20
FOLDERS = ("packs", "log", "tmp", "workspaces")


def open_store(path: str, *, durable: bool = True) -> Repository:
    """Return the repository in this folder. Raises as `store_id` does."""
    identity = store_id(path)
    from holdfast.store.repository import Repository
    from holdfast.store.sqlite import SqliteLedger

    return Repository(
        identity,
        LocalBlobs(path, durable),
        LocalRecords(path, durable),
        SqliteLedger(path + "/ledger.db", path + "/lock", durable=durable),
    )


def create_store(path: str, *, durable: bool = True) -> Repository:
    """Make a store in this folder unless there is one, and open it."""
    try:
        store_id(path)
    except NoWorkspace:
        from holdfast.store.sqlite import SqliteLedger

        try:
            _make_folders(path)
            with Lock(path + "/lock"):
                if not _exists(path + "/format"):
                    for name in FOLDERS:
                        make_folder(f"{path}/{name}")
                    if not _exists(path + "/ledger.db"):
                        SqliteLedger(path + "/ledger.db", path + "/lock", durable=durable, create=True)
                    make_reserve(path)
                    # The format file comes last: a folder without it is not a store yet.
                    describe(path, urandom(16).hex())
        except OSError as error:
            raise explain(error, "Making the store", path) from None
    return open_store(path, durable=durable)


def describe(path: str, identity: str) -> None:
    replace(path + "/format", f"holdfast store\nversion {FORMAT}\nid {identity}\n".encode("ascii"))


def make_reserve(path: str) -> None:
    """Keep a little space that `forget` can give back when the disk is full."""
    if not _exists(path + "/reserve"):
        try:
            replace(path + "/reserve", bytes(RESERVE))
        except OSError:
            pass


def _make_folders(path: str) -> None:
    missing = []
    while not _exists(path):
        missing.append(path)
        path = path.rpartition("/")[0] or "/"
    for folder in reversed(missing):
        make_folder(folder)
        sync_folder(folder.rpartition("/")[0] or "/")


def _exists(path: str) -> bool:
    try:
        stat(path)
    except FileNotFoundError:
        return False
    return True
