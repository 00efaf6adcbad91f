"""The tool that saves a checkpoint, with what the agent states about its work."""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import Field

from keepfast.app.inspect import coverage
from keepfast.app.worker import event_of, without_repeats
from keepfast.mcp import answers
from keepfast.mcp.answer_forms import checkpoint, safe_text
from keepfast.mcp.workspace_access import OpenWorkspace, WorkspaceAccess
from keepfast.model.errors import Failed, Usage
from keepfast.model.event import Event
from keepfast.present.json_forms import saved_counts
from keepfast.secrets.redaction import redact
from keepfast.state.pending_events import PendingEvent

Line = Annotated[str, Field(max_length=1_000)]


def checkpoint_save(
    access: WorkspaceAccess,
    summary: Annotated[
        str,
        Field(description=("Message of the checkpoint: what this state is, in one line"), min_length=1, max_length=500),
    ],
    description: Annotated[
        str, Field(description=("More details for the next session, if helpful"), max_length=8_000)
    ] = "",
    decisions: Annotated[list[Line], Field(description="Decisions made, with their reasons", max_length=50)] = [],  # noqa: B006  the schema shows it
    next_steps: Annotated[list[Line], Field(description="What to do next, in order", max_length=50)] = [],  # noqa: B006
    current_task: Annotated[
        str,
        Field(description="Work in progress; empty: taken from the conversation", max_length=500),
    ] = "",
    blockers: Annotated[list[Line], Field(description="Blockers", max_length=50)] = [],  # noqa: B006
    tags: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=20)] = [],  # noqa: B006
) -> answers.Saved:
    """Save the state of the workspace, with task, decisions, next steps and blockers; the next session gets them in
    its resume brief.
    """
    summary = " ".join(summary.split())
    if not summary:
        raise Usage("summary is empty.", "Describe this state in one line.")
    if any(not tag.strip() or not tag.strip().isprintable() for tag in tags):
        raise Usage(
            ("tags: one of them is empty, or has a line break or a control character."), "Give plain words as tags."
        )
    stated = {
        "next_steps": _one_line_each(next_steps),
        "decisions": _one_line_each(decisions),
        "blockers": _one_line_each(blockers),
    }
    with access.open() as workspace:
        event = _session_event(workspace, access.session(workspace))
        event.message = f"{summary}\n\n{description.strip()}".strip()
        event.summary, event.guarded = summary, True
        event.tags = tuple(dict.fromkeys([tag.strip() for tag in tags]))
        event.key_points = without_repeats((*stated["decisions"], *event.key_points))
        event.notes = _merge_notes(event.notes or {}, "".join(_one_line_each([current_task])), stated)
        outcome = workspace.engine.handle(event)
        if outcome.checkpoint is None:
            raise Failed("No checkpoint was made.", "Run `keepfast status` to see why.")
        return answers.Saved(
            checkpoint=checkpoint(outcome.checkpoint, workspace.now()),
            kept=saved_counts(coverage(workspace.refresh())),
            notices=[safe_text(notice) for notice in outcome.notices[:20]],
        )


def _session_event(workspace: OpenWorkspace, session: dict[str, Any]) -> Event:
    """Return the event of a manual save, with what hooks recorded about the agent's session."""
    name, transcript, model = [str(session.get(key) or "") for key in ("session", "transcript", "model")]
    agent = "claude-code" if session else ""
    seen = PendingEvent("manual", workspace.now(), name, agent, os.fsdecode(workspace.cwd), transcript, model=model)
    event = event_of(workspace.engine, workspace.root, workspace.engine.place.folder(workspace.row.id), seen)
    event.created_by = "system"
    return event


def _merge_notes(notes: dict[str, Any], task: str, stated: dict[str, list[str]]) -> dict[str, Any]:
    """Return the notes with the agent's own statements, which override what was read from its conversation."""
    analysis = dict(notes.get("analysis", {}))
    if task:
        analysis["current_task"] = task
    if stated["blockers"]:
        analysis["blockers"] = stated["blockers"]
    return {**notes, "analysis": analysis, "stated": {**stated, **({"current_task": task} if task else {})}}


def _one_line_each(lines: list[str]) -> list[str]:
    """Return the texts redacted, each on one line. The engine stores notes without redacting them."""
    return [redact(" ".join(line.split())) for line in lines if line.strip()]
