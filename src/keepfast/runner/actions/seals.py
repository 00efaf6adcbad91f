"""Sealing of named values with the store's keys, and signing of documents with the supervisor's own key."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import TYPE_CHECKING

from keepfast.app.checkpoint import Engine
from keepfast.model.errors import Failed, KeepfastError
from keepfast.model.frozen import DOCUMENT
from keepfast.runner.db import queries
from keepfast.runner.domain.records import Task
from keepfast.runner.process.filter import MARK
from keepfast.runner.process.spellings import forms

if TYPE_CHECKING:
    from keepfast.runner.actions.runtime import Runtime

MISSING = (
    "A key is missing: contents that were sealed with it cannot be decrypted, and new ones are sealed with another key. "
    "Put the old key file back next to the new one, or run `keepfast key import` with its backup."
)


class StoreSeals:
    """Seals named values as the store seals contents: AES-256-GCM, shown as `encrypted:…`."""

    def __init__(self, engine: Callable[[], AbstractContextManager[Engine]]) -> None:
        self.engine = engine
        self._opened: dict[tuple[str, str], bytes] = {}

    def seal_value(self, name: str, value: bytes) -> str:
        """Return the sealed value as text."""
        with self.engine() as engine:
            return engine.place.create().contents.sealer().seal_value(name, value)

    def open_value(self, name: str, text: str) -> bytes:
        """Return the value. Raises `WrongKey`, and `Damaged` if it was changed or belongs to another name."""
        value = self._opened.get((name, text))
        if value is None:
            with self.engine() as engine:
                value = self._opened[name, text] = engine.repository().contents.sealer().open_value(name, text)
        return value


class DocumentKey:
    """Signs documents with 32 random bytes in a file that only its owner can read, created when first needed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._key: bytes | None = None

    def code(self, text: bytes) -> str:
        """Return the authentication code of a document."""
        return hmac.new(self._read(), DOCUMENT + text, sha256).hexdigest()

    def is_ours(self, text: bytes, code: object) -> bool:
        return isinstance(code, str) and hmac.compare_digest(self.code(text), code)

    def _read(self) -> bytes:
        if self._key is not None:
            return self._key
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        if not os.path.exists(self.path):
            fresh = f"{self.path}.{os.getpid()}"
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.write(fd, os.urandom(32).hex().encode() + b"\n")
            os.fsync(fd)
            os.close(fd)
            try:
                os.link(fresh, self.path)  # the first process to create it wins
            except FileExistsError:
                pass
            os.unlink(fresh)
        with open(self.path, "rb") as file:
            text = file.read().strip()
        try:
            key = bytes.fromhex(text.decode())
        except ValueError:
            key = b""
        if len(key) != 32:
            raise Failed(f"The key file {self.path} is damaged.", "Restore it from a backup, or move it away.")
        self._key = key
        return key


def environment_values(runtime: Runtime, task: Task) -> dict[str, str]:
    """Return the decrypted values for the environment of the task's agent; only the shim gets them."""
    rows = queries.variables_of(runtime.tables, task.id)
    return {row.name: runtime.seals.open_value(row.name, row.sealed).decode("utf-8", "replace") for row in rows}


def missing_keys(runtime: Runtime) -> list[str]:
    """Return the ids of the store's key sets whose keys are missing: what they sealed cannot be decrypted."""
    try:
        with runtime.engine() as engine:
            return [one for one, opens in engine.repository().contents.sealer().keys.sets() if not opens]
    except KeepfastError:
        return []  # no store, or a damaged one: reported elsewhere


def warn_of_keys(runtime: Runtime, task: Task) -> None:
    """Warn in the task's log that keys are missing, once for the same keys."""
    missing = missing_keys(runtime)
    if not missing:
        return
    text = f"{MISSING} Key sets: {', '.join(missing)}."
    with runtime.tables.write() as tables:
        warnings = queries.events_of_type(tables, task.id, "warning")
        if text not in [warning.read()["message"] for warning in warnings]:
            tables.warn(task.id, runtime.now(), text)


def redact_spellings(text: str, secrets: Iterable[str]) -> str:
    """Return the text with these values redacted, in every spelling."""
    data = text.encode("utf-8", "surrogateescape")
    for form in forms([value for value in secrets if value]):
        data = data.replace(form, MARK)
    return data.decode("utf-8", "surrogateescape")
