"""Writes plugin/hooks/hooks.json from the table of hooks: the plugin and `keepfast install claude` hook the same events."""

from __future__ import annotations

import json
from pathlib import Path

from keepfast.agents.claude.installer import hooks_for

TARGET = Path(__file__).parents[1] / "plugin/hooks/hooks.json"
SCRIPT = "${CLAUDE_PLUGIN_ROOT}/bin/keepfast"


def command(*words: str) -> str:
    """Return the command of a hook. It may run just after the plugin was removed; without the complete script it does nothing."""
    return f'test -r "{SCRIPT}" || exec cat >/dev/null; sh "{SCRIPT}" {" ".join(words)} || test $? -ne 1'


def text() -> str:
    said = "Checkpoints at every turn, before destructive commands, before compaction and /clear."
    return json.dumps({"description": said, "hooks": hooks_for(command)}, indent=2) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
