"""A hook that has nothing to save loads next to nothing: it runs before and after every tool call."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from .ground import Ground

STANDARD = {"__future__", "_json", "_stat", "errno", "fcntl", "gc", "zlib", "time"}
"""Modules written in C that cost microseconds, and the one in Python that imports nothing itself."""
HEAVY_OF_OURS = (
    "keepfast.store.repository",
    "keepfast.store.ledger.sqlite",
    "keepfast.workspace.scan",
    "keepfast.secrets.redaction",
)


def imported(ground: Ground, payload: dict[str, Any]) -> set[str]:
    """Every module that the hook loads before it lets the client go on, beyond those of a bare interpreter."""
    command = [sys.executable, "-I", "-S", "-B", "-X", "importtime"]
    bare = subprocess.run([*command, "-c", "pass"], capture_output=True, text=True, check=True)
    done = subprocess.run(
        [*command, *ground.command()[4:]],
        input=json.dumps(payload),
        capture_output=True,
        text=True,
        check=True,
        env=ground.variables,
        cwd=ground.project,
    )
    found, known = [
        {text.rpartition("|")[2].strip() for text in one.stderr.splitlines() if text.startswith("import time:")}
        for one in (done, bare)
    ]
    return found - known


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("PreToolUse", {"tool_name": "Read", "tool_input": {"file_path": "/x"}}),
        ("PreToolUse", {"tool_name": "Write", "tool_input": {"file_path": "/x", "content": "y" * 200_000}}),
        ("PreToolUse", {"tool_name": "Bash", "tool_input": {"command": "ls -la | grep x"}}),
        ("PostToolUse", {"tool_name": "Edit", "tool_input": {"file_path": "/x"}}),
        ("Stop", {"last_assistant_message": "Done."}),
        ("UserPromptSubmit", {"prompt": "go"}),
        ("SessionEnd", {"reason": "other"}),
        ("StopFailure", {"error": "rate_limit"}),
        ("Notification", {}),
    ],
)
def test_the_client_waits_for_little_more_than_an_interpreter(
    started: Ground, name: str, fields: dict[str, Any]
) -> None:
    started.answers(1000)
    started.hook(name, **fields)  # folders that are made once are made
    started.settle()

    found = imported(started, started.payload(name, **fields))

    started.settle()
    standard = {module for module in found if not module.startswith("keepfast")}
    assert standard <= STANDARD
    assert not found & set(HEAVY_OF_OURS)


def test_a_tool_that_has_ended_costs_even_less(started: Ground) -> None:
    payload = started.payload("PostToolUse", tool_name="Edit", tool_input={"file_path": "/x"})
    started.hook("PostToolUse", tool_name="Edit", tool_input={"file_path": "/x"})

    found = imported(started, payload)

    assert not found & {"keepfast.app.worker", "keepfast.state.workers", "keepfast.present.background"}
    assert not found & {"keepfast.shell.destruction", "keepfast.agents.claude.usage", "keepfast.app.messages"}
