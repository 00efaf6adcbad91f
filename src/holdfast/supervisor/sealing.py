"""What the supervisor seals and signs: named values with the store's keys, documents with a key of its own."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.core.errors import Failed
from holdfast.supervisor.stripping import MARK, forms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.engine import Engine
    from holdfast.supervisor.ground import Ground
    from holdfast.supervisor.tables import Task


class StoreSeals:
    """Named values, sealed as the store seals contents: AES-256-GCM, shown as `encrypted:…`."""

    def __init__(self, engine: Callable[[], AbstractContextManager[Engine]]) -> None:
        self.engine = engine

    def seal_value(self, name: str, value: bytes) -> str:
        """Return a text that shows nothing of the value."""
        with self.engine() as engine:
            return engine.place.create().sealing().seal_value(name, value)

    def open_value(self, name: str, text: str) -> bytes:
        """Return the value. Raises `WrongKey`, and `Damaged` if it was changed or belongs to another name."""
        with self.engine() as engine:
            return engine.repository().sealing().open_value(name, text)


class DocumentKey:
    """32 random bytes in a file that only its owner can read; made when first needed. Signs documents."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._key: bytes | None = None

    def code(self, text: bytes) -> str:
        """The authentication code of a document."""
        return hmac.new(self._read(), b"holdfast document\0" + text, sha256).hexdigest()

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
                os.link(fresh, self.path)  # whoever comes second takes the key of the first
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
            raise Failed(f"The key file {self.path} is damaged.", "Bring it back from a backup, or move it away.")
        self._key = key
        return key


def opened(ground: Ground, task: Task) -> dict[str, str]:
    """The task's secrets in the clear: for the shim's ears, and to strike them out of everything else."""
    rows = ground.tables.all("SELECT name, sealed FROM secret WHERE task = ?", task.id)
    return {row["name"]: ground.seals.open_value(row["name"], row["sealed"]).decode("utf-8", "replace") for row in rows}


def struck_out(text: str, secrets: Iterable[str]) -> str:
    """The text without these values, however they are spelled in it."""
    found = text.encode("utf-8", "surrogateescape")
    for form in forms([value for value in secrets if value]):
        found = found.replace(form, MARK)
    return found.decode("utf-8", "surrogateescape")
