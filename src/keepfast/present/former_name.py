"""Renames settings, data and markers that an earlier version stored under the project's first name."""

from __future__ import annotations

from collections.abc import Callable
from json import loads
from os import rename, stat, symlink

from keepfast.model.frozen import FORMER, FORMER_MARKER, STORE
from keepfast.model.schema import SECTIONS
from keepfast.present.environment import Environment
from keepfast.store.small_files import read_pairs, read_store_list

FOLDER_TYPE, TYPE_MASK = 0o040000, 0o170000
LINK_NAME = ".keepfast-link"
"""Created next to the old folder, then moved into its place; if a process is killed in between, the next one does that."""


def take_over(environment: Environment) -> str:
    """Rename folders of the first name, if there are any; return a line that reports it, empty if nothing was done.

    A link stays under the old name: clients' settings name the launcher there, and other processes may still use it.
    Nothing is done if a folder of the new name exists, or if the old one belongs to another program.
    """
    pairs = [_old_and_new(environment.data), _old_and_new(environment.config.rpartition("/")[0])]
    if not any(_is_folder(old) or _exists(_waiting_link(old)) for old, _ in pairs):
        return ""
    done = [
        old
        for (old, new), is_ours in zip(pairs, (_is_our_data, _is_our_config), strict=True)
        if _move(old, new, is_ours)
    ]
    if not done:
        return ""
    _rename_markers(environment.data)
    return f"Taken over from {FORMER}, the former name of this tool: {' and '.join(done)}. Nothing else has changed."


def _old_and_new(folder: str) -> tuple[str, str]:
    return folder.rpartition("/")[0] + "/" + FORMER, folder


def _waiting_link(old: str) -> str:
    return old.rpartition("/")[0] + "/" + LINK_NAME


def _move(old: str, new: str, is_ours: Callable[[str], bool]) -> bool:
    """Move a folder, and leave a link in its place. True if it was moved now."""
    moved = False
    if _is_folder(old) and not _exists(new) and is_ours(old):
        try:
            if not _exists(_waiting_link(old)):
                symlink(new.rpartition("/")[2], _waiting_link(old))
            rename(old, new)
            moved = True
        except OSError:
            return False  # another process was first, or we may not change it: it stays in use where it is
    if _exists(_waiting_link(old)) and not _exists(old):
        try:
            rename(_waiting_link(old), old)
        except OSError:
            pass  # the next command tries again
    return moved


def _is_our_data(folder: str) -> bool:
    """Return whether this is our data folder, not that of another program with the same name."""
    try:
        with open(folder + "/store/format", "rb") as file:
            return file.read(len(STORE)) == STORE.encode("ascii")
    except OSError:
        return _exists(folder + "/stores") or _exists(folder + "/bin/launch.users")


def _is_our_config(folder: str) -> bool:
    """Return whether this folder has our settings, not those of another program with the same name."""
    try:
        with open(folder + "/config.json", "rb") as file:
            settings = loads(file.read(1 << 20))
    except FileNotFoundError:
        return _exists(folder + "/interpreter")
    except (OSError, ValueError):
        return False
    known_keys = {*SECTIONS, "adopt", "language"}
    return isinstance(settings, dict) and bool(settings) and known_keys.issuperset(settings)


def _rename_markers(data: str) -> None:
    """Rename the markers of all folders in this user's stores. Markers under the old name are still read."""
    for store in {data + "/store", *read_store_list(data + "/stores")}:
        for _, folder in read_pairs(store + "/paths"):
            if folder and not _exists(folder + b"/.keepfast"):
                try:
                    rename(folder + b"/" + FORMER_MARKER, folder + b"/.keepfast")
                except OSError:
                    pass


def _is_folder(path: str) -> bool:
    try:
        return stat(path, follow_symlinks=False).st_mode & TYPE_MASK == FOLDER_TYPE
    except OSError:
        return False


def _exists(path: str | bytes) -> bool:
    try:
        stat(path, follow_symlinks=False)
    except OSError:
        return False
    return True
