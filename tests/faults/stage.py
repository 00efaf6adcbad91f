"""A workspace, a store and the processes that act on them; everything a fault test starts goes through here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from keepfast.present.environment import FOLDERS

from .workload import put

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(sys.executable).parent.parent / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
LAUNCH = ROOT / "src/keepfast/hook/launch.py"
PYTHON = [sys.executable, "-I", "-S", "-B"]
"""The interpreter as hooks start it; -B, because a short write must not leave a broken .pyc behind (cpython#126606)."""

HUNG = 124
_data = TemporaryDirectory(prefix="keepfast-faults-data-", ignore_cleanup_errors=True)
"""What a hook keeps beside the store; never in the home folder of whoever runs the tests."""
Finished = subprocess.CompletedProcess[str]


def module(name: str, *arguments: object) -> list[str]:
    """The command line that runs `main` of a module of this package."""
    paths = [str(ROOT), str(ROOT / "src"), str(SITE)]
    start = f"import sys; sys.path[:0] = {paths!r}; from tests.faults.{name} import main; sys.exit(main(sys.argv[1:]))"
    return [*PYTHON, "-c", start, *map(str, arguments)]


class Stage:
    """`work` is saved into `store`; `base` is the state of the store that every test of a series begins with."""

    def __init__(self, folder: Path, *, extra: str = "", store: Path | None = None, work: Path | None = None) -> None:
        self.folder, self.extra = folder, extra
        self.store = store or folder / "store"
        self.work = work or folder / "work"
        self.config = folder / "config.json"
        self.base = folder / "base"
        self.acknowledged: set[int] = set()
        folder.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True, exist_ok=True)
        # Retention must not thin out what the tests count on.
        settings = {"adopt": "any", "store": {"url": str(self.store)}, "retention": {"keep_last": 1_000_000}}
        self.config.write_text(json.dumps(settings))

    # Processes

    def hook_command(self) -> list[str]:
        words = ["save", "--cwd", str(self.work), "--config", str(self.config)]
        return [*PYTHON, str(LAUNCH), FOLDERS, _data.name, _data.name, _data.name, *words]

    def driver_command(self, command: str, *arguments: object) -> list[str]:
        options = ["--config", self.config, "--work", self.work, "--extra", self.extra]
        return module("driver", command, *options, *arguments)

    def hook(self) -> Finished:
        return run(self.hook_command())

    def driver(self, command: str, *arguments: object) -> Finished:
        return run(self.driver_command(command, *arguments))

    def ask(self, command: str, *arguments: object) -> Any:
        """Run a command that must succeed; return its answer."""
        done = self.driver(command, *arguments)
        assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])

    # States

    def put(self, number: int) -> None:
        put(self.work, number, self.extra)

    def saved(self, upto: int) -> None:
        """Save states 1 to `upto`, all of them acknowledged."""
        answer = self.ask("saves", "--first", len(self.acknowledged) + 1, "--count", upto - len(self.acknowledged))
        assert answer == upto - len(self.acknowledged)
        self.acknowledged = set(range(1, upto + 1))

    def keep(self) -> None:
        """Make the store as it is now the base of what follows."""
        shutil.rmtree(self.base, ignore_errors=True)
        if self.store.exists():
            shutil.copytree(self.store, self.base)

    def reset(self) -> None:
        """Bring the store back to the base; a folder that was no workspace then is none again."""
        shutil.rmtree(self.store, ignore_errors=True)
        if self.base.exists():
            shutil.copytree(self.base, self.store)
        else:
            shutil.rmtree(self.work / ".keepfast", ignore_errors=True)
            # Nor has anybody ever used a store: else it would be missed.
            shutil.rmtree(self.folder / "data", ignore_errors=True)
            shutil.rmtree(Path(_data.name) / "keepfast", ignore_errors=True)

    def audit(
        self,
        acknowledged: Iterable[int] | None = None,
        hidden: Iterable[int] = (),
        *,
        saving: bool = True,
        thorough: bool = True,
        lenient: int = 0,
    ) -> list[str]:
        """Let a new process judge the store; return its findings."""
        options = [f"--lenient={lenient}", "--thorough" if thorough and saving else "", "" if saving else "--looking"]
        wanted = self.acknowledged if acknowledged is None else acknowledged
        done = self.driver("audit", "--versions", listed(wanted), "--hidden", listed(hidden), *filter(None, options))
        if done.returncode:
            return [f"the audit ended with {done.returncode}: {' '.join(done.stderr.split())[-400:]}"]
        return list(json.loads(done.stdout))


def report(what: str, findings: list[str]) -> None:
    """Print what was done, for the campaign's log; fail with the first findings if there are any."""
    print(f"{what}: {len(findings)} findings")
    assert not findings, "\n".join([f"{what}: {len(findings)} findings", *findings[:20]])


def run(command: list[str], timeout: float = 120) -> Finished:
    """Run it to its end, or kill it and all it started: the exit code is then `HUNG`."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "XDG_DATA_HOME": _data.name},
        start_new_session=True,  # a process group of its own: killing strace alone would leave its child behind
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return subprocess.CompletedProcess(command, HUNG, out, err)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def listed(versions: Iterable[int]) -> str:
    return ",".join(map(str, sorted(versions)))
