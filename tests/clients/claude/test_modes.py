"""The three ways to work of the guide, each with its example file, in the real client: at /clear, and after it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .bench import Bench
from .endpoint import call, say, use
from .terminal import PROMPT, Terminal

FREELY = ("--permission-mode", "bypassPermissions")
EXAMPLES = Path(__file__).parents[3] / "examples"
OPENING = "Resumed from checkpoint:"
SAVED, QUESTION = "Checkpoint saved", "! keepfast drop"


def cleared(bench: Bench, mode: str) -> tuple[str, str]:
    """A turn, an edit by hand, /clear, and another turn; what was on the screen, and what the model was asked then."""
    config = bench.home / ".config/keepfast/config.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(EXAMPLES / f"{mode}.json", config)
    bench.script(
        call(use("Write", file_path=bench.path("a.txt"), content="1\n")), say("First turn done."), say("Going on.")
    )
    with Terminal(bench, *FREELY) as terminal:
        terminal.wait(PROMPT)
        terminal.type("write a.txt")
        terminal.wait("First turn done")
        bench.wait_for(lambda: any(one["trigger"] == "turn" for one in bench.checkpoints()))
        bench.put("by-hand.txt", "not yet saved\n")
        terminal.type("/clear")
        terminal.wait(PROMPT)
        terminal.type("go on please")
        terminal.wait("Going on")
        screen = terminal.screen()
    (body,) = [request.raw for request in bench.endpoint.requests if "go on please" in request.raw][:1]
    return screen, body


def at_clear(bench: Bench) -> list[str]:
    return [one["version"] for one in bench.settle() if one["trigger"] == "before_clear"]


@pytest.mark.parametrize(
    ("mode", "saves", "asks"), [("automatic", True, False), ("prompt", True, True), ("manual", False, False)]
)
def test_each_way_does_at_clear_what_the_guide_says(hooked: Bench, mode: str, saves: bool, asks: bool) -> None:
    screen, body = cleared(hooked, mode)

    versions = at_clear(hooked)
    assert len(versions) == saves
    assert (SAVED in screen, QUESTION in screen) == (saves, asks)
    assert (OPENING in body) == (mode != "manual")
    for version in versions:
        assert hooked.keepfast("cat", version, "by-hand.txt").stdout == "not yet saved\n"


def test_a_repository_can_tighten_and_not_loosen(hooked: Bench) -> None:
    """Its client settings put variables into our hooks, and its project file is read: neither may make anything less safe."""
    loose = {
        "KEEPFAST_AUTO_CHECKPOINT_ON_CLEAR": "false",
        "KEEPFAST_HOOKS_AUTO_CHECKPOINT_ON_CLEAR": "false",
        "KEEPFAST_STORE_URL": "/nowhere",
        "KEEPFAST_CHECKPOINT_THRESHOLD": "5",
    }
    tight = {"KEEPFAST_AUTO_RESUME_ON_START": "false"}
    hooked.put(".claude/settings.json", json.dumps({"env": {**loose, **tight}}))
    hooked.put(".keepfast/config.json", json.dumps({"hooks": {"auto_checkpoint_on_clear": False}, "adopt": "never"}))

    _, body = cleared(hooked, "automatic")

    assert len(at_clear(hooked)) == 1
    assert OPENING not in body
