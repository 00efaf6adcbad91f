"""The tools that look: list, search, show, diff, recall. Nothing they do changes anything."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.core.errors import NotFound
from holdfast.core.passages import MOST_LINE, told
from holdfast.core.secrecy import by_name
from holdfast.frontends.mcp import answers, telling
from holdfast.frontends.mcp.visit import Visits
from holdfast.frontends.paint import age_in_words
from holdfast.frontends.patches import patch, without_implied
from holdfast.looking import Change, compare
from holdfast.store.rows import Query
from holdfast.workspace.find import show

MOST_LISTED, MOST_CHANGES, MOST_COUNTED = 100, 200, 60
MOST_PATCH = 30_000
MOST_TOKENS = 20_000
Reference = Annotated[
    str, Field(description="v5, an id, a name, latest, @~2 (steps back) or @{2h} (back in time)", max_length=200)
]
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
Paths = Annotated[list[Path], Field(max_length=50, description="Only these and what lies below")]


def checkpoint_list(
    visits: Visits,
    limit: Annotated[int, Field(ge=0, le=MOST_LISTED, description="0: as many as the user has set")] = 0,
    before: Annotated[int, Field(ge=0, description="Only versions below this number")] = 0,
    session: Annotated[str, Field(max_length=200, description="Only of this session id")] = "",
    trigger: Annotated[str, Field(max_length=100)] = "",
    tag: Annotated[str, Field(max_length=100)] = "",
) -> answers.Listed:
    """List this workspace's checkpoints, newest first."""
    with visits.open() as visit:
        most = limit or min(max(1, visit.settings["checkpoint.max_auto_summaries"]), MOST_LISTED)
        query = Query(workspace=visit.row.id, session=session, trigger=trigger, tag=tag, before=before, limit=most + 1)
        rows = visit.repository.ledger.find(query)
        now = visit.now()
        return answers.Listed(checkpoints=[telling.checkpoint(row, now) for row in rows[:most]], more=len(rows) > most)


def checkpoint_search(
    visits: Visits, text: Words, limit: Annotated[int, Field(ge=1, le=MOST_LISTED)] = 20
) -> answers.Hits:
    """Find checkpoints by a part of their message, name, tag, or of a path they hold."""
    from holdfast.store.search import search

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
        before = visit.repository.ledger.find(Query(workspace=visit.row.id, before=row.version, limit=1))
        changes = compare(visit.engine, visit.root, visit.row, before[0] if before else None, row)
        git = header.get("git") or {}
        return answers.Shown(
            checkpoint=telling.checkpoint(row, visit.now()),
            summary=telling.told(header.get("summary") or ""),
            working_directory=telling.told(header.get("cwd") or ""),
            git_branch=git.get("branch"),
            git_commit=git.get("commit"),
            tokens_used=header.get("tokens_used"),
            token_budget=header.get("token_budget"),
            key_points=telling.texts(header.get("key_points")),
            notes=telling.tidy(header.get("notes") or {}),
            active_files=telling.texts(header.get("active_files")),
            previous=f"v{before[0].version}" if before else None,
            changes=telling.changed(changes, MOST_CHANGES, with_lines=False),
            changes_left_out=max(0, len(changes) - MOST_CHANGES),
            notices=telling.texts(header.get("notices")),
        )


def checkpoint_diff(
    visits: Visits,
    old: Reference = "latest",
    new: Annotated[str, Field(max_length=200, description="Empty: the disk as it is now")] = "",
    paths: Annotated[
        list[Annotated[str, Field(max_length=4_000)]],
        Field(max_length=50, description="Only these and what lies below"),
    ] = [],  # noqa: B006
    with_patch: Annotated[bool, Field(description="Give the patch, not only counts")] = True,
) -> answers.Difference:
    """Compare two checkpoints, or one with the disk now: counts per file, and the patch as far as it fits."""
    with visits.open() as visit:
        one = visit.resolve(old)
        other = visit.resolve(new) if new else None
        limits = [visit.below(path) for path in paths]
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
    reference: Annotated[str, Field(max_length=200, description="Empty: the newest checkpoint")] = "",
    tokens: Annotated[int, Field(ge=200, le=MOST_TOKENS, description="At most so many")] = 5_000,
) -> answers.Resumed:
    """Get what is needed to go on from a checkpoint: task, next steps, decisions, last test, and exact excerpts of files."""
    from holdfast.resuming import Resuming

    with visits.open() as visit:
        resuming = Resuming(visit.engine, visit.root, visit.row.id)
        found = resuming.tell(visit.resolve(reference)) if reference else resuming.newest()
        if found is None:
            raise NotFound("No checkpoint found to resume from.", "`checkpoint_save` makes one.")
        built = resuming.brief(found, tokens=tokens)
        return answers.Resumed(
            version=f"v{found.row.version}",
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
    from holdfast.recalling import recall as find

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


def _add_patch(answer: answers.Difference, changes: list[Change]) -> None:
    """Whole files in order of their paths; what does not fit is named."""
    parts: list[str] = []
    room = MOST_PATCH
    for change in changes:
        name = telling.told(show(change.path))
        if by_name(change.path):
            answer.left_out.append(f"the patch of {name}: it is secret by its name")
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
        lines.append(line.decode("utf-8", "backslashreplace"))
        room -= min(len(lines[-1]), MOST_LINE) + 1
        if room < 0:
            return None
    return told(lines, 1, len(lines))
