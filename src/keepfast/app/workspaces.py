"""The workspaces of a store: which one a folder belongs to, and how a folder becomes one, is registered, marked and moved."""

from __future__ import annotations

from collections.abc import Callable
from os import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close, mkdir, stat, urandom
from os import open as open_fd
from typing import TYPE_CHECKING

from keepfast.app.workspace_lock import wait_for
from keepfast.fsutil.durable import replace_in, sync_folder
from keepfast.model.errors import (
    Elsewhere,
    Failed,
    KeepfastError,
    MissingStore,
    NoWorkspace,
    OtherStore,
    Refused,
    Usage,
)
from keepfast.model.strict_json import dumps
from keepfast.secrets.light_redaction import without_secrets
from keepfast.settings import STORE_FLAGS, Settings
from keepfast.settings.ownership import (
    ELSEWHERE,
    HERE,
    LOST,
    UNKNOWN,
    find,
    find_foreign,
    is_foreign,
    is_genuine_store,
    judge,
    lost_store_path,
    names_known_store,
)
from keepfast.state.notices import append, read
from keepfast.store.known_stores import (
    add_store,
    drop_folder,
    note_folder,
    note_folders,
    note_protected,
    read_unprotected,
)
from keepfast.store.place import Place
from keepfast.store.repository import Repository
from keepfast.store.rows import Query, WorkspaceRow
from keepfast.store.small_files import missing_store, read_folder_list, read_store_list
from keepfast.workspace.adoption import is_large, refuse_whole, root_for
from keepfast.workspace.marker import MARKER, Marker, identity, is_same_folder, marker, obstacle, open_marker, show
from keepfast.workspace.stat_cache import peek

if TYPE_CHECKING:
    from keepfast.app.checkpoint import LazyRepository

QUICK_COUNT_SECONDS = 0.2
"""For how long a folder's entries are counted before an event other than a session's start adopts it."""
DAY = 86_400_000_000_000
MAX_PATH_CHARS = 300


