"""A workspace and a store, and everything a test wants to ask of them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from keepfast.app.checkpoint import Engine
from keepfast.app.wiring import build
from keepfast.model.entry import CAPTURED, FILE, LINK, Entry
from keepfast.model.event import Event, Outcome
from keepfast.settings import Settings

HOME = b"/nonexistent/home"


class Saver:
    """Saves one folder into one store. Each call works as a new process would: with an engine of its own."""

    def __init__(self, root: Path, store: Path, *, home: bytes = HOME, new_store: bool = False, **options: Any) -> None:
        self.root, self.store, self.home = root, store, home
        self.options = {"store__durable": False, **options}
        self._reader: Engine | None = None
        self._shares = new_store
        engine = self.engine()
        self.workspace = engine.workspaces.init(os.fsencode(root), new_store)
        engine.close()

    def settings(self) -> Settings:
        settings = Settings()
        settings.put("store.url", str(self.store), "test")
        for name, value in self.options.items():
            settings.put(name.replace("__", "."), value, "test")
        return settings

    def engine(self) -> Engine:
        return build(self.settings(), str(self.store), self.home, time.time_ns)

    def save(self, trigger: str = "auto", cwd: Path | None = None, **event: Any) -> Outcome:
        engine = self.engine()
        try:
            if self._shares:  # a folder has one store: whichever it is saved to now
                engine.workspaces.mark(os.fsencode(self.root), self.workspace)
            return engine.handle(Event(os.fsencode(cwd or self.root), time.time_ns(), trigger=trigger, **event))
        finally:
            engine.close()

    def cache(self) -> Path:
        return self.store / "workspaces" / self.workspace / "cache"

    def version(self) -> int:
        row = self._read().ledger.workspace(self.workspace)
        return row.version if row is not None else 0

    def tree(self) -> str:
        row = self._read().ledger.workspace(self.workspace)
        assert row is not None
        return str(row.tree)

    def state(self, version: int = 0) -> dict[bytes, Entry]:
        """Every row of a version, by path; of the newest if none is given."""
        return {row.path: row for row in self._read().ledger.state(self.workspace, version or self.version())}

    def kinds(self, version: int = 0) -> dict[str, str]:
        return {os.fsdecode(path): row.kind for path, row in self.state(version).items()}

    def load(self, row: Entry) -> bytes:
        return bytes(self._read().contents.load(row.content))

    def read(self, path: str, version: int = 0) -> bytes:
        return self.load(self.state(version)[os.fsencode(path)])

    def contents(self, version: int = 0) -> dict[bytes, tuple[str, int, bytes]]:
        """Kind, mode and content (bytes of a file, target of a link) of everything captured."""
        return {
            path: (row.kind, row.mode, self.load(row) if row.kind == FILE else row.content if row.kind == LINK else b"")
            for path, row in self.state(version).items()
            if row.kind in CAPTURED
        }

    def _read(self) -> Any:
        if self._reader is None:
            self._reader = self.engine()
        return self._reader.repository()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
