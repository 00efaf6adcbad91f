"""The files of a session as a brief tells of them: what its checkpoints show as changed, as the checkpoint has it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from keepfast.agents.working_file import WorkingFile
from keepfast.app.checkpoint_header import made_by_tools
from keepfast.model.entry import FILE, LEFT_OUT, LINK, SEALED
from keepfast.model.errors import KeepfastError
from keepfast.model.exclusion import excluded_by
from keepfast.resume import disk_files as disk
from keepfast.resume.notes import FileNote
from keepfast.resume.ranking import is_generated
from keepfast.secrets.marks import is_secret_by_name
from keepfast.store.digest import digest
from keepfast.store.rows import Query
from keepfast.workspace.secret_check import is_secret

if TYPE_CHECKING:
    from keepfast.model.entry import Entry
    from keepfast.resume.notes import Notes
    from keepfast.settings import Settings
    from keepfast.store.repository import Repository
    from keepfast.store.rows import CheckpointRow

MOST_VERSIONS, MOST_LOOKED_AT, MOST_ADDED = 40, 400, 40
"""Of a long session: how many checkpoints and changes are looked at, and how many files that no tool named are added."""


def settled(
    repository: Repository,
    row: CheckpointRow,
    root: str,
    notes: Notes,
    files: list[WorkingFile],
    settings: Settings,
    session: str,
) -> tuple[Notes, list[WorkingFile]]:
    """The notes and files with what else the session changed, without what is excluded, marked by what the checkpoint has.

    Tools name the files that they edit; what a shell command or a program changed only the checkpoints know.
    """
    notes, files, more = gathered(repository, row, root, notes, files, settings, session)
    inner = _inner(root, notes.cwd)
    files = [*files, *disk.look(more, root)]
    return notes, [_marked(repository, row, root, file, inner(file.path)) for file in files]


def gathered(
    repository: Repository,
    row: CheckpointRow,
    root: str,
    notes: Notes,
    files: list[WorkingFile],
    settings: Settings,
    session: str,
) -> tuple[Notes, list[WorkingFile], list[WorkingFile]]:
    """The notes, the files that the conversation knows, and the names of those that only checkpoints know."""
    changed = _changed(repository, row, session, settings["checkpoint.exclude_patterns"])
    notes, more = _with_changed(notes, files, changed, root, _inner(root, notes.cwd))
    notes, files = without_excluded(notes, files, settings["checkpoint.exclude_patterns"], root)
    return notes, files, more


def without_excluded(
    notes: Notes, files: list[WorkingFile], patterns: list[str], root: str
) -> tuple[Notes, list[WorkingFile]]:
    """Leave out what `checkpoint.exclude_patterns` names."""
    inner = _inner(root, notes.cwd)

    def is_wanted(path: str) -> bool:
        return not excluded_by(inner(path) or path.lstrip("/"), patterns)

    notes.files = [file for file in notes.files if is_wanted(file.path)]
    notes.documents = [path for path in notes.documents if is_wanted(path)]
    return notes, [file for file in files if is_wanted(file.path)]


def without_sealed(
    files: list[WorkingFile],
    root: str,
    cwd: str,
    repository: Repository | None = None,
    row: CheckpointRow | None = None,
) -> list[WorkingFile]:
    """The files without the text of those that a checkpoint seals, or would seal: a brief names these, and shows nothing of them.

    They are judged by their names, by where their links lead, by what is known of their text, and by what `row` has as sealed.
    """
    inner = _inner(root, cwd)
    for file in files:
        names = _names(file.path, root, inner, repository, row)
        content = "\n".join([line or "" for line in file.lines]).encode("utf-8", "replace")
        if any(
            is_secret_by_name(name) or is_secret(name, content) or _is_kept_sealed(repository, row, name)
            for name in names
        ):
            file.sealed, file.lines = True, []
    return files


def _names(
    path: str, root: str, inner: Callable[[str], str], repository: Repository | None, row: CheckpointRow | None
) -> list[bytes]:
    """What the file is called: as the session has it, below the root, and behind the links of now and of the checkpoint."""
    below = inner(path)
    try:
        there = os.path.realpath(os.path.join(root, below or path))
    except (OSError, ValueError):
        there = ""  # no name that a file can have
    found = [_bytes(name) for name in dict.fromkeys((os.path.normpath(path), below, there, inner(there))) if name]
    entry = _kept(repository, row, _bytes(below))
    if entry is not None and entry.kind == LINK:
        found.append(os.path.normpath(os.path.join(os.path.dirname(entry.path), entry.content)))
    return found


def _bytes(name: str) -> bytes:
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return name.encode("utf-8", "replace")  # half a character is in no file's name


def _is_kept_sealed(repository: Repository | None, row: CheckpointRow | None, name: bytes) -> bool:
    entry = _kept(repository, row, name)
    return entry is not None and bool(entry.flags & SEALED)


def _kept(repository: Repository | None, row: CheckpointRow | None, name: bytes) -> Entry | None:
    if repository is None or row is None or not name or name.startswith(b"/"):
        return None
    return repository.at(row.workspace, row.version, name)


def _inner(root: str, cwd: str) -> Callable[[str], str]:
    """How a path is made relative to the root; empty for one outside."""
    places = [place.rstrip("/") + "/" for place in dict.fromkeys((root, os.path.realpath(root))) if place]
    moved = cwd.rstrip("/") + "/" if cwd.startswith("/") else ""

    def inner(path: str) -> str:
        for place in places:
            if path.startswith(place):
                return os.path.normpath(path[len(place) :])
        # The folder may have been moved since: then paths begin with where the session worked.
        if moved and path.startswith(moved) and not moved.startswith(tuple(places)):
            return os.path.normpath(path[len(moved) :])
        return "" if path.startswith("/") else os.path.normpath(path)

    return inner


# What the checkpoints show


def _changed(repository: Repository, row: CheckpointRow, session: str, patterns: list[str]) -> list[list[str]]:
    """The names of those that a brief may tell of, by checkpoint, newest first."""
    found = changed_by(repository, row, session, MOST_LOOKED_AT)
    is_made = made_by_tools(repository, row.workspace, row.version)
    return [[name for entry in entries if (name := _told(entry, patterns, is_made))] for entries in found]


def changed_by(repository: Repository, row: CheckpointRow, session: str, most: int) -> list[list[Entry]]:
    """What each checkpoint of the session changed, the newest checkpoint first, up to `row`; `most` entries in all.

    One that somebody made outside of the session comes with its own changes.
    """
    query = Query(workspace=row.workspace, session=session, before=row.version + 1, limit=MOST_VERSIONS)
    rows = list(repository.find(query)) if session else []
    if not session or row.session != session:
        rows.insert(0, row)
    found: list[list[Entry]] = []
    left = most
    for number, one in enumerate(rows):
        # What the session found at its start, and what was changed by hand before its first prompt, is not its work.
        if left <= 0 or one.trigger == "session_start" or (one.trigger == "prompt" and number == len(rows) - 1):
            continue
        try:
            header, entries = repository.document(one)
        except KeepfastError:
            continue  # damaged: the conversation and the others tell what they can
        if header.keyframe:
            continue  # it has everything, and says nothing about the work
        found.append(entries[:left])
        left -= len(entries)
    return found


def _told(entry: Entry, patterns: list[str], is_made: Callable[[bytes], bytes]) -> str:
    """The name of a changed file that a brief may tell of; else nothing."""
    if entry.kind != FILE or entry.flags & SEALED or is_secret_by_name(entry.path):
        return ""
    try:
        name = entry.path.decode("utf-8")
    except UnicodeDecodeError:
        return ""  # it cannot be told in a text
    # By its name alone a folder such as `build` is generated; what lies beside it knows better.
    return "" if excluded_by(name, patterns) or is_generated(name, "", edited=True) or is_made(entry.path) else name


def _with_changed(
    notes: Notes, files: list[WorkingFile], changed: list[list[str]], root: str, inner: Callable[[str], str]
) -> tuple[Notes, list[WorkingFile]]:
    """Changed files that no tool named, put where their checkpoint's other files stand: newest first stays true.

    Return the notes with them, and those of them that are not among the files.
    """
    known = {inner(note.path): note for note in notes.files}
    order = [name for name in known if name]
    seen, place, added = set(order), 0, 0
    for names in changed:
        ours = [name for name in names if name in known]
        place = max([place, *[order.index(name) + 1 for name in ours]])
        for name in names:
            if name not in seen and added < MOST_ADDED:
                order.insert(place, name)
                place, added = place + 1, added + 1
            seen.add(name)
        for name in ours:
            known[name].edited = True  # a tool may only have read it, and something else have changed it
    new = [name for name in order if name not in known]
    if not new:
        return notes, []
    base = root.rstrip("/")
    notes.files = [known[name] if name in known else FileNote(f"{base}/{name}", True, 0) for name in order]
    notes.files += [note for name, note in known.items() if not name]
    there = {inner(file.path) for file in files}
    return notes, [WorkingFile(f"{base}/{name}") for name in new if name not in there]


# What the checkpoint has


def _marked(repository: Repository, row: CheckpointRow, root: str, file: WorkingFile, name: str) -> WorkingFile:
    """The file with `changed` where the disk has something else than the checkpoint; not where that is not known."""
    file.changed = bool(name) and not file.gone and bool(file.lines) and _differs(repository, row, root, name)
    return file


def _differs(repository: Repository, row: CheckpointRow, root: str, name: str) -> bool:
    path = name.encode("utf-8", "surrogateescape")
    entry = repository.at(row.workspace, row.version, path)
    if entry is None or entry.kind in LEFT_OUT:
        return entry is None and not _is_below_left_out(repository, row, path)
    if entry.kind != FILE:
        return True
    content = disk.content_of(os.path.realpath(root), name)
    if content is None or len(content) != entry.size:
        return content is not None
    if not entry.flags & SEALED:
        return digest(content) != entry.content
    try:
        return repository.contents.load(entry.content) != content
    except KeepfastError:
        return False


def _is_below_left_out(repository: Repository, row: CheckpointRow, path: bytes) -> bool:
    """Does it lie in a folder that the checkpoint did not look into?"""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        above = repository.at(row.workspace, row.version, path)
        if above is not None:
            return above.kind in LEFT_OUT
    return False
