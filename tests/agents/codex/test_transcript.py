"""Codex rollouts and shell commands tell about files too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from keepfast.agents import shell_views as shell
from keepfast.agents import transcript
from keepfast.resume import brief
from keepfast.resume import extractor as notes

CWD = "/w/shop"


class Rollout:
    """Writes entries as Codex does."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.add("session_meta", id="s1", cwd=CWD, git={"branch": "fix/cart"})
        self.add("turn_context", cwd=CWD, model="gpt-test")
        self.calls = 0

    def add(self, kind: str, **payload: Any) -> None:
        self.entries.append({"timestamp": "2026-04-01T10:00:00Z", "type": kind, "payload": payload})

    def message(self, role: str, text: str) -> None:
        self.add("response_item", type="message", role=role, content=[{"type": "input_text", "text": text}])

    def call(self, name: str, arguments: dict[str, Any], output: str) -> None:
        self.calls += 1
        self.add(
            "response_item", type="function_call", name=name, arguments=json.dumps(arguments), call_id=f"c{self.calls}"
        )
        self.add("response_item", type="function_call_output", call_id=f"c{self.calls}", output=output)

    def patch(self, text: str) -> None:
        self.calls += 1
        self.add("response_item", type="custom_tool_call", name="apply_patch", input=text, call_id=f"c{self.calls}")
        done = json.dumps({"output": "Success.", "metadata": {"exit_code": 0}})
        self.add("response_item", type="custom_tool_call_output", call_id=f"c{self.calls}", output=done)

    def read(self) -> transcript.Conversation:
        return transcript.read(b"".join([json.dumps(entry).encode() + b"\n" for entry in self.entries]))


def worked() -> Rollout:
    rollout = Rollout()
    rollout.message("user", "<environment_context>x</environment_context>")
    rollout.message("user", "round the totals")
    rollout.add("response_item", type="reasoning", summary=[{"type": "summary_text", "text": "look at total"}])
    rollout.message("assistant", "I'll look at the cart.")
    rollout.call(
        "exec_command",
        {"cmd": "sed -n '1,3p' cart.py"},
        "Process exited with code 0\nOutput:\ndef total(x):\n    return x\n\n",
    )
    rollout.patch(
        "*** Begin Patch\n*** Update File: cart.py\n@@ def total(x):\n def total(x):\n-    return x\n+    return round(x, 2)\n"
        "*** Add File: new.py\n+a = 1\n+b = 2\n*** End Patch"
    )
    rollout.call(
        "update_plan", {"plan": [{"step": "round", "status": "completed"}, {"step": "test", "status": "pending"}]}, "ok"
    )
    rollout.call("shell", {"command": ["bash", "-lc", "pytest -q"]}, "Process exited with code 1\nOutput:\n1 failed")
    return rollout


def test_a_rollout_becomes_turns_files_and_notes() -> None:
    conversation = worked().read()
    taken = notes.take(conversation)

    assert conversation.client == "codex"
    assert [turn.text for turn in conversation.asked()] == ["round the totals"]
    assert conversation.files.by_path[f"{CWD}/cart.py"].lines[:2] == ["def total(x):", "    return round(x, 2)"]
    assert conversation.files.by_path[f"{CWD}/new.py"].lines == ["a = 1", "b = 2"]
    assert taken.next_steps == ["test"]
    assert taken.branch == "fix/cart"
    assert taken.last_run is not None
    assert not taken.last_run.passed


def test_what_our_supervisor_says_beside_a_task_is_passed_over() -> None:
    rollout = Rollout()
    rollout.message("user", "# Task: a shop\n\nSell tea.\n\n<keepfast>\nnever ask for it\n</keepfast>")
    rollout.message("user", "<keepfast>\nPhase 1 was approved.\n</keepfast>")

    assert [turn.text for turn in rollout.read().asked()] == ["# Task: a shop\n\nSell tea."]


def test_a_rollout_makes_a_brief() -> None:
    conversation = worked().read()

    text = brief.build(notes.take(conversation), conversation.files.newest_first()).text

    assert "round the totals" in text
    assert "    return round(x, 2)" in text


def test_moves_and_deletions_are_followed() -> None:
    rollout = worked()
    rollout.patch(
        "*** Begin Patch\n*** Update File: new.py\n*** Move to: old.py\n@@\n a = 1\n-b = 2\n+b = 3\n*** End Patch"
    )
    rollout.patch("*** Begin Patch\n*** Delete File: cart.py\n*** End Patch")
    rollout.add("compacted", message="so far")

    conversation = rollout.read()

    assert conversation.files.by_path[f"{CWD}/old.py"].lines == ["a = 1", "b = 3"]
    assert f"{CWD}/cart.py" not in conversation.files.by_path
    assert conversation.compactions == 1


def test_odd_rollout_entries_are_skipped() -> None:
    rollout = worked()
    rollout.add("response_item", type="function_call", name="exec_command", arguments="{broken", call_id="x")
    rollout.add("response_item", type="function_call", name="exec_command", arguments="[1]", call_id="y")
    rollout.add("response_item", type="function_call", name="apply_patch", arguments="{}", call_id="")
    rollout.add("response_item", type="function_call_output", call_id="x", output=[{"text": "fine"}])
    rollout.add("response_item", type="function_call_output", call_id="y", output="{not json")
    rollout.add("response_item", type="weather")
    rollout.call("shell", {"command": ["apply_patch", "*** Begin Patch\n*** Add File: z\n+z\n*** End Patch"]}, "ok")

    assert rollout.read().files.by_path[f"{CWD}/z"].lines == ["z"]


@pytest.mark.parametrize(
    ("command", "output", "expected"),
    [
        ("cat a.py", "x\ny\n", ("/w/a.py", 1, ["x", "y"])),
        ("cat ./a.py", "x\n", ("/w/a.py", 1, ["x"])),
        ("sed -n '5,6p' /b.py", "x\ny\n", ("/b.py", 5, ["x", "y"])),
        ("head -20 a.py", "x\n", ("/w/a.py", 1, ["x"])),
        ("cd sub && cat a.py", "x\n", ("/w/sub/a.py", 1, ["x"])),
        ("nl -ba a.py | sed -n '3,4p'", "     3\tx\n     4\ty\n", ("/w/a.py", 3, ["x", "y"])),
        ("nl -ba a.py | sed -n '3,4p'", "odd\n", None),
        ("cat a.py | grep x", "x\n", None),
        ("cat *.py", "x\n", None),
        ("cat -A a.py", "x\n", None),
        ("cat 'unclosed", "x\n", None),
        ("ls", "a.py\n", None),
        ("cat a.py", "", None),
    ],
)
def test_a_plain_command_shows_a_file(command: str, output: str, expected: object) -> None:
    assert shell.printed_lines(command, output, "/w") == expected
