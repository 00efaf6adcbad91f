"""Resolve references to checkpoints: `v5`, an id or a prefix of it, a name, `latest`, `@~2`, `@{2h}`."""

from __future__ import annotations

import re
from datetime import datetime

from keepfast.model.errors import NotFound, Usage
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, Query

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
NANOSECONDS = 1_000_000_000
CANDIDATES_SHOWN = 5
"""Candidates that are named when a prefix is ambiguous."""
FORMS = "Give v5, an id or its beginning, a name, latest, @~2 or @{2h}. Run `keepfast list` to see all checkpoints."


def resolve(repository: Repository, workspace: str, text: str, now: int) -> CheckpointRow:
    """Return the checkpoint of this workspace that `text` refers to.

    Raises `NotFound` if there is none, if it was forgotten, or if the prefix of an id is ambiguous.
    """
    if text == "latest":
        return _find_latest(repository, workspace)
    if text == "@":
        return _find_steps_back(repository, workspace, 0)
    if _is_version(text):
        return _find_version(repository, workspace, int(text.removeprefix("v")))
    if text.startswith("@~") and _is_number(text[2:], 9):
        return _find_steps_back(repository, workspace, int(text[2:]))
    if text.startswith("@{") and text.endswith("}") and len(text) > 3 and "\n" not in text:
        return _find_by_time(repository, workspace, text[2:-1].strip(), now)
    if text.startswith("cp-"):
        return _find_by_id_prefix(repository, workspace, text)
    # A lone surrogate (a byte that is not UTF-8) cannot be in a name, and SQLite rejects it.
    rows = (
        repository.ledger.find(Query(workspace=workspace, name=text, limit=1))
        if text and _is_valid_unicode(text)
        else []
    )
    if not rows:
        raise NotFound(f"This workspace has no checkpoint {text!r}.", FORMS)
    return rows[0]


def checked_name(text: str) -> str:
    """Return the name; raises `Usage` unless it is one line that cannot be taken for another kind of reference."""
    if not text or len(text) > 200 or not text.isprintable() or text != text.strip():
        raise Usage(
            f"{text!r} is not a valid name.", ("Give one line of at most 200 characters, without spaces around it.")
        )
    if text == "latest" or text[0] in "@-" or text.startswith("cp-") or _is_version(text):
        raise Usage(
            (f"{text!r} could be mistaken for another kind of reference."), "Give a name such as before-refactoring."
        )
    return text


def duration(text: str) -> int | None:
    """Return the nanoseconds in `90s`, `2h`, `1h30m`, `1.5d`, `2w`; None if the text is no duration."""
    total, at = 0.0, 0
    for part in re.finditer(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])", text):
        if part.start() != at:
            return None
        total += float(part[1]) * SECONDS[part[2]]
        at = part.end()
    return int(total * NANOSECONDS) if at and at == len(text) else None


def _is_version(text: str) -> bool:
    return _is_number(text.removeprefix("v"), 15)


def _is_number(text: str, most_digits: int) -> bool:
    return len(text) <= most_digits and text.isascii() and text.isdigit()


def _find_version(repository: Repository, workspace: str, version: int) -> CheckpointRow:
    row = repository.ledger.checkpoint(workspace, version)
    if row is None:
        newest = repository.ledger.find(Query(workspace=workspace, limit=1))
        newest_text = f"the newest is v{newest[0].version}" if newest else "there is no checkpoint yet"
        raise NotFound(f"This workspace has no v{version}; {newest_text}.")
    return _require_available(row)


def _find_steps_back(repository: Repository, workspace: str, steps: int) -> CheckpointRow:
    """Count back from the folder's base, over the versions that `list` shows."""
    base = repository.base(workspace)
    if base is None:
        raise _none_yet()
    if not steps:
        return base
    rows = repository.ledger.find(Query(workspace=base.workspace, before=base.version, limit=steps, safety=False))
    if len(rows) < steps:
        raise NotFound(f"There are only {len(rows)} checkpoints before v{base.version}; @~{steps} is before the first.")
    return rows[-1]


def _find_latest(repository: Repository, workspace: str) -> CheckpointRow:
    """Return the newest checkpoint, whatever was restored since; a safety checkpoint only if there is no other."""
    for safety in (False, True):
        rows = repository.ledger.find(Query(workspace=workspace, limit=1, safety=safety))
        if rows:
            return rows[0]
    raise _none_yet()


def _none_yet() -> NotFound:
    return NotFound("This workspace has no checkpoint yet.", "Run `keepfast save`.")


def _find_by_time(repository: Repository, workspace: str, text: str, now: int) -> CheckpointRow:
    age = duration(text)
    until = now - age if age is not None else _parse_time(text)
    if until is None:
        raise NotFound(
            f"{text!r} is neither an age nor a time.", "Give @{90s}, @{2h}, @{3d} or @{2026-03-01T09:00:00Z}."
        )
    rows = repository.ledger.find(Query(workspace=workspace, created_until=until, limit=1)) if until > 0 else []
    if not rows:
        raise NotFound(f"No checkpoint is as old as {text}.")
    return rows[0]


def _parse_time(text: str) -> int | None:
    """Parse a time in the form of RFC 3339; without an offset it is local time. None if it is invalid."""
    try:
        moment = datetime.fromisoformat(text)
        # A checkpoint made within the given second is included.
        return (
            (int(moment.timestamp()) + 1) * NANOSECONDS - 1
            if not moment.microsecond
            else int(moment.timestamp() * NANOSECONDS)
        )
    except (ValueError, OverflowError, OSError):
        return None


def _find_by_id_prefix(repository: Repository, workspace: str, text: str) -> CheckpointRow:
    prefix = text.lower()
    if not _is_valid_unicode(prefix):
        raise NotFound(f"This workspace has no checkpoint {text!r}.", FORMS)
    rows = repository.ledger.find(Query(workspace=workspace, id_prefix=prefix, limit=CANDIDATES_SHOWN + 1))
    if not rows:
        hidden = repository.ledger.find(Query(workspace=workspace, id_prefix=prefix, limit=1, forgotten=True))
        if hidden:
            return _require_available(hidden[0])
        raise NotFound(f"No checkpoint of this workspace has an id that begins with {text}.")
    if len(rows) > 1:
        names = ", ".join([f"{row.id} (v{row.version})" for row in rows[:CANDIDATES_SHOWN]])
        more = " and more" if len(rows) > CANDIDATES_SHOWN else ""
        raise NotFound(f"{text} is ambiguous: {names}{more}.", "Give more characters, or the version.")
    return rows[0]


def _require_available(row: CheckpointRow) -> CheckpointRow:
    if row.trigger == "lost":
        raise NotFound(f"v{row.version} is lost: its stored bytes were damaged beyond repair.")
    if row.forgotten:
        raise NotFound(f"v{row.version} was forgotten.")
    return row


def _is_valid_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
