"""A workspace under its lock, its stat cache, and the rules of what a save includes."""

from __future__ import annotations

from collections.abc import Callable
from os import O_CLOEXEC, O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR, close, fstat, geteuid, stat, utime
from os import open as open_fd
from typing import TYPE_CHECKING

from keepfast.fsutil.durable import make_folder, take_lock
from keepfast.fsutil.lock_wait import WAITING
from keepfast.model.errors import Failed
from keepfast.store.small_files import id_or_empty, read_pairs, read_store_list
from keepfast.workspace import stat_cache
from keepfast.workspace.capture import Capture
from keepfast.workspace.marker import show
from keepfast.workspace.scan import Scan
from keepfast.workspace.stat_cache import Cache, peek
from keepfast.workspace.stat_cache_writer import renew, store

if TYPE_CHECKING:
    from keepfast.app.checkpoint import Engine

DAY = 86_400_000_000_000
MARGIN, OTHER_DISK_MARGIN = 10_000_000, 2_500_000_000
"""A file whose ctime is this close to the scan may change again and keep its ctime."""


class Folder:
    """A workspace under its lock: an older scan can never become a newer version."""

    def __init__(self, engine: Engine, root: bytes, workspace: str, reading: bool = False) -> None:
        self.engine, self.root, self.workspace, self.reading = engine, root, workspace, reading
        self.capture = capture_rules(engine, root)
        self.fd = self.lock = -1
        self._cache: Cache | None = None
        self.full_scan_at = 0
        self.now = 0
        self.began = 0
        """When the lock was taken, by the clock that stamps files; `now` is that less a margin."""

    def __enter__(self) -> Folder:
        self.engine.place.id()  # raises if the store is unreachable or newer, before anything is changed
        folder = self.engine.place.folder(self.workspace)
        try:
            self._take_lock(folder)
            try:
                self.fd = open_fd(self.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            except OSError as error:
                raise Failed(f"{show(self.root)} cannot be opened: {error.strerror}.") from None
            self.now = self._file_clock()
            self._cache = None
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (self.fd, self.lock):
            if fd >= 0:
                close(fd)
        self.fd = self.lock = -1

    def _take_lock(self, folder: str) -> None:
        try:
            try:
                self.lock = open_fd(folder + "/lock", O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
            except FileNotFoundError:
                make_folder(folder.rpartition("/")[0])  # checkpoints are not in this folder: it may be made again
                make_folder(folder)
                self.lock = open_fd(folder + "/lock", O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        except OSError:
            if not self.reading:
                raise
            return  # a read-only store cannot get a newer version meanwhile
        wait_for(self.lock, "this workspace")

    def _file_clock(self) -> int:
        """Return the time of the clock that stamps files, less a margin."""
        if self.lock < 0:
            self.began = self.engine.clock()
            return self.began - OTHER_DISK_MARGIN
        utime(self.lock)
        status = fstat(self.lock)
        self.began = status.st_mtime_ns
        return status.st_mtime_ns - (MARGIN if status.st_dev == fstat(self.fd).st_dev else OTHER_DISK_MARGIN)

    def identity(self) -> bytes:
        """Return everything that must be unchanged for the cache to describe the newest version."""
        status = fstat(self.fd)
        size, head = self.engine.place.head(self.workspace)
        try:
            rules = stat(self.root + b"/.git/info/exclude")
            exclude = f"{rules.st_ctime_ns} {rules.st_size} {rules.st_ino}"
        except OSError:
            exclude = "-"
        # The user id, because another user may be able to read more files.
        text = (
            f"{self.engine.place.id()} {status.st_dev} {status.st_ino} {geteuid()} {size} {head.decode('ascii', 'replace')}"
            f" {exclude}"
        )
        return text.encode("utf-8") + b"\n" + self.root + b"\n" + self.capture.text

    @property
    def cache(self) -> Cache | None:
        if self._cache is None:
            self._cache = stat_cache.load(self._cache_path())
        return self._cache

    def _cache_path(self) -> str:
        return self.engine.place.folder(self.workspace) + "/cache"

    def fresh(self) -> Cache | None:
        """Return the cache if it describes the newest version of this very folder."""
        cache = self.cache
        return cache if cache is not None and self._is_fresh(cache.identity, cache.full_scan_at) else None

    def look_up(self) -> None:
        """Check whether the cache is fresh without reading it: for a large tree that takes longer than saving a file."""
        cache_head = peek(self._cache_path())
        if cache_head is not None:
            self._is_fresh(*cache_head)

    def _is_fresh(self, identity: bytes, full_scan_at: int) -> bool:
        if identity.partition(b"\n")[2] != self.identity():
            return False
        if not 0 <= self.now - full_scan_at < DAY:
            return False  # once a day everything is scanned, whatever the folders' times say
        self.full_scan_at = full_scan_at
        return True

    def renew(self, document: bytes, saved: tuple[bytes, ...]) -> None:
        """Update the cache after a save of some paths: it still holds for all others."""
        if self.full_scan_at:
            try:
                renew(self._cache_path(), document.hex().encode("ascii") + b"\n" + self.identity(), saved)
            except OSError:
                pass  # the next save scans everything

    def recording(self, commit: Callable[[], object]) -> None:
        """Commit a record that makes no version, and update the cache: it still describes the newest version."""
        cache_head = peek(self._cache_path())
        holds = cache_head is not None and self._is_fresh(*cache_head)
        commit()
        if cache_head is not None and holds:
            document = cache_head[0].partition(b"\n")[0]
            try:
                renew(self._cache_path(), document + b"\n" + self.identity(), ())
            except OSError:
                pass  # the next save scans everything

    def vouching(self, document: bytes) -> Cache | None:
        """Return an older cache of this folder, which tells which files are unchanged, if it describes this document.

        Not one of another document: a folder may have been swapped for another, saved, and swapped back.
        """
        cache = self.cache
        if cache is None:
            return None
        document_hex, _, identity = cache.identity.partition(b"\n")
        same = identity.split(b" ", 4)[:4] == self.identity().split(b" ", 4)[:4]
        return cache if same and document_hex == document.hex().encode("ascii") else None

    def remember(self, scan: Scan, document: bytes) -> None:
        """Write the stat cache of this version. If that fails, the next save scans everything."""
        try:
            store(
                self._cache_path(),
                document.hex().encode("ascii") + b"\n" + self.identity(),
                self.full_scan_at,
                scan.columns,
                scan.names if scan.text is None else scan.text,
                scan.paths,
                scan.marks,
            )
        except OSError:
            pass  # the checkpoint is saved; a cache is not worth an error


def wait_for(fd: int, what: str) -> None:
    """Take the lock on an open file; `what` is locked by it. Raises `Busy` as `take_lock` does."""
    if WAITING.seconds is None:
        stat_cache.lock(fd)
        return
    take_lock(fd, what)


def capture_rules(engine: Engine, root: bytes) -> Capture:
    """Return the rules for what lies below `root`: settings, other workspaces and stores."""
    settings = engine.settings
    try:
        store = stat(engine.place.path)
    except OSError:
        store = None
    prefix, own = root.rstrip(b"/") + b"/", list(engine.place.registered())
    others = [
        (path, identity) for path, identity in read_store_list(engine.place.list).items() if path != engine.place.path
    ]
    away = [(path, identity) for path, identity in others if id_or_empty(path) != identity]
    for other in others:
        if other not in away:
            own += [path for _, path in read_pairs(other[0] + "/paths")]
    return Capture(
        own=[path[len(prefix) :] for path in own if path.startswith(prefix)],
        stores=away,
        exclude=settings["capture.exclude"],
        exclude_ignored=settings["capture.exclude_ignored"],
        exclude_marked=settings["capture.exclude_marked"],
        ignored=settings["capture.ignored"],
        ignored_file_size=settings["capture.ignored_file_size"],
        ignored_folder_files=settings["capture.ignored_folder_files"],
        max_file_size=settings["capture.max_file_size"],
        max_files=settings["capture.max_files"],
        accelerated=settings["capture.accelerator"],
        store=(store.st_dev, store.st_ino) if store is not None else None,
    )
