"""Whoever shows checkpoints shows what hooks left to the worker as well, also when there is no worker left."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

import pytest

from keepfast.mcp.inspection import checkpoint_list
from keepfast.mcp.workspace_access import WorkspaceAccess
from keepfast.present.environment import Environment, now_ns
from keepfast.present.server_options import McpOptions
from keepfast.state import pending_events as pending
from keepfast.web.queries import opened

from .ground import SESSION, Ground


@pytest.fixture
def left(started: Ground) -> Ground:
    """A turn that ended, recorded, and nobody to save it: as after a reboot."""
    (started.project / "a.txt").write_text("changed\n")
    event = pending.PendingEvent("turn", now_ns(), SESSION, "claude-code", str(started.project), client=4242)
    pending.append(str(started.folder), event)
    return started


def environment(ground: Ground) -> Environment:
    return Environment({key.encode(): value.encode() for key, value in ground.variables.items()})


def by_agents(ground: Ground) -> list[str]:
    access = WorkspaceAccess(McpOptions(str(ground.project).encode()), environment(ground), now_ns)
    return [row.trigger for row in checkpoint_list(access).checkpoints]


def on_the_page(ground: Ground) -> list[str]:
    with opened(lambda: ground.engine, now_ns) as backend:
        return [row.trigger for row in backend.checkpoints(ground.workspace)]


def by_command(ground: Ground) -> list[str]:
    program = "import sys; from keepfast.entry import main; main()"
    words = [sys.executable, "-c", program, "list", "--json"]
    done = subprocess.run(words, cwd=ground.project, env=ground.variables, capture_output=True, check=True)
    return [row["trigger"] for row in json.loads(done.stdout)]


@pytest.mark.parametrize("look", [by_agents, on_the_page, by_command])
def test_what_a_hook_left_is_in_what_is_shown(left: Ground, look: Any) -> None:
    assert look(left) == ["turn", "session_start"]
    assert pending.names(str(left.folder)) == []


def test_what_cannot_be_saved_now_stays_pending(left: Ground) -> None:
    """Looking at the page must not give up the events of a folder that is on a disk which comes back."""
    workspace, folder = left.workspace, str(left.folder)
    away = left.base / "away"
    shutil.move(left.project, away)

    with opened(lambda: left.engine, now_ns) as backend:
        assert backend.workspace(workspace).checkpoints == 1

    assert len(pending.names(folder)) == 1
    shutil.move(away, left.project)
    assert on_the_page(left) == ["turn", "session_start"]
