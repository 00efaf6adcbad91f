"""Detect copies of sealed contents: what is sealed under one path must not be stored unencrypted under another."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING

from keepfast.model.entry import FILE
from keepfast.store.digest import blake3
from keepfast.store.rows import WorkspaceRow

if TYPE_CHECKING:
    from keepfast.store.repository import Repository

MIN_BYTES = 16
"""Shorter contents may be equal by chance: an empty `.env` says nothing about other empty files."""
MAX_NOTED, MAX_NOTED_BYTES = 100, 64 << 10
"""Most contents in `noted`, and most bytes of one."""


class SealedCopies:
    """The contents that are sealed in the newest version of a workspace, and those that the current save seals."""

    def __init__(self, repository: Repository, row: WorkspaceRow) -> None:
        self.repository, self.row = repository, row
        self._sealed_before: dict[int, set[bytes]] | None = None
        """Ids of sealed contents in the newest version, by size; None until they are loaded."""
        self._added: dict[int, set[bytes]] = {}
        """Digests of contents sealed by this save, by size. They stay in memory: on disk they would reveal the contents."""
        self.noted: dict[bytes, bytes] | None = None
        """Small contents sealed by this save, by id, if a caller collects them by setting a dict; None if nobody does."""

    def add(self, read: Callable[[int], bytes], seal: Callable[[Callable[[int], bytes]], bytes]) -> bytes:
        """Return the id that `seal` makes of the stream, and remember the content's digest."""
        total, size, parts = blake3(), 0, list[bytes]()

        def pull(most: int) -> bytes:
            nonlocal size
            data = read(most)
            total.update(data)
            size += len(data)
            if self.noted is not None and size <= MAX_NOTED_BYTES:
                parts.append(data)
            return data

        key = seal(pull)
        if self.noted is not None and size <= MAX_NOTED_BYTES and len(self.noted) < MAX_NOTED:
            self.noted[key] = b"".join(parts)
        self._added.setdefault(size, set()).add(total.digest())
        return key

    def has(self, size: int, data: bytes | None) -> bool:
        """Return whether this content is sealed under another path. If `data` is None, it is too large: its size decides."""
        if size < MIN_BYTES:
            return False
        if self._sealed_before is None:
            self._sealed_before = self._load()
        added, sealed_before = self._added.get(size), self._sealed_before.get(size)
        if data is None:
            return bool(added or sealed_before)
        if added and blake3(data).digest() in added:
            return True
        return sealed_before is not None and not sealed_before.isdisjoint(self._ids_of(data))

    def _load(self) -> dict[int, set[bytes]]:
        ids_by_size: dict[int, set[bytes]] = {}
        if self.row.version and self.row.tree and self.repository.contents.key_place is not None:
            for row in self.repository.sealed(self.row.id, MIN_BYTES):
                if row.kind == FILE:
                    ids_by_size.setdefault(row.size, set()).add(row.content)
        return ids_by_size

    def _ids_of(self, data: bytes) -> list[bytes]:
        return self.repository.contents.sealer().ids_of(BytesIO(data).read, self.repository.contents.has)
