"""From rows and changes to answers: bounded, without characters that hide, and never more than was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepfast.mcp import answers
from keepfast.present.json_forms import of_checkpoint
from keepfast.present.patches import counted
from keepfast.present.terminal import age_in_words
from keepfast.resume.passages import visible
from keepfast.secrets.cuts import head
from keepfast.secrets.redaction import redact
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keepfast.app.inspect import Change
    from keepfast.store.rows import CheckpointRow

MOST_MESSAGE, MOST_TEXT, MOST_ITEMS, DEPTH = 1_000, 4_000, 100, 4


def told(text: str, most: int = MOST_TEXT) -> str:
    """A text of a checkpoint as an agent may read it."""
    if len(text) > most:
        return visible(f"{redact(head(text, most))}… [{len(text) - most:,} more characters]")
    return visible(redact(text))


def checkpoint(row: CheckpointRow, now: int) -> answers.Checkpoint:
    facts = of_checkpoint(row)
    return answers.Checkpoint(
        version=facts["version"],
        id=facts["id"],
        message=told(facts["message"], MOST_MESSAGE),
        trigger=facts["trigger"],
        created_at=facts["created_at"],
        age=age_in_words(row.created_at, now),
        created_by=facts["created_by"],
        session_id=facts["session_id"],
        name=told(facts["name"], 200) if facts["name"] else None,
        tags=[told(tag, 200) for tag in facts["tags"][:MOST_ITEMS]],
        pinned=facts["pinned"],
        files=facts["files"],
        changed=facts["changed"],
    )


def changed(changes: Sequence[Change], most: int, with_lines: bool) -> list[answers.Changed]:
    """The first `most` of them; lines are counted only where they are asked for, because that reads the files."""
    found = []
    for change in changes[:most]:
        lines = counted(change) if with_lines else None
        found.append(
            answers.Changed(
                path=told(show(change.path)),
                change=change.kind.replace(" ", "_"),
                lines_added=lines.added if lines is not None and not lines.binary else None,
                lines_removed=lines.removed if lines is not None and not lines.binary else None,
            )
        )
    return found


def tidy(value: Any, depth: int = DEPTH) -> Any:
    """JSON of a checkpoint's notes, whatever is in it: bounded in depth, number and length."""
    if isinstance(value, str):
        return told(value)
    if isinstance(value, bool | int | float) or value is None:
        return value
    if depth == 0:
        return "…"
    if isinstance(value, list):
        return [tidy(item, depth - 1) for item in value[:MOST_ITEMS]]
    if isinstance(value, dict):
        return {told(str(key), 100): tidy(item, depth - 1) for key, item in list(value.items())[:MOST_ITEMS]}
    return told(str(value))


def texts(value: object) -> list[str]:
    return [told(item) for item in value[:MOST_ITEMS] if isinstance(item, str)] if isinstance(value, list) else []
