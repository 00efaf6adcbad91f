"""Check the header of an imported document: every field that is read later, its type and its limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from keepfast.model.entry import ATTRIBUTES, LINK, Entry
from keepfast.model.errors import Damaged
from keepfast.model.shapes import MAX_TEXT as MAX_TEXT
from keepfast.model.shapes import SPAN, fits, is_number, is_text
from keepfast.model.strict_json import loads

MAX_LABEL, MAX_ITEMS, MAX_DEPTH = 200, 10_000, 16
MAX_ATTRIBUTES_SIZE = 256 << 10
MAX_PATH, MAX_PATH_PARTS, MAX_LINK_TARGET = 64 << 10, 4096, 4095
"""Bytes of a path, and names in it: several times what kernels accept. Bytes of a link's target: what kernels accept."""
LABELS = ("trigger", "created_by", "name")
"""Fields that hold one short printable line."""
TEXTS = ("message", "session", "task", "cwd", "command", "agent", "summary", "tool")
NUMBERS = ("created_at", "event_at", "scan_started", "scan_ended", "version", "changed", "tokens_used", "token_budget")
LISTS = ("tags", "active_files", "key_points", "notices", "partial")
FLAGS = ("keyframe", "pinned", "git_files")
OBJECTS = ("git", "notes", "origin", "conversation", "counts", "bounds")
GIT_TEXTS = ("branch", "commit", "in_progress")
NULLABLE = frozenset(("name", "session", "task", "git"))
"""Fields that may be null; any other is either present or missing."""
PLACES = {"*": [SPAN]}
NOTES = {
    "analysis": {
        "current_task": str, "next_steps": [str], "decisions_made": [str], "blockers": [str], "relevant_docs": [str],
    },
    "context": {"working_directory": str, "relevant_packages": [str], "recent_commands": [str], "git_branch": str},
    "asked": [str], "tasks": [{"*": str}], "plan": str, "answers": [{"*": str}], "last_said": str, "unfinished": str,
    "last_test": {"command": str, "passed": bool, "tail": str, "at": int, "unknown": bool}, "read_by": str,
    "files": [{"path": str, "edited": bool, "lines": int, "changed": [SPAN], "read": [SPAN]}],
    "session": {"id": str, "client": str, "model": str, "ended": str, "characters_per_token": float},
    "signals": {
        "now": int, "prompt_at": int, "words": {"*": {"*": float}}, "pointed": PLACES, "found": PLACES,
        "named": {"*": [str]}, "failed": float,
    },
}  # fmt: skip
"""Shape of the notes of a session (`resume/notes.py`)."""


def refuse_invalid_header(header: dict[str, Any]) -> None:
    """Raise `Damaged` unless every field has the type its readers expect. Unknown fields may hold anything small."""
    for names, is_good in _RULES:
        for name in names:
            if name in header and not (is_good(header[name]) or (header[name] is None and name in NULLABLE)):
                raise Damaged(f"its header has an invalid `{name}`.")
    git = header.get("git") or {}
    if not all(git.get(name) is None or is_text(git[name]) for name in GIT_TEXTS):
        raise Damaged("its header has an invalid `git`.")
    if valid_notes(header.get("notes", {})) != header.get("notes", {}):
        raise Damaged("its header has invalid `notes`.")
    if not all(_is_label(tag) for tag in header["tags"]):
        raise Damaged("its header has an invalid tag.")
    if not all(_is_number(number) and number >= 0 for number in header["counts"].values()):
        raise Damaged("its header has invalid `counts`.")
    if not _is_bounded(header, MAX_DEPTH):
        raise Damaged("its header is nested too deeply, or too large.")


def valid_notes(notes: dict[str, Any]) -> dict[str, Any]:
    """Return the members of the notes that have the right shape; `last_test` may be null."""
    return {
        name: part
        for name, part in notes.items()
        if fits(part, NOTES.get(name, {})) or (name == "last_test" and part is None) or name not in NOTES
    }


def refuse_long_paths(rows: Iterable[Entry]) -> None:
    """Raise `Damaged` if a path or a link's target is too long: planning a restore visits every folder of a path."""
    for row in rows:
        if len(row.path) > MAX_PATH or row.path.count(b"/") >= MAX_PATH_PARTS:
            raise Damaged("a path is too long.")
        if row.kind == LINK and len(row.content) > MAX_LINK_TARGET:
            raise Damaged("the target of a link is too long.")


def refuse_invalid_attributes(rows: Iterable[Entry]) -> None:
    """Raise `Damaged` if the owner or extended attributes of a row are invalid."""
    for row in rows:
        if row.flags & ATTRIBUTES and not _are_attributes(row.extra):
            raise Damaged("a row has invalid attributes.")


def _are_attributes(extra: bytes) -> bool:
    if len(extra) > MAX_ATTRIBUTES_SIZE:
        return False
    try:
        attributes = loads(extra)
    except (ValueError, RecursionError):
        return False
    if not isinstance(attributes, dict):
        return False
    owners = [attributes[name] for name in ("uid", "gid") if name in attributes]
    if not all(_is_number(number) and 0 <= number < 1 << 32 for number in owners):
        return False
    values = attributes.get("xattr", {})
    return isinstance(values, dict) and all(is_text(value) and "\0" not in name for name, value in values.items())


def _is_label(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_LABEL and value.isprintable()


def _is_number(value: object) -> bool:
    return type(value) is int and not abs(value) >> 63


def _is_list(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MAX_ITEMS and all(map(is_text, value))


def _is_bounded(value: object, levels: int) -> bool:
    if isinstance(value, str):
        return is_text(value)
    if isinstance(value, int | float):
        return is_number(int(value)) if isinstance(value, bool) else is_number(value)
    if not isinstance(value, list | dict):
        return True
    if not levels or len(value) > MAX_ITEMS:
        return False
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return all(_is_bounded(part, levels - 1) for part in parts)


_RULES: tuple[tuple[tuple[str, ...], Any], ...] = (
    (LABELS, _is_label),
    (TEXTS, is_text),
    (NUMBERS, _is_number),
    (LISTS, _is_list),
    (FLAGS, lambda value: isinstance(value, bool)),
    (OBJECTS, lambda value: isinstance(value, dict)),
)
