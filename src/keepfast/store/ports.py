"""The small ports behind which every backend lives, and the rows that pass through them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from keepfast.model.entry import Entry
from keepfast.store.rows import CheckpointRow, Location, PackRow, Query, WorkspaceRow


class Upload(Protocol):
    """An object being written; nobody sees it until `finish`."""

    def write(self, data: bytes) -> None: ...
    def sync(self) -> None:
        """Every byte is durable when this returns."""

    def finish(self, name: str) -> None:
        """Give it its name, durably. `sync` comes first."""

    def abort(self) -> None: ...


class Blobs(Protocol):
    """Immutable named objects: pack files here, an object store elsewhere."""

    def create(self) -> Upload: ...
    def read(self, name: str, offset: int, length: int) -> bytes:
        """Exactly the bytes asked for. Raises `FileNotFoundError` if there is no such object, `EOFError` if it is short."""

    def descriptor(self, name: str) -> int:
        """A descriptor to read it from, which the caller closes; -1 where objects are no files. Raises `FileNotFoundError`."""

    def size(self, name: str) -> int: ...
    def names(self) -> list[str]: ...
    def delete(self, name: str) -> None:
        """Remove it; no error if it is gone already."""

    def sweep(self) -> int:
        """Remove what dead writers left behind; return how many."""

    def close(self) -> None: ...


class Records(Protocol):
    """Append-only logs of lines, durable one by one."""

    def append(self, log: str, lines: bytes) -> None: ...
    def read(self, log: str) -> bytes: ...
    def size(self, log: str) -> int: ...
    def truncate(self, log: str, size: int) -> None: ...
    def logs(self) -> list[str]: ...
    def remove(self, log: str) -> None:
        """Take a log away as a whole; no error if it is gone already."""


class Transaction(Protocol):
    """Writes that become visible and durable together, when the context ends without an error."""

    def add_workspace(self, row: WorkspaceRow) -> None: ...
    def update_workspace(self, row: WorkspaceRow) -> None: ...
    def drop_workspace(self, workspace: str) -> None:
        """Take a workspace away with all its checkpoints, intervals and tags."""

    def add_pack(self, name: str, size: int, entries: Iterable[tuple[bytes, Location]]) -> None:
        """Register a pack; a blob that has a place already keeps it."""

    def drop_packs(self, names: Sequence[str], moved: Iterable[tuple[bytes, Location]]) -> None:
        """Forget packs and all blobs in them, except those in `moved`, which are elsewhere now."""

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
        """From `version` on, the paths in `rows` are as given (kind `-`: gone); `whole`: and there are no others.

        `existing_paths`: of these paths, those that were there up to now; None if nobody has looked.
        """

    def drop_intervals(self, workspace: str, after: int, upto: int) -> int:
        """Drop what is only needed by versions v with after < v < upto; return the bytes of files dropped."""

    def set_meta(self, key: str, value: str) -> None: ...
    def set_attachments(self, workspace: str, version: int, ids: Sequence[bytes]) -> None:
        """Note what a version needs besides its files; nothing, if `ids` is empty."""


class Ledger(Protocol):
    """Questions about checkpoints, answered quickly."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Wait for other writers, then write. Whoever is inside may read what it wrote."""

    def workspace(self, workspace: str) -> WorkspaceRow | None: ...
    def workspaces(self) -> list[WorkspaceRow]: ...
    def checkpoint(self, workspace: str, version: int) -> CheckpointRow | None: ...
    def find(self, query: Query) -> list[CheckpointRow]:
        """Newest first. Forgotten ones only if the query asks for them."""

    def count(self, workspace: str) -> int:
        """How many checkpoints there are: without those that were forgotten."""

    def current(self, workspace: str, paths: Sequence[bytes]) -> dict[bytes, Entry]:
        """The newest state of these paths; those that are not there are missing."""

    def state(self, workspace: str, version: int, below: bytes = b"") -> Iterator[Entry]:
        """Every row of a version, sorted by path; `below` limits it to one path and what lies under it."""

    def left_out(self, workspace: str, version: int, below: bytes = b"") -> list[Entry]:
        """The rows of a version that name what was left out, sorted by path; `below` limits it as that of `state`."""

    def sealed(self, workspace: str, least: int) -> list[Entry]:
        """The rows of the newest version that are sealed, from this size on."""

    def at(self, workspace: str, version: int, path: bytes) -> Entry | None: ...
    def history(self, workspace: str, path: bytes) -> list[tuple[int, int | None, Entry]]:
        """(since, until, row) of one path, oldest first."""

    def intervals(self, workspace: str) -> Iterator[tuple[int, int | None, Entry]]:
        """Every interval, sorted by path and since."""

    def paths(self, workspace: str, text: bytes, limit: int) -> list[bytes]:
        """Paths of any version that contain `text` (ASCII letters in either case)."""

    def locate(self, digests: Sequence[bytes]) -> dict[bytes, Location]: ...
    def existing_digests(self, digests: Sequence[bytes]) -> set[bytes]:
        """Those of them that can be located."""

    def locations(self) -> Iterator[tuple[bytes, Location]]: ...
    def packs(self) -> list[PackRow]: ...
    def needed_contents(self) -> set[bytes]:
        """Digests of every file content that some interval refers to, and of what versions need besides."""

    def attachments(self, workspace: str) -> dict[int, list[bytes]]:
        """What versions need besides their files."""

    def meta(self, key: str) -> str | None: ...
    def vacuum(self) -> None:
        """Give unused room back to the disk, where that pays. The caller holds no transaction."""

    def close(self) -> None: ...
