"""The tool that saves: what the agent states goes into the checkpoint, by the one way that makes them."""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import Field

from keepfast.app.inspect import coverage
from keepfast.app.worker import event_of, without_repeats
from keepfast.mcp import answers
from keepfast.mcp.answer_forms import checkpoint, told
from keepfast.mcp.visit import Visit, Visits
from keepfast.model.errors import Failed, Usage
from keepfast.model.event import Event
from keepfast.present.json_forms import kept
from keepfast.secrets.redaction import redact
from keepfast.state.pending_events import PendingEvent

Line = Annotated[str, Field(max_length=1_000)]


def checkpoint_save(
    visits: Visits,
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
    stated = {"next_steps": _plain(next_steps), "decisions": _plain(decisions), "blockers": _plain(blockers)}
    with visits.open() as visit:
        event = _of_session(visit, visits.session(visit))
        event.message = f"{summary}\n\n{description.strip()}".strip()
        event.summary, event.guarded = summary, True
        event.tags = tuple(dict.fromkeys([tag.strip() for tag in tags]))
        event.key_points = without_repeats((*stated["decisions"], *event.key_points))
        event.notes = _with_stated(event.notes or {}, "".join(_plain([current_task])), stated)
        outcome = visit.engine.handle(event)
        if outcome.checkpoint is None:
            raise Failed("No checkpoint was made.", "Run `keepfast status` to see why.")
        return answers.Saved(
            checkpoint=checkpoint(outcome.checkpoint, visit.now()),
            kept=kept(coverage(visit.refreshed())),
            notices=[told(notice) for notice in outcome.notices[:20]],
        )


def _of_session(visit: Visit, session: dict[str, Any]) -> Event:
    """A save by hand that knows the session it is made in, as far as hooks have noted it."""
    name, transcript, model = [str(session.get(key) or "") for key in ("session", "transcript", "model")]
    agent = "claude-code" if session else ""
    seen = PendingEvent("manual", visit.now(), name, agent, os.fsdecode(visit.cwd), transcript, model=model)
    event = event_of(visit.engine, visit.root, visit.engine.place.folder(visit.row.id), seen)
    event.created_by = "system"
    return event


def _with_stated(notes: dict[str, Any], task: str, stated: dict[str, list[str]]) -> dict[str, Any]:
    """What the agent says itself comes before what was read from its conversation. A summary may tell of what is done."""
    analysis = dict(notes.get("analysis", {}))
    if task:
        analysis["current_task"] = task
    if stated["blockers"]:
        analysis["blockers"] = stated["blockers"]
    return {**notes, "analysis": analysis, "stated": {**stated, **({"current_task": task} if task else {})}}


def _plain(lines: list[str]) -> list[str]:
    """One line each. An engine takes notes as they are, so they are redacted here."""
    return [redact(" ".join(line.split())) for line in lines if line.strip()]
