"""The files that a session worked on, for a checkpoint's header, and which files tools made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

from keepfast.model.artefacts import generated_folder
from keepfast.model.entry import FILE, GONE, SEALED, Entry
from keepfast.model.errors import KeepfastError
from keepfast.model.event import BY_THEMSELVES, Event
from keepfast.model.exclusion import excluded_by
from keepfast.secrets.marks import is_secret_by_name
from keepfast.store.repository import Repository
from keepfast.store.rows import Query
from keepfast.store.save import CheckpointWriter

MAX_ACTIVE_FILES = 50


def active_of(event: Event, changed: Sequence[Entry], saving: CheckpointWriter, patterns: list[str]) -> tuple[str, ...]:
    """Return the files that the session worked on: those that tools named, then those that its versions changed, newest first.

    Shell commands name no files, so changed files count as well, but not those that had changed before the session. Each version
    inherits the list of the one before. Automatic saves outside of sessions inherit from each other.
    """
    if event.trigger == "session_start" or len(event.active_files) >= MAX_ACTIVE_FILES:
        return event.active_files
    if not event.session and event.trigger not in BY_THEMSELVES:
        return event.active_files
    rows = saving.repository.find(Query(workspace=saving.row.id, session=event.session, limit=1))
    if not event.session:
        rows = [row for row in rows if row.trigger in BY_THEMSELVES and not row.session]
    try:
        carried = saving.repository.document(rows[0])[0].active_files if rows else []
    except KeepfastError:
        carried = []
    deleted = {entry.path for entry in changed if entry.kind == GONE}
    names = dict.fromkeys(event.active_files)
    if saving.row.version and (rows or event.trigger != "prompt"):
        is_made = made_by_tools(saving.repository, saving.row.id, saving.row.version, {entry.path for entry in changed})
        names.update(dict.fromkeys(_changed_names(changed, patterns, is_made, MAX_ACTIVE_FILES - len(names))))
    for name in carried:
        if name.encode("utf-8", "replace") not in deleted:
            names[name] = None
    return tuple(names)[:MAX_ACTIVE_FILES]


def made_by_tools(
    repository: Repository, workspace: str, version: int, new: Collection[bytes] = ()
) -> Callable[[bytes], bytes]:
    """Return a function: given a file of this version, the folder around it that a tool makes, or nothing.

    `new`: paths that the following version adds.
    """

    @lru_cache(4096)
    def is_there(path: bytes) -> bool:
        return path in new or repository.at(workspace, version, path) is not None

    return lambda path: generated_folder(path, is_there)


def _changed_names(
    changed: Sequence[Entry], patterns: list[str], is_made: Callable[[bytes], bytes], most: int
) -> list[str]:
    """Return changed files that a summary may name: no secrets, nothing that a tool makes, nothing excluded."""
    names: list[str] = []
    for entry in changed:
        if len(names) >= most:
            break
        if entry.kind != FILE or entry.flags & SEALED or is_secret_by_name(entry.path) or is_made(entry.path):
            continue
        try:
            name = entry.path.decode("utf-8")
        except UnicodeDecodeError:
            continue  # it does not fit into a JSON header
        if not excluded_by(name, patterns):
            names.append(name)
    return names
