"""The files of a session for a brief: those that tools named, and those that its checkpoints show as changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from keepfast.agents.working_file import WorkingFile
from keepfast.app.active_files import made_by_tools
from keepfast.model.entry import FILE, GONE, LEFT_OUT, LINK, SEALED, Entry
from keepfast.model.errors import KeepfastError
from keepfast.model.exclusion import excluded_by
from keepfast.resume import disk_files as disk
from keepfast.resume.notes import FileNote, Notes
from keepfast.resume.ranking import is_generated
from keepfast.secrets.marks import is_secret_by_name
from keepfast.settings import Settings
from keepfast.store.digest import digest
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, Query
from keepfast.workspace.secret_check import is_secret

MAX_VERSIONS, MAX_CHANGES, MAX_ADDED = 40, 400, 40
"""How many checkpoints and changes of a session are searched, and how many files that no tool named are added."""


class VersionChanges(NamedTuple):
    """What a version changed, a row for each path."""

    version: CheckpointRow
    entries: list[Entry]


class ChangedNames(NamedTuple):
    """Names of changed files that a brief may list, by checkpoint, newest first, and those of them that are deleted."""

    by_checkpoint: list[list[str]]
    deleted: set[str]


def notes_and_files(
    repository: Repository,
    row: CheckpointRow,
    root: str,
    notes: Notes,
    files: list[WorkingFile],
    settings: Settings,
    session: str,
) -> tuple[Notes, list[WorkingFile]]:
    """Return notes and files, with unnamed changed files, without excluded ones, marked where the disk differs from the checkpoint.

    Tools name the files that they edit; only checkpoints show what a shell command or a program changed.
    """
    notes, files, more = with_unnamed_files(repository, row, root, notes, files, settings, session)
    inner = _relative_to(root, notes.cwd)
    files = [*files, *disk.look(more, root)]
    return notes, [_marked(repository, row, root, file, inner(file.path)) for file in files]


def with_unnamed_files(
    repository: Repository,
    row: CheckpointRow,
    root: str,
    notes: Notes,
    files: list[WorkingFile],
    settings: Settings,
    session: str,
) -> tuple[Notes, list[WorkingFile], list[WorkingFile]]:
    """Return the notes, the files that the conversation names, and those that only checkpoints show."""
    changed = _changed(repository, row, session, settings["checkpoint.exclude_patterns"])
    notes, more = _with_changed(notes, files, changed, root, _relative_to(root, notes.cwd))
    notes, files = without_excluded(notes, files, settings["checkpoint.exclude_patterns"], root)
    return notes, files, more


def without_excluded(
    notes: Notes, files: list[WorkingFile], patterns: list[str], root: str
) -> tuple[Notes, list[WorkingFile]]:
    """Return notes and files without what `checkpoint.exclude_patterns` excludes."""
    inner = _relative_to(root, notes.cwd)

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
    """Return the files, without the text of those that a checkpoint seals or would seal: a brief only names them.

    They are judged by name, by where links lead, by their known text, and by what `row` has as sealed.
    """
    inner = _relative_to(root, cwd)
    for file in files:
        names = _names(file.path, root, inner, repository, row)
        content = "\n".join([line or "" for line in file.lines]).encode("utf-8", "replace")
        if any(
            is_secret_by_name(name) or is_secret(name, content) or _is_sealed(repository, row, name) for name in names
        ):
            file.sealed, file.lines = True, []
    return files


def _names(
    path: str, root: str, inner: Callable[[str], str], repository: Repository | None, row: CheckpointRow | None
) -> list[bytes]:
    """Return the file's names: as the session has it, below the root, and behind links on disk and in the checkpoint."""
    below = inner(path)
    try:
        real_path = os.path.realpath(os.path.join(root, below or path))
    except (OSError, ValueError):
        real_path = ""  # no name that a file can have
    names = [
        _bytes(name) for name in dict.fromkeys((os.path.normpath(path), below, real_path, inner(real_path))) if name
    ]
    entry = _row_at(repository, row, _bytes(below))
    if entry is not None and entry.kind == LINK:
        names.append(os.path.normpath(os.path.join(os.path.dirname(entry.path), entry.content)))
    return names


def _bytes(name: str) -> bytes:
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return name.encode("utf-8", "replace")  # no file name has a lone surrogate outside the escaped range


def _is_sealed(repository: Repository | None, row: CheckpointRow | None, name: bytes) -> bool:
    entry = _row_at(repository, row, name)
    return entry is not None and bool(entry.flags & SEALED)


def _row_at(repository: Repository | None, row: CheckpointRow | None, name: bytes) -> Entry | None:
    if repository is None or row is None or not name or name.startswith(b"/"):
        return None
    return repository.at(row.workspace, row.version, name)


