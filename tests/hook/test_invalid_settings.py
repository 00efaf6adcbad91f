"""Settings that are not taken: the user hears of all of them, once a session, and no hook looks as if it had failed."""

from __future__ import annotations

import json

import pytest

from .ground import Ground


def shown(ground: Ground, event: str, **fields: str) -> str:
    done = ground.hook(event, **fields)
    assert (done.returncode, done.stderr) == (0, b"")
    return str(json.loads(done.stdout).get("systemMessage", "")) if done.stdout else ""


def test_refused_variables_are_all_named_once_at_the_start(ground: Ground) -> None:
    ground.configure(hooks={"checkpoint_threshold_percent": 70})
    names = ["KEEPFAST_CHECKPOINT_THRESHOLD", "KEEPFAST_AUTO_CHECKPOINT_ON_CLEAR"]
    ground.variables |= dict(zip(names, ("80", "perhaps"), strict=True))

    said = shown(ground, "SessionStart", source="startup")

    assert all(name in said for name in names)
    for event in ("UserPromptSubmit", "Stop", "SessionStart", "SessionEnd"):
        assert "KEEPFAST_" not in shown(ground, event)


def test_a_file_that_breaks_later_is_told_at_the_end_of_the_turn(ground: Ground) -> None:
    ground.variables["KEEPFAST_AUTO_CHECKPOINT_ON_CLEAR"] = "perhaps"
    assert shown(ground, "SessionStart", source="startup")
    (ground.home / ".config/keepfast").mkdir(parents=True, exist_ok=True)
    (ground.home / ".config/keepfast/config.json").write_text("[]")

    assert b"config.json" in ground.hook("Stop").stderr
    assert ground.hook("Stop").stderr == b""


@pytest.mark.parametrize("text", ["[]", '{"hooks": {"no_such": 1}}'])
def test_what_was_told_at_the_start_is_not_told_again(ground: Ground, text: str) -> None:
    (ground.home / ".config/keepfast").mkdir(parents=True, exist_ok=True)
    (ground.home / ".config/keepfast/config.json").write_text(text)

    assert "config.json" in shown(ground, "SessionStart", source="startup")
    assert shown(ground, "Stop") == ""
