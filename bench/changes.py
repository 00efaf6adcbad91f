"""Changes to a tree, the same for every tool: files edited, added, deleted and renamed, and 1 MB in a large one."""

from __future__ import annotations

import os
import random
import stat
from dataclasses import dataclass
from pathlib import Path

from .binaries import MB
from .peer import MARKER
from .trees import walk

# Larger files are left to the cases that are about large files.
EDITABLE = MB
BLOCK = MB


@dataclass(frozen=True)
class Mix:
    """How many files one change touches, by kind."""

    edited: int = 0
    added: int = 0
    deleted: int = 0
    renamed: int = 0


class Workspace:
    """A working copy and its list of files, changed by a seeded generator."""

    def __init__(self, root: Path, graveyard: Path, seed: int) -> None:
        self.root = root
        self.graveyard = graveyard
        self.chance = random.Random(seed)
        self.serial = 0
        self.files: list[str] = []
        for entry in walk(root):
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_size > 0 and f"/{MARKER}/" not in entry.path:
                self.files.append(os.path.relpath(entry.path, root))
        self.touched: list[str] = []

    def apply(self, mix: Mix) -> None:
        """Change the tree; `touched` then names the edited and new files."""
        self.serial += 1
        chosen = self._choose(mix.edited + mix.deleted + mix.renamed)
        edited, rest = chosen[: mix.edited], chosen[mix.edited :]
        deleted, renamed = rest[: mix.deleted], rest[mix.deleted :]
        for path in edited:
            self._edit(path)
        gone = set(deleted) | set(renamed)
        moved = [self._rename(path) for path in renamed]
        for number, path in enumerate(deleted):
            # To the tools a file that left the tree is deleted; ground.py says why it must not really be.
            os.rename(self.root / path, self.graveyard / f"{self.serial}-{number}")
        self.files = [path for path in self.files if path not in gone]
        # New files come from the files that are left, so that their bytes look like the tree's.
        new = [self._add(number) for number in range(mix.added)]
        self.files += moved + new
        self.touched = edited + new + moved

    def overwrite(self) -> None:
        """Write 1 MB of new bytes at a random place of a large file."""
        path = self._large()
        with open(self.root / path, "r+b") as file:
            file.seek(self.chance.randrange(os.path.getsize(self.root / path) - BLOCK))
            file.write(self.chance.randbytes(BLOCK))

    def insert(self) -> None:
        """Put 1 MB of new bytes between the bytes of a large file, which is rewritten as an editor would."""
        path = self._large()
        place = self.chance.randrange(os.path.getsize(self.root / path))
        rewritten = self.root / f"{path}.new"
        with open(self.root / path, "rb") as old, open(rewritten, "wb") as new:
            copy_bytes(old.fileno(), new.fileno(), place)
            os.write(new.fileno(), self.chance.randbytes(BLOCK))
            copy_bytes(old.fileno(), new.fileno(), None)
        os.replace(rewritten, self.root / path)

    def sample(self, count: int) -> list[str]:
        """Return paths to check a tool by: some just touched, some of the whole tree."""
        touched = self.touched[:: max(1, len(self.touched) // count)][:count]
        return touched + self.chance.sample(self.files, min(count, len(self.files)))

    def _choose(self, count: int) -> list[str]:
        chosen: list[str] = []
        for path in self.chance.sample(self.files, min(len(self.files), 2 * count + 20)):
            if len(chosen) == count:
                break
            if os.path.getsize(self.root / path) <= EDITABLE:
                chosen.append(path)
        if len(chosen) < count:
            raise ValueError(f"{self.root} has too few files to change {count}.")
        return chosen

    def _large(self) -> str:
        path = self.chance.choice([path for path in self.files if os.path.getsize(self.root / path) > 2 * BLOCK])
        self.touched = [path]
        return path

    def _edit(self, path: str) -> None:
        # Half the edits add a line at the end, half replace a line in the middle, which may keep the size.
        with open(self.root / path, "r+b") as file:
            content = file.read()
            note = b"/* change %d: %x */" % (self.serial, self.chance.getrandbits(64))
            start = content.rfind(b"\n", 0, len(content) // 2) + 1
            end = content.find(b"\n", start)
            if end < 0 or self.chance.random() < 0.5:
                file.write(note + b"\n")
                return
            file.seek(start)
            file.write(note + content[end:])
            file.truncate()

    def _rename(self, path: str) -> str:
        folder = os.path.dirname(path)
        if self.chance.random() < 0.5:
            folder = os.path.dirname(self.chance.choice(self.files))
        target = os.path.join(folder, f"r{self.serial}-{self.chance.getrandbits(32):x}-{os.path.basename(path)[-80:]}")
        os.rename(self.root / path, self.root / target)
        return target

    def _add(self, number: int) -> str:
        [model] = self._choose(1)
        folder = os.path.dirname(model)
        if number % 5 == 0:
            folder = os.path.join(folder, f"new-{self.serial}-{number}")
            os.makedirs(self.root / folder, exist_ok=True)
        target = os.path.join(folder, f"n{self.serial}-{number}-{os.path.basename(model)[-80:]}")
        content = (self.root / model).read_bytes()
        (self.root / target).write_bytes(b"/* new %x */\n" % self.chance.getrandbits(64) + content)
        return target


def copy_bytes(source: int, target: int, count: int | None) -> None:
    """Copy so many bytes from one descriptor to another, or all that are left."""
    while count is None or count:
        block = os.read(source, 8 * MB if count is None else min(count, 8 * MB))
        if not block:
            return
        os.write(target, block)
        count = None if count is None else count - len(block)
