"""A save by hand between two sessions: the next one is told the work before it, and the files as the save has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from .ground import Ground
from .test_delivery import answer, start, told, worked

__all__ = ["worked"]


def keepfast(ground: Ground, *words: str) -> str:
    command = [sys.executable, "-m", "keepfast", *words]
    done = subprocess.run(
        command, cwd=ground.project, env=ground.variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_does_not_keep_the_next_session_from_its_brief(worked: Ground) -> None:
    answer(worked, "SessionEnd", reason="prompt_input_exit")
    (worked.project / "a.txt").write_text("three\n")
    (worked.project / "by_hand.txt").write_text("new\n")
    keepfast(worked, "save", "-m", "before lunch")
    newest = worked.checkpoints()[-1]
    assert newest.message == "before lunch"

    reply = start(worked)

    assert "before lunch" in reply["systemMessage"]
    assert "make the totals exact" in told(reply) and "ound them" in told(reply)
    assert "by_hand.txt" in told(reply) and "a.txt" in told(reply)


def test_resume_without_a_reference_tells_that_work(worked: Ground) -> None:
    answer(worked, "SessionEnd", reason="prompt_input_exit")
    keepfast(worked, "save", "-m", "before lunch")
    keepfast(worked, "save", "-m", "after lunch")
    os.unlink(worked.transcript)  # the checkpoint of the session has it

    found: dict[str, Any] = json.loads(keepfast(worked, "resume", "--json"))

    assert found["version"] == f"v{worked.checkpoints()[-1].version}"
    assert "after lunch" in found["text"] and "make the totals exact" in found["text"]
    assert "two" in found["text"]


def test_without_any_session_the_message_is_told_alone(ground: Ground) -> None:
    keepfast(ground, "init")
    (ground.project / "a.txt").write_text("one\n")
    keepfast(ground, "save", "-m", "before lunch")

    assert "before lunch" in json.loads(keepfast(ground, "resume", "--json"))["text"]
