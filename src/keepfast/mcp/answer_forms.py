"""Turns rows and changes into answers: redacted, of limited size, without invisible characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keepfast.app.inspect import Change
from keepfast.mcp import answers
from keepfast.present.json_forms import of_checkpoint
from keepfast.present.patches import count_lines
from keepfast.present.terminal import age_in_words
from keepfast.resume.passages import visible
from keepfast.secrets.cuts import head
from keepfast.secrets.redaction import redact
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.marker import show

MAX_MESSAGE_CHARACTERS, MAX_TEXT_CHARACTERS, MAX_ITEMS, MAX_DEPTH = 1_000, 4_000, 100, 4


def safe_text(text: str, most: int = MAX_TEXT_CHARACTERS) -> str:
    """Return a text of a checkpoint for an agent: shortened, redacted, with invisible characters escaped."""
    if len(text) > most:
        return visible(f"{redact(head(text, most))}… [{len(text) - most:,} more characters]")
    return visible(redact(text))


def checkpoint(row: CheckpointRow, now: int) -> answers.Checkpoint:
    facts = of_checkpoint(row)
    return answers.Checkpoint(
        version=facts["version"],
        id=facts["id"],
        message=safe_text(facts["message"], MAX_MESSAGE_CHARACTERS),
        trigger=facts["trigger"],
        created_at=facts["created_at"],
        age=age_in_words(row.created_at, now),
        created_by=facts["created_by"],
        session_id=facts["session_id"],
        name=safe_text(facts["name"], 200) if facts["name"] else None,
        tags=[safe_text(tag, 200) for tag in facts["tags"][:MAX_ITEMS]],
        pinned=facts["pinned"],
        files=facts["files"],
        changed=facts["changed"],
    )


def changed_paths(changes: Sequence[Change], most: int, with_lines: bool) -> list[answers.Changed]:
    """Return the first `most` changes; count lines only `with_lines`, because that reads the files."""
    listed = []
    for change in changes[:most]:
        lines = count_lines(change) if with_lines else None
        listed.append(
            answers.Changed(
                path=safe_text(show(change.path)),
                change=change.kind.replace(" ", "_"),
                lines_added=lines.added if lines is not None and not lines.binary else None,
                lines_removed=lines.removed if lines is not None and not lines.binary else None,
            )
        )
    return listed


def safe_json(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return the JSON of a checkpoint's notes for an agent, limited in depth, number of items and length of texts."""
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, bool | int | float) or value is None:
        return value
    if depth == 0:
        return "…"
    if isinstance(value, list):
        return [safe_json(item, depth - 1) for item in value[:MAX_ITEMS]]
    if isinstance(value, dict):
        return {safe_text(str(key), 100): safe_json(item, depth - 1) for key, item in list(value.items())[:MAX_ITEMS]}
    return safe_text(str(value))


def safe_texts(value: object) -> list[str]:
    return [safe_text(item) for item in value[:MAX_ITEMS] if isinstance(item, str)] if isinstance(value, list) else []
