"""What an earlier version kept under the project's first name becomes ours: settings, data and markers."""

from __future__ import annotations

from posix import rename, stat, symlink

from keepfast.model.frozen import FORMER, FORMER_MARKER, STORE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from keepfast.present.environment import Surroundings

FOLDER, KIND = 0o040000, 0o170000
LINK = ".keepfast-link"
"""Waits beside the old folder, to lie in its place: a process that is killed in between leaves it for the next one."""


def take_over(around: Surroundings) -> str:
    """Rename folders of the first name, if there are any; return the line that says so, nothing as a rule.

    A link stays under the old name: clients' settings name the launcher there, and other processes may still use it. Nothing
    is done where a folder of our name is there already, or where the old one is not of this project.
    """
    pairs = [_pair(around.data), _pair(around.config.rpartition("/")[0])]
    if not any(_is_folder(old) or _exists(_link(old)) for old, _ in pairs):
        return ""
    done = [old for (old, new), is_ours in zip(pairs, (_is_data, _is_config), strict=True) if _move(old, new, is_ours)]
    if not done:
        return ""
    _rename_markers(around.data)
    return f"Taken over from {FORMER}, the former name of this tool: {' and '.join(done)}. Nothing else has changed."


def _pair(folder: str) -> tuple[str, str]:
    return folder.rpartition("/")[0] + "/" + FORMER, folder


def _link(old: str) -> str:
    return old.rpartition("/")[0] + "/" + LINK


def _move(old: str, new: str, is_ours: Callable[[str], bool]) -> bool:
    """Move a folder, and leave a link in its place. True if it was moved now."""
    moved = False
    if _is_folder(old) and not _exists(new) and is_ours(old):
        try:
            if not _exists(_link(old)):
                symlink(new.rpartition("/")[2], _link(old))
            rename(old, new)
            moved = True
        except OSError:
            return False  # another process was first, or it is not ours to change: then it goes on where it is
    if _exists(_link(old)) and not _exists(old):
        try:
            rename(_link(old), old)
        except OSError:
            pass  # the next start does it
    return moved


def _is_data(folder: str) -> bool:
    """Is this our data folder, and not that of another program with the same name?"""
    try:
        with open(folder + "/store/format", "rb") as file:
            return file.read(len(STORE)) == STORE.encode("ascii")
    except OSError:
        return _exists(folder + "/stores") or _exists(folder + "/bin/launch.users")


def _is_config(folder: str) -> bool:
    """Are these our settings? Another program of the same name has other ones."""
    from json import loads

    from keepfast.model.schema import SECTIONS

    try:
        with open(folder + "/config.json", "rb") as file:
            settings = loads(file.read(1 << 20))
    except FileNotFoundError:
        return _exists(folder + "/interpreter")
    except (OSError, ValueError):
        return False
    known = {*SECTIONS, "adopt", "language"}
    return isinstance(settings, dict) and bool(settings) and known.issuperset(settings)


def _rename_markers(data: str) -> None:
    """Rename the markers of all folders that the stores of this user know. One that is left is read all the same."""
    from keepfast.store.small_files import read_pairs, read_store_list

    for store in {data + "/store", *read_store_list(data + "/stores")}:
        for _, folder in read_pairs(store + "/paths"):
            if folder and not _exists(folder + b"/.keepfast"):
                try:
                    rename(folder + b"/" + FORMER_MARKER, folder + b"/.keepfast")
                except OSError:
                    pass


def _is_folder(path: str) -> bool:
    try:
        return stat(path, follow_symlinks=False).st_mode & KIND == FOLDER
    except OSError:
        return False


def _exists(path: str | bytes) -> bool:
    try:
        stat(path, follow_symlinks=False)
    except OSError:
        return False
    return True