class Workspaces:
    """The workspaces of the store at `place`. The engine owns one of these; `Engine.handle` makes their checkpoints."""

    def __init__(
        self, place: Place, settings: Settings, home: bytes, clock: Callable[[], int], repository: LazyRepository
    ) -> None:
        self.place, self.settings, self.home, self.clock = place, settings, home, clock
        self.repository = repository
        self.renewed = b""
        """A folder whose marker was another folder's and was rewritten. Front ends report it."""

    # Finding

    def nearest(self, cwd: bytes) -> tuple[bytes, str] | None:
        """Return root and id of the workspace around `cwd`, from small files only: the store is not opened, nothing is raised."""
        location = find(cwd, self.place.path, self.place.list)
        return (location[0], location[1]) if location is not None and location[2] in (HERE, LOST) else None

    def locate(self, cwd: bytes, *, adopt: bool = False) -> tuple[bytes, str] | None:
        """Return root and id of the workspace that `cwd` lies in; `adopt` lets the setting of that name make one.

        Raises what `find_workspace` raises.
        """
        location = self.find_workspace(cwd, adopting=adopt)
        if location is not None or not adopt:
            return location
        try:
            return self.adopt(cwd)
        except Refused:
            return None  # the start of a session and `status` say why

    def root(self, cwd: bytes) -> tuple[bytes, WorkspaceRow]:
        """Return root and row of the workspace that `cwd` lies in. Raises `NoWorkspace`."""
        location = self.locate(cwd)
        if location is None:
            raise NoWorkspace(f"{show(cwd)} is not inside a workspace.")
        row = self.repository.get().workspace(location[1])
        if row is None:
            row = self.register(self.repository.get(), location[1], location[0], self.clock())
        return location[0], row

    def find_workspace(self, cwd: bytes, *, adopting: bool = False) -> tuple[bytes, str] | None:
        """Return root and id of the workspace around `cwd`, or None. `adopting`: the caller makes one if there is none.

        Raises `MissingStore` if the store of that workspace is missing, `Usage` if it is another store than this one, and
        `Elsewhere` if its history belongs to another folder and no other workspace is around it. Unless `adopting`, also what
        `require_known_store` raises.
        """
        registered, folder = self.place.registered(), cwd
        while True:
            try:
                workspace = self.workspace_at(folder, registered.get(folder, ""))
            except Elsewhere:
                if not self._is_within(folder):
                    raise
                workspace = ""  # an ordinary folder of the workspace around it, with a marker that was copied in
            if workspace:
                return folder, workspace
            if folder in (b"/", b""):
                break
            folder = folder.rpartition(b"/")[0] or b"/"
        if not adopting:
            if self.place.expected:
                self._refuse_if_missing()
            self.require_known_store(cwd)
        return None

    def _is_within(self, folder: bytes) -> bool:
        """Return whether the folder lies below the root of a workspace."""
        return folder not in (b"/", b"") and self.nearest(folder.rpartition(b"/")[0] or b"/") is not None

    def workspace_at(self, folder: bytes, registered: str) -> str:
        """Return the id of the workspace whose root is this folder, else nothing. `registered`: the id listed for its path.

        Raises as `find_workspace` does, and `Elsewhere` also if another workspace is around the folder.
        """
        folder_marker = marker(folder)
        if folder_marker is not None:
            verdict = judge(folder, folder_marker, self.place.path, self.place.list)
            if self._is_store_relevant(folder_marker, verdict) and not (
                verdict == ELSEWHERE and (registered or self._is_within(folder))
            ):
                self.place.check_marker(*folder_marker)
            if verdict in (HERE, LOST):
                return folder_marker[0]
            if self._belongs_to(folder, folder_marker[0], registered):
                return folder_marker[0]
        if registered and (
            folder_marker is None or not is_foreign(folder, folder_marker, self.place.path, self.place.list)
        ):
            self._restore_marker(folder, registered)
            self.renewed = folder if folder_marker is not None else self.renewed
        return registered

    def _is_store_relevant(self, folder_marker: Marker, verdict: str) -> bool:
        """Return whether the marker's store must be checked.

        Not if nobody vouches for it, nor if the marker has the id of another folder and names a store that this user has not used:
        then the folder is treated as one without a marker.
        """
        if verdict == ELSEWHERE:
            return names_known_store(folder_marker, self.place.path, self.place.list)
        return verdict != UNKNOWN

    def _belongs_to(self, folder: bytes, workspace: str, registered: str) -> bool:
        """Return whether this is the folder of that workspace; False if the store does not know it. Raises `Elsewhere`."""
        try:
            repository = self.repository.get()
        except NoWorkspace:
            return False
        row = repository.workspace(workspace)
        if row is None:
            return False
        if row.path == folder or is_same_folder(row.path, folder):
            self._list_paths(repository)  # the list was lost, or is older than the ledger
            return True
        if self._prefers_path(registered, folder, row):
            return False
        raise self._elsewhere_error(folder, row)

    def _prefers_path(self, registered: str, folder: bytes, row: WorkspaceRow) -> bool:
        """Return whether the path under which the folder is registered counts, and not its marker, which is that of `row`.

        Not where the folder may have been moved to this path: then the user decides whose history it continues.
        """
        if not registered:
            return False
        if row.parent == registered:
            return True  # it moved, got a separate history, and moved back
        return _is_original(row) or self._was_saved(registered, folder)

    def _was_saved(self, workspace: str, folder: bytes) -> bool:
        """Return whether this is the folder, by device and inode, that the last save of the workspace read."""
        cache_head = peek(self.place.folder(workspace) + "/cache")
        try:
            here = stat(folder)
        except OSError:
            return False
        saved = cache_head[0].partition(b"\n")[2].split(b" ", 3)[1:3] if cache_head is not None else []
        return saved == [b"%d" % here.st_dev, b"%d" % here.st_ino]

    def _elsewhere_error(self, root: bytes, row: WorkspaceRow) -> Elsewhere:
        copied = _is_original(row)
        if copied:
            message = f"{show(root)} is a copy of {show(row.path)}, whose checkpoints these are."
            hint = f"Run it in {show(row.path)}. To start a separate history here, run `keepfast save`."
        else:
            was = (
                f"those of {show(row.path)}, which does not exist"
                if row.path
                else "those of a folder that is not protected"
            )
            message = f"The checkpoints that the marker in {show(root)} names are {was}."
            hint = (
                "If you moved the folder, run `keepfast init --moved`. To start a separate history, run "
                "`keepfast save`."
            )
        return Elsewhere(message, hint, root, row.id, copied)

    def _refuse_if_missing(self) -> None:
        """Raise `MissingStore` if the store is missing: then its list of folders is unknown, too."""
        try:
            self.place.id()
        except MissingStore:
            raise
        except KeepfastError:
            pass  # reported when the store is opened

    def require_known_store(self, cwd: bytes) -> None:
        """Raise `OtherStore` or `MissingStore` if the nearest marker names a store that this user has not used.

        The marker may have come with a cloned repository: that store is not opened. It may also be the user's own, moved: so this
        is an error and not "no history".
        """
        strange_marker = find_foreign(cwd, self.place.path, self.place.list)
        if strange_marker is not None:
            raise self._other_store_error(*strange_marker)

    def _other_store_error(self, root: bytes, folder_marker: Marker) -> KeepfastError:
        path = show(folder_marker[1].encode("utf-8", "surrogateescape"))
        advice = "To start a new history here, run `keepfast init --new-store`."
        if not is_genuine_store(folder_marker, self.home):
            message = f"The marker in {show(root)} names a store that does not exist here: {shortened_path(path)}."
            hint = (
                "If it is yours, mount it, or set HOME and XDG_DATA_HOME to the values they had when the "
                "folder was protected"
            )
            return MissingStore(message, f"{hint}. {advice}")
        data = folder_marker[1].removesuffix("/keepfast/store")
        way = f"set XDG_DATA_HOME={data}, or give" if data != folder_marker[1] else "give"
        return OtherStore(
            f"The checkpoints of {show(root)} are in the store {path}, but this command uses {self.place.path}.",
            f"If it is yours, {way} --store {path}. {advice}",
        )

    def other_store(self, root: bytes) -> str:
        """Return the store that the folder's marker names, if this store protects the folder by its path; else nothing.

        `?` stands for one that is missing or not this user's: its path, written by anybody, is not shown.
        """
        folder_marker = marker(root)
        if folder_marker is None or not is_foreign(root, folder_marker, self.place.path, self.place.list):
            return ""
        return (
            show(folder_marker[1].encode("utf-8", "surrogateescape"))
            if is_genuine_store(folder_marker, self.home)
            else "?"
        )

    # Making

    def adopt(self, cwd: bytes, project: bytes = b"", most: int = 0) -> tuple[bytes, str] | None:
        """Make a workspace for a session in `cwd` if the setting `adopt` asks for one; else return None.

        `most`: do not adopt a folder with more entries, whether or not a save would include them. Raises `Refused` for a folder
        that is more than a project. In one with too many files only what commands name is saved; the first full save reports that.
        """
        mode = self.settings["adopt"]
        if mode not in ("any", "git"):
            return None
        root = root_for(cwd, project, mode, self.home)
        if root is None or self.is_unprotected(root):
            return None
        if most and is_large(root, self.settings["capture.exclude"], most, QUICK_COUNT_SECONDS) is not False:
            return None
        return root, self.init(root, by_path=True)

    def is_unprotected(self, root: bytes) -> bool:
        """Return whether the user stopped protecting this folder, or one above it."""
        listed, folder = read_unprotected(self.place.unprotected), root
        while listed and folder not in listed and folder not in (b"/", b""):
            folder = folder.rpartition(b"/")[0] or b"/"
        return folder in listed

    def protect_separately(self, elsewhere: Elsewhere) -> tuple[bytes, str]:
        """Make the folder a workspace of its own, so that it is protected until the user decides whose history it continues."""
        return elsewhere.root, self.init(elsewhere.root, by_path=True)

    def init(self, root: bytes, new_store: bool = False, by_path: bool = False) -> str:
        """Make the folder a workspace: register it in the store and write its marker. Return the workspace's id.

        `new_store`: use this store from now on, even if the one before is missing. `by_path`: the listing of the path suffices if
        the marker's place is blocked or has the marker of another store. Raises what `require_known_store` raises.
        """
        refuse_whole(root, self.home)
        # The marker of another store is kept until the user decides: it leads to that store's history.
        is_others = not new_store and self._names_other_store(root, by_path)
        repository = self.repository.create(new_store)
        # Two hooks may adopt the same folder at once: the second must find the marker of the first.
        lock = self._lock_registry()
        try:
            own, parent = self._own_and_parent(repository, root)
            workspace = own or self._former_or_new_id(repository, root)
            # Registered first: a process that reads the new marker must find the folder in the store.
            row = repository.workspace(workspace)
            is_new = row is None or not row.path
            if is_new:
                self.register(repository, workspace, root, self.clock(), parent if parent != workspace else "")
            unmarked = ""
            if is_others or (by_path and obstacle(root)):
                self.list_store(root, workspace)
            elif by_path:
                unmarked = self._mark_if_possible(root, workspace)
            else:
                try:
                    self.mark(root, workspace)
                except Failed:
                    if is_new:  # the command failed: the folder is not protected
                        self.register(repository, workspace, b"", self.clock())
                    raise
            self._note_protected(root)
            if unmarked:
                self.note_once(root, "noticed", "marker", unmarked)
        finally:
            close(lock)
        return workspace

    def _names_other_store(self, root: bytes, by_path: bool) -> bool:
        """Return whether the marker names another store, which is an error unless `by_path`. A store that moved is admitted."""
        folder_marker = marker(root)
        if folder_marker is None:
            self._refuse_lost(root)
            return False
        if self._is_store_relevant(folder_marker, judge(root, folder_marker, self.place.path, self.place.list)):
            self.place.check_marker(*folder_marker, root)
        if not is_foreign(root, folder_marker, self.place.path, self.place.list):
            return False
        if not by_path:
            if self.place.expected:
                self.place.id()
            raise self._other_store_error(root, folder_marker)
        return True

    def _refuse_lost(self, root: bytes) -> None:
        """Raise `MissingStore` if the user's own list names a store for the folder that is out of reach."""
        identity = read_folder_list(self.place.folders).get(root, ("", ""))[0]
        if identity and root not in self.place.registered():
            path = lost_store_path(identity, self.place.path, self.place.list)
            if path:
                raise missing_store(path)

    def _lock_registry(self) -> int:
        """Take the lock for making workspaces; closing the descriptor releases it."""
        lock = open_fd(self.place.path + "/workspaces", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        try:
            wait_for(lock, "the list of workspaces")
        except BaseException:
            close(lock)
            raise
        return lock

    def _own_and_parent(self, repository: Repository, root: bytes) -> tuple[str, str]:
        """Return the folder's id in this store, and the id of the folder it was copied or moved from; either may be empty.

        A marker with an id unknown to this store was written by somebody else, or belongs to another store.
        """
        folder_marker, registered = marker(root), self.place.registered().get(root, "")
        row = repository.workspace(folder_marker[0]) if folder_marker is not None else None
        if row is None:
            return registered, ""
        if row.path == root or is_same_folder(row.path, root):
            return row.id, ""
        return (registered, "") if self._prefers_path(registered, root, row) else ("", row.id)

    def _former_or_new_id(self, repository: Repository, root: bytes) -> str:
        """Return the id that the folder had before the user stopped protecting it, if its history still exists; else a new one."""
        workspace = read_unprotected(self.place.unprotected).get(root, "")
        row = repository.workspace(workspace) if workspace else None
        return workspace if row is not None and not row.path else urandom(16).hex()

    def continue_history(self, root: bytes) -> str:
        """Continue the history of the folder that this one was before it moved; return the workspace's id.

        Raises `Usage` if there is none, and `Elsewhere` in a copy.
        """
        repository = self.repository.get()
        lock = self._lock_registry()
        try:
            row = self._former_workspace(repository, root)
            if _is_original(row):
                raise self._elsewhere_error(root, row)
            self.register(repository, row.id, root, self.clock())
            self.mark(root, row.id)
            self._note_protected(root)
        finally:
            close(lock)
        return row.id

    def _former_workspace(self, repository: Repository, root: bytes) -> WorkspaceRow:
        """Return the workspace that this folder was before it moved; it may have got a separate one since."""
        folder_marker = marker(root)
        row = repository.workspace(folder_marker[0]) if folder_marker is not None else None
        registered = self.place.registered().get(root, "")
        if row is not None and self._prefers_path(registered, root, row):
            row = repository.workspace(registered)
        if row is not None and (row.path == root or is_same_folder(row.path, root)):
            row = repository.workspace(row.parent) if row.parent and not self._is_fork(repository, row) else None
        if row is None:
            raise Usage(f"{show(root)} has no former history to continue.", "Run `keepfast init` without --moved.")
        return row

    def _is_fork(self, repository: Repository, row: WorkspaceRow) -> bool:
        return bool(repository.find(Query(workspace=row.id, trigger="fork", forgotten=True, limit=1)))

    def _note_protected(self, root: bytes) -> None:
        try:
            note_protected(self.place.unprotected, root)
        except OSError as error:
            raise Failed(f"{self.place.unprotected} cannot be written: {error.strerror}.") from None

    # Registering and marking

    def register(self, repository: Repository, workspace: str, root: bytes, now: int, parent: str = "") -> WorkspaceRow:
        row = repository.register(workspace, root, now, parent)
        for other in repository.workspaces():
            if root and other.path == root and other.id != workspace:
                repository.register(other.id, b"", now)  # that folder is gone: this one has its path
        self._list_paths(repository)
        return row

    def _list_paths(self, repository: Repository) -> None:
        folders = [(row.id, row.path) for row in repository.workspaces()]
        self.place.list_paths(folders)
        if self.place.is_in_data_folder():
            return
        try:
            note_folders(self.place.folders, repository.id, folders)
        except OSError:
            pass  # the next save notes the folder again

    def mark(self, root: bytes, workspace: str) -> None:
        """Write the folder's marker: ids of workspace and store, and a `.gitignore` that hides it from git."""
        store = self.place.id()
        self._list_store_or_fail(root, workspace)
        try:
            try:
                mkdir(root + b"/" + MARKER, 0o755)
            except FileExistsError:
                pass  # a link that came with a cloned repository is not opened
            folder = open_marker(root)
            try:
                text = dumps({"id": workspace, "store": self.place.path, "store_id": store})
                replace_in(folder, ".gitignore", b"*\n", durable=False)
                # Durable: an empty marker after a power cut would stop every hook.
                replace_in(folder, "workspace.json", text.encode("ascii") + b"\n")
            finally:
                close(folder)
            sync_folder(root.decode("utf-8", "surrogateescape"))
        except OSError as error:
            blocking_path = obstacle(root)
            hint = f"Move {show(blocking_path)} elsewhere." if blocking_path else "Check the write permissions."
            raise Failed(f"{show(root)} cannot be marked as a workspace: {error.strerror}.", hint) from None

    def _restore_marker(self, root: bytes, workspace: str) -> None:
        """Write the marker again, which was deleted or overwritten; a failure becomes a notice, as the path is known."""
        unmarked = "" if obstacle(root) else self._mark_if_possible(root, workspace)
        if unmarked:
            self.note_once(root, "noticed", "marker", unmarked)

    def _mark_if_possible(self, root: bytes, workspace: str) -> str:
        """Write the marker; return why it cannot be written, or nothing."""
        try:
            self.mark(root, workspace)
        except Failed as error:
            return f"{error} {error.hint} Until then the folder is identified only by its path."
        return ""

    def list_store(self, root: bytes, workspace: str) -> OSError | None:
        """List the store, and the folder in it, in the user's own data folder; return the error if that cannot be written.

        The lists vouch for the marker, which alone is not trusted, and still name both if the marker or the store is gone.
        """
        store = self.place.id()
        try:
            add_store(self.place.list, self.place.path, store)
            if self.place.is_in_data_folder():
                drop_folder(self.place.folders, root)
            else:
                note_folder(self.place.folders, root, store, workspace)
        except OSError as error:
            return error
        return None

    def _list_store_or_fail(self, root: bytes, workspace: str) -> None:
        """Raise `Failed` if only a flag names the store and no list can be written: the next command would not find the store."""
        error = self.list_store(root, workspace)
        if error is None or self.settings.origins.get("store.url") not in STORE_FLAGS or self.place.is_in_data_folder():
            return  # the store of the settings needs no voucher
        if read_store_list(self.place.list).get(self.place.path) != self.place.id():
            raise Failed(
                f"{self.place.list} cannot be written: {error.strerror}. The next command could not find this store.",
                "Make the data folder writable and run the command again; the folder is not protected in this store yet.",
            )

    # Notices

    def note(self, cwd: bytes, kind: str, trigger: str, text: str, reported: bool = False) -> bool:
        """Record a notice for `status`; return False if it cannot be written or there is no workspace.

        `reported`: the user gets the message now, too.
        """
        location = self.nearest(cwd)
        text = without_secrets(text)
        return location is not None and append(
            self.notice_folders(*location), self.clock(), kind, trigger, text, reported
        )

    def note_once(self, cwd: bytes, kind: str, trigger: str, text: str) -> bool:
        """Record a notice unless the same one is less than a day old."""
        location = self.nearest(cwd)
        notices = read(self.notice_folders(*location)) if location is not None else []
        since = self.clock() - DAY
        if any((notice.kind, notice.text) == (kind, text) and notice.at >= since for notice in notices):
            return True
        return self.note(cwd, kind, trigger, text)

    def notice_folders(self, root: bytes, workspace: str) -> list[str]:
        """Return where notices are written: the store, or the marker's folder while the store is out of reach."""
        return [self.place.folder(workspace), (root + b"/.keepfast").decode("utf-8", "surrogateescape")]


def shortened_path(path: str) -> str:
    """Return the start of a path: a marker, which anybody may have written, can have a very long one."""
    return path if len(path) <= MAX_PATH_CHARS else path[:MAX_PATH_CHARS] + "…"


def _is_original(row: WorkspaceRow) -> bool:
    """Return whether the folder that the store knows still exists, with the workspace's own marker in it."""
    return bool(row.path) and identity(row.path) == row.id
