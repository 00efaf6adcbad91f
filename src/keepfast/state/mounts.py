"""Mounts of the store: while a mount holds its shared lock, compaction removes nothing that it shows."""

from __future__ import annotations

from errno import EACCES, EPERM, EROFS
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from os import O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, close, ftruncate, getpid, kill
from os import open as open_fd
from types import TracebackType

from keepfast.fsutil.durable import Lock, write_all
from keepfast.model.errors import Busy

NAME = "/mounted.lock"


def hold(store: str, where: str) -> int:
    """Keep contents from being removed until the returned descriptor is closed. Raises `Busy` during a compaction.

    Writes `where` and our process id into the file for people; only the kernel's lock counts. A store that this user cannot
    write is locked in the same way if the file exists; otherwise its owner may compact it meanwhile.
    """
    try:
        return _hold_and_tell(store, where)
    except OSError as error:
        if error.errno not in (EACCES, EPERM, EROFS):
            raise
    return _hold_unwritten(store)


def _hold_and_tell(store: str, where: str) -> int:
    path = store + NAME
    try:
        fd = open_fd(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        new = True
    except FileExistsError:
        fd = open_fd(path, O_RDWR | O_APPEND | O_CLOEXEC)
        new = False
    try:
        try:
            flock(fd, LOCK_EX | LOCK_NB)
            ftruncate(fd, 0)  # no other holder: the lines are of mounts that have ended
        except BlockingIOError:
            pass
        try:
            flock(fd, LOCK_SH | LOCK_NB)
        except BlockingIOError:
            raise Busy("A compaction is running.") from None
        write_all(fd, f"{getpid()} {where}".replace("\n", "\\n").encode("utf-8", "surrogateescape") + b"\n")
        if new:
            # A compaction that began before the file existed does not know of us: wait for its end.
            with Lock(store + "/compact.lock"):
                pass
    except BaseException:
        close(fd)
        raise
    return fd


def _hold_unwritten(store: str) -> int:
    try:
        fd = open_fd(store + NAME, O_RDONLY | O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return open_fd(store, O_RDONLY | O_CLOEXEC)
    try:
        flock(fd, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        close(fd)
        raise Busy("A compaction is running.") from None
    return fd


class Unmounted:
    """A context in which the store cannot be mounted. Raises `Busy` that names the mounts if there are any."""

    def __init__(self, store: str) -> None:
        self.store, self.fd = store, -1

    def __enter__(self) -> None:
        try:
            # Not created here: with no inodes left, compaction must still be possible.
            self.fd = open_fd(self.store + NAME, O_RDWR | O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            flock(self.fd, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            close(self.fd)
            raise Busy(
                (f"The store is mounted{_named(self.store)}; it cannot be compacted."), "Unmount it first."
            ) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.fd >= 0:
            close(self.fd)
            self.fd = -1


def _named(store: str) -> str:
    try:
        with open(store + NAME, "rb") as file:
            lines = file.read(65536).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    places = []
    for text in lines:
        process, _, where = text.partition(" ")
        if where and process.isdigit() and _lives(int(process)):
            places.append(f"{where} (process {process})")
    return f" at {', '.join(places)}" if places else ""


def _lives(process: int) -> bool:
    try:
        kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
