"""The read-only tools: list, search, show, diff, resume, recall."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import BeforeValidator, Field

from keepfast.app.inspect import Change, as_compared, compare
from keepfast.app.recall import recall as find
from keepfast.mcp import answer_forms, answers
from keepfast.mcp.workspace_access import OpenWorkspace, WorkspaceAccess
from keepfast.model.entry import SEALED
from keepfast.model.errors import NotFound, Usage
from keepfast.present.patches import patch, without_implied
from keepfast.present.terminal import age_in_words
from keepfast.resume.passages import MAX_LINE, quotable_lines
from keepfast.resume.quotation import escaped
from keepfast.secrets.marks import is_secret_by_name
from keepfast.store.bases import previous_version
from keepfast.store.rows import CheckpointRow, Query
from keepfast.store.search import search
from keepfast.workspace.marker import show

MAX_LISTED, MAX_CHANGES, MAX_COUNTED = 100, 200, 60
MAX_PATCH = 30_000
MAX_TOKENS, MAX_VERSION = 20_000, 10**15
Reference = Annotated[
    str, Field(description="v5, an id, a name, latest, @~2 (steps back) or @{2h} (back in time)", max_length=200)
]


def _count(value: object) -> object:
    """Reject booleans, which Python accepts as numbers."""
    if isinstance(value, bool):
        raise ValueError("Input should be a whole number")
    return value


Count = Annotated[int, BeforeValidator(_count)]
Words = Annotated[str, Field(min_length=1, max_length=500)]
Question = Annotated[
    str,
    Field(
        description="A path (src/a.py, a.py:10-40), a name that is defined somewhere, or words",
        min_length=1,
        max_length=500,
    ),
]
Path = Annotated[str, Field(max_length=4_000)]
Paths = Annotated[list[Path], Field(max_length=50, description="Only these paths and what is below them")]


def checkpoint_list(
    access: WorkspaceAccess,
    limit: Annotated[Count, Field(ge=0, le=MAX_LISTED, description="0: the limit that the user has set")] = 0,
    before: Annotated[Count, Field(ge=0, le=MAX_VERSION, description="Only versions below this number")] = 0,
    session: Annotated[str, Field(max_length=200, description="Only of this session id")] = "",
    trigger: Annotated[str, Field(max_length=100)] = "",
    tag: Annotated[str, Field(max_length=100)] = "",
) -> answers.Listed:
    """List this workspace's checkpoints, newest first."""
    with access.open() as workspace:
        most = limit or min(workspace.settings["checkpoint.max_auto_summaries"], MAX_LISTED)
        query = Query(
            workspace=workspace.row.id,
            session=session,
            trigger=trigger,
            tag=tag,
            before=before,
            limit=most + 1,
            light=bool(trigger),
        )
        rows = as_compared(workspace.repository, workspace.repository.find(query))
        now = workspace.now()
        return answers.Listed(
            checkpoints=[answer_forms.checkpoint(row, now) for row in rows[:most]], more=len(rows) > most
        )


def checkpoint_search(
    access: WorkspaceAccess, text: Words, limit: Annotated[Count, Field(ge=1, le=MAX_LISTED)] = 20
) -> answers.Hits:
    """Find checkpoints by a part of their message, name, tag, or of a path they hold."""
    if not text.strip():
        raise Usage("text is empty.", "Give a part of a message, name, tag or path.")
    with access.open() as workspace:
        now = workspace.now()
        hits = search(workspace.repository, workspace.engine.place.path, workspace.row.id, text, limit)
        return answers.Hits(
            hits=[
                answers.Hit(
                    where=hit.where,
                    text=answer_forms.safe_text(
                        show(hit.path) if hit.path else hit.text, answer_forms.MAX_MESSAGE_CHARACTERS
                    ),
                    checkpoint=answer_forms.checkpoint(hit.checkpoint, now),
                )
                for hit in hits
            ]
        )


def checkpoint_show(access: WorkspaceAccess, reference: Reference = "latest") -> answers.Shown:
    """Show one checkpoint: why it was made, task, decisions, next steps, and what changed in it."""
    with access.open() as workspace:
        row = workspace.resolve(reference)
        header, _ = workspace.repository.document(row)
        before = previous_version(workspace.repository, row)
        (row,) = as_compared(workspace.repository, [row])
        changes = compare(workspace.engine, workspace.root, workspace.row, before, row)
        git = header.git
        return answers.Shown(
            checkpoint=answer_forms.checkpoint(row, workspace.now()),
            summary=answer_forms.safe_text(header.summary),
            working_directory=answer_forms.safe_text(header.cwd),
            git_branch=git.branch or None if git is not None else None,
            git_commit=git.commit or None if git is not None else None,
            tokens_used=header.tokens_used or None,
            token_budget=header.token_budget or None,
            key_points=answer_forms.safe_texts(header.key_points),
            notes=answer_forms.safe_json(header.notes),
            active_files=answer_forms.safe_texts(header.active_files),
            previous=f"v{before.version}" if before is not None else None,
            changes=answer_forms.changed_paths(changes, MAX_CHANGES, with_lines=False),
            changes_left_out=max(0, len(changes) - MAX_CHANGES),
            notices=answer_forms.safe_texts(header.notices),
        )


