"""The only orchestration: an event comes in, a checkpoint and an answer come out."""

from __future__ import annotations

from fcntl import LOCK_EX, flock
from posix import O_CLOEXEC, O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR, close, fstat, geteuid, stat, urandom, utime
from posix import open as open_fd

from holdfast.core.errors import Failed, HoldfastError, NoWorkspace
from holdfast.core.model import CREATED, OUTSIDE, UNCHANGED, Event, Outcome
from holdfast.core.policy import takes
from holdfast.core.steps import step
from holdfast.workspace import cache as stat_cache
from holdfast.workspace.find import find, git_root, identity, is_refused, refuse, show

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
    from holdfast.workspace.git import GitFacts
    from holdfast.workspace.read import Sink
    from holdfast.workspace.scan import Scan

DAY = 86_400_000_000_000
MARGIN, OTHER_DISK_MARGIN = 10_000_000, 2_500_000_000
"""A file whose ctime is this close to the scan may change again without its ctime moving."""
ATTEMPTS = 5
MANY_PACKS = 64
AWAITED = frozenset(("before_command", "auto_70", "auto_80", "auto_90"))
MOST_AWAITED = 4 << 20
"""Somebody waits for these saves: of a conversation they take over this much, or leave it to the next one."""
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
            changes: Any = None
            if event.only:
                folder.look_up()
            elif (fresh := folder.fresh()) is not None:
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
        scan = folder.scan_only(event.only, saving) if event.only else folder.scan(saving, changes)
        if event.force:
            folder.force(scan, event.force, saving)
        step("save:scanned")
        rows = capture(folder.fd, scan, folder.now, saving, self.progress)
        step("save:read")
        changed, old = saving.changes(rows, scan.seen if scan.full else None)
        row = saving.row
        if not takes(event.trigger, bool(changed), row.version == 0):
            saving.abort()
            if not event.only:
                folder.remember(scan, row.document)
            outcome = Outcome(UNCHANGED, folder.root)
            outcome.notices = scan.notices
            return outcome
        notices = list(scan.notices)
        conversation = _conversation(event, folder.root, saving, notices) if event.transcript else None
        notices += saving.repository.warnings()
        header = _header(event, folder.root, event.cwd, started, self.clock(), facts(folder.root), notices)
        if conversation is not None:
            header["conversation"] = conversation
        checkpoint = saving.finish(header, changed, old)
        if event.only:
            folder.renew(checkpoint.document, event.only)
        else:
            folder.remember(scan, checkpoint.document)
        step("save:remembered")
        outcome = Outcome(CREATED, folder.root, version=checkpoint.version, id=checkpoint.id, message=header["message"])
        outcome.checkpoint = checkpoint
        packs = len(self.repository().ledger.packs())
        outcome.untidy = packs >= MANY_PACKS and packs % 16 == 0
        outcome.notices = notices
        return outcome

    def compose(self, event: Event, root: bytes, workspace: str, contents: dict[bytes, bytes]) -> Any:
        """Make a version that is the newest one with other contents for some files. Nothing on disk is looked at."""
        with _Folder(self, root, workspace):
            saving = self.repository().begin(workspace)
            try:
                old = self.repository().ledger.current(workspace, list(contents))
                changed = [_filled(old[path], saving, data) for path, data in sorted(contents.items())]
                now = event.at
                header = _header(event, root, root, now, now, None, [])
                return saving.finish(header, changed, old)
            except BaseException:
                saving.abort()
                raise

    # Looking

    def look(
        self, root: bytes, workspace: str, sink: Sink, only: tuple[bytes, ...] = ()
    ) -> tuple[list[Entry], dict[bytes, Entry], list[str]]:
        """Return the rows that a save would record now, the rows they replace, and what was odd about the tree.

        Contents go to the sink, which need not keep them. Nothing is written, the stat cache included.
        """
        from holdfast.workspace.read import capture

        try:
            with _Folder(self, root, workspace, reading=True) as folder:
                changes: Any = None
                if not only and (fresh := folder.fresh()) is not None:
                    changes = stat_cache.check(fresh, folder.fd, folder.capture.accelerated)
                    if not len(changes[0]) and not len(changes[1]):
                        return [], {}, []
                saving = self.repository().begin(workspace)
                scan = folder.scan_only(only, saving) if only else folder.scan(saving, changes)
                rows = capture(folder.fd, scan, folder.now, sink, self.progress)
                return *saving.changes(rows, scan.seen if scan.full else None), scan.notices
        except OSError as error:
            raise Failed(f"{show(root)} could not be looked at: {error.strerror or error}.") from None

    def note(self, cwd: bytes, kind: str, trigger: str, text: str) -> bool:
        """Keep for `status` what was skipped or failed; False if it cannot be kept, or concerns no workspace."""
        from holdfast.core.secrecy import without_secrets
        from holdfast.store.notices import append

        try:
            found = find(cwd)
        except HoldfastError:
            return False
        text = without_secrets(text)
        return found is not None and append(self.notice_folders(*found), self.clock(), kind, trigger, text)

    def notice_folders(self, root: bytes, workspace: str) -> list[str]:
        """Where notices go: the store, or the marker's folder while the store is out of reach."""
        return [self.place.folder(workspace), (root + b"/.holdfast").decode("utf-8", "surrogateescape")]

    # Finding

    def repository(self) -> Repository:
        if self._repository is None:
            self._repository = self.place.open()
        return self._repository

    def create(self) -> Repository:
        """The same, and the store is made if there is none yet."""
        self._repository = self.place.create()
        return self._repository

    def locate(self, cwd: bytes, *, adopt: bool = False) -> tuple[bytes, str] | None:
        """Return root and id of the workspace that `cwd` lies in; `adopt` lets the setting of that name make one."""
        found = find(cwd)
        registered, folder = self.place.registered(), cwd
        while registered and (found is None or folder != found[0]):
            if folder in registered:
                workspace = identity(folder)  # there, if another process adopted the folder since we looked
                if workspace is None:
                    workspace = registered[folder]
                    self.mark(folder, workspace)  # the marker was wiped; the path is known
                return folder, workspace
            if folder in (b"/", b""):
                break
            folder = folder.rpartition(b"/")[0] or b"/"
        if found is not None or not adopt:
            return found
        mode = self.settings["adopt"]
        root = git_root(cwd) if mode == "git" else cwd if mode == "any" else None
        # A home folder under git is nobody's mistake, least of all the agent's; `status` says why it is not protected.
        if root is None or is_refused(root, self.home):
            return None
        return root, self.init(root)

    def root(self, cwd: bytes) -> tuple[bytes, WorkspaceRow]:
        """Return root and row of the workspace that `cwd` lies in. Raises `NoWorkspace`."""
        found = self.locate(cwd)
        if found is None:
            raise NoWorkspace(f"{show(cwd)} is not in a workspace.")
        row = self.repository().workspace(found[1])
        if row is None:
            row = self.register(self.repository(), found[1], found[0], self.clock())
        return found[0], row

    def init(self, root: bytes) -> str:
        """Adopt the folder: its own workspace in the store, its marker in the folder. Returns the workspace's id."""
        refuse(root, self.home)
        repository = self.create()
        # Two hooks may adopt the same folder at once: the second must find the marker of the first.
        lock = open_fd(self.place.path + "/workspaces", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        try:
            flock(lock, LOCK_EX)
            workspace = identity(root) or self.place.registered().get(root) or urandom(16).hex()
            self.mark(root, workspace)
            if repository.workspace(workspace) is None:
                self.register(repository, workspace, root, self.clock())
        finally:
            close(lock)
        return workspace

    def register(self, repository: Repository, workspace: str, root: bytes, now: int, parent: str = "") -> WorkspaceRow:
        row = repository.register(workspace, root, now, parent)
        self.place.list_paths([(known.id, known.path) for known in repository.ledger.workspaces()])
        return row

    def mark(self, root: bytes, workspace: str) -> None:
        """Write the folder's marker: an id, and a rule that keeps all of it out of git."""
        from _stat import S_ISDIR
        from posix import lstat, mkdir

        from holdfast.core.light_json import dumps
        from holdfast.store.local import replace, sync_folder

        folder = (root + b"/.holdfast").decode("utf-8", "surrogateescape")
        try:
            try:
                mkdir(folder, 0o755)
            except FileExistsError:
                # A link that came with a cloned repository must not lead our writing elsewhere.
                if not S_ISDIR(lstat(folder).st_mode):
                    raise
            text = dumps({"id": workspace, "store": self.place.path})
            replace(folder + "/.gitignore", b"*\n", durable=False)
            # Durable: after a power cut an empty marker would stop every hook, and none would begin a new history.
            replace(folder + "/workspace.json", text.encode("ascii") + b"\n")
            sync_folder(root.decode("utf-8", "surrogateescape"))
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
        self.capture = capture_rules(engine)
        self.fd = self.lock = -1
        self._cache: Cache | None = None
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
            exclude = f"{rules.st_ctime_ns} {rules.st_size} {rules.st_ino}"
        except OSError:
            exclude = "-"
        # Another user may read what this one could not.
        text = (
            f"{self.engine.place.id()} {here.st_dev} {here.st_ino} {geteuid()} {size} {head.decode('ascii', 'replace')}"
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
        """The cache, if it belongs to the newest version of this very folder."""
        cache = self.cache
        return cache if cache is not None and self._is_fresh(cache.identity, cache.full_scan_at) else None

    def look_up(self) -> None:
        """Find out whether the cache does, without reading it: of a large tree that takes longer than saving a file."""
        said = stat_cache.peek(self._cache_path())
        if said is not None:
            self._is_fresh(*said)

    def _is_fresh(self, identity: bytes, full_scan_at: int) -> bool:
        if identity.partition(b"\n")[2] != self.identity():
            return False
        if not 0 <= self.now - full_scan_at < DAY:
            return False  # once a day everything is looked at, whatever the folders' times say
        self.full_scan_at = full_scan_at
        return True

    def settle(self, repository: Repository, now: int) -> None:
        """See to it that the store knows this folder: a moved one is followed, a copied one becomes its own."""
        marked = identity(self.root)
        if marked is not None and marked != self.workspace:
            self._become(marked)  # while we waited for the lock, somebody else noticed that this is a copy
        row = repository.workspace(self.workspace)
        if row is not None and row.path == self.root:
            return
        engine = self.engine
        if row is None:
            engine.register(repository, self.workspace, self.root, now)
        elif _elsewhere(row.path, self.root, self.workspace):
            copy = urandom(16).hex()
            engine.register(repository, copy, self.root, now, parent=self.workspace)
            engine.mark(self.root, copy)
            self._become(copy)
        else:
            engine.register(repository, self.workspace, self.root, now)

    def _become(self, workspace: str) -> None:
        self.__exit__()
        self.workspace = workspace
        self.__enter__()

    def scan(self, saving: Saving, changes: Any) -> Scan:
        from holdfast.workspace import scan

        if changes is not None and self.cache is not None and not saving.whole:
            found = scan.recheck(self.fd, self.cache, self.capture, self.now, *changes)
            if found is not None:
                return found
        state = saving.state()
        self.full_scan_at = self.now
        return scan.walk(
            self.fd,
            self._vouching(saving.row.document),
            self.capture,
            self.now,
            lambda path: path in state and state[path].kind in "fl",
        )

    def scan_only(self, paths: tuple[bytes, ...], saving: Saving) -> Scan:
        """Look at these paths and nothing else; folders among them are looked at, not into.

        A path that leads through a link is not there, whatever lies behind the link.
        """
        from _stat import S_ISDIR, S_ISLNK, S_ISREG

        from holdfast.core.entry import BY_NAME, EXCLUDED, FOLDER, SPECIAL
        from holdfast.workspace.below import lstat_below
        from holdfast.workspace.choose import Chooser
        from holdfast.workspace.scan import Scan
        from holdfast.workspace.walk import VANISHED

        found, folders, chooser = Scan(False), {b"": True}, Chooser(self.fd, self.capture)

        def is_folder(path: bytes) -> bool:
            missing = []
            while path not in folders:
                missing.append(path)
                path = path.rpartition(b"/")[0]
            for folder in reversed(missing):
                try:
                    folders[folder] = folders[folder.rpartition(b"/")[0]] and S_ISDIR(
                        lstat_below(self.fd, folder).st_mode
                    )
                except OSError:
                    folders[folder] = False
            return folders[missing[0]] if missing else folders[path]

        for path in paths:
            if chooser.excludes(path):
                continue
            try:
                seen = lstat_below(self.fd, path) if is_folder(path.rpartition(b"/")[0]) else None
            except OSError as error:
                if error.errno not in VANISHED:
                    raise
                seen = None
            if seen is not None and chooser.exclude.match(path, S_ISDIR(seen.st_mode)):
                found.left.append((path, EXCLUDED, BY_NAME, None))
            elif seen is None:
                found.gone.append(path)
            elif S_ISDIR(seen.st_mode):
                found.folders.append((path, seen))
            elif S_ISREG(seen.st_mode) or S_ISLNK(seen.st_mode):
                found.candidates.append((path, seen))
            else:
                found.left.append((path, SPECIAL, 0, seen))
        # With a folder goes all that was known below it.
        ledger, there = saving.repository.ledger, {path for path, _ in found.folders}
        for path, row in ledger.current(self.workspace, [path for path in paths if path not in there]).items():
            if row.kind == FOLDER:
                below = ledger.state(self.workspace, saving.row.version, path)
                found.gone += [known.path for known in below if known.path != path]
        return found

    def force(self, scan: Scan, paths: frozenset[bytes], saving: Saving) -> None:
        """Capture these files although they are, or were, left out."""
        from _stat import S_ISREG

        from holdfast.core.entry import IGNORED, OVERSIZE, UNREADABLE
        from holdfast.workspace.below import lstat_below

        kept, known = [], {path for path, _ in scan.candidates}
        for path, kind, flags, seen in scan.left:
            if path in paths and seen is not None and S_ISREG(seen.st_mode):
                scan.candidates.append((path, seen))
                known.add(path)
            else:
                kept.append((path, kind, flags, seen))
        scan.left[:] = kept
        # What was left out before and has not changed since is not named by the scan.
        for path, row in saving.repository.ledger.current(self.workspace, sorted(paths - known)).items():
            if row.kind not in OVERSIZE + IGNORED + UNREADABLE:
                continue
            try:
                seen = lstat_below(self.fd, path)
            except OSError:
                continue
            if S_ISREG(seen.st_mode):
                scan.candidates.append((path, seen))

    def renew(self, document: bytes, saved: tuple[bytes, ...]) -> None:
        """After a save of some paths the cache still holds for all others."""
        if self.full_scan_at:
            try:
                stat_cache.renew(self._cache_path(), document.hex().encode("ascii") + b"\n" + self.identity(), saved)
            except OSError:
                pass  # the next save looks at everything

    def _vouching(self, document: bytes) -> Cache | None:
        """An older cache of this very folder knows which files were not touched since, if it speaks of this document.

        Of an older one it must not be believed: a folder may have been swapped for another, saved so, and swapped back.
        """
        cache = self.cache
        if cache is None:
            return None
        said, _, old = cache.identity.partition(b"\n")
        same = old.split(b" ", 4)[:4] == self.identity().split(b" ", 4)[:4]
        return cache if same and said == document.hex().encode("ascii") else None

    def remember(self, scan: Scan, document: bytes) -> None:
        """Write the stat cache of this version. It may fail: the next save then looks at everything."""
        try:
            stat_cache.store(
                self._cache_path(),
                document.hex().encode("ascii") + b"\n" + self.identity(),
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


def capture_rules(engine: Engine) -> Capture:
    from holdfast.workspace.capture import Capture

    settings = engine.settings
    try:
        store = stat(engine.place.path)
    except OSError:
        store = None
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
        store=(store.st_dev, store.st_ino) if store is not None else None,
    )


def _conversation(event: Event, root: bytes, saving: Saving, notices: list[str]) -> dict[str, Any] | None:
    """What the header says of the conversation. Whatever is wrong with a transcript, the save goes on."""
    from holdfast.agents.registry import sessions
    from holdfast.store.conversations import MOST, keep, keep_beside, latest

    before = latest(saving.repository, saving.row.id, event.session)
    most = MOST_AWAITED if event.trigger in AWAITED else MOST
    told = sessions(event.agent)
    try:
        kept, newest = keep(saving, event.transcript, before, most)
        if kept is None:
            return before
        beside = keep_beside(saving, event.transcript.removesuffix(".jsonl"), (before or {}).get("beside", []), most)
    except FileNotFoundError:
        return before  # a client makes the file when it has something to say
    except (OSError, HoldfastError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        notices.append(f"The conversation was not kept: {why}.".replace("..", "."))
        return before
    last = told.last_message(newest) if told is not None else ""
    found = {
        "agent": event.agent,
        "session": event.session,
        "path": event.transcript,
        "root": root.decode("utf-8", "surrogateescape"),
        "last": last or (before or {}).get("last", ""),
        **kept,
    }
    return {**found, "beside": beside} if beside else found


def _filled(entry: Entry, saving: Saving, data: bytes) -> Entry:
    """The row with another content."""
    from io import BytesIO

    from holdfast.core.entry import SEALED
    from holdfast.workspace.judge import is_secret

    if entry.flags & SEALED or is_secret(entry.path, data):
        return entry._replace(content=saving.sealed(BytesIO(data).read), size=len(data), flags=entry.flags | SEALED)
    return entry._replace(content=saving.sink(data), size=len(data))


def _header(
    event: Event, root: bytes, cwd: bytes, started: int, ended: int, git: GitFacts | None, notices: list[str]
) -> dict[str, Any]:
    """What a checkpoint says of itself, apart from what the store adds (docs/format/checkpoint.md)."""
    from holdfast.core.secrecy import without_secrets

    header = {
        "id": _new_id(event.at),
        "created_at": event.at,
        "event_at": event.at,
        "scan_started": started,
        "scan_ended": ended,
        "trigger": event.trigger,
        "created_by": event.created_by,
        "message": without_secrets(event.message),
        "name": without_secrets(event.name) or None,
        "tags": [without_secrets(tag) for tag in event.tags],
        "pinned": event.pinned,
        "session": event.session or None,
        "task": event.task or None,
        "cwd": cwd[len(root) + 1 :].decode("utf-8", "surrogateescape"),
        "git": {"branch": git.branch, "commit": git.commit, "in_progress": git.in_progress}
        if git is not None
        else None,
        "notices": [without_secrets(notice) for notice in notices],
        "tool": TOOL,
    }
    # What only agents tell is there only if one did.
    told = {
        "agent": event.agent,
        "summary": without_secrets(event.summary),
        "tokens_used": event.tokens_used,
        "token_budget": event.token_budget,
        "active_files": list(event.active_files),
        "key_points": [without_secrets(point) for point in event.key_points],
        "notes": event.notes,
    }
    header.update({key: value for key, value in told.items() if value})
    return header


def _new_id(now: int) -> str:
    from holdfast.core.ids import checkpoint_id

    return checkpoint_id(now, urandom(10))
