"""The state document of a checkpoint: files, analysis and context of the work, within the bounds that the settings give."""

from __future__ import annotations

from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.entry import FILE, SEALED, Entry
from holdfast.core.errors import HoldfastError
from holdfast.core.secrecy import by_name
from holdfast.looking import between
from holdfast.store.rows import Query
from holdfast.workspace.find import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.settings import Settings
    from holdfast.store.repository import Repository
    from holdfast.store.rows import CheckpointRow

STATEFUL = "stateful"
MOST_FILES = 1_000
ANALYSIS = {"current_task": "", "next_steps": [], "decisions_made": [], "blockers": [], "relevant_docs": []}


class State(NamedTuple):
    """`document` is None where only a summary is wanted. `left_out` names what did not fit, and why."""

    document: dict[str, Any] | None
    left_out: list[str]


def state(repository: Repository, row: CheckpointRow, header: dict[str, Any], root: str, settings: Settings) -> State:
    """Describe the checkpoint: what the session changed, read and decided. The snapshot itself has everything in any case."""
    if settings["checkpoint.mode"] != STATEFUL:
        return State(None, [])
    kept = header.get("notes")
    notes: dict[str, Any] = kept if isinstance(kept, dict) else {}
    files: dict[str, Any] = {}
    left_out: list[str] = []
    total = 0
    for path in _paths(repository, row, header, notes, root) if settings["checkpoint.capture_files"] else ():
        entry = repository.ledger.at(row.workspace, row.version, path)
        if entry is None or entry.kind != FILE:
            continue
        why = _refused(entry, total, settings)
        if not why:
            described = _described(repository, entry)
            if isinstance(described, str):
                why = described
            else:
                files[described["path"]] = described
                total += entry.size
        if why:
            left_out.append(f"{show(path)}: {why}")
    document = {"files": files, "analysis": _analysis(notes, settings), "context": _context(header, notes, root)}
    return State({**document, "total_size_bytes": total}, left_out)


def _paths(
    repository: Repository, row: CheckpointRow, header: dict[str, Any], notes: dict[str, Any], root: str
) -> list[bytes]:
    """Files that the session wrote or read, newest first, then what changed in this version; each once."""
    named = [name for name in header.get("active_files") or [] if isinstance(name, str)]
    for file in notes.get("files") or []:
        path = file.get("path") if isinstance(file, dict) else None
        if isinstance(path, str):
            named.append(path.removeprefix(root.rstrip("/") + "/"))
    found = [name.encode("utf-8", "surrogateescape") for name in named if name and not name.startswith("/")]
    found += list(_changed(repository, row))
    return list(dict.fromkeys(found))[:MOST_FILES]


def _changed(repository: Repository, row: CheckpointRow) -> Iterator[bytes]:
    before = repository.ledger.find(Query(workspace=row.workspace, before=row.version, limit=1))
    if before:  # the first checkpoint has everything, and says nothing about the work
        yield from [change.path for change in between(repository, row.workspace, before[0], row)]


def _refused(entry: Entry, total: int, settings: Settings) -> str:
    path = show(entry.path)
    pattern = next((one for one in settings["checkpoint.exclude_patterns"] if _matches(path, one)), "")
    if pattern:
        return f"excluded by {pattern}"
    if by_name(entry.path) or entry.flags & SEALED:
        return "secret"
    if entry.size > settings["checkpoint.max_file_size"]:
        return f"{entry.size:,} bytes, over checkpoint.max_file_size"
    if total + entry.size > settings["checkpoint.max_checkpoint_size"]:
        return "over checkpoint.max_checkpoint_size with the others"
    return ""


def _matches(path: str, pattern: str) -> bool:
    """Does the pattern match the path, or the end of it from one of its folders on?"""
    parts = path.split("/")
    return any(fnmatchcase("/".join(parts[start:]), pattern) for start in range(len(parts)))


def _described(repository: Repository, entry: Entry) -> dict[str, Any] | str:
    try:
        content = repository.load(entry.content)
    except HoldfastError as error:
        return str(error)
    return {
        "path": show(entry.path),
        "content": f"blake3:{entry.content.hex()}",
        "hash": sha256(content).hexdigest(),
        "size_bytes": entry.size,
        "last_modified": entry.mtime,
    }


def _analysis(notes: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """What the agent stated comes before what was read from its conversation."""
    if not settings["checkpoint.capture_analysis"]:
        return dict(ANALYSIS)
    found, said = notes.get("analysis"), notes.get("stated")
    known = {**ANALYSIS, **(found if isinstance(found, dict) else {})}
    stated = said if isinstance(said, dict) else {}
    known["next_steps"] = stated.get("next_steps") or known["next_steps"]
    known["decisions_made"] = list(dict.fromkeys([*(stated.get("decisions") or []), *known["decisions_made"]]))
    return known


def _context(header: dict[str, Any], notes: dict[str, Any], root: str) -> dict[str, Any]:
    found, git = notes.get("context"), header.get("git") or {}
    known: dict[str, Any] = found if isinstance(found, dict) else {}
    return {
        "working_directory": f"{root}/{header['cwd']}" if header.get("cwd") else root,
        "relevant_packages": known.get("relevant_packages", []),
        "recent_commands": known.get("recent_commands", []),
        "git_branch": git.get("branch"),
        "git_commit": git.get("commit"),
    }
