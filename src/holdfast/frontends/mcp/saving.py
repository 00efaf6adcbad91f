"""The tool that saves: what the agent states goes into the checkpoint, by the one way that makes them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.core.errors import Failed, Usage
from holdfast.core.model import Event
from holdfast.core.redact import redact
from holdfast.frontends.facts import kept
from holdfast.frontends.mcp import answers
from holdfast.frontends.mcp.telling import checkpoint, told
from holdfast.frontends.mcp.visit import Visits
from holdfast.looking import coverage

Line = Annotated[str, Field(max_length=1_000)]
SHORT = 80
"""A summary is one line of at most so many characters; the message keeps all of it."""


def checkpoint_save(
    visits: Visits,
    summary: Annotated[str, Field(description="What this state is, in one line", min_length=1, max_length=500)],
    description: Annotated[str, Field(description="More, if it helps whoever goes on", max_length=8_000)] = "",
    decisions: Annotated[list[Line], Field(description="Decisions made, with their reasons", max_length=50)] = [],  # noqa: B006  the schema shows it
    next_steps: Annotated[list[Line], Field(description="What to do next, in order", max_length=50)] = [],  # noqa: B006
    tags: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=20)] = [],  # noqa: B006
) -> answers.Saved:
    """Save the state of the workspace, with the decisions made and the next steps; the next session is told them."""
    summary = " ".join(summary.split())
    if not summary:
        raise Usage("summary is empty.", "Say in one line what this state is.")
    if any("\n" in tag or not tag.strip() for tag in tags):
        raise Usage("tags: one of them is empty or has a line break.", "Give plain words.")
    stated = {"next_steps": _plain(next_steps), "decisions": _plain(decisions)}
    with visits.open() as visit:
        outcome = visit.engine.handle(
            Event(
                visit.cwd,
                visit.now(),
                trigger="manual",
                message=f"{summary}\n\n{description.strip()}".strip(),
                tags=tuple(dict.fromkeys([tag.strip() for tag in tags])),
                session=visits.session(visit),
                created_by="system",
                summary=summary if len(summary) <= SHORT else summary[: SHORT - 1] + "…",
                key_points=tuple(stated["decisions"]),
                notes={"current_task": redact(summary), "stated": stated},
            )
        )
        if outcome.checkpoint is None:
            raise Failed("No checkpoint was made.", "Run `holdfast status` to see why.")
        return answers.Saved(
            checkpoint=checkpoint(outcome.checkpoint, visit.now()),
            kept=kept(coverage(visit.refreshed())),
            notices=[told(notice) for notice in outcome.notices[:20]],
        )


def _plain(lines: list[str]) -> list[str]:
    """One line each. An engine takes notes as they are, so they are redacted here."""
    return [redact(" ".join(line.split())) for line in lines if line.strip()]
