"""The tools that look: list, search, show, diff, recall. Nothing they do changes anything."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field

from keepfast.app.inspect import Change, as_compared, compare
from keepfast.mcp import answer_forms as telling
from keepfast.mcp import answers
from keepfast.mcp.visit import Visits
from keepfast.model.entry import SEALED
from keepfast.model.errors import NotFound, Usage
from keepfast.present.patches import patch, without_implied
from keepfast.present.terminal import age_in_words
from keepfast.resume.passages import MOST_LINE, told
from keepfast.resume.quotation import escaped
from keepfast.secrets.marks import is_secret_by_name
from keepfast.store.bases import previous_version
from keepfast.store.rows import Query
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from keepfast.mcp.visit import Visit
    from keepfast.store.rows import CheckpointRow

MOST_LISTED, MOST_CHANGES, MOST_COUNTED = 100, 200, 60
MOST_PATCH = 30_000
MOST_TOKENS, MOST_VERSION = 20_000, 10**15
Reference = Annotated[
    str, Field(description="v5, an id, a name, latest, @~2 (steps back) or @{2h} (back in time)", max_length=200)
]


def _count(value: object) -> object:
    """A number; to Python, true is 1, and to no one else."""
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
    visits: Visits,
    limit: Annotated[Count, Field(ge=0, le=MOST_LISTED, description="0: the limit that the user has set")] = 0,
    before: Annotated[Count, Field(ge=0, le=MOST_VERSION, description="Only versions below this number")] = 0,
    session: Annotated[str, Field(max_length=200, description="Only of this session id")] = "",
    trigger: Annotated[str, Field(max_length=100)] = "",
    tag: Annotated[str, Field(max_length=100)] = "",
) -> answers.Listed:
    """List this workspace's checkpoints, newest first."""
    with visits.open() as visit:
        most = limit or min(visit.settings["checkpoint.max_auto_summaries"], MOST_LISTED)
        query = Query(workspace=visit.row.id, session=session, trigger=trigger, tag=tag, before=before, limit=most + 1)
        rows = as_compared(visit.repository, visit.repository.find(query))
        now = visit.now()
        return answers.Listed(checkpoints=[telling.checkpoint(row, now) for row in rows[:most]], more=len(rows) > most)


def checkpoint_search(
    visits: Visits, text: Words, limit: Annotated[Count, Field(ge=1, le=MOST_LISTED)] = 20
) -> answers.Hits:
    """Find checkpoints by a part of their message, name, tag, or of a path they hold."""
    from keepfast.store.search import search

    if not text.strip():
        raise Usage("text is empty.", "Give a part of a message, name, tag or path.")
    with visits.open() as visit:
        now = visit.now()
        found = search(visit.repository, visit.engine.place.path, visit.row.id, text, limit)
        return answers.Hits(
            hits=[
                answers.Hit(
                    where=hit.where,
                    text=telling.told(show(hit.path) if hit.path else hit.text, telling.MOST_MESSAGE),
                    checkpoint=telling.checkpoint(hit.checkpoint, now),
                )
                for hit in found
            ]
        )


def checkpoint_show(visits: Visits, reference: Reference = "latest") -> answers.Shown:
    """Show one checkpoint: why it was made, task, decisions, next steps, and what changed in it."""
    with visits.open() as visit:
        row = visit.resolve(reference)
        header, _ = visit.repository.document(row)
        before = previous_version(visit.repository, row)
        (row,) = as_compared(visit.repository, [row])
        changes = compare(visit.engine, visit.root, visit.row, before, row)
        git = header.git
        return answers.Shown(
            checkpoint=telling.checkpoint(row, visit.now()),
            summary=telling.told(header.summary),
            working_directory=telling.told(header.cwd),
            git_branch=git.branch or None if git is not None else None,
            git_commit=git.commit or None if git is not None else None,
            tokens_used=header.tokens_used or None,
            token_budget=header.token_budget or None,
            key_points=telling.texts(header.key_points),
            notes=telling.tidy(header.notes),
            active_files=telling.texts(header.active_files),
            previous=f"v{before.version}" if before is not None else None,
            changes=telling.changed(changes, MOST_CHANGES, with_lines=False),
            changes_left_out=max(0, len(changes) - MOST_CHANGES),
            notices=telling.texts(header.notices),
        )


