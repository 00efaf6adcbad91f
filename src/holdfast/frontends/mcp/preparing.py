"""What only a person may do, prepared: the plan of a restore, and the command to run."""

from __future__ import annotations

from shlex import join
from typing import Annotated, Literal

from pydantic import Field

from holdfast.core.errors import Usage
from holdfast.frontends.mcp import answers, telling
from holdfast.frontends.mcp.looking import Paths, Reference
from holdfast.frontends.mcp.visit import Visits
from holdfast.workspace.find import show

MOST_STEPS = 200
WHY = {
    "restore": "A restore changes files; the user decides. It makes a safety checkpoint first and can be undone.",
    "forget": "Forgetting cannot be taken back; the user decides.",
    "export": "An export carries the project's contents elsewhere; the user decides.",
}


def checkpoint_restore_preview(
    visits: Visits,
    reference: Reference = "latest",
    paths: Paths = [],  # noqa: B006  the schema shows it
) -> answers.Preview:
    """Say what a restore would write and delete, and give the command for the user. Nothing is changed."""
    from holdfast.restoring import Restoring

    with visits.open() as visit:
        row = visit.resolve(reference)
        limits = [visit.below(path) for path in paths]
        restoring = Restoring(visit.engine, visit.root, visit.row)
        restoring.refuse_unknown(row, limits)
        preview = restoring.preview(row, limits)
        steps = preview.plan.steps
        words = [
            "holdfast",
            "restore",
            f"v{row.version}",
            *(["--", *[show(path) for path in limits]] if limits else []),
        ]
        return answers.Preview(
            target=telling.checkpoint(row, visit.now()),
            steps=[answers.Step(path=telling.told(show(step.path)), action=step.action) for step in steps[:MOST_STEPS]],
            steps_left_out=max(0, len(steps) - MOST_STEPS),
            conflicts=[telling.told(show(path)) for path in preview.conflicts[:MOST_STEPS]],
            untouched=[f"{telling.told(show(path))}: {why}" for path, why in preview.plan.untouched[:MOST_STEPS]],
            prepared=answers.Prepared(command=join(words), why=WHY["restore"]),
        )


def checkpoint_prepare(
    visits: Visits,
    action: Literal["restore", "forget", "export"],
    references: Annotated[list[Reference], Field(min_length=1, max_length=50)],
) -> answers.Prepared:
    """Give the command by which the user restores, forgets or exports checkpoints. Nothing is changed."""
    if action == "restore" and len(references) > 1:
        raise Usage("references: a restore goes to one checkpoint.", "Give one.")
    with visits.open() as visit:
        versions = [f"v{visit.resolve(reference).version}" for reference in references]
    words = ["holdfast", action, *versions]
    return answers.Prepared(command=join(words), why=WHY[action])
