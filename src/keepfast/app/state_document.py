"""The state document of a checkpoint: files, analysis and context of the work, within the bounds that the settings give."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from keepfast.app.checkpoint_header import BOUNDS, made_by_tools
from keepfast.app.inspect import between
from keepfast.app.known_secrets import KnownSecrets
from keepfast.app.session_files import changed_by
from keepfast.model.artefacts import is_made
from keepfast.model.entry import FILE, SEALED, Entry
from keepfast.model.errors import KeepfastError
from keepfast.model.exclusion import excluded_by
from keepfast.secrets.marks import by_name
from keepfast.store.rows import Query
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepfast.settings import Settings
    from keepfast.store.repository import Repository
    from keepfast.store.rows import CheckpointRow

STATEFUL = "stateful"
MOST_FILES, MOST_FOLDERS, NAMED = 1_000, 50, 40
TOO_LARGE = ("over checkpoint.max_file_size", "over checkpoint.max_checkpoint_size with the others")
ANALYSIS = {"current_task": "", "next_steps": [], "decisions_made": [], "blockers": [], "relevant_docs": []}


class State(NamedTuple):
    """`document` is None where only a summary is wanted. `left_out` names what did not fit, and why."""

    document: dict[str, Any] | None
    left_out: list[str]


class Working(NamedTuple):
    """The files of a document by name; `size` is that of all of them, `too_large` names those that no room was for.

    `more`: there are more than are looked at.
    """

    names: list[str]
    size: int
    too_large: list[str]
    more: bool = False


class _Judged(NamedTuple):
    """`why` it is not in the document; empty if it is."""

    entry: Entry
    why: str


def state(repository: Repository, row: CheckpointRow, header: dict[str, Any], root: str, settings: Settings) -> State:
    """Describe the checkpoint: what the session changed, read and decided. The snapshot itself has everything in any case."""
    bounds = bounds_of(header, settings)
    if bounds["mode"] != STATEFUL:
        return State(None, [])
    notes = _notes(header)
    files: dict[str, Any] = {}
    total = 0
    found = _paths(repository, row, header, notes, root) if bounds["capture_files"] else _Paths([], [])
    left_out = [f"{show(folder)}/: made by a tool" for folder in found.made]
    for path in found.wanted:
        left_out += _never_kept(repository, row, path, bounds["exclude_patterns"])
    for entry, refused in _judged(repository, row, found.wanted, bounds):
        described = refused or _described(repository, entry)
        if isinstance(described, str):
            left_out.append(f"{show(entry.path)}: {described}")
        else:
            files[described["path"]] = described
            total += entry.size
    secrets = KnownSecrets(repository, row.workspace)
    told = {"analysis": analysis(notes, bounds), "context": _context(header, notes, root)}
    told["context"]["recent_commands"] = secrets.strike_all(told["context"]["recent_commands"])
    document = {"files": files, "analysis": secrets.strike_all(told["analysis"]), "context": told["context"]}
    return State({**document, "total_size_bytes": total}, left_out)


def working_files(
    repository: Repository, row: CheckpointRow, header: dict[str, Any], root: str, settings: Settings
) -> Working:
    """What that document holds, and what is too large for it; no content is read."""
    bounds = bounds_of(header, settings)
    if bounds["mode"] != STATEFUL or not bounds["capture_files"]:
        return Working([], 0, [])
    paths = _paths(repository, row, header, _notes(header), root)
    found = list(_judged(repository, row, paths.wanted, bounds))
    kept = [one.entry for one in found if not one.why]
    large = [f"{show(one.entry.path)} ({in_words(one.entry.size)})" for one in found if one.why.endswith(TOO_LARGE)]
    return Working([show(entry.path) for entry in kept], sum([entry.size for entry in kept]), large, paths.more)


def too_large(
    repository: Repository, row: CheckpointRow, header: dict[str, Any], root: str, settings: Settings
) -> list[str]:
    """A sentence that names what is too large for the document, as a list; nothing if all of it fits."""
    large = working_files(repository, row, header, root, settings).too_large
    more = f" and {len(large) - NAMED:,} more" if len(large) > NAMED else ""
    return [f"left out of the description, too large: {', '.join(large[:NAMED])}{more}"] if large else []


def in_words(size: int) -> str:
    """Such as 1.5 MB."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.0f} KB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def bounds_of(header: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """What may be told: by the settings of now and by those that the checkpoint was made with, whichever is stricter.

    A checkpoint that does not say what it was made with is bounded by the settings of now alone.
    """
    bounds = {key: settings["checkpoint." + key] for key in BOUNDS}
    then = header.get("bounds")
    for key, value in then.items() if isinstance(then, dict) else ():
        now = bounds.get(key)
        if key == "mode" and now == STATEFUL and isinstance(value, str):
            bounds[key] = value
        elif isinstance(now, bool) and isinstance(value, bool):
            bounds[key] = now and value
        elif type(now) is int and type(value) is int:
            bounds[key] = min(now, value)
        elif isinstance(now, list) and isinstance(value, list):
            bounds[key] = list(dict.fromkeys([*now, *[one for one in value if isinstance(one, str)]]))
    return bounds


def _judged(
    repository: Repository, row: CheckpointRow, paths: list[bytes], bounds: dict[str, Any]
) -> Iterator[_Judged]:
    total = 0
    for path in paths:
        entry = repository.at(row.workspace, row.version, path)
        if entry is None or entry.kind != FILE:
            continue
        why = _refused(entry, total, bounds)
        total += 0 if why else entry.size
        yield _Judged(entry, why)


def _notes(header: dict[str, Any]) -> dict[str, Any]:
    kept = header.get("notes")
    return kept if isinstance(kept, dict) else {}


class _Paths(NamedTuple):
    """`made` are folders that a tool makes, in which something changed; `more`: not all that is wanted is named."""

    wanted: list[bytes]
    made: list[bytes]
    more: bool = False


def _paths(
    repository: Repository, row: CheckpointRow, header: dict[str, Any], notes: dict[str, Any], root: str
) -> _Paths:
    """Files that the session wrote or read, newest first, then what changed in this version and in its others; each once.

    What lies in a folder that a tool makes counts only if the agent edited it by name.
    """
    edited = [name for name in header.get("active_files") or [] if isinstance(name, str)]
    others: list[str] = []
    for file in notes.get("files") or []:
        path = file.get("path") if isinstance(file, dict) else None
        if isinstance(path, str):
            (edited if file.get("edited") else others).append(path.removeprefix(root.rstrip("/") + "/"))
    chosen = dict.fromkeys([_bytes(name) for name in edited if name and not name.startswith("/")])
    rest = [_bytes(name) for name in others if name and not name.startswith("/")]
    made: dict[bytes, None] = {}
    made_in = made_by_tools(repository, row.workspace, row.version)
    for path in [*rest, *_changed(repository, row), *_changed_before(repository, row)]:
        folder = b"" if path in chosen else made_in(path)
        (made if folder else chosen)[folder or path] = None
    return _Paths(list(chosen)[:MOST_FILES], list(made)[:MOST_FOLDERS], len(chosen) > MOST_FILES)


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _changed(repository: Repository, row: CheckpointRow) -> Iterator[bytes]:
    before = repository.find(Query(workspace=row.workspace, before=row.version, limit=1))
    if before:  # the first checkpoint has everything, and says nothing about the work
        for change in between(repository, row.workspace, before[0], row):
            if change.new is not None and change.new.kind == FILE:
                yield change.path


def _changed_before(repository: Repository, row: CheckpointRow) -> list[bytes]:
    """What the session's versions before this one changed: a shell command names no file to us."""
    found = changed_by(repository, row, row.session, MOST_FILES) if row.session else []
    return [entry.path for entries in found for entry in entries if entry.kind == FILE]


