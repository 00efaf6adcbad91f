"""The source's own settings snippet, word for word but for the program's name, in the real client."""

from __future__ import annotations

import json

from .bench import Bench
from .endpoint import call, say, use
from .terminal import PROMPT, Terminal

SNIPPET = """
{
  "hooks": {
    "Stop": [
      {
        "hooks": [
          {
            "type": "command",
            "command": "keepfast checkpoint --auto 2>/dev/null || true",
            "async": true,
            "timeout": 30
          }
        ]
      }
    ]
  }
}
"""


def test_the_snippet_makes_a_checkpoint_after_each_turn_that_changed_something(bench: Bench) -> None:
    bench.settings(json.loads(SNIPPET))
    bench.keepfast("init")
    bench.script(
        call(use("Write", file_path=str(bench.project / "a.txt"), content="one\n")),
        say("First turn done."),
        say("Second turn done."),
        call(use("Bash", command="echo two > b.txt", description="write")),
        say("Third turn done."),
    )

    with Terminal(bench, "--permission-mode", "bypassPermissions") as terminal:
        terminal.wait(PROMPT)
        for number, word in enumerate(("First", "Second", "Third")):
            terminal.type(f"turn {number}")
            terminal.wait(f"{word} turn done")
            # The hook is asynchronous: the next turn would otherwise begin before it has looked.
            bench.wait_for(lambda: len(bench.checkpoints()) == (1, 1, 2)[number])  # noqa: B023

    made = bench.checkpoints()
    assert [(one["version"], one["message"], one["trigger"]) for one in made] == [
        ("v2", "auto", "auto"),
        ("v1", "auto", "auto"),
    ]
    assert bench.keepfast("cat", "v1", "a.txt").stdout == "one\n"
    assert bench.keepfast("cat", "v2", "b.txt").stdout == "two\n"
