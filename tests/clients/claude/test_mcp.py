"""The MCP server in the real client: as the plugin brings it, called by a scripted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.equipment.folders import marketplace

from .bench import Bench
from .endpoint import Request, Rule, call, say, use

PLUGIN = Path(__file__).parents[3] / "plugin"
PREFIX = "mcp__plugin_keepfast_keepfast__"


def protected(bench: Bench) -> Bench:
    bench.put("src/a.py", "def hello():\n    return 1\n")
    bench.keepfast("install", "claude", "--plugin")
    bench.keepfast("init")
    bench.keepfast("save", "-m", "begin")
    return bench


def play(bench: Bench, *calls: dict[str, Any]) -> list[Request]:
    """Let the model call these tools, once the client says that the server is there; return the requests."""
    ready = f'"name": ?"{PREFIX}recall"'
    waiting = Rule([call(use("Bash", command="sleep 1", description="wait"))], endless=True, anywhere=".")
    steps = Rule([*[call(one) for one in calls], say("Done.")], anywhere=ready)
    bench.script(rules=[steps, waiting])
    turn = bench.run("go on", "--plugin-dir", str(marketplace(bench.base, bench.home) / "plugin"))

    assert turn.code == 0 and turn.result["result"] == "Done.", turn.err
    return bench.endpoint.main_requests()


def result_of(requests: list[Request], tool_use: dict[str, Any]) -> dict[str, Any]:
    """What the model was shown as the result of this call."""
    for message in requests[-1].messages:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block.get("tool_use_id") == tool_use["id"]:
                content = block["content"]
                text = content if isinstance(content, str) else content[0]["text"]
                found: dict[str, Any] = json.loads(text)
                return found
    raise AssertionError("the model was not shown a result")


def test_two_tools_are_always_there_and_the_others_on_demand(bench: Bench) -> None:
    requests = play(protected(bench), use(PREFIX + "recall", what="hello"))

    loaded = {tool["name"].removeprefix(PREFIX) for tool in requests[-1].body["tools"] if PREFIX in tool["name"]}
    shown = requests[-1].texts()
    assert loaded == {"checkpoint_save", "recall"}
    for name in ("checkpoint_list", "checkpoint_diff", "checkpoint_configure", "checkpoint_restore_preview"):
        assert PREFIX + name in shown
    assert "keepfast saves checkpoints of this workspace" in shown


def test_the_model_recalls_exact_text_and_saves_its_decisions(bench: Bench) -> None:
    recalled = use(PREFIX + "recall", what="hello")
    saved = use(PREFIX + "checkpoint_save", summary="x it is", decisions=["x over y"], next_steps=["write z"])

    requests = play(protected(bench), recalled, saved)

    passage = result_of(requests, recalled)["matches"][0]
    assert (passage["path"], passage["text"]) == ("src/a.py", "def hello():\n    return 1")
    # What the session says after that goes into checkpoints of its own, which take their summary from here.
    named = [row for row in bench.checkpoints() if row["message"] == "x it is"]
    (made,) = [row for row in named if row["trigger"] == "manual"]
    assert result_of(requests, saved)["checkpoint"]["id"] == made["id"]
    assert made["session_id"] == bench.transcripts()[0].stem
