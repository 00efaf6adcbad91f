"""A store that need not be open yet: what a hook asks before it knows whether there is anything to save."""

from __future__ import annotations

from posix import O_CLOEXEC, O_RDONLY, close, fstat, pread, read
from posix import open as open_fd

from holdfast.core.errors import Damaged, NewerFormat, NoWorkspace, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.store.repository import Repository

FORMAT = 1


class Place:
    """Where a store is, and the little that can be known without opening it."""

    __slots__ = ("durable", "keys", "path")

    def __init__(self, path: str, durable: bool = True, keys: str = "") -> None:
        self.path, self.durable = path, durable
        self.keys = keys or path.rpartition("/")[0] + "/keys"

    def id(self) -> str:
        return store_id(self.path)

    def head(self, workspace: str) -> tuple[int, bytes]:
        """Size and last digest (hex) of the workspace's log: together they name everything in it."""
        return head_of_log(f"{self.path}/log/{workspace}.log")

    def folder(self, workspace: str) -> str:
        return f"{self.path}/workspaces/{workspace}"

    def open(self) -> Repository:
        from holdfast.store.open import open_store

        return open_store(self.path, durable=self.durable, keys=self.keys)

    def create(self) -> Repository:
        from holdfast.store.open import create_store

        return create_store(self.path, durable=self.durable, keys=self.keys)

    def registered(self) -> dict[bytes, str]:
        """Folders that are workspaces, as the last registration left the list; the ledger knows better."""
        try:
            fd = open_fd(self.path + "/paths", O_RDONLY | O_CLOEXEC)
            try:
                lines = read(fd, fstat(fd).st_size).split(b"\n")  # it is replaced, never written into
            finally:
                close(fd)
        except OSError:
            return {}
        found = {}
        for text in lines:
            workspace, _, path = text.partition(b" ")
            if path:
                parts = [part.replace(b"\\n", b"\n") for part in path.split(b"\\\\")]
                found[b"\\".join(parts)] = workspace.decode("ascii", "replace")
        return found

    def list_paths(self, workspaces: Iterable[tuple[str, bytes]]) -> None:
        from holdfast.store.local import replace

        text = b"".join(
            [
                b"%b %b\n" % (workspace.encode("ascii"), path.replace(b"\\", b"\\\\").replace(b"\n", b"\\n"))
                for workspace, path in workspaces
            ]
        )
        replace(self.path + "/paths", text, durable=False, growing=self.path + "/tmp")


def store_id(path: str) -> str:
    """Return the id in the store's `format` file.

    Raises `NoWorkspace` if there is no store, `Unreachable` if it cannot be opened, `NewerFormat` if it is not for us.
    """
    try:
        fd = open_fd(path + "/format", O_RDONLY | O_CLOEXEC)
    except FileNotFoundError:
        raise NoWorkspace(f"There is no store at {path} yet.") from None
    except NotADirectoryError:
        raise Unreachable(f"The store path {path} is a file, not a folder.", "Set `store.url` to a folder.") from None
    except OSError as error:
        from holdfast.store.local import explain

        raise explain(error, "Opening it", path) from None
    try:
        lines = read(fd, 4096).decode("ascii", "replace").split("\n")
    finally:
        close(fd)
    words = [text.partition(" ")[::2] for text in lines]
    if lines[0] != "holdfast store" or len(words) < 3 or words[1][0] != "version" or words[2][0] != "id":
        raise Damaged(
            f"{path}/format does not describe a store.",
            "Run `holdfast verify --repair`, or set `store.url` to the right folder.",
        )
    if not words[1][1].isdigit():
        raise Damaged(f"{path}/format names no version.", "Run `holdfast verify --repair`.")
    if int(words[1][1]) > FORMAT:
        raise NewerFormat(f"The store {path} has format {words[1][1]}; this holdfast knows {FORMAT}.")
    if len(words[2][1]) != 32 or words[2][1].strip("0123456789abcdef") or int(words[1][1]) != FORMAT:
        raise Damaged(f"{path}/format is damaged.", "Run `holdfast verify --repair`.")
    return words[2][1]


def head_of_log(path: str) -> tuple[int, bytes]:
    """Return size and last digest (hex) of a log: together they name everything in it."""
    try:
        fd = open_fd(path, O_RDONLY | O_CLOEXEC)
    except OSError:
        return 0, b""
    try:
        size = fstat(fd).st_size
        return size, pread(fd, 64, size - 65) if size >= 65 else b""
    finally:
        close(fd)
