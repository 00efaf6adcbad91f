"""Lists in the data folder: the stores that this user has used, the folders in them, and folders not to protect."""

from __future__ import annotations

from collections.abc import Iterable
from os import O_APPEND, O_CLOEXEC, O_CREAT, O_WRONLY, close
from os import open as open_fd

from keepfast.fsutil.durable import make_folders, replace, write_all
from keepfast.store.small_files import read_folder_list, read_pairs, read_store_list

NO_STORE = "-"
"""Written in place of a store for a folder that is in no store any more."""


def add_store(file: str, path: str, identity: str) -> None:
    """Add a store to the list. A line is appended, so that concurrent processes do not overwrite each other's."""
    if read_store_list(file).get(path) != identity:
        _append(file, format_pair(identity, path.encode("utf-8", "surrogateescape")))


def remove_store(file: str, identity: str) -> None:
    """Remove a store from the list after it was deleted, so that it is not reported missing."""
    write_pairs(file, [(its, path) for its, path in read_pairs(file) if its != identity])


def note_folder(file: str, path: bytes, store: str, workspace: str) -> None:
    """Record that the folder is in this store, replacing an earlier one."""
    if read_folder_list(file).get(path) != (store, workspace):
        _append(file, format_pair(f"{store}/{workspace}", path))


def note_folders(file: str, store: str, workspaces: Iterable[tuple[str, bytes]]) -> None:
    """Record which folders a store has now. A folder recorded for another store stays with that."""
    listed_folders, workspaces_by_path = (
        read_folder_list(file),
        {path: workspace for workspace, path in workspaces if path},
    )
    lines = []
    for path, workspace in workspaces_by_path.items():
        noted = listed_folders.get(path, (store, ""))
        if noted[0] == store and noted[1] != workspace:
            lines.append(format_pair(f"{store}/{workspace}", path))
    lines += [
        format_pair(NO_STORE, path)
        for path, (its, _) in listed_folders.items()
        if its == store and path not in workspaces_by_path
    ]
    if lines:
        _append(file, b"".join(lines))


def drop_folder(file: str, path: bytes) -> None:
    """Record that the folder is in no store any more."""
    if path in read_folder_list(file):
        _append(file, format_pair(NO_STORE, path))


def drop_folders(file: str, store: str) -> None:
    """Remove all folders of a deleted store from the list."""
    listed_folders = read_folder_list(file)
    if any(its == store for its, _ in listed_folders.values()):
        write_pairs(
            file, [(f"{its}/{workspace}", path) for path, (its, workspace) in listed_folders.items() if its != store]
        )


def _append(file: str, lines: bytes) -> None:
    make_folders(file.rpartition("/")[0])
    fd = open_fd(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
    try:
        write_all(fd, lines)
    finally:
        close(fd)


def write_pairs(file: str, pairs: Iterable[tuple[str, bytes]], growing: str = "") -> None:
    """Replace the file by these lines; `growing` is the folder for the temporary file."""
    replace(file, b"".join([format_pair(word, path) for word, path in pairs]), durable=False, growing=growing)


def format_pair(word: str, path: bytes) -> bytes:
    return b"%b %b\n" % (word.encode("ascii"), path.replace(b"\\", b"\\\\").replace(b"\n", b"\\n"))


def read_unprotected(file: str) -> dict[bytes, str]:
    """Return the folders that the user has stopped protecting, with the ids that their workspaces had."""
    return {path: workspace for workspace, path in read_pairs(file)}


def last_unprotected_folders(file: str) -> dict[str, bytes]:
    """Return by workspace id the folder that it had when the user stopped protecting it."""
    return {workspace: path for path, workspace in read_unprotected(file).items() if workspace}


def note_unprotected(file: str, path: bytes, workspace: str) -> None:
    """Record that hooks must not protect this folder."""
    make_folders(file.rpartition("/")[0])
    write_pairs(file, [(its, other) for other, its in {**read_unprotected(file), path: workspace}.items()])


def note_protected(file: str, path: bytes) -> None:
    """Remove the folder from the list of unprotected folders."""
    folders = read_unprotected(file)
    if folders.pop(path, None) is not None:
        write_pairs(file, [(its, other) for other, its in folders.items()])
