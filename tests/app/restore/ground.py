"""A workspace that can be saved and restored, and what is on its disk, read without any of our code."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keepfast.app.checkpoint import Engine
from keepfast.app.restore import THEIRS, Restored, Restorer
from keepfast.model import steps
from keepfast.model.restore_plan import Plan
from tests.equipment.saver import Saver

Stats = dict[bytes, tuple[int, int, int]]


class Ground:
    """Each call works as a new process would: with an engine of its own."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.root = folder / "work"
        self.root.mkdir(exist_ok=True)
        self.saver = Saver(self.root, folder / "store", **options)
        self._engine: Engine | None = None

    def put(self, name: str, content: str | bytes = "", mode: int = 0o644) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path

    def save(self, **event: Any) -> int:
        return self.saver.save("manual", **event).version

    def restorer(self) -> Restorer:
        self.close()
        self._engine = self.saver.engine()
        root, row = self._engine.workspaces.root(os.fsencode(self.root))
        return Restorer(self._engine, root, row)

    def restore(self, version: int, *paths: str | bytes, conflicts: str = THEIRS, **options: Any) -> Restored | None:
        restorer = self.restorer()
        target = restorer._checkpoint(version)
        return restorer.restore(target, [os.fsencode(path) for path in paths], conflicts=conflicts, **options)

    def plan(self, version: int, *paths: str | bytes) -> Plan:
        restorer = self.restorer()
        return restorer.planner.preview(restorer._checkpoint(version), [os.fsencode(path) for path in paths]).plan

    def undo(self, conflicts: str = THEIRS) -> Restored | None:
        return self.restorer().undo(conflicts=conflicts)

    def redo(self, conflicts: str = THEIRS) -> Restored | None:
        return self.restorer().redo(conflicts=conflicts)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        self.saver.close()

    def stats(self) -> Stats:
        return stats(self.root)


def stats(root: Path) -> Stats:
    """Inode, time and size of everything that is not a folder, but `.keepfast`; what lies in `.git` too."""
    found: Stats = {}

    def look(folder: int, prefix: bytes) -> None:
        with os.scandir(folder) as entries:
            listed = list(entries)
        for entry in listed:
            name = os.fsencode(entry.name)
            if name == b".keepfast":
                continue
            if entry.is_dir(follow_symlinks=False):
                inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                try:
                    look(inside, prefix + name + b"/")
                finally:
                    os.close(inside)
                continue
            seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
            found[prefix + name] = seen.st_ino, seen.st_mtime_ns, seen.st_size

    start = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        look(start, b"")
    finally:
        os.close(start)
    return found


def staging_left(root: Path) -> list[str]:
    """Folders that a restore left behind."""
    return [path.name for path in (root / ".keepfast").iterdir() if path.name.startswith("restore-")]


def aside(root: Path) -> list[Path]:
    folder = root / ".keepfast/aside"
    return sorted(folder.iterdir()) if folder.exists() else []


def wipe(folder: Path) -> None:
    subprocess.run(["rm", "-rf", "--", str(folder)], check=True)


@contextmanager
def at(step: str, action: Callable[[], None]) -> Iterator[None]:
    """Do something each time that the named step is reached."""
    steps.observer = lambda name: action() if name == step else None
    try:
        yield
    finally:
        steps.observer = None
