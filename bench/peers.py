"""The tools side by side: each has a store of its own and saves the same tree with everything captured."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from .measure import Usage, run
from .peer import MARKER, Disk, Peer, measure_disk
from .shadow_git import GitCline, GitTuned, GitTunedFsync
from .trees import REPOSITORY

SOURCE = REPOSITORY / "src"
HOOK = SOURCE / "keepfast" / "hook" / "launch.py"


class Restic(Peer):
    """restic with its own defaults: encrypted, compressed, deduplicated by content-defined chunks."""

    name = "restic"
    about = "restic backup; its default settings"

    def environment(self) -> dict[str, str]:
        return {"RESTIC_REPOSITORY": str(self.store), "RESTIC_PASSWORD": "bench"}

    def opening(self) -> list[list[str]]:
        return [["restic", "init", "--quiet"]]

    def saving(self) -> list[list[str]]:
        return [["restic", "backup", "--quiet", "--host", "bench", "--exclude", MARKER, "."]]

    def reading(self, path: str) -> list[str]:
        return ["restic", "dump", "--quiet", "--host", "bench", "latest", f"/{path}"]

    def count(self) -> int:
        entries = map(json.loads, self.ask(["restic", "ls", "--json", "latest"]).splitlines())
        return sum(entry.get("type") in ("file", "symlink") for entry in entries)


class Borg(Peer):
    """borg without encryption, with its default compression (lz4)."""

    name = "borg"
    about = "borg create; lz4, no encryption"

    def __init__(self, folder: Path, tree: Path) -> None:
        super().__init__(folder, tree)
        self.archives = 0

    def environment(self) -> dict[str, str]:
        return {
            "BORG_REPO": str(self.store),
            "BORG_BASE_DIR": str(self.home),
            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
        }

    def opening(self) -> list[list[str]]:
        return [["borg", "init", "--encryption", "none"]]

    def saving(self) -> list[list[str]]:
        self.archives += 1
        return [["borg", "create", "--exclude", f"*/{MARKER}", "--exclude", MARKER, f"::save-{self.archives}", "."]]

    def reading(self, path: str) -> list[str]:
        return ["borg", "extract", "--stdout", f"::save-{self.archives}", path]

    def count(self) -> int:
        kinds = self.ask(["borg", "list", "--format", "{type}{NL}", f"::save-{self.archives}"]).split()
        return sum(kind != "d" for kind in kinds)


class Keepfast(Peer):
    """keepfast as a hook starts it, with the C accelerator where it is built."""

    name = "keepfast"
    about = "python -I -S -B launch.py save; C accelerator, durable"
    capture: ClassVar[dict[str, object]] = {}
    storing: ClassVar[dict[str, object]] = {}

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(SOURCE)}

    @property
    def config(self) -> Path:
        return self.folder / "config.json"

    def begin(self) -> None:
        capture: dict[str, object] = {"exclude": [], "exclude_ignored": [], "ignored": "all"}
        capture |= {"max_file_size": "10GB", "max_files": 1_000_000, **self.capture}
        # git has every version after `gc`: what idle moments would forget by policy is kept here too.
        retention = {"keep_last": 1_000_000}
        settings: dict[str, object] = {"store": {"url": str(self.store), **self.storing}, "capture": capture}
        settings |= {"adopt": "any", "retention": retention}
        self.config.write_text(json.dumps(settings, indent=1) + "\n")
        super().begin()

    def opening(self) -> list[list[str]]:
        # The cache folder may lie in a repository, and a hook would then adopt that whole repository.
        return [self.command("init")]

    def saving(self) -> list[list[str]]:
        hook = [sys.executable, "-I", "-S", "-B", str(HOOK), *self.folders()]
        return [[*hook, "save", "--cwd", str(self.tree), "--config", str(self.config)]]

    def rest(self) -> None:
        mark = b"\0".join((b"tidy", b"--cwd", os.fsencode(self.tree)))
        while any(mark in command for command in running()):
            time.sleep(0.05)

    def reading(self, path: str) -> list[str]:
        return self.command("cat", "latest", path)

    def count(self) -> int:
        coverage = json.loads(self.ask(self.command("show", "latest", "--json")))["coverage"]
        return int(coverage["files"]) + int(coverage["links"])

    def compact(self, timeout: float) -> Usage | None:
        return run(self.command("compact"), self.tree, self.env, timeout)

    def disk(self) -> Disk:
        store, marker = measure_disk(self.store), measure_disk(self.tree / MARKER)
        return Disk(store.apparent + marker.apparent, store.used + marker.used, store.files + marker.files)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "keepfast", *self.folders(), "--config", str(self.config), *words]

    def folders(self) -> list[str]:
        """Said, not set: a hook takes no folder from its variables, and a command none that lies in a repository."""
        return ["--folders", *[str(self.home / name) for name in ("", ".config", ".local/share")]]


class KeepfastPython(Keepfast):
    """keepfast in pure Python."""

    name = "keepfast-py"
    about = "keepfast without the C accelerator"
    capture: ClassVar[dict[str, object]] = {"accelerator": False}


class KeepfastNoSync(Keepfast):
    """keepfast without any fsync: shows what durability costs; not meant for use."""

    name = "keepfast-nosync"
    about = "keepfast with store.durable=false: what durability costs"
    storing: ClassVar[dict[str, object]] = {"durable": False}


PEERS: dict[str, type[Peer]] = {
    peer.name: peer
    for peer in (Keepfast, KeepfastPython, KeepfastNoSync, GitTuned, GitTunedFsync, GitCline, Restic, Borg)
}
SUBJECT = Keepfast.name
REFERENCE = GitTuned.name


def running() -> list[bytes]:
    """Return the command lines of all processes, with arguments terminated by zero bytes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return found


def missing(name: str) -> str | None:
    """Return why the tool cannot be measured here, or None."""
    if issubclass(PEERS[name], Keepfast):
        return None if HOOK.exists() else f"{HOOK.relative_to(REPOSITORY)} does not exist"
    program = name.partition("-")[0]
    return None if shutil.which(program) else f"`{program}` is not installed"


def accelerator_is_built() -> bool:
    return any((SOURCE / "keepfast").rglob("*.so"))


def compile_sources() -> str:
    """Write the .pyc files as an installer would, since `-B` writes none and compiling is not part of a save."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(SOURCE / "keepfast")], env=env, check=False)
    return "keepfast's sources are compiled to .pyc first, as an installer does."


def versions() -> dict[str, str]:
    """Return the versions of the programs that are here."""
    commands = {"git": ["git", "--version"], "restic": ["restic", "version"], "borg": ["borg", "--version"]}
    found = {"python": sys.version.split()[0]}
    for name, command in commands.items():
        try:
            found[name] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            found[name] = "absent"
    return found
