"""The JSON forms of what commands show (docs/json.md), and the phrases that front ends share."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

from keepfast.app.inspect import Change, Coverage
from keepfast.app.preview import Missing
from keepfast.app.restore import Restored, Unfinished
from keepfast.app.state_document import Document
from keepfast.model.budget import TokenUsage
from keepfast.model.document import Header
from keepfast.model.entry import REASONS, SEALED, Entry, why
from keepfast.present.resident import ResidentState
from keepfast.present.terminal import one_line, plural, rfc3339, size
from keepfast.state.notices import Notice
from keepfast.state.pending_events import PendingEvent
from keepfast.state.workers import RunningWorker
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.marker import show

KINDS = {
    "f": "file",
    "l": "link",
    "d": "folder",
    "x": "excluded",
    "o": "oversize",
    "i": "ignored",
    "u": "unreadable",
    "s": "special",
}
CHANGE_LETTERS = {"added": "A", "deleted": "D", "modified": "M", "mode": "M", "type": "T", "left out": "-"}
COLOURS = {"A": "green", "D": "red", "M": "yellow", "T": "yellow", "-": "dim"}


def of_checkpoint(row: CheckpointRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "version": f"v{row.version}",
        "message": row.message,
        "trigger": row.trigger,
        "created_at": rfc3339(row.created_at),
        "created_by": row.created_by,
        "session_id": row.session or None,
        "task_id": row.task or None,
        "name": row.name or None,
        "tags": row.tags.split("\n") if row.tags else [],
        "pinned": bool(row.pinned),
        "files": row.files,
        "bytes": row.bytes,
        "changed": row.changed,
    }


def of_path(path: bytes) -> dict[str, str]:
    """Return `path`, and `path_base64` if the name is not UTF-8."""
    try:
        return {"path": path.decode("utf-8")}
    except UnicodeDecodeError:
        return {"path": show(path), "path_base64": b64encode(path).decode("ascii")}


def of_missing(missing: Iterable[Missing]) -> list[dict[str, Any]]:
    """Return excluded paths that are missing or changed: `command` recreates one, version `held_by` has it."""
    return [
        {
            **of_path(entry.path),
            "why": entry.why,
            "command": entry.command or None,
            "state": entry.state,
            "held_by": f"v{entry.held_by}" if entry.held_by else None,
        }
        for entry in missing
    ]


def of_left_out(left: Iterable[tuple[bytes, int]]) -> list[dict[str, Any]]:
    """Return excluded paths, each with the version that has it."""
    return [{**of_path(path), "held_by": f"v{version}" if version else None} for path, version in left]


def of_work(checkpoint: CheckpointRow, header: Header) -> dict[str, Any]:
    """Return what a checkpoint says about the agent's work (docs/format/checkpoint.md)."""
    return {
        "summary": header.summary or checkpoint.message.split("\n")[0][:80],
        "description": checkpoint.message.partition("\n")[2].strip(),
        "agent": header.agent or None,
        "tokens_used": header.tokens_used or None,
        "token_budget": header.token_budget or None,
        "active_files": header.active_files,
        "key_points": header.key_points,
    }


def of_state(document: Document) -> dict[str, Any]:
    """Return the state document of a checkpoint (docs/format/checkpoint.md)."""
    return {
        "files": {
            file.path: {**file._asdict(), "last_modified": rfc3339(file.last_modified)} for file in document.files
        },
        "analysis": document.analysis._asdict(),
        "context": document.context._asdict(),
        "total_size_bytes": document.total_size_bytes,
    }


def of_restored(done: Restored) -> dict[str, Any]:
    """Return the result of a restore, in the form that all front ends share."""
    applied = done.applied
    return {
        "restored": True,
        "target": f"v{done.target}",
        "before": f"v{done.before}",
        "written": applied.written,
        "deleted": applied.deleted,
        "modes": applied.modes,
        "kept": [{**of_path(path), "why": why} for path, why in applied.untouched],
        "missing": of_missing(done.missing),
    }


def of_unfinished(restore: Unfinished) -> dict[str, Any]:
    cut = restore.cut
    return {
        "state": restore.state,
        "target": f"v{cut.target}" if cut is not None else None,
        "before": f"v{cut.before}" if cut is not None else None,
    }


