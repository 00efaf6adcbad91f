"""The only orchestration: an event comes in, a checkpoint and an answer come out."""

from __future__ import annotations

from fcntl import LOCK_EX, flock
from posix import O_CLOEXEC, O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR, close, fstat, stat, urandom, utime
from posix import open as open_fd

from holdfast.core.errors import Failed, HoldfastError, NoWorkspace
from holdfast.core.model import CREATED, OUTSIDE, UNCHANGED, Event, Outcome
from holdfast.core.policy import takes
from holdfast.core.steps import step
from holdfast.workspace import cache as stat_cache
from holdfast.workspace.find import find, git_root, identity, refuse, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.core.entry import Entry
    from holdfast.settings import Settings
    from holdfast.store.place import Place
    from holdfast.store.repository import Repository, Saving
    from holdfast.store.rows import WorkspaceRow
    from holdfast.workspace.cache import Cache
    from holdfast.workspace.capture import Capture
    from holdfast.workspace.read import Sink
    from holdfast.workspace.scan import Scan

DAY = 86_400_000_000_000
MARGIN, OTHER_DISK_MARGIN = 10_000_000, 2_500_000_000
"""A file whose ctime is this close to the scan may change again without its ctime moving."""
ATTEMPTS = 5
TOOL = "0.1.0"


