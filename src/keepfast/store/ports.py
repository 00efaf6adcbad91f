"""The ports of a store's backends: blobs, records (logs) and ledger."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from keepfast.model.entry import Entry
from keepfast.store.rows import CheckpointRow, Location, PackRow, Query, WorkspaceRow


class Upload(Protocol):
    """An object being written; it is invisible until `finish`."""

    def write(self, data: bytes) -> None: ...
    def sync(self) -> None:
        """Make every byte durable."""

    def finish(self, name: str) -> None:
        """Give the object its name, durably. The caller calls `sync` first."""

    def abort(self) -> None: ...


class Blobs(Protocol):
    """Immutable named objects: pack files here, an object store elsewhere."""

    def create(self) -> Upload: ...
    def read(self, name: str, offset: int, length: int) -> bytes:
        """Return exactly these bytes. Raises `FileNotFoundError` if there is no such object, `EOFError` if it is too short."""

    def descriptor(self, name: str) -> int:
        """Return a file descriptor, which the caller closes; -1 if objects are not files. Raises `FileNotFoundError`."""

    def size(self, name: str) -> int: ...
    def names(self) -> list[str]: ...
    def delete(self, name: str) -> None:
        """Remove the object; no error if it does not exist."""

    def sweep(self) -> int:
        """Remove unfinished objects of dead writers; return how many."""

    def close(self) -> None: ...


class Records(Protocol):
    """Append-only logs of lines, durable one by one."""

    def append(self, log: str, lines: bytes) -> None: ...
    def read(self, log: str) -> bytes: ...
    def size(self, log: str) -> int: ...
    def truncate(self, log: str, size: int) -> None: ...
    def logs(self) -> list[str]: ...
    def remove(self, log: str) -> None:
        """Remove a log; no error if it does not exist."""


class Transaction(Protocol):
    """Writes that become visible and durable together, when the context ends without an error."""

    def add_workspace(self, row: WorkspaceRow) -> None: ...
    def update_workspace(self, row: WorkspaceRow) -> None: ...
    def drop_workspace(self, workspace: str) -> None:
        """Remove a workspace with all its checkpoints, intervals and tags."""

    def add_pack(self, name: str, size: int, entries: Iterable[tuple[bytes, Location]]) -> None:
        """Register a pack; a blob that is registered already keeps its location."""

    def drop_packs(self, names: Sequence[str], moved: Iterable[tuple[bytes, Location]]) -> None:
        """Remove packs and all blobs in them, except those in `moved`, which get these locations."""

    def add_checkpoint(self, row: CheckpointRow) -> None: ...
    def update_checkpoint(self, row: CheckpointRow) -> None: ...
    def apply(
        self,
        workspace: str,
        version: int,
        rows: Iterable[Entry],
        whole: bool = False,
        existing_paths: Container[bytes] | None = None,
    ) -> None:
        """Apply a version's changed `rows` (kind `-`: deleted); `whole`: they are the whole state.

        `existing_paths`: which of these paths existed before; None if that is not known.
        """

    def drop_intervals(self, workspace: str, after: int, upto: int) -> int:
        """Remove intervals that only versions v with after < v < upto need; return the bytes of their files."""

    def set_meta(self, key: str, value: str) -> None: ...
    def set_attachments(self, workspace: str, version: int, ids: Sequence[bytes]) -> None:
        """Record the contents that a version needs besides its files; an empty `ids` removes the record."""


class Ledger(Protocol):
    """The index over packs and logs."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction after waiting for other writers. Reads inside see what it wrote."""

    def workspace(self, workspace: str) -> WorkspaceRow | None: ...
    def workspaces(self) -> list[WorkspaceRow]: ...
    def checkpoint(self, workspace: str, version: int) -> CheckpointRow | None: ...
    def find(self, query: Query) -> list[CheckpointRow]:
        """Return the checkpoints that match, newest first; forgotten ones only if the query asks for them."""

    def count(self, workspace: str) -> int:
        """Return the number of checkpoints, without forgotten ones."""

    def current(self, workspace: str, paths: Sequence[bytes]) -> dict[bytes, Entry]:
        """Return the newest state of these paths; those that do not exist are missing."""

    def state(self, workspace: str, version: int, below: bytes = b"") -> Iterator[Entry]:
        """Yield every row of a version, sorted by path; `below` limits it to one path and what lies under it."""

    def left_out(self, workspace: str, version: int, below: bytes = b"") -> list[Entry]:
        """Return a version's rows of excluded paths, sorted by path; `below` limits it as in `state`."""

    def sealed(self, workspace: str, least: int) -> list[Entry]:
        """Return the sealed rows of the newest version that have at least this size."""

    def at(self, workspace: str, version: int, path: bytes) -> Entry | None: ...
    def history(self, workspace: str, path: bytes) -> list[tuple[int, int | None, Entry]]:
        """Return (since, until, row) of one path, oldest first."""

    def intervals(self, workspace: str) -> Iterator[tuple[int, int | None, Entry]]:
        """Yield every (since, until, row), sorted by path and since."""

    def paths(self, workspace: str, text: bytes, limit: int) -> list[bytes]:
        """Return paths of any version that contain `text` (ASCII letters in either case)."""

    def locate(self, digests: Sequence[bytes]) -> dict[bytes, Location]: ...
    def existing_digests(self, digests: Sequence[bytes]) -> set[bytes]:
        """Return those of the digests that can be located."""

    def locations(self) -> Iterator[tuple[bytes, Location]]: ...
    def packs(self) -> list[PackRow]: ...
    def needed_contents(self) -> set[bytes]:
        """Return the digests of every file content in an interval, and of all attachments."""

    def attachments(self, workspace: str) -> dict[int, list[bytes]]:
        """Return by version the contents that it needs besides its files."""

    def meta(self, key: str) -> str | None: ...
    def vacuum(self) -> None:
        """Return unused space to the disk if it is worth it. The caller holds no transaction."""

    def close(self) -> None: ...
