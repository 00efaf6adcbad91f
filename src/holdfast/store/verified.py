"""When everything in the store was last read and compared, and what was found: one small file for whoever asks later."""

from __future__ import annotations

import json
from typing import Any

from holdfast.store.local import replace

NAME = "/verified.json"


def keep(store: str, at: int, quick: bool, problems: int, checkpoints: int) -> None:
    """Write it down. A store that cannot be written has been verified all the same."""
    said = {"at": at, "quick": quick, "problems": problems, "checkpoints": checkpoints}
    try:
        replace(store + NAME, json.dumps(said).encode())
    except OSError:
        pass


def last(store: str) -> dict[str, Any] | None:
    """What the last verify found; None if nobody knows of one."""
    try:
        with open(store + NAME, "rb") as file:
            said = json.loads(file.read(4096))
        return {
            "at": int(said["at"]), "quick": bool(said["quick"]), "problems": int(said["problems"]),
            "checkpoints": int(said["checkpoints"]),
        }  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return None
