"""Requests are handled without what belongs to the whole process: nothing is forked, and no folder or variable is changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from keepfast.present.background import LAUNCH

from .home import Home

WATCHED = ("os.chdir", "os.fchdir", "os.putenv", "os.unsetenv", "os.fork", "os.forkpty")
SCRIPT = """
import json, os, sys
from keepfast.hook.resident import Handler
from keepfast.model.errors import Declined
from keepfast.resident.protocol import Request
folders, words, cwd, payloads = json.load(sys.stdin)
os.chdir("/")
handler, seen = Handler(tuple(folders)), []
before = dict(os.environ), os.umask(0o77)
os.umask(before[1])
sys.addaudithook(lambda event, arguments: seen.append(event) if event in set(sys.argv[1:]) else None)
for number, payload in enumerate(payloads):
    try:
        handler.handle(Request(f"{number:032d}", cwd.encode(), words, {}, payload.encode()))
    except Declined:
        seen.append("declined")
now = dict(os.environ), os.umask(before[1])
print(json.dumps([seen, before == now, os.getcwd()]))
"""


def test_requests_fork_nothing_and_change_no_folder_variable_or_mask(begun: Home) -> None:
    words = [str(begun.data / "bin/launch"), LAUNCH, *begun.environment.folders, "hook", "claude-code"]
    begun.stop()
    tool = {"tool_name": "Write", "tool_use_id": "t", "tool_input": {"file_path": str(begun.project / "b.txt")}}
    events = [
        begun.payload("PreToolUse", **tool),
        begun.payload("PostToolUse", **tool),
        begun.payload("UserPromptSubmit", prompt="go on"),
        begun.payload("SubagentStop", agent_type="general"),
        begun.payload("Stop", last_assistant_message="done"),
        begun.payload("SessionEnd", reason="other"),
        begun.payload("Notification"),
    ]
    (begun.project / "b.txt").write_text("b\n")
    given = json.dumps([begun.environment.folders, words, str(begun.project), [event.decode() for event in events]])

    done = subprocess.run([sys.executable, "-c", SCRIPT, *WATCHED], input=given, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], True, "/"]
    begun.settle()
    assert {row.trigger for row in begun.checkpoints()} >= {"session_start", "between", "turn"}


def test_memory_and_descriptors_stay_flat_over_many_requests(begun: Home) -> None:
    def used() -> tuple[int, int]:
        process = begun.state().process
        with open(f"/proc/{process}/status") as file:
            [memory] = [int(line.split()[1]) for line in file if line.startswith("VmRSS")]
        return memory, len(os.listdir(f"/proc/{process}/fd"))

    file = begun.project / "b.txt"
    for number in range(60):
        begun.tool("Write", lambda number=number: file.write_text(f"{number}\n"), file_path=str(file))  # type: ignore[misc]
    before = used()
    for number in range(120):
        begun.tool("Write", lambda number=number: file.write_text(f"more {number}\n"), file_path=str(file))  # type: ignore[misc]
    after = used()

    assert after[0] < before[0] * 1.1 + 1024 and after[1] <= before[1] + 1
