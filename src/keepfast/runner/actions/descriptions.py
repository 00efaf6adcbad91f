"""Contents of a checkpoint's document: observed before the transaction, described together with the rows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from keepfast.runner.actions import dialogue
from keepfast.runner.actions.dialogue import Dialogue, Line
from keepfast.runner.actions.documents import VERSION
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.runner.db.tables import Tables
from keepfast.runner.domain import task as machine
from keepfast.runner.domain.moments import moment
from keepfast.runner.domain.protocol import VARIABLES
from keepfast.runner.domain.records import Prompt, Run, Task
from keepfast.runner.process import shims
from keepfast.runner.process.output import Output
from keepfast.runner.process.redaction import clean
from keepfast.store.conversations import SavedConversation

BY = {"interval": "auto", "user_pause": "user", "cancel": "user", "manual": "user"}
DELIVERABLES, MAX_SEEN = 500, 20_000
"""Number of newest files that are listed, and of files that are examined."""


class Head(NamedTuple):
    """The first fields of a document."""

    id: str
    reason: str
    at: int


class WorkState(NamedTuple):
    """What a document contains that no row has: collected when the checkpoint is made, before the task's state changes."""

    dialogue: Dialogue
    workspace: dict[str, Any]
    session: str
    pid: int | None
    step: str
    fraction: float
    tokens: int
    """Tokens of a live run that its row does not count yet."""


def observe(runtime: Runtime, task: Task, run: Run | None, output: Output | None) -> WorkState:
    """Collect what takes time: the dialogue and the files of the workspace."""
    return WorkState(
        dialogue=(
            dialogue.read(runtime, run, output)
            if run is not None
            else dialogue.documented(runtime, task.id, runtime.now())
        ),
        workspace={"path": task.workspace, **_deliverables(task.workspace)},
        session=(output.session if output is not None else "") or (run.session if run is not None else task.session),
        pid=shims.agent(run.folder).pid if run is not None else None,
        step=output.step if output is not None else "",
        fraction=output.fraction if output is not None else 0.0,
        tokens=output.tokens if output is not None else 0,
    )


def describe(
    runtime: Runtime, task: Task, run: Run | None, work: WorkState, head: Head, conversation: SavedConversation | None
) -> dict[str, Any]:
    """Return the document of a checkpoint: its fields, redacted and bounded, and a schema version.

    It describes the rows as they are now: a caller that changes the state because of a checkpoint calls this afterwards, in
    the same transaction. `conversation` says where the whole conversation is in the store.
    """
    tables = runtime.tables
    state = tables.shown_state(task)
    lives = run is not None and run.state != machine.ENDED
    prompts = queries.waiting_prompts_of(tables, task.id)
    secrets = queries.variables_of(tables, task.id)
    fraction = (work.fraction if lives else 0.0) or task.fraction
    return {
        "schemaVersion": VERSION,
        "id": head.id,
        "taskId": task.id,
        "createdAt": moment(head.at),
        "createdBy": BY.get(head.reason, "system"),
        "reason": head.reason,
        "task": {
            "status": machine.status(state),
            "type": task.type,
            "currentPhase": task.phase if task.phases else None,
            "progress": progress(task, prompts, fraction),
        },
        "agent": {
            "status": machine.agent_status(state, run.state if run is not None and work.pid else ""),
            "pid": work.pid,
            "currentPhase": (run.phase if run is not None else task.phase) if task.phases else None,
            "currentStep": work.step or task.step or None,
            "tokensUsed": task.tokens + (work.tokens if lives else 0),
            "blockedBy": state.hold or None,
        },
        "conversationHistory": {
            "messages": [_message(message, bool(task.phases)) for message in work.dialogue.messages],
            "lastMessageIndex": work.dialogue.total - 1,
            "session": work.session,
            "digest": conversation.transcript.content if conversation is not None else None,
            "bytes": conversation.transcript.size if conversation is not None else None,
        },
        "environment": {
            "variables": {row.name: row.sealed for row in secrets},
            "dependencies": dependencies(tables, task.id),
        },
        "workspace": work.workspace,
        "protocols": {
            "pendingDependencies": [_need(prompt) for prompt in prompts if prompt.kind == "secret"],
            "pendingQuestions": [question(prompt) for prompt in prompts if prompt.kind == "question"],
            "completedPhases": completed(task, prompts),
        },
    }


def dependencies(tables: Tables, id: str) -> list[dict[str, Any]]:
    """Return what a task was provided with: values for its environment, and other needs that a person met."""
    values = queries.variables_of(tables, id)
    met = queries.met_needs(tables, id)
    provided = [(row.given_at, row.type, row.name) for row in values]
    provided += [
        (prompt.answered_at, prompt.category, prompt.key) for prompt in met if prompt.category not in VARIABLES
    ]
    return [{"type": type, "name": name, "providedAt": moment(at)} for at, type, name in sorted(provided)]


def _touched(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _message(message: Line, has_phases: bool) -> dict[str, Any]:
    about = {key: value for key, value in message.metadata.items() if has_phases or key != "phase"}
    return {
        "role": message.role, "content": message.content, "timestamp": moment(message.at), "metadata": about,
    }  # fmt: skip


def progress(task: Task, waiting: Iterable[Prompt], fraction: float) -> int:
    """Return the progress of a task; for a completed phase, the agent's own figure no longer counts."""
    complete = completed(task, waiting)
    part = 0.0 if task.phase in complete else fraction
    return machine.progress(len(complete), len(task.phases), part, task.state)


def completed(task: Task, waiting: Iterable[Prompt]) -> list[int]:
    """Return the completed phases; one that waits for its review is complete unless its verification fails."""
    if not task.phases:
        return []
    flagged = any(prompt.kind == "approval" and prompt.flagged for prompt in waiting)
    complete = task.state == machine.DONE or (task.state == machine.REVIEW and not flagged)
    return list(range(1, task.phase + int(complete)))


def _deliverables(workspace: str) -> dict[str, Any]:
    """Return the newest files of the workspace; those in hidden and dependency folders are not deliverables."""
    files: list[tuple[int, str]] = []
    for folder, folders, names in os.walk(workspace):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in ("node_modules", "__pycache__")
        )
        for name in sorted(names):
            path = os.path.join(folder, name)
            with suppress(OSError):
                files.append((os.lstat(path).st_mtime_ns, os.path.relpath(path, workspace)))
        if len(files) >= MAX_SEEN:
            break
    newest = max([at for at, _ in files], default=0) or _touched(workspace)
    listed = sorted(name.encode("utf-8", "replace").decode() for _, name in sorted(files, reverse=True)[:DELIVERABLES])
    # File names often look random: only keys of known forms are redacted in them.
    return {"deliverables": [clean(name, "id") for name in listed], "lastModified": moment(newest) if newest else None}


def question(prompt: Prompt) -> dict[str, Any]:
    return {
        "id": prompt.id, "category": prompt.category, "question": prompt.text, "options": prompt.options,
        "default": prompt.standard or None, "required": bool(prompt.required), "createdAt": moment(prompt.created_at),
    }  # fmt: skip


def _need(prompt: Prompt) -> dict[str, Any]:
    return {
        "id": prompt.id, "type": prompt.category, "name": prompt.key, "description": prompt.text,
        "default": prompt.standard or None, "required": bool(prompt.required), "createdAt": moment(prompt.created_at),
    }  # fmt: skip