def _refused(entry: Entry, total: int, bounds: dict[str, Any]) -> str:
    path = show(entry.path)
    pattern = excluded_by(path, bounds["exclude_patterns"])
    if pattern:
        return f"excluded by {pattern}"
    if by_name(entry.path) or entry.flags & SEALED:
        return "secret"
    if entry.size > bounds["max_file_size"]:
        return f"{entry.size:,} bytes, {TOO_LARGE[0]}"
    if total + entry.size > bounds["max_checkpoint_size"]:
        return TOO_LARGE[1]
    return ""


def _never_kept(repository: Repository, row: CheckpointRow, path: bytes, patterns: list[str]) -> list[str]:
    """That a file of the session is not even in the snapshot, where a rule says so."""
    pattern = excluded_by(show(path), patterns)
    if not (pattern or is_made(path)) or repository.at(row.workspace, row.version, path) is not None:
        return []
    return [f"{show(path)}: {f'excluded by {pattern}' if pattern else 'made by a tool'}"]


def _described(repository: Repository, entry: Entry) -> dict[str, Any] | str:
    try:
        content = repository.contents.load(entry.content)
    except KeepfastError as error:
        return str(error)
    return {
        "path": show(entry.path),
        "content": f"blake3:{entry.content.hex()}",
        "hash": sha256(content).hexdigest(),
        "size_bytes": entry.size,
        "last_modified": entry.mtime,
    }


def analysis(notes: dict[str, Any], bounds: dict[str, Any]) -> dict[str, Any]:
    """What the agent stated comes before what was read from its conversation."""
    if not bounds["capture_analysis"]:
        return dict(ANALYSIS)
    found, said = notes.get("analysis"), notes.get("stated")
    known = {**ANALYSIS, **(found if isinstance(found, dict) else {})}
    stated = said if isinstance(said, dict) else {}
    known["current_task"] = stated.get("current_task") or known["current_task"]
    known["next_steps"] = stated.get("next_steps") or known["next_steps"]
    known["blockers"] = stated.get("blockers") or known["blockers"]
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
