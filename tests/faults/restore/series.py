"""One restore of some thirty files, prepared once and repeated as often as a test wants to disturb it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

from keepfast.model.restore_plan import parents
from tests.app.restore.child import command, main
from tests.app.restore.ground import aside, staging_left, wipe
from tests.equipment.trees import disk
from tests.faults.stage import Finished, run
from tests.faults.tracing import Call, after_start, inject, parse

CHANGING = (
    "write", "pwrite64", "fsync", "fdatasync", "syncfs", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir",
    "mkdirat", "rmdir", "link", "linkat", "symlinkat", "fchmod", "fchmodat", "fchown", "fchownat", "utimensat", "ftruncate",
    "openat", "flock",
)  # fmt: skip
READING = (
    "read",
    "pread64",
    "newfstatat",
    "fstat",
    "getdents64",
    "readlinkat",
    "fcntl",
    "openat2",
    "statfs",
    "fstatfs",
)
FILES = 30
Disk = dict[bytes, tuple[str, int, bytes]]


class Series:
    """v1 is the target; what is on disk before the restore was never saved."""

    def __init__(
        self,
        folder: Path,
        *,
        fast: bool = False,
        large: bool = False,
        root: Path | None = None,
        store: Path | None = None,
    ) -> None:
        self.folder, self.root, self.store = folder, root or folder / "work", store or folder / "store"
        self.fast = ["--fast"] if fast else []
        self.root.mkdir(exist_ok=True)
        self._init()
        put_target(self.root)
        if large:
            put_large(self.root)
        self.ask("save")
        self.target = disk(self.root)
        put_before(self.root)
        self.before = disk(self.root)
        self.keep("base")

    def _init(self) -> None:
        from tests.equipment.saver import Saver

        Saver(self.root, self.store, store__durable=not self.fast).close()

    # Processes

    def command(self, name: str, *words: object) -> list[str]:
        return command(name, self.root, self.store, *self.fast, *words)

    def run(self, name: str, *words: object) -> Finished:
        return run(self.command(name, *words))

    def here(self, name: str) -> Finished:
        """The same in this process, with an engine of its own, for what nobody disturbs: starting Python takes longer."""
        out, error = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(error):
            code = main([name, str(self.root), str(self.store), *self.fast])
        return Finished([name], code, out.getvalue(), error.getvalue())

    def ask(self, name: str, *words: object) -> Any:
        done = self.run(name, *words)
        assert done.returncode == 0, f"{name} ended with {done.returncode}: {done.stderr}"
        return json.loads(done.stdout)

    def calls(self, *names: str) -> list[Call]:
        """The system calls of one undisturbed restore, from the first one that concerns us."""
        self.back_to("base")  # as every disturbed run does: what was only just written is read once more
        log = self.folder / "trace"
        done = run(
            ["strace", "-f", "-qq", "-y", "-s", "40", "-o", str(log), "-e", f"trace={','.join(names)}", *self.command("restore")]
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return after_start(parse(log.read_text(errors="replace")), self.folder)

    def disturbed(self, call: Call, fault: str) -> Finished:
        self.back_to("base")
        return inject(self.command("restore"), call, fault)

    # States

    def keep(self, name: str) -> None:
        kept = self.folder / name
        wipe(kept)
        kept.mkdir()
        subprocess.run(["cp", "-a", f"{self.root}/.", kept / "work"], check=True)
        subprocess.run(["cp", "-a", self.store, kept / "store"], check=True)

    def back_to(self, name: str) -> None:
        for path in self.root.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        wipe(self.store)
        subprocess.run(["cp", "-a", f"{self.folder}/{name}/work/.", self.root], check=True)
        subprocess.run(["cp", "-a", f"{self.folder}/{name}/store", self.store], check=True)

    def findings(self, unread: bool = False, again: bool = False) -> list[str]:
        """After something went wrong: both ways out must lead where they say. `again`: and so must the next restore.

        `unread`: the safety checkpoint may not have been able to read something. No undo could bring that back, so that
        `continue` leaves it as it is, and names it.
        """
        cut_off = self._cut_off()
        if cut_off is None:
            now = disk(self.root)
            if now not in (self.before, self.target):
                return [f"half done, and nobody says so: {self.odd(now)}"]
            return self._end("restore", self.target) if again and now == self.before else []
        self.keep("after")
        found = self._end("continue", self.target, unread)
        self.back_to("after")
        return found + self._end("abort", self.before)

    def _end(self, name: str, goal: Disk, unread: bool = False) -> list[str]:
        done = self.here(name)
        if done.returncode:
            return [f"{name} ended with {done.returncode}: {done.stderr}"]
        found, answer, now = [], json.loads(done.stdout), disk(self.root)
        if unread:
            named = [os.fsencode(path) for path, _ in answer.pop("kept")]
            goal = goal | {path: self.before[path] for path in {*named, *parents(named)} if path in self.before}
            answer["kept"] = [os.fsdecode(path) for path in named if path not in self.before]
        if now != goal:
            found.append(f"{name} did not get there: {self.odd(now, goal)}")
        if answer["kept"] or answer["aside"] or aside(self.root):
            found.append(f"{name} kept or moved something aside: {answer}")
        if staging_left(self.root):
            found.append(f"{name} left {staging_left(self.root)}")
        if self._cut_off() is not None:
            found.append(f"after {name} there still is a journal")
        return found

    def _cut_off(self) -> Any:
        done = self.here("status")
        assert done.returncode == 0, f"status ended with {done.returncode}: {done.stderr}"
        return json.loads(done.stdout)

    def odd(self, now: Disk, goal: Disk | None = None) -> list[bytes]:
        wanted = self.before if goal is None else goal
        return sorted(path for path in now.keys() | wanted.keys() if now.get(path) != wanted.get(path))


def put_target(root: Path) -> None:
    for number in range(FILES):
        path = root / f"folder{number % 4}/file{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"target {number}\n" * (number + 1))
        path.chmod([0o644, 0o600, 0o755][number % 3])
    for name in ("gone/a", "gone/inside/b", "gone/inside/c", "gone/closed/d"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name}\n" * 9)
    (root / "gone/link").symlink_to("inside/b")
    (root / "gone/closed").chmod(0o555)
    os.link(root / "folder0/file0", root / "linked")
    (root / "pointer").symlink_to("folder1/file1")
    (root / "empty").mkdir(mode=0o750)
    (root / "was a folder").mkdir()
    (root / "was a folder/inside").write_text("inside\n")
    (root / "was a file").write_text("file\n")
    (root / "same").write_text("same\n")


def put_large(root: Path) -> None:
    """Files that the store keeps in parts, because of their size or because they are sealed: two threads write them."""
    chance = Random(5)
    for number in range(3):
        (root / f"gone/large{number}").write_bytes(chance.randbytes((4 << 20) + 5000 * (number + 1)))
    for number in range(20):
        (root / f"gone/part{number}").mkdir()
        (root / f"gone/part{number}/.env").write_text(f"PASSWORD=number-{number}-of-them\n")


def put_before(root: Path) -> None:
    for number in range(FILES):
        path = root / f"folder{number % 4}/file{number}"
        if number % 5 == 0:
            path.unlink()
        elif number % 5 == 1:
            path.chmod(0o640)
        else:
            path.write_text(f"before {number}\n" * (number + 2))
    (root / "gone/closed").chmod(0o755)
    shutil.rmtree(root / "gone")
    shutil.rmtree(root / "was a folder")
    (root / "was a folder").write_text("now a file\n")
    (root / "was a file").unlink()
    (root / "was a file/deep").mkdir(parents=True)
    (root / "was a file/deep/inside").write_text("inside\n")
    (root / "pointer").unlink()
    (root / "pointer").symlink_to("elsewhere")
    (root / "empty").rmdir()
    (root / "new").mkdir(mode=0o700)
    for number in range(4):
        (root / f"new/file{number}").write_text(f"new {number}\n")
    (root / "new/link").symlink_to("file1")
