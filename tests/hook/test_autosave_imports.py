"""A hook that finds nothing changed loads next to nothing: it runs before every step of an agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import keepfast
from tests.equipment.folders import written
from tests.equipment.saver import Saver

LAUNCH = Path(keepfast.__file__).parent / "hook" / "launch.py"
STANDARD = {"__future__", "_json", "_stat", "errno", "gc"}
"""Modules written in C that cost microseconds, and the one in Python that imports nothing itself."""
OURS = {
    "keepfast",
    "keepfast.app",
    "keepfast.fsutil",
    "keepfast.fsutil.lock_wait",
    "keepfast.hook",
    "keepfast.model",
    "keepfast.present",
    "keepfast.state",
    "keepfast.state.names",
    "keepfast.model.frozen",
    "keepfast.present.former_name",
    "keepfast.model.artefacts",
    "keepfast.model.setting_values",
    "keepfast.model.compiled",
    "keepfast.model.errors",
    "keepfast.model.light_json",
    "keepfast.model.event",
    "keepfast.model.schema",
    "keepfast.app.checkpoint",
    "keepfast.hook.autosave",
    "keepfast.present.environment",
    "keepfast.app.workspace_lock",
    "keepfast.app.workspaces",
    "keepfast.settings.ownership",
    "keepfast.settings",
    "keepfast.settings.last_good",
    "keepfast.store",
    "keepfast.store.place",
    "keepfast.store.small_files",
    "keepfast.app.wiring",
    "keepfast.workspace",
    "keepfast.workspace._check",
    "keepfast.workspace.stat_cache",
    "keepfast.workspace.capture",
    "keepfast.workspace.marker",
}


def imported(*arguments: str) -> set[str]:
    """Every module that a new Python loads when it is started so."""
    told = written(Path(os.devnull)) if arguments[0] == str(LAUNCH) else []
    command = [sys.executable, "-I", "-S", "-B", "-X", "importtime", *arguments[:1], *told, *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"HOME": os.devnull})
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]

    assert len(lines) == len(done.stderr.splitlines())  # the hook itself says nothing
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


def test_an_unchanged_save_loads_no_python_of_the_standard_library(root: Path, saver: Saver, tmp_path: Path) -> None:
    (root / "folder").mkdir()
    (root / "folder" / "file").write_text("x")
    (root / ".gitignore").write_text("*.log\n")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"store": {"url": str(saver.store), "durable": False}}))
    hook = [str(LAUNCH), "save", "--cwd", str(root), "--config", str(config)]
    saved = imported(*hook)
    time.sleep(0.05)  # what was just written is looked at twice
    imported(*hook)
    before = os.stat(saver.cache()).st_mtime_ns

    unchanged = imported(*hook) - imported("-c", "pass")

    assert unchanged <= STANDARD | OURS
    assert unchanged < saved
    assert os.stat(saver.cache()).st_mtime_ns == before
    assert saver.version() == 1


def test_a_save_loads_compiled_modules_and_our_own_alone(root: Path, saver: Saver, tmp_path: Path) -> None:
    for number in range(40):
        (root / f"file-{number}").write_bytes(os.urandom(30_000))  # enough for Zstandard and its threads
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"store": {"url": str(saver.store), "durable": False}}))

    found = imported(str(LAUNCH), "save", "--cwd", str(root), "--config", str(config)) - imported("-c", "pass")

    assert saver.version() == 1
    assert "keepfast.store.compression" in found
    for heavy in ("collections", "functools", "types", "enum", "re", "struct", "threading", "concurrent", "backports"):
        assert heavy not in found


def test_outside_of_any_workspace_even_less_is_loaded(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"adopt": "never", "store": {"url": str(tmp_path / "store")}}))

    found = imported(str(LAUNCH), "save", "--cwd", str(tmp_path), "--config", str(config))

    assert found - imported("-c", "pass") <= STANDARD | OURS - {"keepfast.workspace.capture"}
    assert not (tmp_path / "store").exists()
