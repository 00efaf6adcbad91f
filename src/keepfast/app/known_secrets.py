"""Values of a workspace's sealed files, struck out of what is told of the work: commands repeat them in any form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepfast.model.entry import FILE
from keepfast.model.errors import KeepfastError
from keepfast.secrets.cuts import head
from keepfast.secrets.redaction import redact
from keepfast.secrets.values import SHORTEST, redact_values, values_of

if TYPE_CHECKING:
    from keepfast.model.entry import Entry
    from keepfast.model.event import Event
    from keepfast.store.repository import Repository
    from keepfast.store.save import CheckpointWriter

MOST_FILES, LARGEST = 100, 64 << 10
"""Sealed files, and their bytes, that are looked into: somebody may wait for the brief."""
SUMMARY = 80
"""Characters of a summary. It is cut when it has no secrets any more: half of one would not be recognised."""


class KnownSecrets:
    """What the newest version of one workspace has sealed; read when the first text is to be told."""

    def __init__(self, repository: Repository, workspace: str) -> None:
        self.repository, self.workspace = repository, workspace
        self._values: set[str] | None = None

    def add(self, path: bytes, content: bytes) -> None:
        """Know the values of one more file, which is about to be sealed."""
        if self._values is None:
            self._values = self._load()
        self._values |= values_of(path, content)

    def strike(self, text: str) -> str:
        """Return the text without what looks like a secret, and without the values of sealed files."""
        if self._values is None:
            self._values = self._load()
        return redact(redact_values(text, self._values))

    def strike_all(self, value: Any) -> Any:
        """The same for every text of a JSON value."""
        if isinstance(value, str):
            return self.strike(value)
        if isinstance(value, list):
            return [self.strike_all(one) for one in value]
        return {key: self.strike_all(one) for key, one in value.items()} if isinstance(value, dict) else value

    def _load(self) -> set[str]:
        values: set[str] = set()
        try:
            rows = self.repository.sealed(self.workspace, SHORTEST)
        except KeepfastError:
            return values
        for row in [row for row in rows if row.kind == FILE and row.size <= LARGEST][:MOST_FILES]:
            try:
                values |= values_of(row.path, self.repository.contents.load(row.content))
            except KeepfastError:
                continue  # its key is not at hand, or it is damaged: nothing of it can be told either
        return values


def guard(event: Event, saving: CheckpointWriter, changed: list[Entry]) -> None:
    """Redact in an event's texts what sealed files hold, those of the newest version and those of this save."""
    secrets, noted = KnownSecrets(saving.repository, saving.row.id), saving.copies.noted or {}
    for entry in [entry for entry in changed if entry.content in noted]:
        secrets.add(entry.path, noted[entry.content])
    event.message, summary = secrets.strike(event.message), secrets.strike(event.summary)
    event.summary = summary if len(summary) <= SUMMARY else head(summary, SUMMARY - 1) + "…"
    event.tags = tuple(dict.fromkeys([secrets.strike(tag) for tag in event.tags]))
    event.key_points = tuple([secrets.strike(point) for point in event.key_points])
    if event.notes is not None:
        told = ("analysis", "stated")
        event.notes = {key: secrets.strike_all(one) if key in told else one for key, one in event.notes.items()}
