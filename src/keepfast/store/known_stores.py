"""The stores that this user has used, the folders in them, and those not to be protected: lists in the data folder."""

from __future__ import annotations

from posix import O_APPEND, O_CLOEXEC, O_CREAT, O_WRONLY, close
from posix import open as open_fd

from keepfast.store.small_files import read_folder_list, read_pairs, read_store_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

NO_STORE = "-"
"""Stands for a store where a folder is kept in none any more."""


def add_store(file: str, path: str, identity: str) -> None:
    """Note a store. One appended line: processes that do it at the same time do not undo one another's."""
    if read_store_list(file).get(path) != identity:
        _append(file, format_pair(identity, path.encode("utf-8", "surrogateescape")))


def remove_store(file: str, identity: str) -> None:
    """Take a store out of the list: it is gone for good, and nobody shall miss it."""
    write_pairs(file, [(its, path) for its, path in read_pairs(file) if its != identity])


def note_folder(file: str, path: bytes, store: str, workspace: str) -> None:
    """Note that the folder is kept in this store, whichever it was before."""
    if read_folder_list(file).get(path) != (store, workspace):
        _append(file, format_pair(f"{store}/{workspace}", path))


def note_folders(file: str, store: str, workspaces: Iterable[tuple[str, bytes]]) -> None:
    """Note which folders a store has now. One that is noted for another store stays with that."""
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
    """Note that the folder is kept in none of these stores any more."""
    if path in read_folder_list(file):
        _append(file, format_pair(NO_STORE, path))


def drop_folders(file: str, store: str) -> None:
    """Take out all folders of a store that is gone for good."""
    listed_folders = read_folder_list(file)
    if any(its == store for its, _ in listed_folders.values()):
        write_pairs(
            file, [(f"{its}/{workspace}", path) for path, (its, workspace) in listed_folders.items() if its != store]
        )


def _append(file: str, lines: bytes) -> None:
    from keepfast.fsutil.durable import make_folders, write_all

    make_folders(file.rpartition("/")[0])
    fd = open_fd(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
    try:
        write_all(fd, lines)
    finally:
        close(fd)


def write_pairs(file: str, pairs: Iterable[tuple[str, bytes]], growing: str = "") -> None:
    """Replace the file by these lines; `growing` is the folder in which it grows."""
    from keepfast.fsutil.durable import replace

    replace(file, b"".join([format_pair(word, path) for word, path in pairs]), durable=False, growing=growing)


def format_pair(word: str, path: bytes) -> bytes:
    return b"%b %b\n" % (word.encode("ascii"), path.replace(b"\\", b"\\\\").replace(b"\n", b"\\n"))


def read_unprotected(file: str) -> dict[bytes, str]:
    """Return the folders that somebody has stopped protecting, with the ids that their workspaces had."""
    return {path: workspace for workspace, path in read_pairs(file)}


def last_unprotected_folders(file: str) -> dict[str, bytes]:
    """The same by the workspace's id: where it was when its protection was ended."""
    return {workspace: path for path, workspace in read_unprotected(file).items() if workspace}


def note_unprotected(file: str, path: bytes, workspace: str) -> None:
    """Note that hooks shall leave this folder alone."""
    from keepfast.fsutil.durable import make_folders

    make_folders(file.rpartition("/")[0])
    write_pairs(file, [(its, other) for other, its in {**read_unprotected(file), path: workspace}.items()])


def note_protected(file: str, path: bytes) -> None:
    """Take the folder out of that list again."""
    folders = read_unprotected(file)
    if folders.pop(path, None) is not None:
        write_pairs(file, [(its, other) for other, its in folders.items()])