def checkpoint_diff(
    access: WorkspaceAccess,
    old: Reference = "@",
    new: Annotated[str, Field(max_length=200, description="Empty: the disk as it is now")] = "",
    paths: Paths = [],  # noqa: B006  the schema shows it
    with_patch: Annotated[bool, Field(description="Include the patch, not only counts")] = True,
) -> answers.Difference:
    """Compare two checkpoints, or one with the disk now: counts per file, and the patch as far as it fits."""
    with access.open() as workspace:
        old_row = workspace.resolve(old)
        new_row = workspace.resolve(new) if new else None
        below_paths = [workspace.below(path) for path in paths]
        _refuse_unknown(workspace, below_paths, old_row, new_row)
        changes = without_implied(
            compare(workspace.engine, workspace.root, workspace.row, old_row, new_row, below_paths)
        )
        answer = answers.Difference(
            old=f"v{old_row.version}",
            new=f"v{new_row.version}" if new_row is not None else "disk",
            changes=answer_forms.changed_paths(changes, MAX_CHANGES, with_lines=len(changes) <= MAX_COUNTED),
        )
        if len(changes) > MAX_CHANGES:
            answer.left_out.append(f"{len(changes) - MAX_CHANGES:,} more changed paths")
        if with_patch:
            _add_patch(answer, changes)
        return answer


def checkpoint_resume(
    access: WorkspaceAccess,
    reference: Annotated[
        str,
        Field(
            max_length=200,
            description=("Version to resume from, as it was then; empty: the newest, with the current files"),
        ),
    ] = "",
    tokens: Annotated[Count, Field(ge=200, le=MAX_TOKENS, description="Token limit")] = 5_000,
) -> answers.Resumed:
    """Get what is needed to go on from a checkpoint: task, next steps, decisions, last test, and exact excerpts of files."""
    from keepfast.app.resume import Resumer

    with access.open() as workspace:
        resumer = Resumer(workspace.engine, workspace.root, workspace.row.id)
        work = resumer.work_at(workspace.resolve(reference)) if reference else resumer.newest()
        if work is None:
            raise NotFound("No checkpoint found to resume from.", "Use `checkpoint_save` to make one.")
        version = f"v{work.row.version}"
        if reference:
            built, of = resumer.moment_brief(work, tokens=tokens)
        else:
            built, of = resumer.brief(work, tokens=tokens), "live"
        return answers.Resumed(
            version=version,
            conversation=of or None,
            files=version if reference else "disk",
            summary=answer_forms.safe_text(work.summary),
            age=age_in_words(work.row.created_at, workspace.now()),
            text=built.text,
            tokens=built.tokens,
            left_out=[answer_forms.safe_text(text) for text in built.left_out[: answer_forms.MAX_ITEMS]],
        )


def recall(
    access: WorkspaceAccess,
    what: Question,
    reference: Reference = "latest",
) -> answers.Recalled:
    """Get exact text of this workspace from disk and checkpoint: a file or a range of it, a definition, or where words stand."""
    with access.open() as workspace:
        row = workspace.resolve(reference)
        result = find(workspace.engine, workspace.root, workspace.row, row, what)
        return answers.Recalled(
            version=f"v{row.version}",
            read_as=result.kind,
            matches=[
                answers.Passage(
                    path=match.path,
                    lines=f"{match.first}-{match.last} of {match.of}",
                    source=match.source,
                    on_disk=match.on_disk,
                    text=match.text,
                    remark=match.note,
                )
                for match in result.matches
            ],
            left_out=[answer_forms.safe_text(text) for text in result.left_out],
        )


def _refuse_unknown(
    workspace: OpenWorkspace, below_paths: list[bytes], old_row: CheckpointRow, new_row: CheckpointRow | None
) -> None:
    """Raise `NotFound` for a path that is on neither side, where "no changes" would suggest that it is on both."""
    repository, rows = workspace.repository, [row for row in (old_row, new_row) if row is not None]
    for path in below_paths:
        is_kept = any(
            next(iter(repository.state(workspace.row.id, row.version, path)), None) is not None for row in rows
        )
        is_here = new_row is None and os.path.lexists(os.path.join(workspace.root, path))
        if path and not is_kept and not is_here:
            side = "on the disk" if new_row is None else f"in v{new_row.version}"
            raise NotFound(
                f"paths: {show(path)} is neither in v{old_row.version} nor {side}.",
                "Use `checkpoint_search` to find paths.",
            )


def _add_patch(answer: answers.Difference, changes: list[Change]) -> None:
    """Add the patches of whole files, ordered by path, as far as they fit; list the others in `left_out`."""
    parts: list[str] = []
    room = MAX_PATCH
    for change in changes:
        name = answer_forms.safe_text(show(change.path))
        if is_secret_by_name(change.path):
            answer.left_out.append(f"the patch of {name}: it is secret by its name")
            continue
        if any(state is not None and state.flags & SEALED for state in (change.old, change.new)):
            # A patch has only a few lines: what identifies a word in them as a secret may be in other lines.
            answer.left_out.append(
                f"the patch of {name}: it is sealed because it contains secrets; `recall` shows it with secrets "
                "redacted"
            )
            continue
        lines = _lines(change, room)
        if lines is None:
            answer.left_out.append(f"the patch of {name}")
            continue
        room -= sum(map(len, lines)) + len(lines)
        parts += lines
    answer.patch = "\n".join(parts)
    if len(answer.left_out) > answer_forms.MAX_ITEMS:
        rest = len(answer.left_out) - answer_forms.MAX_ITEMS
        answer.left_out = [*answer.left_out[: answer_forms.MAX_ITEMS], f"{rest:,} more"]


def _lines(change: Change, room: int) -> list[str] | None:
    """Return the patch of one file; None if it does not fit."""
    lines = []
    for _, line in patch(change):
        lines.append(line.decode("utf-8", "surrogateescape"))
        room -= min(len(escaped(lines[-1])), MAX_LINE) + 1
        if room < 0:
            return None
    return quotable_lines(lines, 1, len(lines))
