"""The tools that prepare what only a person may do: the plan of a restore, and the command to run."""

from __future__ import annotations

import os
from itertools import count
from typing import Annotated, Literal

from pydantic import Field

from keepfast.app.preview import Missing
from keepfast.app.restore import Restorer
from keepfast.mcp import answer_forms, answers
from keepfast.mcp.command import command
from keepfast.mcp.inspection import Paths, Reference
from keepfast.mcp.workspace_access import WorkspaceAccess
from keepfast.model.errors import Conflict, Usage
from keepfast.workspace.marker import show

MAX_STEPS = 200
BUNDLE_SUFFIX = b".keepfast"
WHY = {
    "restore": "A restore changes files; the user decides. It makes a safety checkpoint first and can be undone.",
    "forget": "Forgetting cannot be undone; the user decides.",
    "export": "An export copies the project's contents to a file; the user decides.",
}


def checkpoint_restore_preview(
    access: WorkspaceAccess,
    reference: Reference = "latest",
    paths: Paths = [],  # noqa: B006  the schema shows it
) -> answers.Preview:
    """Say what a restore would write and delete, and give the command for the user. Nothing is changed."""
    with access.open() as workspace:
        row = workspace.resolve(reference)
        below_paths = [workspace.below(path) for path in paths]
        below_paths = [] if b"" in below_paths else below_paths  # the root is everything
        restorer = Restorer(workspace.engine, workspace.root, workspace.row)
        restorer.planner.refuse_unknown(row, below_paths)
        preview = restorer.planner.preview(row, below_paths)
        steps = preview.plan.steps
        words: list[str | bytes] = ["restore", f"v{row.version}"]
        words += ["--", *below_paths] if below_paths else []
        return answers.Preview(
            target=answer_forms.checkpoint(row, workspace.now()),
            steps=[
                answers.Step(path=answer_forms.safe_text(show(step.path)), action=step.action)
                for step in steps[:MAX_STEPS]
            ],
            steps_left_out=max(0, len(steps) - MAX_STEPS),
            conflicts=[answer_forms.safe_text(show(path)) for path in preview.conflicts[:MAX_STEPS]],
            untouched=[
                f"{answer_forms.safe_text(show(path))}: {why}" for path, why in preview.plan.untouched[:MAX_STEPS]
            ],
            missing=[_missing(entry) for entry in restorer.planner.missing(row, below_paths)[:MAX_STEPS]],
            prepared=answers.Prepared(command=command(access, words, workspace.root), why=WHY["restore"]),
        )


def _missing(missing: Missing) -> str:
    way = {"differs": "; it differs now", "empty": "; it is empty now"}.get(missing.state, "")
    way += f"; run `{missing.command}` to recreate it" if missing.command else ""
    return f"{answer_forms.safe_text(show(missing.path))}: {missing.why}{way}"


def checkpoint_prepare(
    access: WorkspaceAccess,
    action: Literal["restore", "forget", "export"],
    references: Annotated[list[Reference], Field(min_length=1, max_length=50)],
    file: Annotated[str, Field(max_length=4_000, description="Where an export goes; empty: into the home folder")] = "",
) -> answers.Prepared:
    """Give the command by which the user restores, forgets or exports checkpoints. Nothing is changed."""
    if action == "restore" and len(references) > 1:
        raise Usage("references: a restore takes exactly one checkpoint.", "Give one.")
    if file and action != "export":
        raise Usage("file: only valid for an export.", "Omit it.")
    with access.open() as workspace:
        rows = {row.version: row for row in [workspace.resolve(reference) for reference in references]}
        pinned = [f"v{row.version}" for row in rows.values() if row.pinned]
        if action == "forget" and pinned:
            raise Conflict(
                f"references: {', '.join(pinned)} cannot be forgotten while pinned.",
                f"The user would run `{command(access, ['unpin', pinned[0]], workspace.root)}` first.",
            )
        words: list[str | bytes] = [action, *[f"v{version}" for version in rows]]
        if action == "export":
            words.append(_export_path(file, workspace.root, access.environment.home, min(rows)))
        return answers.Prepared(command=command(access, words, workspace.root), why=WHY[action])


def _export_path(file: str, root: bytes, home: bytes, version: int) -> bytes:
    """Return the path of an export: a file that does not exist yet, outside the workspace unless `file` is inside."""
    if "\0" in file:
        raise Usage("file: a path cannot contain a NUL byte.", "Give another name.")
    if file:
        place = os.path.normpath(os.path.join(root, os.fsencode(file)))
        if os.path.lexists(place):
            raise Usage(f"file: {show(place)} already exists.", "Give another name.")
        if not os.path.isdir(os.path.dirname(place)):
            raise Usage(
                f"file: folder {show(os.path.dirname(place))} does not exist.", "Give a name in an existing folder."
            )
        return place
    stem = os.path.join(home, os.path.basename(root) or b"root") + f"-v{version}".encode()
    names = (stem + (f"-{number}".encode() if number > 1 else b"") + BUNDLE_SUFFIX for number in count(1))
    return next(name for name in names if not os.path.lexists(name))
