"""`hooks.verify_before_clear`: what a clear is compared with, and what the user is shown of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.core.messages import change
from holdfast.looking import ADDED, DELETED, LEFT, MODE, MODIFIED, TYPE

from .ground import Ground


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


def test_a_clear_that_is_not_kept_says_nothing_and_the_next_baseline_has_the_files(started: Ground) -> None:
    said = cleared(started, auto_checkpoint_on_clear=False)

    assert "Checkpoint saved" not in said and "modified: a.txt" not in said
    assert started.triggers()[-1] == "session_start"
    assert started.contents(started.checkpoints()[-1])["a.txt"] == b"one\ntwo\n"


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
