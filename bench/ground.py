"""The ground of one run: working copies and stores in fresh folders, on a filesystem that is not still clearing up."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from .peer import measure_disk
from .trees import GB, Tree, walk

# ext4 avoids the places of recently deleted files and searches past each of them: for minutes after deleting many,
# making a file cost 700 µs of CPU in place of 30 (measured). A tool with a file per object then looks far too slow.
# So nothing is deleted during a run: old stores are emptied, not removed, and deleted files are moved out of the tree.
CLEAN_MICROSECONDS = 100.0
PROBE_FILES = 500
PATIENCE_SECONDS = 900.0
STEP_SECONDS = 20.0


class Ground:
    """A folder for one run of the bench; it goes away with everything in it, also after an interrupt."""

    def __init__(self, cache: Path, limit: int, patience: float, say: Callable[[str], None]) -> None:
        self.folder = cache / f"run-{os.getpid()}"
        self.limit = limit
        self.patience = patience
        self.say = say
        self.retired: list[Path] = []
        self.retired_bytes = 0
        self.serial = 0

    def __enter__(self) -> Ground:
        self._remove_abandoned()
        self.folder.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.say(f"Removing {self.folder} …")
        shutil.rmtree(self.folder, ignore_errors=True)

    def copy(self, tree: Tree) -> Path:
        """Return a working copy of the tree, with its pages in the cache."""
        target = self.fresh(f"copy-{tree.name}") / tree.name
        self.say(f"Copying {tree.name} ({tree.files:,} files) …")
        subprocess.run(["cp", "-a", str(tree.path), str(target)], check=True)
        for entry in walk(target):
            if entry.is_file(follow_symlinks=False):
                read_through(entry.path)
        os.sync()
        return target

    def fresh(self, name: str) -> Path:
        """Return a new empty folder."""
        self.serial += 1
        folder = self.folder / f"{name}-{self.serial}"
        folder.mkdir()
        return folder

    def retire(self, folder: Path) -> None:
        """Mark a store as no longer needed; when such stores hold more than the limit, their files are emptied."""
        self.retired.append(folder)
        self.retired_bytes += measure_disk(folder).used
        if self.retired_bytes <= self.limit:
            return
        self.say(f"Old stores hold {self.retired_bytes / GB:.1f} GB. Emptying them …")
        for old in self.retired:
            for entry in walk(old):
                if entry.is_file(follow_symlinks=False):
                    os.chmod(entry.path, 0o600)
                    os.truncate(entry.path, 0)
        self.retired, self.retired_bytes = [], 0
        os.sync()

    def file_cost(self) -> float:
        """Return the CPU that making one small file takes now, in microseconds."""
        folder = self.fresh("probe")
        begun = time.process_time()
        for number in range(PROBE_FILES):
            with open(folder / str(number), "wb") as file:
                file.write(b"x")
        return (time.process_time() - begun) / PROBE_FILES * 1e6

    def settle(self) -> float:
        """Wait until making files is cheap again, as long as the patience of the run lasts, and return the cost."""
        os.sync()
        cost = self.file_cost()
        while cost > CLEAN_MICROSECONDS and self.patience > 0:
            self.say(f"Making a file costs {cost:.0f} µs: many were deleted on this disk just before. Waiting …")
            time.sleep(STEP_SECONDS)
            self.patience -= STEP_SECONDS
            cost = self.file_cost()
        return cost

    def _remove_abandoned(self) -> None:
        for folder in self.folder.parent.glob("run-*"):
            try:
                os.kill(int(folder.name.removeprefix("run-")), 0)
            except ProcessLookupError:
                self.say(f"Removing {folder}, left by a run that was killed …")
                shutil.rmtree(folder, ignore_errors=True)
            except PermissionError:
                continue


def read_through(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
