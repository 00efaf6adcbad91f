"""Redacts the values of a workspace's sealed files in texts about the work: commands repeat them in any form."""

from __future__ import annotations

from typing import Any

from keepfast.model.entry import FILE, Entry
from keepfast.model.errors import KeepfastError
from keepfast.model.event import Event
from keepfast.secrets.cuts import head
from keepfast.secrets.redaction import redact
from keepfast.secrets.values import MIN_VALUE_LENGTH, SealedFile, redact_values
from keepfast.store.repository import Repository
from keepfast.store.save import CheckpointWriter

MAX_FILES, MAX_FILE_BYTES = 100, 64 << 10
"""How many sealed files are read, up to which size: somebody may wait for the brief."""
MAX_SUMMARY_CHARS = 80
"""Length of a summary. It is cut after redaction: half a secret would not be recognised."""


class KnownSecrets:
    """The values that the newest version of a workspace has sealed; read when the first text is redacted."""

    def __init__(self, repository: Repository, workspace: str) -> None:
        self.repository, self.workspace = repository, workspace
        self._files: list[SealedFile] | None = None

    def add(self, path: bytes, content: bytes) -> None:
        """Add one more file, which is about to be sealed."""
        if self._files is None:
            self._files = self._load()
        self._files.append(SealedFile(path, content))

    def redact_text(self, text: str) -> str:
        """Return the text with everything that looks like a secret, and the values of sealed files, redacted."""
        if self._files is None:
            self._files = self._load()
        values = [value for file in self._files for value in file.values_for(text)]
        return redact(redact_values(text, dict.fromkeys(values)))

    def redact_all(self, value: Any) -> Any:
        """Return a JSON value with the same done to every text."""
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, list):
            return [self.redact_all(one) for one in value]
        return {key: self.redact_all(one) for key, one in value.items()} if isinstance(value, dict) else value

    def _load(self) -> list[SealedFile]:
        files: list[SealedFile] = []
        try:
            rows = self.repository.sealed(self.workspace, MIN_VALUE_LENGTH)
        except KeepfastError:
            return files
        for row in [row for row in rows if row.kind == FILE and row.size <= MAX_FILE_BYTES][:MAX_FILES]:
            try:
                files.append(SealedFile(row.path, self.repository.contents.load(row.content)))
            except KeepfastError:
                continue  # its key is missing or it is damaged: then no text can show it either
        return files


def guard(event: Event, saving: CheckpointWriter, changed: list[Entry]) -> None:
    """Redact in an event's texts the values of sealed files, of the newest version and of this save."""
    secrets, noted = KnownSecrets(saving.repository, saving.row.id), saving.copies.noted or {}
    for entry in [entry for entry in changed if entry.content in noted]:
        secrets.add(entry.path, noted[entry.content])
    event.message, summary = secrets.redact_text(event.message), secrets.redact_text(event.summary)
    event.summary = summary if len(summary) <= MAX_SUMMARY_CHARS else head(summary, MAX_SUMMARY_CHARS - 1) + "…"
    event.tags = tuple(dict.fromkeys([secrets.redact_text(tag) for tag in event.tags]))
    event.key_points = tuple([secrets.redact_text(point) for point in event.key_points])
    if event.notes is not None:
        text_keys = ("analysis", "stated")
        event.notes = {
            key: secrets.redact_all(value) if key in text_keys else value for key, value in event.notes.items()
        }