def checkpoint_diff(
    visits: Visits,
    old: Reference = "@",
    new: Annotated[str, Field(max_length=200, description="Empty: the disk as it is now")] = "",
    paths: Paths = [],  # noqa: B006  the schema shows it
    with_patch: Annotated[bool, Field(description="Include the patch, not only counts")] = True,
) -> answers.Difference:
    """Compare two checkpoints, or one with the disk now: counts per file, and the patch as far as it fits."""
    with visits.open() as visit:
        one = visit.resolve(old)
        other = visit.resolve(new) if new else None
        limits = [visit.below(path) for path in paths]
        _refuse_unknown(visit, limits, one, other)
        changes = without_implied(compare(visit.engine, visit.root, visit.row, one, other, limits))
        answer = answers.Difference(
            old=f"v{one.version}",
            new=f"v{other.version}" if other is not None else "disk",
            changes=telling.changed(changes, MOST_CHANGES, with_lines=len(changes) <= MOST_COUNTED),
        )
        if len(changes) > MOST_CHANGES:
            answer.left_out.append(f"{len(changes) - MOST_CHANGES:,} more changed paths")
        if with_patch:
            _add_patch(answer, changes)
        return answer


def checkpoint_resume(
    visits: Visits,
    reference: Annotated[
        str,
        Field(
            max_length=200,
            description=("Version to resume from, as it was then; empty: the newest, with the current files"),
        ),
    ] = "",
    tokens: Annotated[Count, Field(ge=200, le=MOST_TOKENS, description="Token limit")] = 5_000,
) -> answers.Resumed:
    """Get what is needed to go on from a checkpoint: task, next steps, decisions, last test, and exact excerpts of files."""
    from keepfast.app.resume import Resumer

    with visits.open() as visit:
        resumer = Resumer(visit.engine, visit.root, visit.row.id)
        found = resumer.work_at(visit.resolve(reference)) if reference else resumer.newest()
        if found is None:
            raise NotFound("No checkpoint found to resume from.", "Use `checkpoint_save` to make one.")
        version = f"v{found.row.version}"
        if reference:
            built, of = resumer.moment_brief(found, tokens=tokens)
        else:
            built, of = resumer.brief(found, tokens=tokens), "live"
        return answers.Resumed(
            version=version,
            conversation=of or None,
            files=version if reference else "disk",
            summary=telling.told(found.summary),
            age=age_in_words(found.row.created_at, visit.now()),
            text=built.text,
            tokens=built.tokens,
            left_out=[telling.told(text) for text in built.left_out[: telling.MOST_ITEMS]],
        )


def recall(
    visits: Visits,
    what: Question,
    reference: Reference = "latest",
) -> answers.Recalled:
    """Get exact text of this workspace from disk and checkpoint: a file or a range of it, a definition, or where words stand."""
    from keepfast.app.recall import recall as find

    with visits.open() as visit:
        row = visit.resolve(reference)
        found = find(visit.engine, visit.root, visit.row, row, what)
        return answers.Recalled(
            version=f"v{row.version}",
            read_as=found.kind,
            matches=[
                answers.Passage(
                    path=match.path,
                    lines=f"{match.first}-{match.last} of {match.of}",
                    source=match.source,
                    on_disk=match.on_disk,
                    text=match.text,
                    remark=match.note,
                )
                for match in found.matches
            ],
            left_out=[telling.told(text) for text in found.left_out],
        )


def _refuse_unknown(visit: Visit, limits: list[bytes], one: CheckpointRow, other: CheckpointRow | None) -> None:
    """Raises `NotFound` for a path that is on neither side: "no changes" would sound as if it were on both."""
    repository, rows = visit.repository, [row for row in (one, other) if row is not None]
    for path in limits:
        is_kept = any(next(iter(repository.state(visit.row.id, row.version, path)), None) is not None for row in rows)
        is_here = other is None and os.path.lexists(os.path.join(visit.root, path))
        if path and not is_kept and not is_here:
            side = "on the disk" if other is None else f"in v{other.version}"
            raise NotFound(
                f"paths: {show(path)} is neither in v{one.version} nor {side}.",
                "Use `checkpoint_search` to find paths.",
            )


def _add_patch(answer: answers.Difference, changes: list[Change]) -> None:
    """Whole files in order of their paths; what does not fit is named."""
    parts: list[str] = []
    room = MOST_PATCH
    for change in changes:
        name = telling.told(show(change.path))
        if is_secret_by_name(change.path):
            answer.left_out.append(f"the patch of {name}: it is secret by its name")
            continue
        if any(state is not None and state.flags & SEALED for state in (change.old, change.new)):
            # A patch has a few lines of a file: what makes a word in them a secret may stand elsewhere.
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
    if len(answer.left_out) > telling.MOST_ITEMS:
        rest = len(answer.left_out) - telling.MOST_ITEMS
        answer.left_out = [*answer.left_out[: telling.MOST_ITEMS], f"{rest:,} more"]


def _lines(change: Change, room: int) -> list[str] | None:
    """The patch of one file; None if it does not fit."""
    lines = []
    for _, line in patch(change):
        lines.append(line.decode("utf-8", "surrogateescape"))
        room -= min(len(escaped(lines[-1])), MOST_LINE) + 1
        if room < 0:
            return None
    return told(lines, 1, len(lines))