class Engine:
    """Everything a front end may ask for. `progress(done, total)` is called during long work."""

    def __init__(self, place: Place, settings: Settings, home: bytes, clock: Callable[[], int]) -> None:
        self.place, self.settings, self.home, self.clock = place, settings, home, clock
        self.progress: Callable[[int, int], None] | None = None
        self._repository: Repository | None = None

    # Saving

    def handle(self, event: Event) -> Outcome:
        """Make a checkpoint if the event deserves one.

        Outside any workspace the outcome says so. Raises a `HoldfastError` where saving was due and failed.
        """
        found = self.locate(event.cwd, adopt=event.adopt)
        if found is None:
            return Outcome(OUTSIDE)
        root, workspace = found
        try:
            return self._handle(event, root, workspace)
        except OSError as error:
            from holdfast.store.local import explain

            raise explain(error, "Saving", self.place.path) from None

    def _handle(self, event: Event, root: bytes, workspace: str) -> Outcome:
        with _Folder(self, root, workspace) as folder:
            fresh = folder.fresh()
            changes: Any = None
            if fresh is not None:
                changes = stat_cache.check(fresh, folder.fd, folder.capture.accelerated)
                if not len(changes[0]) and not len(changes[1]) and not takes(event.trigger, False, False):
                    return Outcome(UNCHANGED, root)
            return self._save(event, folder, changes)

    def _save(self, event: Event, folder: _Folder, changes: Any) -> Outcome:
        from holdfast.store.repository import Swept

        repository = self.repository()
        folder.settle(repository, event.at)
        for _ in range(ATTEMPTS):
            saving = repository.begin(folder.workspace)
            try:
                return self._save_once(event, folder, saving, changes)
            except Swept:
                saving.abort()
                changes = None
            except BaseException:
                saving.abort()
                raise
        raise Failed("The workspace kept changing hands while it was saved; nothing was saved.", "Try again.")

    def _save_once(self, event: Event, folder: _Folder, saving: Saving, changes: Any) -> Outcome:
        from holdfast.workspace.git import facts
        from holdfast.workspace.read import capture

        started = self.clock()
        scan = folder.scan(saving, changes)
        step("save:scanned")
        rows = capture(folder.fd, scan, folder.now, saving, self.progress)
        step("save:read")
        changed, old = saving.changes(rows, scan.seen if scan.full else None)
        row = saving.row
        if not takes(event.trigger, bool(changed), row.version == 0):
            saving.abort()
            folder.remember(scan)
            outcome = Outcome(UNCHANGED, folder.root)
            outcome.notices = scan.notices
            return outcome
        git = facts(folder.root)
        header = {
            "id": _new_id(event.at),
            "created_at": event.at,
            "event_at": event.at,
            "scan_started": started,
            "scan_ended": self.clock(),
            "trigger": event.trigger,
            "created_by": event.created_by,
            "message": event.message,
            "name": event.name or None,
            "tags": list(event.tags),
            "pinned": event.pinned,
            "session": event.session or None,
            "task": event.task or None,
            "cwd": event.cwd[len(folder.root) + 1 :].decode("utf-8", "surrogateescape"),
            "git": {"branch": git.branch, "commit": git.commit, "in_progress": git.in_progress}
            if git is not None
            else None,
            "notices": scan.notices,
            "tool": TOOL,
        }
        checkpoint = saving.finish(header, changed, old)
        folder.remember(scan)
        step("save:remembered")
        outcome = Outcome(CREATED, folder.root, version=checkpoint.version, id=checkpoint.id, message=event.message)
        outcome.checkpoint = checkpoint
        outcome.notices = scan.notices
        return outcome

    # Looking

    def look(self, root: bytes, workspace: str, sink: Sink) -> tuple[list[Entry], dict[bytes, Entry], list[str]]:
        """Return the rows that a save would record now, the rows they replace, and what was odd about the tree.

        Contents go to the sink, which need not keep them. Nothing is written, the stat cache included.
        """
        from holdfast.workspace.read import capture

        try:
            with _Folder(self, root, workspace, reading=True) as folder:
                fresh = folder.fresh()
                changes: Any = None
                if fresh is not None:
                    changes = stat_cache.check(fresh, folder.fd, folder.capture.accelerated)
                    if not len(changes[0]) and not len(changes[1]):
                        return [], {}, []
                saving = self.repository().begin(workspace)
                scan = folder.scan(saving, changes)
                rows = capture(folder.fd, scan, folder.now, sink, self.progress)
                return *saving.changes(rows, scan.seen if scan.full else None), scan.notices
        except OSError as error:
            raise Failed(f"{show(root)} could not be looked at: {error.strerror or error}.") from None

    def note(self, cwd: bytes, kind: str, trigger: str, text: str) -> bool:
        """Keep for `status` what was skipped or failed; False if it cannot be kept, or concerns no workspace."""
        from holdfast.store.notices import append

        try:
            found = find(cwd)
        except HoldfastError:
            return False
        return found is not None and append(self.notice_folders(*found), self.clock(), kind, trigger, text)

    def notice_folders(self, root: bytes, workspace: str) -> list[str]:
        """Where notices go: the store, or the marker's folder while the store is out of reach."""
        return [self.place.folder(workspace), (root + b"/.holdfast").decode("utf-8", "surrogateescape")]

    # Finding

    def repository(self) -> Repository:
        if self._repository is None:
            self._repository = self.place.open()
        return self._repository

    def locate(self, cwd: bytes, *, adopt: bool = False) -> tuple[bytes, str] | None:
        """Return root and id of the workspace that `cwd` lies in; `adopt` lets the setting of that name make one."""
        found = find(cwd)
        if found is not None:
            return found
        registered, folder = self.place.registered(), cwd
        while registered:
            if folder in registered and identity(folder) is None:
                self._mark(folder, registered[folder])  # the marker was wiped; the path is known
                return folder, registered[folder]
            if folder in (b"/", b""):
                break
            folder = folder.rpartition(b"/")[0] or b"/"
        if not adopt:
            return None
        mode = self.settings["adopt"]
        root = git_root(cwd) if mode == "git" else cwd if mode == "any" else None
        if root is None:
            return None
        return root, self.init(root)

    def root(self, cwd: bytes) -> tuple[bytes, WorkspaceRow]:
        """Return root and row of the workspace that `cwd` lies in. Raises `NoWorkspace`."""
        found = self.locate(cwd)
        if found is None:
            raise NoWorkspace(f"{show(cwd)} is not in a workspace.")
        row = self.repository().workspace(found[1])
        if row is None:
            row = self._register(self.repository(), found[1], found[0], self.clock())
        return found[0], row

    def init(self, root: bytes) -> str:
        """Adopt the folder: its own workspace in the store, its marker in the folder. Returns the workspace's id."""
        refuse(root, self.home)
        workspace = identity(root)
        repository = self._repository = self.place.create()
        if workspace is None:
            workspace = self.place.registered().get(root) or urandom(16).hex()
        self._mark(root, workspace)
        if repository.workspace(workspace) is None:
            self._register(repository, workspace, root, self.clock())
        return workspace

    def _register(
        self, repository: Repository, workspace: str, root: bytes, now: int, parent: str = ""
    ) -> WorkspaceRow:
        row = repository.register(workspace, root, now, parent)
        self.place.list_paths([(known.id, known.path) for known in repository.ledger.workspaces()])
        return row

    def _mark(self, root: bytes, workspace: str) -> None:
        """Write the folder's marker: an id, and a rule that keeps all of it out of git."""
        from posix import mkdir

        from holdfast.core.light_json import dumps
        from holdfast.store.local import replace

        folder = (root + b"/.holdfast").decode("utf-8", "surrogateescape")
        try:
            try:
                mkdir(folder, 0o755)
            except FileExistsError:
                pass
            text = dumps({"id": workspace, "store": self.place.path})
            replace(folder + "/.gitignore", b"*\n", durable=False)
            replace(folder + "/workspace.json", text.encode("ascii") + b"\n", durable=False)
        except OSError as error:
            raise Failed(
                f"{show(root)} cannot be marked as a workspace: {error.strerror}.", "Check who may write there."
            ) from None

    def close(self) -> None:
        if self._repository is not None:
            self._repository.close()
            self._repository = None


