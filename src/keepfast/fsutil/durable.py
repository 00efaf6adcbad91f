"""Writes that survive a power cut, kernel locks on files, and messages for errors of either."""

from __future__ import annotations

import threading
from errno import EACCES, EAGAIN, EDQUOT, ENOSPC, EPERM, EROFS
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from os import (
    O_CLOEXEC,
    O_CREAT,
    O_DIRECTORY,
    O_EXCL,
    O_RDONLY,
    O_RDWR,
    O_WRONLY,
    close,
    fstat,
    fsync,
    mkdir,
    rename,
    stat,
    unlink,
    urandom,
    write,
)
from os import open as open_fd
from types import TracebackType

from keepfast.fsutil.lock_wait import WAITING
from keepfast.model.errors import Busy, DiskFull, Failed, KeepfastError, Unreachable, shortage

FULL = (ENOSPC, EDQUOT)
MOMENT, MAX_SHOWN = 1.0, 80
"""Seconds before a wait is announced, and characters of the holder's command line that are shown."""
TRY_AGAIN = "Run the command again when that process is done; if it hangs, end it."
READ_ONLY = (
    "Remount it so that it can be written, or begin a new history elsewhere: `keepfast --store DIR init --new-store`."
)
"""Hint for a read-only store. Changing the setting does not help: a workspace stays in the store that has its history."""


class Lock:
    """A kernel lock on a file: released when its holder ends, even by a crash.

    Entering it raises `Busy` if another process holds it for longer than `WAITING` allows.
    """

    def __init__(self, path: str, what: str = "the store") -> None:
        self.path, self.what = path, what
        self.fd = -1

    def __enter__(self) -> Lock:
        self.fd = open_fd(self.path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        try:
            take_lock(self.fd, self.what)
        except BaseException:
            close(self.fd)
            self.fd = -1
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            flock(self.fd, LOCK_UN)
        except OSError:
            pass  # closing releases it as well; left open, we would wait for ourselves next time
        close(self.fd)
        self.fd = -1

    def try_now(self) -> bool:
        """Take the lock if it is free."""
        self.fd = open_fd(self.path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        try:
            flock(self.fd, LOCK_EX | LOCK_NB)
        except OSError as error:
            close(self.fd)
            self.fd = -1
            if error.errno in (EAGAIN, EACCES):
                return False
            raise
        return True


def take_lock(fd: int, what: str) -> None:
    """Wait for the lock on an open file, for as long as `WAITING` allows. Raises `Busy` that names the holder.

    `what` is locked by it. A wait of more than a moment is told once. The descriptor is to be closed after `Busy`: with
    it goes the wait.
    """
    seconds = WAITING.seconds
    if seconds is None:
        flock(fd, LOCK_EX)
        return
    try:
        flock(fd, LOCK_EX | LOCK_NB)
        return
    except BlockingIOError:
        pass
    waiting, troubles = threading.Lock(), []

    def wait() -> None:
        try:
            flock(fd, LOCK_EX)  # waits in the kernel's queue: polling might never get it
        except OSError as error:
            troubles.append(error)
        finally:
            waiting.release()

    waiting.acquire()
    threading.Thread(target=wait, daemon=True).start()
    moment = min(MOMENT, seconds)
    if not waiting.acquire(timeout=moment):
        if seconds > moment:
            WAITING.announce(f"Waiting for {holder_of(fd)}, which has {what} locked.")
        if not waiting.acquire(timeout=seconds - moment):
            raise Busy(
                f"{what[0].upper()}{what[1:]} has been locked by {holder_of(fd)} for {seconds:.0f} seconds.", TRY_AGAIN
            )
    if troubles:
        raise troubles[0]


def holder_of(fd: int) -> str:
    """Return the name of the process that holds the lock on an open file, if the system tells (Linux: /proc/locks)."""
    inode = str(fstat(fd).st_ino)
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            fields = [line.split() for line in file]
        pids = [one[4] for one in fields if one[1] == "FLOCK" and one[5].rpartition(":")[2] == inode]
        pid = next(one for one in pids if one.isdigit() and one != "0")
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).decode("utf-8", "replace").split("\0")
    except (OSError, IndexError, StopIteration):
        return "another process"
    return f"process {pid} ({' '.join(' '.join(words).split())[:MAX_SHOWN]})"


def write_all(fd: int, data: bytes) -> None:
    """Write every byte: one call may write less than it was given."""
    view = memoryview(data)
    while view:
        view = view[write(fd, view) :]


def sync_folder(path: str) -> None:
    fd = open_fd(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        fsync(fd)
    finally:
        close(fd)


def replace(path: str, data: bytes, durable: bool = True, growing: str = "") -> None:
    """Replace the file `path` atomically. `growing` is the folder for the temporary file, which a sweep cleans up."""
    temporary, fd = new_file(growing + "/" if growing else path + ".")
    try:
        try:
            write_all(fd, data)
            if durable:
                fsync(fd)
            rename(temporary, path)
        finally:
            close(fd)
    except OSError:
        try:
            unlink(temporary)
        except FileNotFoundError:
            pass
        raise
    if durable:
        sync_folder(path.rpartition("/")[0])


def replace_in(folder: int, name: str, data: bytes, durable: bool = True) -> None:
    """Replace a file in an open folder, so that no symbolic link can redirect the write."""
    temporary = f"{name}.{urandom(12).hex()}"
    fd = open_fd(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        write_all(fd, data)
        if durable:
            fsync(fd)
        rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        unlink(temporary, dir_fd=folder)
        raise
    finally:
        close(fd)
    if durable:
        fsync(folder)


def new_file(prefix: str) -> tuple[str, int]:
    """Create a locked file, so that a sweep sees that its writer is alive. Return path and descriptor."""
    while True:
        path = prefix + urandom(12).hex()
        fd = open_fd(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        flock(fd, LOCK_EX)
        # Between open and flock, a sweep may have removed the file.
        if fstat(fd).st_nlink:
            return path, fd
        close(fd)


def make_folder(path: str) -> None:
    try:
        mkdir(path, 0o700)
    except FileExistsError:
        pass


def make_folders(path: str) -> None:
    """Create a folder and its missing parents, durably."""
    missing = []
    while not exists(path):
        missing.append(path)
        path = path.rpartition("/")[0] or "/"
    for folder in reversed(missing):
        make_folder(folder)
        sync_folder(folder.rpartition("/")[0] or "/")


def exists(path: str) -> bool:
    try:
        stat(path)
    except FileNotFoundError:
        return False
    return True


def explain(error: OSError, what: str, store: str = "") -> KeepfastError:
    """Turn an OSError into a message with a hint. `what` names the work that failed, as in "Creating the store"."""
    where = f"the store {store}".rstrip()
    short = shortage(error)
    if short is not None:
        return short
    if error.errno in FULL:
        return DiskFull(
            f"The disk is full: {what[0].lower()}{what[1:]} failed; nothing was changed in {store or where}."
        )
    if error.errno == EROFS:
        return Unreachable(f"{what} failed: {where} is on a read-only file system.", READ_ONLY)
    if error.errno in (EACCES, EPERM):
        return Unreachable(
            f"No permission in {where}: {error.strerror} ({error.filename or what}).", "Check who owns it."
        )
    return Failed(f"{what} failed: {error.strerror or error} ({error.filename or store or where}).")
