"""The guard of a supervised client: harmless when keepfast is removed or upgraded while an agent works for hours."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from keepfast.agents import launcher
from keepfast.runner.process import drivers


def guard_of(folder: Path) -> str:
    """The command that the settings of a run give the client for Bash."""
    starts = drivers._claude_settings(str(folder), [])["hooks"]["PreToolUse"]
    (entry,) = [entry for group in starts if group.get("matcher") == "Bash" for entry in group["hooks"]]
    return str(entry["command"])


@pytest.mark.parametrize("python", ["/nowhere/bin/python", "/bin/sh"])
@pytest.mark.parametrize("is_there", [True, False])
def test_the_guard_is_silent_and_succeeds_where_keepfast_is_gone(tmp_path: Path, python: str, is_there: bool) -> None:
    folder = tmp_path / "a run"
    folder.mkdir()
    path = folder / launcher.NAME
    if is_there:
        path.write_text(launcher.script(python, str(tmp_path / "gone.py"), str(path)))

    payload = json.dumps({"hook_event_name": "PreToolUse", "tool_input": {"command": "x" * 300_000}}).encode()
    done = subprocess.run(guard_of(folder), shell=True, input=payload, capture_output=True)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