def _relative_to(root: str, cwd: str) -> Callable[[str], str]:
    """Return a function that makes a path relative to the root; empty for one outside."""
    places = [place.rstrip("/") + "/" for place in dict.fromkeys((root, os.path.realpath(root))) if place]
    moved = cwd.rstrip("/") + "/" if cwd.startswith("/") else ""

    def inner(path: str) -> str:
        for place in places:
            if path.startswith(place):
                return os.path.normpath(path[len(place) :])
        # The folder may have moved since: then paths begin with the session's working directory.
        if moved and path.startswith(moved) and not moved.startswith(tuple(places)):
            return os.path.normpath(path[len(moved) :])
        return "" if path.startswith("/") else os.path.normpath(path)

    return inner


# What the checkpoints show


def _changed(repository: Repository, row: CheckpointRow, session: str, patterns: list[str]) -> ChangedNames:
    is_made = made_by_tools(repository, row.workspace, row.version)
    changed, deleted, all_names = list[list[str]](), set[str](), set[str]()
    for version, entries in changed_by(repository, row, session, MAX_CHANGES):
        names = []
        for entry in entries:
            # What was deleted is judged by the row that it had before.
            is_deleted = entry.kind == GONE
            before = repository.at(version.workspace, version.version - 1, entry.path) if is_deleted else entry
            name = _nameable(before, patterns, is_made) if before is not None else ""
            if not name:
                continue
            if is_deleted and name not in all_names:
                deleted.add(name)
            all_names.add(name)
            names.append(name)
        changed.append(names)
    return ChangedNames(changed, deleted)


def changed_by(repository: Repository, row: CheckpointRow, session: str, most: int) -> list[VersionChanges]:
    """Return what each checkpoint of the session changed, newest first, up to `row`; `most` entries in all.

    If `row` is not of that session, its own changes come first.
    """
    query = Query(workspace=row.workspace, session=session, before=row.version + 1, limit=MAX_VERSIONS)
    rows = list(repository.find(query)) if session else []
    if not session or row.session != session:
        rows.insert(0, row)
    changes: list[VersionChanges] = []
    remaining = most
    for number, version in enumerate(rows):
        # Changes before the session's start, or by hand before its first prompt, are not its work.
        if (
            remaining <= 0
            or version.trigger == "session_start"
            or (version.trigger == "prompt" and number == len(rows) - 1)
        ):
            continue
        try:
            header, entries = repository.document(version)
        except KeepfastError:
            continue  # damaged: use the other checkpoints
        if header.keyframe:
            continue  # a keyframe lists everything, not what changed
        changes.append(VersionChanges(version, entries[:remaining]))
        remaining -= len(entries)
    return changes


def _nameable(entry: Entry, patterns: list[str], is_made: Callable[[bytes], bytes]) -> str:
    """Return the name of a changed file if a brief may list it; else nothing."""
    if entry.kind != FILE or entry.flags & SEALED or is_secret_by_name(entry.path):
        return ""
    try:
        name = entry.path.decode("utf-8")
    except UnicodeDecodeError:
        return ""  # it cannot be written in a text
    # `is_generated` judges by name, such as `build`; `is_made` by the tool's files beside it.
    return "" if excluded_by(name, patterns) or is_generated(name, "", edited=True) or is_made(entry.path) else name


def _with_changed(
    notes: Notes, files: list[WorkingFile], changed: ChangedNames, root: str, inner: Callable[[str], str]
) -> tuple[Notes, list[WorkingFile]]:
    """Return the notes with changed files that no tool named, and those of them that are not among `files`.

    Each is inserted beside the other files of its checkpoint, so that the order stays newest first.
    """
    notes_by_name = {inner(note.path): note for note in notes.files}
    order = [name for name in notes_by_name if name]
    placed, place, added = set(order), 0, 0
    for names in changed.by_checkpoint:
        named = [name for name in names if name in notes_by_name]
        place = max([place, *[order.index(name) + 1 for name in named]])
        for name in names:
            if name not in placed and added < MAX_ADDED:
                order.insert(place, name)
                place, added = place + 1, added + 1
            placed.add(name)
        for name in named:
            notes_by_name[name].edited = True  # a tool may only have read it before a command changed it
            notes_by_name[name].is_deleted = name in changed.deleted
    new = [name for name in order if name not in notes_by_name]
    if not new:
        return notes, []
    base = root.rstrip("/")
    notes.files = [
        notes_by_name[name]
        if name in notes_by_name
        else FileNote(f"{base}/{name}", True, 0, is_deleted=name in changed.deleted)
        for name in order
    ]
    notes.files += [note for name, note in notes_by_name.items() if not name]
    listed = {inner(file.path) for file in files}
    return notes, [WorkingFile(f"{base}/{name}") for name in new if name not in listed and name not in changed.deleted]


# What the checkpoint has


def _marked(repository: Repository, row: CheckpointRow, root: str, file: WorkingFile, name: str) -> WorkingFile:
    """Return the file with `changed` set if the disk differs from the checkpoint."""
    file.changed = bool(name) and not file.is_missing and bool(file.lines) and _differs(repository, row, root, name)
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
    """Return whether the path is in a folder that the checkpoint excludes."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        above = repository.at(row.workspace, row.version, path)
        if above is not None:
            return above.kind in LEFT_OUT
    return False
