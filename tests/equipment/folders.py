"""Where a hook of a test keeps everything: hooks take their folders from where they were installed, never from variables."""

from __future__ import annotations

import shutil
from pathlib import Path

from keepfast.present.environment import FOLDERS

REPOSITORY = Path(__file__).parents[2]
ASKED = "home=$(passwd_home)\n"


def marketplace(base: Path, home: Path) -> Path:
    """A copy of the plugin and its marketplace, for a user whose passwd entry says this home; return its folder."""
    copy = base / "marketplace"
    if copy.exists():
        return copy
    for name in (".claude-plugin", "plugin"):
        shutil.copytree(REPOSITORY / name, copy / name)
    script = copy / "plugin/bin/keepfast"
    text = script.read_text()
    assert text.count(ASKED) == 1
    script.write_text(text.replace(ASKED, f"home='{home}'\n"))
    return copy


def written(home: Path) -> list[str]:
    """What the launcher of a user with this home puts before the words of a hook."""
    return [FOLDERS, str(home), str(home / ".config"), str(home / ".local/share")]
