"""Read the small files of stores without opening one: format file, lists of stores and folders, the end of a log."""

from __future__ import annotations

from os import O_CLOEXEC, O_RDONLY, close, fstat, pread, read, stat
from os import open as open_fd

from keepfast.fsutil.durable import explain
from keepfast.model.errors import Damaged, MissingStore, NewerFormat, NoWorkspace, Unreachable, Usage
from keepfast.model.frozen import STORE

FORMAT = 1


def store_path_of(url: str, data: str) -> str:
    """Return the folder that the setting `store.url` names; `data` is the user's data folder. Raises `Usage`."""
    if not url:
        return data + "/store"
    if url.startswith("file://"):
        url = url[7:]
    if not url.startswith("/"):
        raise Usage(f"store.url = {url!r} is not an absolute path.", "Give a folder such as /home/you/keepfast-store.")
    return url.rstrip("/") or "/"


def store_id(path: str) -> str:
    """Return the id in the store's `format` file.

    Raises `NoWorkspace` if there is no store, `Unreachable` if it cannot be opened, `NewerFormat` if this release cannot
    read it, and `Damaged`.
    """
    try:
        fd = open_fd(path + "/format", O_RDONLY | O_CLOEXEC)
    except FileNotFoundError:
        raise NoWorkspace(f"No store at {path} yet.") from None
    except NotADirectoryError:
        raise Unreachable(f"The store path {path} is a file, not a folder.", "Set `store.url` to a folder.") from None
    except OSError as error:
        raise explain(error, "Opening it", path) from None
    try:
        lines = read(fd, 4096).decode("ascii", "replace").split("\n")
    finally:
        close(fd)
    words = [text.partition(" ")[::2] for text in lines]
    if lines[0] != STORE or len(words) < 3 or words[1][0] != "version" or words[2][0] != "id":
        raise Damaged(
            f"{path}/format does not describe a store.",
            "Run `keepfast verify --repair`, or set `store.url` to the right folder.",
        )
    if not words[1][1].isdigit():
        raise Damaged(f"{path}/format has no version.", "Run `keepfast verify --repair`.")
    if int(words[1][1]) > FORMAT:
        raise NewerFormat(f"The store {path} has format {words[1][1]}; this keepfast supports only {FORMAT}.")
    if len(words[2][1]) != 32 or words[2][1].strip("0123456789abcdef") or int(words[1][1]) != FORMAT:
        raise Damaged(f"{path}/format is damaged.", "Run `keepfast verify --repair`.")
    return words[2][1]


def id_or_empty(path: str) -> str:
    """Return the id of the store in this folder; empty if there is none or it cannot be read."""
    try:
        return store_id(path)
    except (NoWorkspace, Unreachable, Damaged):
        return ""


def missing_store(path: str) -> MissingStore:
    """Return the error for a store that is not at `path`, or is another one than before."""
    try:
        stat(path + "/format")
    except OSError:
        return MissingStore(f"Store {path} not found (disk not mounted? moved?).")
    return MissingStore(f"The store {path} is not the one with this folder's checkpoints (disk not mounted? moved?).")


def read_store_list(file: str) -> dict[str, str]:
    """Return the stores in the list, path → id. Of two lines with one path or one id, the later one counts."""
    stores: dict[str, str] = {}
    for identity, path in read_pairs(file):
        name = path.decode("utf-8", "surrogateescape")
        for other in [other for other, its in stores.items() if its == identity]:
            del stores[other]  # it moved
        stores[name] = identity
    return stores


def folder_list_path(stores: str) -> str:
    """Return the path of the list of folders, which lies beside the list of stores."""
    return stores.rpartition("/")[0] + "/folders"


def read_folder_list(file: str) -> dict[bytes, tuple[str, str]]:
    """Return the folders in the list, each with the ids of its store and its workspace. Of two lines for a path the later
    one counts.
    """
    folders: dict[bytes, tuple[str, str]] = {}
    for word, path in read_pairs(file):
        store, _, workspace = word.partition("/")
        folders.pop(path, None)
        if workspace:
            folders[path] = store, workspace
    return folders


def read_pairs(file: str) -> list[tuple[str, bytes]]:
    """Return the lines `WORD PATH` of a file; none if it cannot be read."""
    try:
        fd = open_fd(file, O_RDONLY | O_CLOEXEC)
        try:
            lines = read(fd, fstat(fd).st_size).split(b"\n")
        finally:
            close(fd)
    except OSError:
        return []
    pairs = []
    for text in lines:
        word, _, path = text.partition(b" ")
        if path:
            parts = [part.replace(b"\\n", b"\n") for part in path.split(b"\\\\")]
            pairs.append((word.decode("ascii", "replace"), b"\\".join(parts)))
    return pairs


def head_of_log(path: str) -> tuple[int, bytes]:
    """Return size and last digest (hex) of a log: together they identify its contents."""
    try:
        fd = open_fd(path, O_RDONLY | O_CLOEXEC)
    except OSError:
        return 0, b""
    try:
        size = fstat(fd).st_size
        return size, pread(fd, 64, size - 65) if size >= 65 else b""
    finally:
        close(fd)
