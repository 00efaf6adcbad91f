"""Background workers of a workspace: a kernel lock that ends with its holder, and a file that describes the holder."""

from __future__ import annotations

from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from os import O_CLOEXEC, O_CREAT, O_NOFOLLOW, O_RDONLY, O_RDWR, close, ftruncate, getpid, pread, pwrite
from os import open as open_fd
from time import sleep
from typing import Any

from keepfast.fsutil.durable import make_folder
from keepfast.model.errors import Busy
from keepfast.model.strict_json import dumps, loads

NAME, HOOKS = "/watch.lock", "/worker.lock"
MAX_FILE_BYTES = 4096
TRIES, PAUSE = 10, 0.05
"""Retries: `status` holds the lock for a moment while it checks for a worker."""


class RunningWorker:
    """A process that watches or saves a workspace. `last_save` is 0 until it has saved a `version`."""

    def __init__(self, kind: str, pid: int, since: int, last_save: int = 0, version: int = 0) -> None:
        self.kind, self.pid, self.since, self.last_save, self.version = kind, pid, since, last_save, version

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "pid": self.pid, "since": self.since, "last_save": self.last_save, "version": self.version,
        }  # fmt: skip


class Worker:
    """The only watcher of a workspace, until closed. Raises `Busy` that names the process if there is one already."""

    def __init__(self, folder: str, now: int) -> None:
        make_folder(folder)
        self.facts = RunningWorker("watch", getpid(), now)
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
                other = running_worker(folder)
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
            pass  # the disk is full: `status` shows less, but the lock still holds


def try_to_become_worker(folder: str, now: int) -> int:
    """Become the process that saves a workspace's pending events, until the descriptor is closed. Return -1 if one exists."""
    make_folder(folder)
    fd = open_fd(folder + HOOKS, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
    for _ in range(TRIES):
        try:
            flock(fd, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            # A process that checks for a worker holds the lock for a moment.
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


def running_worker(folder: str, name: str = NAME) -> RunningWorker | None:
    """Return the running worker of a workspace; None if there is none.

    `NAME` is the lock of the watcher, `HOOKS` that of the process that saves pending events.
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
        worker = RunningWorker(kind, 0, 0)
        try:
            fields = loads(pread(fd, MAX_FILE_BYTES, 0))
            numbers = [int(fields.get(key, 0)) for key in ("pid", "since", "last_save", "version")]
            worker = RunningWorker(kind, *numbers)
        except (OSError, ValueError, TypeError, AttributeError):
            pass
        return worker
    except OSError:
        return None
    finally:
        close(fd)
