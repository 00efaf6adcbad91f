"""The files in `.metadata/` of a workspace: `task.json`, a copy of the task's row, and `history.jsonl`, its events."""

from __future__ import annotations

from typing import Any

from keepfast.runner.actions import event_files
from keepfast.runner.actions.descriptions import dependencies, question
from keepfast.runner.actions.documents import VERSION, signed
from keepfast.runner.actions.folders import METADATA, own_folder, replace
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.runner.db.rows import MARKED
from keepfast.runner.db.tables import Tables
from keepfast.runner.domain import task as machine
from keepfast.runner.domain.moments import moment
from keepfast.runner.domain.records import Task

TRIES = 3
COLUMNS = (
    "id", "title", "type", "brief", "workspace", "workspace_id", "agent", "phases", "budget", "priority", "after", "needs",
    "state", "phase", "attempt", "reworks", "session", "tokens", "money", "seconds", "fork_of", "created_at", "started_at",
)  # fmt: skip


def project(runtime: Runtime, id: str) -> None:
    """Bring `.metadata/` up to date: the task's row and its newest events. A failure only costs the copy."""
    folder = own_folder(runtime.tables.task(id).workspace, METADATA)
    if folder is None:
        return
    try:
        for _ in range(TRIES):
            task = runtime.tables.task(id)
            replace(f"{folder}/task.json", signed(runtime, _projected(runtime.tables, task)))
            if runtime.tables.task(id).updated_at == task.updated_at:
                break  # otherwise another process may have written a newer one, which ours replaced
        event_files.extend(runtime, id, f"{folder}/history.jsonl", event_files.json_line)
    except OSError:
        pass


def _projected(tables: Tables, task: Task) -> dict[str, Any]:
    """Return the contents of `task.json`."""
    id, hold = task.id, tables.shown_hold(task)
    document = {name: getattr(task, name) for name in COLUMNS}
    return document | {
        "schemaVersion": VERSION,
        "status": machine.status(tables.shown_state(task)),
        "hold": hold.kind if hold else None,
        "updatedAt": moment(task.updated_at),
        "secrets": {row.name: row.sealed for row in queries.variables_of(tables, id)},
        "marked": {one.name: one.sealed for one in queries.secrets_of(tables, id) if one.type == MARKED},
        "dependencies": dependencies(tables, id),
        "questions": [
            {**question(prompt), "answer": prompt.answer, "status": prompt.status, "delivered": bool(prompt.delivered)}
            for prompt in queries.prompts_of(tables, id, "question")
        ],
    }