def of_entry(entry: Entry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    facts: dict[str, Any] = {"kind": KINDS[entry.kind], "mode": f"{entry.mode:04o}", "size": entry.size}
    if entry.kind == "f" and entry.flags & SEALED:
        facts["sealed"] = True  # its name in the store is keyed, not a digest
    elif entry.kind == "f":
        facts["blake3"] = entry.content.hex()
    elif entry.kind == "l":
        facts["target"] = show(entry.content)
    return facts


def of_change(change: Change) -> dict[str, Any]:
    return {
        **of_path(change.path),
        "change": change.kind.replace(" ", "_"),
        "old": of_entry(change.old),
        "new": of_entry(change.new),
    }


def counted_from(row: CheckpointRow, previous: CheckpointRow | None, differing: int) -> int:
    """Return the version that `row.changed` counts from if it is not `previous`, as after it was forgotten; else 0.

    `differing`: how many paths differ from `previous`.
    """
    if row.changed == differing:
        return 0
    return row.version - 1 if row.version - 1 != (previous.version if previous is not None else 0) else 0


def of_coverage(coverage: Coverage) -> dict[str, Any]:
    return {
        "files": coverage.files,
        "links": coverage.links,
        "folders": coverage.folders,
        "bytes": coverage.bytes,
        "left_out": {KINDS[kind]: number for kind, number in coverage.left_out.items()},
        "poor": coverage.is_poor,
    }


def of_notice(notice: Notice) -> dict[str, Any]:
    return {
        "at": rfc3339(notice.at), "kind": notice.kind, "trigger": notice.trigger, "text": notice.text, "told": notice.was_reported,
    }  # fmt: skip


def of_pending(event: PendingEvent) -> dict[str, Any]:
    return {"trigger": event.trigger, "at": rfc3339(event.at), "session": event.session or None}


def of_usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "used": usage.used,
        "used_from": usage.used_from,
        "budget": usage.budget or None,
        "budget_from": usage.budget_from or None,
        "model": usage.model or None,
    }


def of_worker(worker: RunningWorker) -> dict[str, Any]:
    saved = worker.last_save
    return {
        "kind": worker.kind,
        "pid": worker.pid,
        "since": rfc3339(worker.since),
        "last_save": rfc3339(saved) if saved else None,
        "version": f"v{worker.version}" if saved else None,
    }


def of_resident(state: ResidentState) -> dict[str, Any]:
    facts = state.facts or {}
    return {
        "running": state.runs,
        "answers": state.facts is not None,
        "pid": state.process or None,
        "why": state.why or None,
        "since": rfc3339(int(facts["started"])) if facts else None,
        "answered": facts.get("answered"),
        "declined": facts.get("declined"),
        "stores": facts.get("stores"),
    }


def saved_counts(coverage: Coverage) -> str:
    """Return what was saved, as `12 files, 3 links, 4 folders, 24KB`."""
    parts = [plural(coverage.files, "file")]
    if coverage.links:
        parts.append(plural(coverage.links, "link"))
    if coverage.folders:
        parts.append(plural(coverage.folders, "folder"))
    return ", ".join([*parts, size(coverage.bytes)])


def excluded_counts(coverage: Coverage) -> str:
    """Return what was excluded and why, as `3 matching an exclusion rule; 1 unreadable`; empty if nothing was."""
    return "; ".join([f"{number:,} {REASONS[kind]}" for kind, number in coverage.left_out.items()])


def git_folders(paths: Sequence[bytes]) -> str:
    """Return `.git, vendor/sub/.git: git's own folders`; empty if there are none."""
    if not paths:
        return ""
    named = ", ".join([show(path) for path in paths[:3]]) + (f" and {len(paths) - 3:,} more" if len(paths) > 3 else "")
    return f"{named}: git's own {'folder' if len(paths) == 1 else 'folders'}"


def title(row: CheckpointRow) -> str:
    """Return a checkpoint's title, as `v5 "auto"`."""
    return f'v{row.version} "{one_line(row.message)}"' if row.message else f"v{row.version}"


def letter(change: Change) -> str:
    return CHANGE_LETTERS[change.kind]


def changed_line(change: Change) -> tuple[str, str]:
    """Return the letter of a change, and its path with details."""
    text = show(change.path)
    if (change.new or change.old) is not None and (change.new or change.old).kind == "d":  # type: ignore[union-attr]
        text += "/"
    if change.kind == "mode" and change.old is not None and change.new is not None:
        text += f" (mode {change.old.mode:04o} to {change.new.mode:04o})"
    if change.kind == "left out":
        if change.new is not None and change.new.kind in REASONS:
            text += f" (excluded: {why(change.new)})"
        elif change.new is None:
            text += " (was excluded, is deleted)"
        else:
            text += " (was excluded, is saved now)"
    return letter(change), text
