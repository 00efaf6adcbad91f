"""A store with some of everything in it, the truth about it, and the question whether a store still tells that truth."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from keepfast.app.checkpoint import Engine
from keepfast.app.wiring import build
from keepfast.model.entry import FILE, Entry
from keepfast.model.errors import KeepfastError
from keepfast.model.event import CREATED, Event
from keepfast.settings import Settings
from keepfast.store import labels
from keepfast.store.maintenance.space import compact, forget
from keepfast.store.maintenance.verify import label
from keepfast.store.place import Place
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, Query
from keepfast.store.search import search
from keepfast.workspace.marker import identity

START = 1_800_000_000_000_000_000
SECOND = 1_000_000_000
LARGE = (4 << 20) + 70_000
"""Just over the size from which a content is stored in chunks."""

Load = tuple[CheckpointRow, dict[str, Any], list[Entry], list[tuple[Entry, bytes]]]
"""What a version gives: its row, header and changes of its document, and every path with its bytes."""


@dataclass
class Sample:
    """A finished store, the folders it protects, and copies of its ledger from earlier moments."""

    store: Path
    alpha: Path
    beta: Path
    ledgers: dict[str, Path] = field(default_factory=dict)

    def place(self) -> Place:
        return Place(str(self.store), durable=False)

    def copy(self, store: Path) -> Path:
        """The store again, and beside it the keys, which are no part of it."""
        shutil.copytree(self.store.parent / "keys", store.parent / "keys", dirs_exist_ok=True)
        return Path(shutil.copytree(self.store, store))


def open_engine(store: Path, start: int = START) -> Engine:
    """Return an engine on this store, with a clock of its own that goes on by a second at every look."""
    settings = Settings()
    settings.put("store.url", str(store), "test")
    settings.put("store.durable", False, "test")
    clock = iter(range(start, 1 << 62, SECOND))
    return build(settings, str(store.parent), b"/nonexistent", lambda: next(clock))


def make(folder: Path) -> Sample:
    """Make the store: two workspaces, a compaction with a keyframe in the middle, labels, gaps and a large file."""
    sample = Sample(folder / "store", folder / "alpha", folder / "beta")
    (folder / "ledgers").mkdir(parents=True)
    maker = _Making(sample, folder / "ledgers")
    maker.run()
    return sample


class _Making:
    def __init__(self, sample: Sample, ledgers: Path) -> None:
        self.sample, self.ledgers = sample, ledgers
        self.engine = open_engine(sample.store)
        self.noise = Random(2)

    def run(self) -> None:
        alpha, beta = self.sample.alpha, self.sample.beta
        self._plant(alpha)
        self.save(alpha, message="첫 체크포인트", tags=("start", "한글"))
        (alpha / "src/main.py").write_text("print('two')\n")
        self.save(alpha, session="s1", trigger="auto")
        self._grow(beta, shared=alpha)
        self.save(beta, message="beta begins", name="base")
        self.keep_ledger("early")
        (alpha / "src/main.py").chmod(0o755)
        (alpha / "docs/old.md").unlink()
        self.save(alpha, session="s1", task="t1", tags=("start",))
        self._edit_large(alpha, at=1_000_000)
        (alpha / "link").unlink()
        (alpha / "link").symlink_to("src/main.py")
        self.save(alpha, message="the large file", pinned=True)
        (beta / "b.txt").write_text("beta two\n")
        self.save(beta)
        self.forget(alpha, [1, 2])
        self.keep_ledger("before compaction")
        compact(self.engine.repository(), str(self.sample.store), everything=True)
        self.keep_ledger("after compaction")
        (alpha / "new").mkdir()
        (alpha / "new/file.txt").write_text("new\n" * 50)
        self.save(alpha, message="after compaction")
        self._edit_large(alpha, at=3_000_000)
        self.save(alpha, task="t1")
        shutil.rmtree(alpha / "docs")
        self.save(alpha, name="bare", message="docs are gone")
        (beta / "shared.txt").write_text("print('two')\n")  # in alpha's past, maybe no longer in the packs
        self.save(beta, message="shared")
        self.keep_ledger("late")
        self.forget(alpha, [6])
        labels.pin(self.engine.repository(), self.row(alpha, 5), True)
        labels.name(self.engine.repository(), self.row(beta, 2), "second")
        (beta / "c").mkdir(mode=0o700)
        self.save(beta)
        self.save(alpha, message="nothing changed")
        search(self.engine.repository(), str(self.sample.store), self.workspace(alpha), "large", 10)
        self.engine.workspaces.note(str(beta).encode(), "skipped", "auto", "a notice")
        self.engine.close()

    def _plant(self, root: Path) -> None:
        for name in ("src", "docs", "empty", ".keepfast"):
            (root / name).mkdir(parents=True)
        (root / "src/main.py").write_text("print('one')\n")
        (root / "docs/guide.md").write_text("# Guide\n" + "한글 문서\n" * 400)
        (root / "docs/old.md").write_text("old\n" * 300)
        (root / "docs/raw.bin").write_bytes(self.noise.randbytes(30_000))
        (root / "none.txt").touch()
        (root / "twin.txt").hardlink_to(root / "none.txt")
        (root / "link").symlink_to("docs/guide.md")
        (root / "dangling").symlink_to("nowhere/at all")
        (root / "secret").write_text("x")
        (root / "secret").chmod(0o600)
        (root / ".env").write_text("API_KEY=made-up\n")  # sealed, by its name
        Path(os.fsdecode(os.fsencode(root) + b"/\xb0\xa1 odd\nname")).write_bytes(b"\0\1\2")
        (root / "large.bin").write_bytes(self.noise.randbytes(LARGE))
        shutil.rmtree(root / ".keepfast")

    def _grow(self, root: Path, shared: Path) -> None:
        (root / "deep/er").mkdir(parents=True)
        (root / "deep/er/guide.md").write_bytes((shared / "docs/guide.md").read_bytes())
        (root / "b.txt").write_text("beta one\n")

    def _edit_large(self, root: Path, at: int) -> None:
        data = bytearray((root / "large.bin").read_bytes())
        data[at:at] = b"inserted here"
        (root / "large.bin").write_bytes(data)

    def save(self, root: Path, trigger: str = "manual", **more: Any) -> None:
        event = Event(os.fsencode(root), self.engine.clock(), trigger=trigger, **more)
        if identity(os.fsencode(root)) is None:
            self.engine.workspaces.init(os.fsencode(root))
        assert self.engine.handle(event).status == CREATED

    def forget(self, root: Path, versions: list[int]) -> None:
        forget(self.engine.repository(), self.workspace(root), versions, "test")

    def keep_ledger(self, name: str) -> None:
        self.sample.ledgers[name] = self.ledgers / f"{name}.db"
        shutil.copyfile(self.sample.store / "ledger.db", self.sample.ledgers[name])

    def workspace(self, root: Path) -> str:
        found = identity(os.fsencode(root))
        assert found is not None
        return found

    def row(self, root: Path, version: int) -> CheckpointRow:
        found = self.engine.repository().ledger.checkpoint(self.workspace(root), version)
        assert found is not None
        return found


def truth(place: Place) -> dict[str, Load]:
    """Return what every version of every workspace gives, under the name that `verify` calls it by."""
    repository = place.open()
    try:
        return {name: load(repository, row) for name, row in versions(repository)}
    finally:
        repository.close()


def versions(repository: Repository) -> Iterator[tuple[str, CheckpointRow]]:
    for workspace in repository.ledger.workspaces():
        try:
            repository.workspace(workspace.id)  # as every command does: adopts what is complete
        except KeepfastError:
            continue  # so no command gives any of its versions
        for row in repository.ledger.find(Query(workspace=workspace.id)):
            yield label(row.version, workspace.path), row


def load(repository: Repository, row: CheckpointRow) -> Load:
    """Load a version, all of it. Raises whatever loading raises."""
    header, changes = repository.document(row)
    state = [
        (entry, repository.contents.load(entry.content) if entry.kind == FILE else b"")
        for entry in repository.ledger.state(row.workspace, row.version)
    ]
    return row, header.members, changes, state
