"""`hooks.verify_before_clear`: what a clear is compared with, and what the user is shown of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from keepfast.app import deliver
from keepfast.app.inspect import ADDED, DELETED, LEFT, MODE, MODIFIED, TYPE
from keepfast.app.messages import change
from keepfast.present import ancestors

from .ground import Ground
from .test_conversations import command
from .test_delivery import OTHER, answer, start
from .test_delivery import worked as worked
from .test_keep_or_drop import THIRD


def cleared(ground: Ground, **hooks: Any) -> str:
    """What the user is told after a clear with two files changed."""
    ground.configure(hooks=hooks)
    (ground.project / "a.txt").write_text("one\ntwo\n")
    (ground.project / "new\nname.txt").write_text("x\n")
    assert ground.hook("SessionEnd", reason="clear").returncode == 0
    ground.settle(90)
    done = ground.hook("SessionStart", source="clear")
    assert done.returncode == 0
    return str(json.loads(done.stdout).get("systemMessage", "")) if done.stdout else ""


@pytest.mark.parametrize("verify", [True, False])
def test_a_kept_clear_names_what_changed_if_it_is_to_be_compared(started: Ground, verify: bool) -> None:
    said = cleared(started, auto_checkpoint_on_clear=True, verify_before_clear=verify)

    assert "Files changed: 2, Lines added: 2" in said
    assert ("  modified: a.txt" in said) is verify
    assert "new\nname" not in said


@pytest.mark.parametrize("verify", [True, False])
def test_a_clear_that_is_not_kept_is_compared_and_the_next_baseline_has_the_files(
    started: Ground, verify: bool
) -> None:
    said = cleared(started, auto_checkpoint_on_clear=False, verify_before_clear=verify)

    assert "Checkpoint saved" not in said
    assert ("Unsaved changes since v1: 2 files" in said and "a.txt" in said) is verify
    assert "new\nname" not in said
    assert started.triggers()[-1] == "session_start"
    assert started.contents(started.checkpoints()[-1])["a.txt"] == b"one\ntwo\n"


def test_a_clear_that_is_not_kept_and_lost_nothing_says_nothing(started: Ground) -> None:
    started.configure(hooks={"auto_checkpoint_on_clear": False})

    answer(started, "SessionEnd", reason="clear")

    assert start(started, "clear") == {}


def test_all_lines_are_counted_and_what_is_not_is_said(worked: Ground) -> None:
    worked.configure(hooks={"auto_checkpoint_on_clear": True})
    for number in range(300):
        (worked.project / f"{number}.txt").write_text("x\ny\nz\n")
    answer(worked, "SessionEnd", reason="clear")

    assert "Files changed: 300, Lines added: 900\n" in start(worked, "clear")["systemMessage"]

    (worked.project / "large.txt").write_text("one line\n" * 200_000)
    (worked.project / "small.txt").write_text("x\n")
    answer(worked, "SessionEnd", reason="clear", session_id=OTHER)

    assert "Lines added: at least 1\n" in start(worked, "clear", session=THIRD)["systemMessage"]


def test_more_files_than_are_looked_at_are_said_to_be_more(worked: Ground) -> None:
    worked.configure(hooks={"auto_checkpoint_on_clear": True})
    for number in range(1_005):
        (worked.project / f"{number}.txt").write_text("x\n")
    answer(worked, "SessionEnd", reason="clear")

    said = start(worked, "clear")["systemMessage"]

    assert "Files changed: 1,005" in said and "Captured: more than 1,000 files" in said


@pytest.mark.parametrize("first", [True, "prompt"])
def test_a_clear_is_told_once_and_never_by_a_later_one(worked: Ground, first: Any) -> None:
    worked.configure(hooks={"auto_checkpoint_on_clear": first, "verify_before_clear": False})
    (worked.project / "a.txt").write_text("three\n")
    answer(worked, "SessionEnd", reason="clear")
    assert "Checkpoint saved" in start(worked, "clear")["systemMessage"]
    worked.configure(hooks={"auto_checkpoint_on_clear": False, "verify_before_clear": False})
    (worked.project / "a.txt").write_text("four\n")

    answer(worked, "SessionEnd", reason="clear", session_id=OTHER)

    said = start(worked, "clear", session=THIRD).get("systemMessage", "")
    assert "Checkpoint" not in said.replace("checkpoint:", "") and "Keep it" not in said


def test_a_start_after_a_clear_that_nobody_told_of_says_nothing_of_the_one_before(worked: Ground) -> None:
    worked.configure(hooks={"auto_checkpoint_on_clear": True})
    (worked.project / "a.txt").write_text("three\n")
    answer(worked, "SessionEnd", reason="clear")
    assert "Checkpoint saved" in start(worked, "clear")["systemMessage"]

    assert "Checkpoint saved" not in start(worked, "clear", session=THIRD).get("systemMessage", "")


@pytest.mark.parametrize("near", ["tells", "unknown"])
def test_a_client_that_does_not_tell_its_process_is_told_of_its_clear(
    worked: Ground, monkeypatch: pytest.MonkeyPatch, near: str
) -> None:
    del worked.variables["CLAUDE_PID"]
    if near == "unknown":
        monkeypatch.setattr(ancestors, "ancestors", list)
    worked.configure(hooks={"auto_checkpoint_on_clear": "prompt"})
    (worked.project / "a.txt").write_text("three\n")
    answer(worked, "SessionEnd", reason="clear")

    said = start(worked, "clear")["systemMessage"]

    assert "Checkpoint saved" in said and "Keep it?" in said
    assert "Checkpoint saved" not in start(worked, "clear", session=THIRD).get("systemMessage", "")
    assert command(worked, "drop").returncode == 0
    assert "before_clear" not in worked.triggers()


def test_without_its_process_a_clear_of_long_ago_is_nobodys(worked: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    del worked.variables["CLAUDE_PID"]
    worked.configure(hooks={"auto_checkpoint_on_clear": True})
    (worked.project / "a.txt").write_text("three\n")
    answer(worked, "SessionEnd", reason="clear")
    monkeypatch.setattr(deliver, "MAX_CLEAR_TO_START_NS", -1)

    assert "Checkpoint saved" not in start(worked, "clear").get("systemMessage", "")


def test_without_its_process_the_next_turn_keeps_what_was_asked_about(worked: Ground) -> None:
    del worked.variables["CLAUDE_PID"]
    worked.configure(hooks={"auto_checkpoint_on_clear": "prompt"})
    (worked.project / "a.txt").write_text("three\n")
    answer(worked, "SessionEnd", reason="clear")
    assert "Keep it?" in start(worked, "clear")["systemMessage"]

    answer(worked, "Stop", last_assistant_message="Done.", session_id=OTHER, transcript_path="")

    assert command(worked, "drop").returncode == 4


def test_korean_names_what_became_of_each_file_in_korean(started: Ground) -> None:
    for number in range(30):
        (started.project / f"{number}.txt").write_text("x\n")
    started.configure(hooks={"auto_checkpoint_on_clear": True, "verify_before_clear": True}, language="ko")
    started.hook("SessionEnd", reason="clear")
    started.settle(90)

    said = json.loads(started.hook("SessionStart", source="clear").stdout)["systemMessage"]

    listed = [line for line in said.split("\n") if line.startswith("  ")]
    assert len(listed) > 3
    assert not [line for line in listed if line.partition(":")[0].strip().isascii()]


def test_every_kind_of_change_has_a_word_in_korean() -> None:
    kinds = [ADDED, DELETED, MODIFIED, MODE, TYPE, LEFT]

    assert not [kind for kind in kinds if change(kind, "ko").isascii()]
    assert [change(kind, "en") for kind in kinds] == kinds
