"""The audit trail as shown on the health page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from keepfast.present.terminal import rfc3339
from keepfast.web.sessions import OPENED, AuditRow

ACTIONS = {
    "session": "sign in", "leave": "sign out", "language": "change language", "restore": "restore", "save": "save",
    "finish": "finish a restore", "label": "pin or name", "fork": "fork", "forget": "forget", "act": "control a task",
    "budget": "set limits", "secret": "provide a secret", "back": "go back to a checkpoint", "new": "new task",
}  # fmt: skip
"""Names of actions, by the last part of the path. API requests are shown as method and path."""


class AuditEntry(NamedTuple):
    """A row of the audit trail with its action and subject in words."""

    at: str
    who: str
    role: str
    action: str
    target: str
    outcome: str
    action_name: str
    subject: str


def describe(row: AuditRow, names: Mapping[str, str]) -> AuditEntry:
    """Return a row with its action in words. `names`: names of workspaces and tasks, by id."""
    return AuditEntry(rfc3339(row.at), *row[1:], *_words(row, names))


def _words(row: AuditRow, names: Mapping[str, str]) -> tuple[str, str]:
    """Return the action and its subject."""
    if row.action == OPENED:
        return "open sealed contents", row.target.partition("?path=")[2]
    parts = row.target.strip("/").split("/")
    if parts[0] == "api":
        return f"{row.action} {row.target}", ""
    action_name = "answer" if parts[0] == "p" else ACTIONS.get(parts[-1], f"{row.action} {row.target}")
    subject_names = [names[part] for part in parts[1:2] if part in names]
    version = [parts[3]] if parts[0] == "w" and len(parts) > 4 and parts[2] == "v" else []
    return action_name, " ".join(subject_names + version)