class _Folder:
    """One workspace under its own lock: an older scan can never become a newer version."""

    def __init__(self, engine: Engine, root: bytes, workspace: str, reading: bool = False) -> None:
        self.engine, self.root, self.workspace, self.reading = engine, root, workspace, reading
        self.capture = _capture(engine, root)
        self.fd = self.lock = -1
        self.cache: Cache | None = None
        self.full_scan_at = 0
        self.now = 0

    def __enter__(self) -> _Folder:
        self.engine.place.id()  # an unreachable or newer store is named before anything is touched
        folder = self.engine.place.folder(self.workspace)
        try:
            self._take_lock(folder)
            try:
                self.fd = open_fd(self.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            except OSError as error:
                raise Failed(f"{show(self.root)} cannot be opened: {error.strerror}.") from None
            self.now = self._file_clock()
            self.cache = stat_cache.load(folder + "/cache")
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
                from holdfast.store.local import make_folder

                make_folder(folder)
                self.lock = open_fd(folder + "/lock", O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        except OSError:
            if not self.reading:
                raise
            return  # a store that cannot be written cannot get a newer version while we look
        flock(self.lock, LOCK_EX)

    def _file_clock(self) -> int:
        """The kernel's idea of now, as it stamps files, less a margin."""
        if self.lock < 0:
            return self.engine.clock() - OTHER_DISK_MARGIN
        utime(self.lock)
        touched = fstat(self.lock)
        return touched.st_mtime_ns - (MARGIN if touched.st_dev == fstat(self.fd).st_dev else OTHER_DISK_MARGIN)

    def identity(self) -> bytes:
        """Whatever must be equal for the cache to speak of the newest version."""
        here = fstat(self.fd)
        size, head = self.engine.place.head(self.workspace)
        try:
            rules = stat(self.root + b"/.git/info/exclude")
            exclude = f"{rules.st_mtime_ns} {rules.st_size} {rules.st_ino}"
        except OSError:
            exclude = "-"
        text = (
            f"{self.engine.place.id()} {size} {head.decode('ascii', 'replace')} {here.st_dev} {here.st_ino} {exclude}"
        )
        return text.encode("ascii") + b"\n" + self.root + b"\n" + self.capture.text

    def fresh(self) -> Cache | None:
        """The cache, if it belongs to the newest version of this very folder."""
        cache = self.cache
        if cache is None or cache.identity != self.identity():
            return None
        if not 0 <= self.now - cache.full_scan_at < DAY:
            return None  # once a day everything is looked at, whatever the folders' times say
        self.full_scan_at = cache.full_scan_at
        return cache

    def settle(self, repository: Repository, now: int) -> None:
        """See to it that the store knows this folder: a moved one is followed, a copied one becomes its own."""
        row = repository.workspace(self.workspace)
        if row is not None and row.path == self.root:
            return
        engine = self.engine
        if row is None:
            engine._register(repository, self.workspace, self.root, now)
        elif _elsewhere(row.path, self.root, self.workspace):
            parent, self.workspace = self.workspace, urandom(16).hex()
            engine._mark(self.root, self.workspace)
            engine._register(repository, self.workspace, self.root, now, parent)
            self.__exit__()
            self.__enter__()
        else:
            engine._register(repository, self.workspace, self.root, now)

    def scan(self, saving: Saving, changes: Any) -> Scan:
        from holdfast.workspace import scan

        if changes is not None and self.cache is not None and not saving.whole:
            found = scan.recheck(self.fd, self.cache, self.capture, self.now, *changes)
            if found is not None:
                return found
        state = saving.state()
        self.full_scan_at = self.now
        return scan.walk(
            self.fd, self._vouching(), self.capture, self.now, lambda path: path in state and state[path].kind in "fl"
        )

    def _vouching(self) -> Cache | None:
        """An older cache of this very folder still knows which files have not been touched since."""
        cache = self.cache
        if cache is None:
            return None
        old, new = cache.identity.split(b" ", 5), self.identity().split(b" ", 5)
        same = len(old) == 6 and (old[0], old[3], old[4]) == (new[0], new[3], new[4])
        return cache if same and cache.identity.split(b"\n")[1:2] == [self.root] else None

    def remember(self, scan: Scan) -> None:
        """Write the stat cache. It may fail: the next save then looks at everything."""
        try:
            stat_cache.store(
                self.engine.place.folder(self.workspace) + "/cache",
                self.identity(),
                self.full_scan_at,
                scan.columns,
                scan.names,
                scan.paths,
                scan.marks,
            )
        except OSError:
            pass  # a disk that is full here was not full for the checkpoint; a cache is not worth an error


def _elsewhere(path: bytes, root: bytes, workspace: str) -> bool:
    """Is there, at the path we knew, another folder with the same id?"""
    try:
        there, here = stat(path), stat(root)
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino) and identity(path) == workspace
    except (OSError, HoldfastError):
        return False


def _capture(engine: Engine, root: bytes) -> Capture:
    from holdfast.workspace.capture import Capture

    settings = engine.settings
    store = engine.place.path.encode("utf-8", "surrogateescape")
    return Capture(
        exclude=settings["capture.exclude"],
        exclude_ignored=settings["capture.exclude_ignored"],
        exclude_marked=settings["capture.exclude_marked"],
        ignored=settings["capture.ignored"],
        ignored_file_size=settings["capture.ignored_file_size"],
        ignored_folder_files=settings["capture.ignored_folder_files"],
        max_file_size=settings["capture.max_file_size"],
        max_files=settings["capture.max_files"],
        accelerated=settings["capture.accelerator"],
        outside=store[len(root) + 1 :] if store.startswith(root + b"/") else b"",
    )


def _new_id(now: int) -> str:
    from holdfast.core.ids import checkpoint_id

    return checkpoint_id(now, urandom(10))
