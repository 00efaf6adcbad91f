"""What the header of a document from elsewhere may say: each field that somebody reads later, its kind and its bounds."""

from __future__ import annotations

from keepfast.model.entry import ATTRIBUTES, LINK
from keepfast.model.errors import Damaged
from keepfast.model.light_json import loads
from keepfast.model.shapes import MOST_TEXT as MOST_TEXT
from keepfast.model.shapes import SPAN, fits, is_number, is_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from keepfast.model.entry import Entry

MOST_LABEL, MOST_ITEMS, MOST_DEEP = 200, 10_000, 16
MOST_ATTRIBUTES = 256 << 10
MOST_PATH, MOST_PARTS, MOST_TARGET = 64 << 10, 4096, 4095
"""Bytes of a path and names in it: several times what a kernel takes at once. Bytes of a link's target: what a kernel takes."""
LABELS = ("trigger", "created_by", "name")
"""What a person or a program typed as one short printable line."""
TEXTS = ("message", "session", "task", "cwd", "command", "agent", "summary", "tool")
NUMBERS = ("created_at", "event_at", "scan_started", "scan_ended", "version", "changed", "tokens_used", "token_budget")
LISTS = ("tags", "active_files", "key_points", "notices", "partial")
FLAGS = ("keyframe", "pinned", "git_files")
OBJECTS = ("git", "notes", "origin", "conversation", "counts", "bounds")
IN_GIT = ("branch", "commit", "in_progress")
OR_NOTHING = frozenset(("name", "session", "task", "git"))
"""What may be null; everything else is there, or it is not."""
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
"""What the notes of a session are (`resume/notes.py`)."""


def refuse_odd(header: dict[str, Any]) -> None:
    """Raise `Damaged` unless every field is what its readers take it for. Fields that nobody knows may be anything small."""
    for names, is_good in _RULES:
        for name in names:
            if name in header and not (is_good(header[name]) or (header[name] is None and name in OR_NOTHING)):
                raise Damaged(f"its header has no proper `{name}`.")
    git = header.get("git") or {}
    if not all(git.get(name) is None or is_text(git[name]) for name in IN_GIT):
        raise Damaged("its header has no proper `git`.")
    if proper_notes(header.get("notes", {})) != header.get("notes", {}):
        raise Damaged("its header has no proper `notes`.")
    if not all(_is_label(tag) for tag in header["tags"]):
        raise Damaged("its header has a tag that is no short line.")
    if not all(_is_number(number) and number >= 0 for number in header["counts"].values()):
        raise Damaged("its header has no proper `counts`.")
    if not _is_bounded(header, MOST_DEEP):
        raise Damaged("its header is nested too deep, or too large.")


def proper_notes(notes: dict[str, Any]) -> dict[str, Any]:
    """The parts of them that are what they should be; `last_test` may be null."""
    return {
        name: part
        for name, part in notes.items()
        if fits(part, NOTES.get(name, {})) or (name == "last_test" and part is None) or name not in NOTES
    }


def refuse_long(rows: Iterable[Entry]) -> None:
    """The same for paths and the targets of links: whoever plans a restore goes through every folder of a path."""
    for row in rows:
        if len(row.path) > MOST_PATH or row.path.count(b"/") >= MOST_PARTS:
            raise Damaged("a path is longer than any may be.")
        if row.kind == LINK and len(row.content) > MOST_TARGET:
            raise Damaged("a link leads to more than any kernel takes.")


def refuse_odd_attributes(rows: Iterable[Entry]) -> None:
    """The same for owners and extended attributes of rows."""
    for row in rows:
        if row.flags & ATTRIBUTES and not _are_attributes(row.extra):
            raise Damaged("a row has attributes that make no sense.")


def _are_attributes(extra: bytes) -> bool:
    if len(extra) > MOST_ATTRIBUTES:
        return False
    try:
        said = loads(extra)
    except (ValueError, RecursionError):
        return False
    if not isinstance(said, dict):
        return False
    owners = [said[name] for name in ("uid", "gid") if name in said]
    if not all(_is_number(number) and 0 <= number < 1 << 32 for number in owners):
        return False
    values = said.get("xattr", {})
    return isinstance(values, dict) and all(is_text(value) and "\0" not in name for name, value in values.items())


def _is_label(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MOST_LABEL and value.isprintable()


def _is_number(value: object) -> bool:
    return type(value) is int and not abs(value) >> 63


def _is_list(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MOST_ITEMS and all(map(is_text, value))


def _is_bounded(value: object, deep: int) -> bool:
    if isinstance(value, str):
        return is_text(value)
    if isinstance(value, int | float):
        return is_number(int(value)) if isinstance(value, bool) else is_number(value)
    if not isinstance(value, list | dict):
        return True
    if not deep or len(value) > MOST_ITEMS:
        return False
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return all(_is_bounded(part, deep - 1) for part in parts)


_RULES: tuple[tuple[tuple[str, ...], Any], ...] = (
    (LABELS, _is_label),
    (TEXTS, is_text),
    (NUMBERS, _is_number),
    (LISTS, _is_list),
    (FLAGS, lambda value: isinstance(value, bool)),
    (OBJECTS, lambda value: isinstance(value, dict)),
)
