"""What a tool is to the bench: a store of its own, a measured save, a size, and bytes that can be read back."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from .measure import Failed, Usage, run
from .trees import walk

# keepfast's folder in the tree, which the other tools leave out.
MARKER = ".keepfast"
PATH = os.environ.get("PATH", os.defpath)


@dataclass(frozen=True)
class Disk:
    """The size of a store: the sum of its file sizes, and the blocks it really takes."""

    apparent: int
    used: int
    files: int

    def __sub__(self, other: Disk) -> Disk:
        return Disk(self.apparent - other.apparent, self.used - other.used, self.files - other.files)


class Peer:
    """One tool with one store for one tree."""

    name: ClassVar[str]
    about: ClassVar[str]

    def __init__(self, folder: Path, tree: Path) -> None:
        self.folder = folder
        self.tree = tree
        self.store = folder / "store"
        self.home = folder / "home"
        self.env = {"PATH": PATH, "HOME": str(self.home), "LANG": "C.UTF-8", "TZ": "UTC"} | self.environment()

    def begin(self) -> None:
        """Make an empty store; this is not measured."""
        self.home.mkdir(parents=True)
        for command in self.opening():
            self.ask(command)

    def first(self) -> Usage:
        """Make a store and save the tree into it; only the save is measured."""
        self.begin()
        return self.save()

    def save(self) -> Usage:
        """Save the tree as a hook would: every command a new process."""
        total = Usage(0.0, 0.0, 0)
        for command in self.saving():
            total += run(command, self.tree, self.env)
        self.rest()
        return total

    def rest(self) -> None:
        """Wait for what the tool does after a save for which nobody waits; it would run while another one is measured."""

    def compact(self, timeout: float) -> Usage | None:
        """Make the store as small as the tool can, or return None if it has no such command.

        Raises `Failed` after the timeout: git looks for likeness between 200 MB files for a very long time.
        """
        return None

    def disk(self) -> Disk:
        return measure_disk(self.store)

    def digest(self, path: str) -> str:
        """Return the SHA-256 of the file as stored in the tool's last save."""
        command = self.reading(path)
        process = subprocess.Popen(
            command, cwd=self.tree, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        with process.stdout as stream:
            digest = digest_of(stream.fileno())
        if process.wait():
            raise Failed(f"`{' '.join(command[:3])}` cannot read {path} back.")
        return digest

    def count(self) -> int:
        """Return how many files and links the last save holds."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    def opening(self) -> list[list[str]]:
        return []

    def saving(self) -> list[list[str]]:
        raise NotImplementedError

    def reading(self, path: str) -> list[str]:
        raise NotImplementedError

    def ask(self, command: Sequence[str]) -> str:
        """Run a command that is not measured and return what it says."""
        done = subprocess.run(
            command, cwd=self.tree, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Failed(f"`{' '.join(command[:4])}` ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        return done.stdout


def measure_disk(root: Path) -> Disk:
    """Return the size of everything below a folder; files with several names count once."""
    if not root.exists():
        return Disk(0, 0, 0)
    seen: set[tuple[int, int]] = set()
    apparent = files = 0
    used = root.stat().st_blocks * 512
    for entry in walk(root):
        status = entry.stat(follow_symlinks=False)
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        used += status.st_blocks * 512
        if not entry.is_dir(follow_symlinks=False):
            apparent += status.st_size
            files += 1
    return Disk(apparent, used, files)


def digest_of(descriptor: int) -> str:
    digest = hashlib.sha256()
    while block := os.read(descriptor, 1 << 20):
        digest.update(block)
    return digest.hexdigest()


def digest_of_file(path: Path) -> str:
    with open(path, "rb") as file:
        return digest_of(file.fileno())
