"""Open and create stores, with their backends: files on the local disk and a ledger in SQLite."""

from __future__ import annotations

from os import O_CLOEXEC, O_CREAT, O_RDWR, close, rename, unlink, urandom
from os import open as open_fd

from keepfast.fsutil.durable import Lock, exists, explain, make_folder, make_folders, replace, sync_folder
from keepfast.model.errors import NoWorkspace
from keepfast.model.frozen import STORE
from keepfast.store.ledger.sqlite import SqliteLedger
from keepfast.store.ledger.sqlite_file import CACHE, SMALL_CACHE
from keepfast.store.local import LocalBlobs, LocalRecords
from keepfast.store.repository import Repository
from keepfast.store.reserve import ensure_reserve
from keepfast.store.small_files import FORMAT, store_id

RECREATABLE_FOLDERS, CONTENT_FOLDERS = ("tmp", "workspaces"), ("packs", "log")
FOLDERS = (*CONTENT_FOLDERS, *RECREATABLE_FOLDERS)
"""The folders of a store. The first two hold checkpoints, so only a repair may recreate them."""


def open_store(path: str, *, durable: bool = True, keys: str = "", small_cache: bool = False) -> Repository:
    """Return the repository in this folder; `keys` is where its keys lie. Raises as `store_id` does.

    `small_cache`: use little memory; for a second connection beside one that is open already.
    """
    identity = store_id(path)
    recreate_folders(path, RECREATABLE_FOLDERS)
    cache = SMALL_CACHE if small_cache else CACHE
    repository = Repository(
        identity,
        LocalBlobs(path, durable),
        LocalRecords(path, durable),
        SqliteLedger(path + "/ledger.db", path + "/lock", durable=durable, cache=cache),
    )
    repository.folder = path
    repository.contents.key_place = path, keys or path.rpartition("/")[0] + "/keys", durable
    return repository


def create_store(path: str, *, durable: bool = True, keys: str = "", identity: str = "") -> Repository:
    """Create a store in this folder unless there is one, and open it. `identity`: the id to give it; empty for a new one."""
    try:
        store_id(path)
    except NoWorkspace:
        try:
            make_folders(path)
            with Lock(path + "/lock"):
                if not exists(path + "/format"):
                    for name in FOLDERS:
                        make_folder(f"{path}/{name}")
                    for name in ("compact.lock", "log/store.log"):
                        _touch(
                            f"{path}/{name}"
                        )  # created now, because compaction needs them when the disk may have no free inode
                    if not exists(
                        path + "/ledger.db"
                    ):  # it is renamed into place when complete, so an existing one is good
                        _make_ledger(path, durable)
                    ensure_reserve(path)
                    # The format file comes last: a folder without it is not a store yet.
                    write_format_file(path, identity or urandom(16).hex())
        except OSError as error:
            raise explain(error, "Creating the store", path) from None
    return open_store(path, durable=durable, keys=keys)


def _make_ledger(path: str, durable: bool) -> None:
    """Create an empty ledger under a temporary name and rename it into place."""
    new = f"{path}/tmp/ledger-{urandom(6).hex()}"
    _remove(path + "/ledger.db-journal")
    SqliteLedger(new, new + "-lock", durable=durable, create=True)
    rename(new, path + "/ledger.db")
    sync_folder(path)
    for leftover in ("-lock", "-journal"):
        _remove(new + leftover)


def recreate_folders(path: str, names: tuple[str, ...]) -> list[str]:
    """Create those of these folders that are missing, if the store can be written; return their names."""
    missing = [name for name in names if not exists(f"{path}/{name}")]
    for name in list(missing):
        try:
            make_folder(f"{path}/{name}")
        except OSError:
            missing.remove(name)  # the code that needs it reports the error
    return missing


def write_format_file(path: str, identity: str) -> None:
    text = f"{STORE}\nversion {FORMAT}\nid {identity}\n"
    replace(path + "/format", text.encode("ascii"), growing=path + "/tmp")


def _remove(path: str) -> None:
    try:
        unlink(path)
    except FileNotFoundError:
        pass


def _touch(path: str) -> None:
    close(open_fd(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600))
