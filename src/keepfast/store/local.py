"""Backends on the local disk: pack files and logs in a folder, each write synced in the required order."""

from __future__ import annotations

from errno import ENOENT
from fcntl import LOCK_EX, LOCK_NB, flock
from os import (
    O_APPEND,
    O_CLOEXEC,
    O_CREAT,
    O_RDONLY,
    O_RDWR,
    O_WRONLY,
    close,
    fstat,
    fsync,
    ftruncate,
    listdir,
    pread,
    rename,
    stat,
    unlink,
)
from os import open as open_fd
from threading import Lock

try:
    from os import POSIX_FADV_DONTNEED, posix_fadvise
except ImportError:  # macOS has none
    posix_fadvise = None  # type: ignore[assignment]

from keepfast.fsutil.durable import new_file, sync_folder, write_all
from keepfast.model.steps import step

EARLY_WRITEBACK = 256 << 10
"""Bytes after which the kernel is told to start writing, so that `sync` has less to wait for."""


class LocalBlobs:
    """Packs as files. They are written in `tmp/`, each under a kernel lock that shows whether its writer is alive."""

    def __init__(self, store: str, durable: bool = True) -> None:
        self.folder = store + "/packs"
        self.temporary = store + "/tmp"
        self.durable = durable
        self._last_opened: tuple[str, int] | None = None
        # A server reads with several threads: none may close what another reads from.
        self._read_lock = Lock()

    def create(self) -> LocalUpload:
        return LocalUpload(self)

    def read(self, name: str, offset: int, length: int) -> bytes:
        with self._read_lock:
            return self._read(name, offset, length)

    def _read(self, name: str, offset: int, length: int) -> bytes:
        if self._last_opened is None or self._last_opened[0] != name:
            fd = open_fd(self._path(name), O_RDONLY | O_CLOEXEC)
            self._close_last()
            self._last_opened = name, fd
        fd, parts = self._last_opened[1], []
        # Checked before memory is allocated: a damaged ledger may ask for any length.
        if offset + length > fstat(fd).st_size:
            raise EOFError(f"pack {name} ends before byte {offset + length}")
        while length > 0:
            part = pread(fd, length, offset)
            if not part:
                raise EOFError(f"pack {name} ends before byte {offset + length}")
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)

    def descriptor(self, name: str) -> int:
        return open_fd(self._path(name), O_RDONLY | O_CLOEXEC)

    def size(self, name: str) -> int:
        return stat(self._path(name)).st_size

    def close(self) -> None:
        with self._read_lock:
            self._close_last()

    def _close_last(self) -> None:
        last, self._last_opened = self._last_opened, None
        if last is not None:
            close(last[1])

    def names(self) -> list[str]:
        return sorted(name[:-5] for name in _names(self.folder) if name.endswith(".pack"))

    def delete(self, name: str) -> None:
        with self._read_lock:
            if self._last_opened is not None and self._last_opened[0] == name:
                self._close_last()
        try:
            unlink(self._path(name))
        except FileNotFoundError:
            pass

    def sweep(self) -> int:
        removed = 0
        for name in listdir(self.temporary):
            path = f"{self.temporary}/{name}"
            try:
                fd = open_fd(path, O_RDWR | O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                flock(fd, LOCK_EX | LOCK_NB)
                unlink(path)
                removed += 1
            except (BlockingIOError, FileNotFoundError):
                pass
            finally:
                close(fd)
        return removed

    def _path(self, name: str) -> str:
        return f"{self.folder}/{_require_plain_name(name)}.pack"


class LocalUpload:
    def __init__(self, blobs: LocalBlobs) -> None:
        self.blobs = blobs
        self.path, self.fd = new_file(blobs.temporary + "/")
        self.written = self.sent = 0

    def write(self, data: bytes) -> None:
        write_all(self.fd, data)
        self.written += len(data)
        if self.written - self.sent >= EARLY_WRITEBACK and self.blobs.durable and posix_fadvise is not None:
            # Starts writeback now. Pages that are still being written stay in memory.
            try:
                posix_fadvise(self.fd, self.sent, self.written - self.sent, POSIX_FADV_DONTNEED)
            except OSError:
                pass  # a hint, which not every file system takes; `sync` is what counts
            self.sent = self.written

    def sync(self) -> None:
        step("pack:written")
        if self.blobs.durable:
            fsync(self.fd)
        step("pack:synced")

    def finish(self, name: str) -> None:
        rename(self.path, f"{self.blobs.folder}/{name}.pack")
        step("pack:renamed")
        if self.blobs.durable:
            sync_folder(self.blobs.folder)
        step("pack:named")
        close(self.fd)
        self.fd = -1

    def abort(self) -> None:
        if self.fd < 0:
            return
        try:
            unlink(self.path)
        except FileNotFoundError:
            pass
        close(self.fd)
        self.fd = -1


class LocalRecords:
    """Logs as files below `log/`."""

    def __init__(self, store: str, durable: bool = True) -> None:
        self.folder = store + "/log"
        self.durable = durable

    def append(self, log: str, lines: bytes) -> None:
        path = self._path(log)
        try:
            fd = open_fd(path, O_WRONLY | O_APPEND | O_CLOEXEC)
            new = False
        except FileNotFoundError:
            fd = open_fd(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
            new = True
        try:
            before = fstat(fd).st_size
            try:
                write_all(fd, lines)
                step("record:written")
                if self.durable:
                    fsync(fd)
            except OSError:
                ftruncate(fd, before)  # what could not be made durable must not be read as a record later
                raise
        finally:
            close(fd)
        if new and self.durable:
            sync_folder(self.folder)
        step("record:synced")

    def read(self, log: str) -> bytes:
        try:
            with open(self._path(log), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def remove(self, log: str) -> None:
        try:
            unlink(self._path(log))
        except FileNotFoundError:
            return
        if self.durable:
            sync_folder(self.folder)

    def size(self, log: str) -> int:
        try:
            return stat(self._path(log)).st_size
        except FileNotFoundError:
            return 0

    def truncate(self, log: str, size: int) -> None:
        fd = open_fd(self._path(log), O_WRONLY | O_CLOEXEC)
        try:
            ftruncate(fd, size)
            if self.durable:
                fsync(fd)
        finally:
            close(fd)

    def logs(self) -> list[str]:
        return sorted(name[:-4] for name in _names(self.folder) if name.endswith(".log"))

    def _path(self, log: str) -> str:
        return f"{self.folder}/{_require_plain_name(log)}.log"


def _names(folder: str) -> list[str]:
    """Return the names in the folder; none if it is missing: what should be in it is then reported missing by name."""
    try:
        return listdir(folder)
    except FileNotFoundError:
        return []


def _require_plain_name(name: str) -> str:
    """Return the name; raise `FileNotFoundError` if it leads out of the folder: a crafted ledger may contain any name."""
    if "/" in name or "\0" in name:
        raise FileNotFoundError(ENOENT, "No such name", name)
    return name
