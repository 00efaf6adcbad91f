"""The only orchestration: an event comes in, a checkpoint and an answer come out."""

from __future__ import annotations

from posix import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close, urandom
from posix import open as open_fd

from holdfast.core.errors import Failed, HoldfastError, NoWorkspace
from holdfast.core.model import OUTSIDE, UNCHANGED, Event, Outcome, takes
from holdfast.guarding import Folder
from holdfast.workspace import cache as stat_cache
from holdfast.workspace.find import find, git_root, identity, is_refused, refuse, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.core.entry import Entry
    from holdfast.settings import Settings
    from holdfast.store.place import Place
    from holdfast.store.repository import Repository
    from holdfast.store.rows import WorkspaceRow
    from holdfast.workspace.read import Sink


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
        with Folder(self, root, workspace) as folder:
            changes: Any = None
            if event.only:
                folder.look_up()
            elif (fresh := folder.fresh()) is not None:
                changes = stat_cache.check(fresh, folder.fd, folder.capture.accelerated)
                if not len(changes[0]) and not len(changes[1]) and not takes(event.trigger, False, False):
                    return Outcome(UNCHANGED, root)
            from holdfast.making import make

            return make(self, event, folder, changes)

    def compose(self, event: Event, root: bytes, workspace: str, contents: dict[bytes, bytes]) -> Any:
        """Make a version that is the newest one with other contents for some files. Nothing on disk is looked at."""
        from holdfast.making import compose

        return compose(self, event, root, workspace, contents)

    # Looking

    def look(
        self, root: bytes, workspace: str, sink: Sink, only: tuple[bytes, ...] = ()
    ) -> tuple[list[Entry], dict[bytes, Entry], list[str]]:
        """Return the rows that a save would record now, the rows they replace, and what was odd about the tree.

        Contents go to the sink, which need not keep them. Nothing is written, the stat cache included.
        """
        from holdfast.making import look

        return look(self, root, workspace, sink, only)

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
            stat_cache.lock(lock)
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
