"""The audit trail in words: what each request did, and to what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keepfast.web.sessions import OPENED

DEEDS = {
    "session": "sign in", "leave": "sign out", "language": "choose a language", "restore": "restore", "save": "save",
    "finish": "finish a restore", "label": "pin or name", "fork": "fork", "forget": "forget", "act": "steer a task",
    "budget": "set limits", "secret": "provide a secret", "back": "go back to a checkpoint", "new": "new task",
}  # fmt: skip
"""By the last part of a page's address. What programs do through the API is shown as they asked for it."""


def said(row: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The row with `deed` and `subject`; `names` are those of workspaces and tasks, by their ids."""
    if row["action"] == OPENED:
        return {**row, "deed": "look at what is sealed", "subject": str(row["target"]).partition("?path=")[2]}
    parts = str(row["target"]).strip("/").split("/")
    if parts[0] == "api":
        return {**row, "deed": f"{row['action']} {row['target']}", "subject": ""}
    deed = "answer" if parts[0] == "p" else DEEDS.get(parts[-1], f"{row['action']} {row['target']}")
    known = [names[part] for part in parts[1:2] if part in names]
    version = [parts[3]] if parts[0] == "w" and len(parts) > 4 and parts[2] == "v" else []
    return {**row, "deed": deed, "subject": " ".join(known + version)}
