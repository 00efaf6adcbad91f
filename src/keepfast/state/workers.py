"""Who works on a workspace in the background: a kernel lock that ends with its holder, and what it says of itself."""

from __future__ import annotations

from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from posix import O_CLOEXEC, O_CREAT, O_NOFOLLOW, O_RDONLY, O_RDWR, close, ftruncate, getpid, pread, pwrite
from posix import open as open_fd
from time import sleep

from keepfast.fsutil.durable import make_folder
from keepfast.model.errors import Busy
from keepfast.model.light_json import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME, HOOKS = "/watch.lock", "/worker.lock"
MOST = 4096
TRIES, PAUSE = 10, 0.05
"""`status` holds the lock for an instant when it asks."""


class LivingWorker:
    """What a process that works on a workspace says of itself. `last_save` is 0 until it has saved a `version`."""

    def __init__(self, kind: str, pid: int, since: int, last_save: int = 0, version: int = 0) -> None:
        self.kind, self.pid, self.since, self.last_save, self.version = kind, pid, since, last_save, version

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "pid": self.pid, "since": self.since, "last_save": self.last_save, "version": self.version,
        }  # fmt: skip


class Worker:
    """The one watcher of a workspace, for as long as it is open. Raises `Busy` with the process that is it already."""

    def __init__(self, folder: str, now: int) -> None:
        make_folder(folder)
        self.facts = LivingWorker("watch", getpid(), now)
        self.fd = open_fd(folder + NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
        for attempt in range(TRIES):
            try:
                flock(self.fd, LOCK_EX | LOCK_NB)
                break
            except BlockingIOError:
                if attempt + 1 < TRIES:
                    sleep(PAUSE)
                    continue
                close(self.fd)
                other = living(folder)
                who = f"process {other.pid}" if other else "another process"
                raise Busy(
                    f"This workspace is already watched by {who}.", "Stop it first to start another one."
                ) from None
        self._write()

    def saved(self, at: int, version: int) -> None:
        self.facts.last_save, self.facts.version = at, version
        self._write()

    def close(self) -> None:
        close(self.fd)

    def _write(self) -> None:
        try:
            text = dumps(self.facts.to_json()).encode("ascii")
            ftruncate(self.fd, 0)
            pwrite(self.fd, text, 0)
        except OSError:
            pass  # a full disk: `status` knows less of us, the lock holds all the same


def begin(folder: str, now: int) -> int:
    """Become the one who does the pending events of a workspace; close the descriptor to end it. -1: somebody else is."""
    make_folder(folder)
    fd = open_fd(folder + HOOKS, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
    for _ in range(TRIES):
        try:
            flock(fd, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            # Whoever asks whether somebody works here holds the lock for an instant.
            sleep(PAUSE / 10)
            continue
        try:
            text = dumps({"pid": getpid(), "since": now}).encode("ascii")
            pwrite(fd, text, 0)
            ftruncate(fd, len(text))
        except OSError:
            pass
        return fd
    close(fd)
    return -1


def living(folder: str, name: str = NAME) -> LivingWorker | None:
    """What a worker of a workspace says of itself; None if there is none.

    The watcher has the lock `NAME`, whoever does the pending events of hooks has the lock `HOOKS`.
    """
    try:
        fd = open_fd(folder + name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
    except OSError:
        return None
    try:
        flock(fd, LOCK_SH | LOCK_NB)
        return None
    except BlockingIOError:
        kind = "watch" if name == NAME else "hooks"
        found = LivingWorker(kind, 0, 0)
        try:
            said = loads(pread(fd, MOST, 0))
            numbers = [int(said.get(key, 0)) for key in ("pid", "since", "last_save", "version")]
            found = LivingWorker(kind, *numbers)
        except (OSError, ValueError, TypeError, AttributeError):
            pass
        return found
    except OSError:
        return None
    finally:
        close(fd)
