"""What a version covers, and whether the newest version is what the folder was last at."""

from __future__ import annotations

from os import stat

from keepfast.app.workspace_lock import Folder
from keepfast.model.document import header
from keepfast.model.errors import Damaged
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow

PARTIAL_BY = ("auto", "system")
"""Only saves before an agent's command or before a restore may cover less than the whole tree."""


def covered_paths(repository: Repository, row: CheckpointRow) -> list[bytes]:
    """Return the paths that a version is limited to; empty for a version of everything."""
    if row.created_by not in PARTIAL_BY:
        return []
    try:
        partial = header(repository.contents.load(row.document)).partial
    except Damaged:
        return []
    return [path.encode("utf-8", "surrogateescape") for path in partial if path]


def is_at_newest(folder: Folder, repository: Repository, version: int) -> bool:
    """Return whether the folder was last saved as this newest version, so that unscanned paths may be taken from it.

    Not after a restore of another version, during a restore, or if the version does not cover the whole tree.
    """
    if not version:
        return False
    try:
        stat(folder.engine.place.folder(folder.workspace) + "/restore")
        return False
    except FileNotFoundError:
        pass
    except OSError:
        return False
    base = repository.base(folder.workspace)
    if base is None or (base.workspace, base.version) != (folder.workspace, version):
        return False
    return not covered_paths(repository, base)
