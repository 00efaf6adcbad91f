"""Tell an agent what its shell command did beyond what it named: what it deleted, overwrote, truncated or made unreadable."""

from __future__ import annotations

import os
import shlex
import sqlite3
from dataclasses import dataclass, field

from keepfast.model.artefacts import is_in_always_generated_folder
from keepfast.model.entry import CAPTURED, FILE, FOLDER, GONE, SEALED, UNREADABLE, Entry
from keepfast.model.errors import KeepfastError
from keepfast.resume.tokens import estimate
from keepfast.secrets.light_redaction import without_secrets
from keepfast.secrets.marks import is_secret_by_name
from keepfast.shell.named_paths import NamedPaths
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.marker import show

MAX_TOKENS, MAX_LINES, MAX_NAMED = 250, 12, 8
TRUNCATED_SHARE = 0.5
"""A file that kept less than this share of its bytes was truncated."""
OWNER_READS = 0o400
SQLITE, MAX_DATABASE_BYTES = b"SQLite format 3\0", 64 << 20
DAMAGE, ALL, OFF = "damage", "all", "off"
"""Values of the setting `report.commands`."""


@dataclass
class Damage:
    """What a command did beyond what it named; paths are relative to the root."""

    deleted: list[bytes] = field(default_factory=list)
    overwritten: list[bytes] = field(default_factory=list)
    truncated: list[bytes] = field(default_factory=list)
    unreadable: list[bytes] = field(default_factory=list)
    changed: list[bytes] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    """`table NAME of FILE` for each table that is gone from a database."""
    databases: list[bytes] = field(default_factory=list)

    def paths(self) -> list[bytes]:
        """Return every path once, in the order of the report."""
        groups = (self.deleted, self.overwritten, self.truncated, self.unreadable, self.databases, self.changed)
        return list(dict.fromkeys([path for group in groups for path in group]))


def report(
    repository: Repository,
    row: CheckpointRow,
    root: bytes,
    command: str,
    cwd: bytes,
    program: str,
    setting: str = DAMAGE,
) -> str:
    """Return the text for the agent; empty if the command did only what it named.

    `row` is the checkpoint of what the command changed; the one before it has the state before.
    """
    if setting == OFF:
        return ""
    try:
        entries = repository.document(row)[1]
        before = {
            entry.path: old
            for entry in entries
            if (old := repository.at(row.workspace, row.version - 1, entry.path)) is not None and old.kind in CAPTURED
        }
        damage = _assess(repository, root, entries, before, command, cwd, setting)
    except KeepfastError:
        return ""  # what is damaged in the store is for `verify` to say
    return _text(damage, row.version - 1, program) if damage.paths() else ""


def _assess(
    repository: Repository,
    root: bytes,
    entries: list[Entry],
    before: dict[bytes, Entry],
    command: str,
    cwd: bytes,
    setting: str,
) -> Damage:
    named = NamedPaths(command, os.fsdecode(cwd))
    damage = Damage()
    for entry in entries:
        old = before.get(entry.path)
        if old is None or old.kind == FOLDER or is_in_always_generated_folder(entry.path):
            continue
        path = os.fsdecode(os.path.join(root, entry.path))
        if entry.kind == GONE:
            if not named.removes(path):
                damage.deleted.append(entry.path)
        elif entry.kind == UNREADABLE or (old.mode & OWNER_READS and not entry.mode & OWNER_READS):
            damage.unreadable.append(entry.path)
        elif (entry.kind, entry.content) != (old.kind, old.content):
            _assess_change(damage, repository, named, path, old, entry, setting)
    return damage


def _assess_change(
    damage: Damage, repository: Repository, named: NamedPaths, path: str, old: Entry, new: Entry, setting: str
) -> None:
    """Add what became of a file that has another content now."""
    if named.replaces(path):
        damage.overwritten.append(new.path)
    elif tables := _lost_tables(repository, old, new):
        damage.databases.append(new.path)
        damage.tables += [f"table {table} of {show(new.path)}" for table in tables]
    elif named.means(path):
        return
    elif new.kind == FILE and new.size < old.size * TRUNCATED_SHARE:
        damage.truncated.append(new.path)
    elif setting == ALL or named.edits_in_place or old.flags & SEALED or is_secret_by_name(new.path):
        damage.changed.append(new.path)


def _lost_tables(repository: Repository, old: Entry, new: Entry) -> list[str]:
    """Return the tables that an SQLite file has lost; none if it is not one, or cannot be read as it lies there."""
    if old.kind != FILE or new.kind != FILE or (old.flags | new.flags) & SEALED:
        return []
    if max(old.size, new.size) > MAX_DATABASE_BYTES:
        return []
    contents = [repository.contents.load(entry.content) for entry in (old, new)]
    if not contents[0].startswith(SQLITE):
        return []
    tables = [_tables(content) for content in contents]
    return sorted(tables[0] - tables[1])


def _tables(content: bytes) -> set[str]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(content)
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        return {str(name) for (name,) in rows}
    except sqlite3.Error:
        return set()
    finally:
        connection.close()


def _text(damage: Damage, version: int, program: str) -> str:
    """Return the report: what happened, and the command that takes just this back."""
    parts = [
        _part("deleted", damage.deleted),
        _part("overwrote", damage.overwritten),
        _part("truncated", damage.truncated),
        _part("made unreadable", damage.unreadable),
        f"dropped {', '.join(damage.tables[:MAX_NAMED])}" if damage.tables else "",
        _part("changed", damage.changed),
    ]
    paths = damage.paths()
    undo = f"{program} restore v{version} -y"
    scoped = f"{undo} -- {shlex.join([os.fsdecode(path) for path in paths])}"
    lines = [
        f"That command also {'; '.join([part for part in parts if part])}.",
        f"Undo just this: {scoped}" if len(paths) <= MAX_NAMED else f"Undo all that it did: {undo}",
    ]
    text = without_secrets("\n".join(lines))
    if estimate(text) > MAX_TOKENS:
        count = f"{len(paths):,} files" if len(paths) > 1 else "1 file"
        text = f"That command also deleted, overwrote or changed {count}.\nUndo all that it did: {undo}"
    return text


def _part(verb: str, paths: list[bytes]) -> str:
    if not paths:
        return ""
    names = ", ".join([show(path) for path in paths[:MAX_NAMED]])
    more = f" and {len(paths) - MAX_NAMED:,} more" if len(paths) > MAX_NAMED else ""
    return f"{verb} {len(paths):,} file{'' if len(paths) == 1 else 's'} ({names}{more})"
