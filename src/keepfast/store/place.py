"""The location of a store and its checks that need no open store, for hooks that may have nothing to save."""

from __future__ import annotations

from collections.abc import Iterable
from os import stat

from keepfast.model.errors import Damaged, NoWorkspace, Usage
from keepfast.store.factory import create_store, open_store
from keepfast.store.known_stores import write_pairs
from keepfast.store.repository import Repository
from keepfast.store.small_files import (
    folder_list_path,
    head_of_log,
    id_or_empty,
    missing_store,
    read_pairs,
    read_store_list,
    store_id,
)


class Place:
    """The location of a store, and what is known about it without opening it."""

    __slots__ = ("durable", "expected", "expected_path", "keys", "path", "workspace")

    def __init__(self, path: str, durable: bool = True, keys: str = "") -> None:
        self.path, self.durable = path, durable
        self.keys = keys or path.rpartition("/")[0] + "/keys"
        self.expected = ""
        """The id that the store must have; empty: any."""
        self.workspace = ""
        """The workspace that the caller needs, if that is known."""
        self.expected_path = path
        """Where the expected store is recorded to be."""

    def expect(self, identity: str, workspace: str = "", recorded_path: str = "") -> Place:
        """Require an existing store and, for a workspace, the one with this id; otherwise `id` raises `MissingStore`.

        Without a workspace, a store with another id is accepted.
        """
        self.expected, self.workspace, self.expected_path = identity, workspace, recorded_path or self.path
        return self

    def id(self) -> str:
        """Return the store's id. Raises `MissingStore` if it is not the expected one, and as `store_id` does."""
        try:
            identity = store_id(self.path)
        except NoWorkspace:
            if not self.expected:
                raise
            if self._lacks_only_format():
                raise Damaged(f"{self.path}/format is missing.", "Run `keepfast verify --repair`.") from None
            raise missing_store(self.expected_path) from None
        # Another store may have the workspace too, from before a new history was started: that is not this history.
        if self.workspace and self.expected and identity != self.expected:
            raise missing_store(self.expected_path)
        return identity

    def check_folders(self) -> None:
        """Raise `Damaged` if a folder that holds checkpoints is missing: a save must not go on as if all were well."""
        for name in ("packs", "log"):
            try:
                stat(f"{self.path}/{name}")
            except FileNotFoundError:
                self.id()  # a store that is not there at all is another matter
                raise Damaged(
                    f"{self.path}/{name} is missing, and with it checkpoints.",
                    "If you have a copy, put it back. Otherwise run `keepfast verify --repair`, which "
                    "repairs what it can and lists the rest.",
                ) from None
            except OSError:
                return  # opening the store reports what is wrong

    def check_marker(self, workspace: str, store: str, identity: str, root: bytes = b"") -> None:
        """Raise unless a workspace whose marker names the store `store` belongs in this one, or `root` is registered here.

        Anybody may have written a marker, so no other store is opened because of it.
        """
        if not identity or (store == self.path and identity == self.expected):
            return
        if root and root in self.registered():
            return
        if identity == id_or_empty(self.path) or (store == self.path and self.knows(workspace)):
            return
        if store != self.path and read_store_list(self.list).get(store) == identity:
            if id_or_empty(store) == identity:
                raise Usage(
                    f"This folder's checkpoints are in the store {store}, not in {self.path}.",
                    "Omit --store. To start a new history in DIR, run `keepfast --store DIR init --new-store`.",
                )
        elif self.knows(workspace):
            return
        raise missing_store(store)

    def knows(self, workspace: str) -> bool:
        return bool(workspace) and workspace in self.registered().values()

    @property
    def list(self) -> str:
        """Path of the list of stores that this user has used."""
        return self.keys.rpartition("/")[0] + "/stores"

    @property
    def folders(self) -> str:
        """Path of the list of folders whose stores lie outside the data folder."""
        return folder_list_path(self.list)

    def is_in_data_folder(self) -> bool:
        """Return whether the store lies in the user's data folder, where it is found without an entry in the list of stores."""
        return self.path.rpartition("/")[0] == self.list.rpartition("/")[0]

    def replaces_lost_store(self) -> bool:
        """Return whether another store was at this path, whose present location is unknown."""
        path, known_ids = self.path.encode("utf-8", "surrogateescape"), read_store_list(self.list).values()
        return any(where == path and identity not in known_ids for identity, where in read_pairs(self.list))

    @property
    def unprotected(self) -> str:
        """Path of the list of folders that hooks must not protect."""
        return self.keys.rpartition("/")[0] + "/unprotected"

    def head(self, workspace: str) -> tuple[int, bytes]:
        """Return size and last digest (hex) of the workspace's log: together they identify its contents."""
        return head_of_log(f"{self.path}/log/{workspace}.log")

    def folder(self, workspace: str) -> str:
        return f"{self.path}/workspaces/{workspace}"

    def open(self, small_cache: bool = False) -> Repository:
        """Open the store. `small_cache`: use little memory; for a second connection beside one that is open already."""
        if self.expected:
            self.id()
        return open_store(self.path, durable=self.durable, keys=self.keys, small_cache=small_cache)

    def create(self, new_store: bool = False) -> Repository:
        """Open the store, or create it. `new_store`: create it even if a missing store is expected here."""
        if new_store:
            self.expected = ""
        if self.expected and not self._lacks_only_format():
            self.id()
        return create_store(self.path, durable=self.durable, keys=self.keys, identity=self.expected)

    def _lacks_only_format(self) -> bool:
        """Return whether the format file is the only part of the store that is missing, so that it can be written again."""
        try:
            stat(self.path + "/ledger.db")
            stat(self.path + "/format")
        except OSError as error:
            return str(error.filename).endswith("/format") and isinstance(error, FileNotFoundError)
        return False

    def registered(self) -> dict[bytes, str]:
        """Return workspaces by folder, from the list in the store; the ledger is authoritative."""
        return {path: workspace for workspace, path in read_pairs(self.path + "/paths")}

    def list_paths(self, workspaces: Iterable[tuple[str, bytes]]) -> None:
        write_pairs(self.path + "/paths", workspaces, self.path + "/tmp")
