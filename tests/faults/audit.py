"""The judge: what a store must still hold after something went wrong, asked of the store itself."""

from __future__ import annotations

import shutil
import sqlite3
import time
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from keepfast.app.checkpoint import Engine
from keepfast.app.wiring import build
from keepfast.model.entry import FILE, UNREADABLE
from keepfast.model.errors import Busy, KeepfastError
from keepfast.model.event import CREATED, Event
from keepfast.settings import Settings
from keepfast.store.maintenance.space import Compaction, compact
from keepfast.store.maintenance.verify import verify
from keepfast.store.repository import Repository
from keepfast.store.rows import Query
from keepfast.workspace.marker import identity

from .workload import contents, put

AT = 1_800_000_000_000_000_000
"""A fixed clock: nothing in the store may depend on it."""

KNOWN = (
    "format",
    "lock",
    "ledger.db",
    "ledger.db-journal",
    "paths",
    "search.db",
    "reserve",
    "over",
    "compact.lock",
    "mounted.lock",
)
KNOWN_FOLDERS = ("packs", "log", "tmp", "workspaces", "damaged")


def open_engine(config: Path) -> Engine:
    """Return the engine that the settings file asks for."""
    settings = Settings()
    settings.read_file(config.read_bytes(), str(config))
    clock = iter(range(AT, AT + (1 << 60), 1_000_000_000))
    return build(settings, str(config.parent / "data"), b"/nonexistent", lambda: next(clock))


def save(engine: Engine, work: Path) -> int:
    """Save as the hook does; return the new version, or 0 if there was nothing to save."""
    event = Event(str(work).encode(), engine.clock(), trigger="auto", message="auto", created_by="auto", adopt=True)
    outcome = engine.handle(event)
    return outcome.version if outcome.status == CREATED else 0


class Audit:
    """Findings about one store, in words; none means that every promise was kept."""

    def __init__(self, config: Path, work: Path, *, extra: str = "", lenient: int = 0) -> None:
        self.engine, self.work, self.extra, self.lenient = open_engine(config), work, extra, lenient
        self.store = Path(self.engine.place.path)
        self.findings: list[str] = []
        self.newest = 0

    def run(self, acknowledged: set[int], hidden: set[int], *, saving: bool, thorough: bool) -> list[str]:
        """Look at everything, save once more, look again.

        `acknowledged` versions must load, `hidden` ones must stay hidden, and any other version that is there must be
        right as well. With `thorough`, compaction must leave nothing behind.
        """
        try:
            self._look(acknowledged, hidden)
            self._verify("after the next command")
            if saving:
                self._save()
            if thorough:
                self._compact()
                self._look(acknowledged | {self.newest}, hidden)
                self._verify("after compaction")
        except KeepfastError as error:
            self.findings.append(f"{type(error).__name__}: {error}")
        finally:
            self.engine.close()
        return self.findings

    def _look(self, acknowledged: set[int], hidden: set[int]) -> None:
        workspace = identity(str(self.work).encode())
        if not (self.store / "format").exists() or workspace is None:
            if acknowledged:
                self.findings.append(f"lost: {sorted(acknowledged)}, with the store or the workspace's marker")
            return
        repository = self.engine.repository()
        row = repository.workspace(workspace)
        if row is None:
            if acknowledged:
                self.findings.append(f"lost: {sorted(acknowledged)}, with the workspace's row")
            return
        self.newest = row.version
        living = {found.version for found in repository.ledger.find(Query(workspace=workspace))}
        if acknowledged - living:
            self.findings.append(f"lost: {sorted(acknowledged - living)}")
        if hidden & living:
            self.findings.append(f"forgotten, but back: {sorted(hidden & living)}")
        for version in sorted(living):
            self._load(repository, workspace, version)

    def _load(self, repository: Repository, workspace: str, version: int) -> None:
        found, unreadable = {}, 0
        try:
            for entry in repository.ledger.state(workspace, version):
                if entry.kind == UNREADABLE:
                    unreadable += 1
                elif entry.kind == FILE:
                    found[entry.path.decode()] = sha256(repository.contents.load(entry.content)).digest()
        except KeepfastError as error:
            self.findings.append(f"v{version} does not load: {error}")
            return
        wanted = {name: sha256(data).digest() for name, data in contents(version, self.extra).items()}
        if version == self.lenient and unreadable:
            wanted = {name: key for name, key in wanted.items() if name in found}
        if found != wanted:
            odd = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
            self.findings.append(f"v{version} loads, but is wrong in {odd}")

    def _verify(self, when: str) -> None:
        if not (self.store / "format").exists():
            return
        for problem in verify(self.engine.repository(), str(self.store)).problems:
            self.findings.append(f"verify {when}: {problem.text} {problem.checkpoints}")

    def _save(self) -> None:
        put(self.work, self.newest + 1, self.extra)
        version = save(self.engine, self.work)
        if version != self.newest + 1:
            self.findings.append(f"the next save made version {version} after {self.newest}")
            return
        self.newest = version
        workspace = identity(str(self.work).encode())
        assert workspace is not None
        self.lenient = 0
        self._load(self.engine.repository(), workspace, version)

    def _compact(self) -> None:
        compact_patiently(self.engine.repository(), str(self.store))
        left = leftovers(self.store)
        if left:
            self.findings.append(f"left behind after compaction: {left}")


def compact_patiently(repository: Repository, store: str) -> Compaction:
    """Compact everything; saves may have started a compaction in the background, whose end is waited for."""
    for _ in range(300):
        try:
            return compact(repository, store, everything=True)
        except Busy:
            time.sleep(0.1)
    raise Busy("The compaction in the background does not end.")


def leftovers(store: Path) -> list[str]:
    """Files that have no place in a store at rest."""
    found = [path.name for path in store.iterdir() if path.name not in KNOWN + KNOWN_FOLDERS]
    found += [f"tmp/{path.name}" for path in (store / "tmp").iterdir()]
    found += [f"packs/{path.name}" for path in (store / "packs").iterdir() if path.suffix != ".pack"]
    for folder in (store / "workspaces").iterdir():
        names = {path.name for path in folder.iterdir()} - {"lock", "cache", "notices", "restore", "watch.lock"}
        found += [f"workspaces/{name}" for name in names]
    return sorted(found)


def rows_of_ledger(store: Path) -> set[int]:
    """Versions in the ledger's own table, read with plain SQLite from a copy, before keepfast adopts anything."""
    with TemporaryDirectory() as scratch:
        for name in ("ledger.db", "ledger.db-journal"):
            if (store / name).exists():
                shutil.copyfile(store / name, Path(scratch) / name)
        if not (Path(scratch) / "ledger.db").exists():
            return set()
        database = sqlite3.connect(Path(scratch) / "ledger.db")
        try:
            return {row[0] for row in database.execute("SELECT version FROM checkpoint")}
        finally:
            database.close()
