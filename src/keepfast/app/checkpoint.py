"""The only orchestration: an event comes in, a checkpoint and an answer come out."""

from __future__ import annotations

from posix import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close, stat, unlink, urandom
from posix import open as open_fd

from keepfast.app.workspace_lock import Folder, wait_for
from keepfast.model.errors import (
    Elsewhere,
    Failed,
    KeepfastError,
    MissingStore,
    NoWorkspace,
    OtherStore,
    Refused,
    TooMany,
    Unreachable,
    Usage,
    sentence,
    shortage,
)
from keepfast.model.event import OUTSIDE, UNCHANGED, Event, Outcome, takes
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
from keepfast.state.names import UNSAVED
from keepfast.workspace import stat_cache
from keepfast.workspace.marker import identity, is_same_folder, marker, obstacle, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from keepfast.model.entry import Entry
    from keepfast.settings import Settings
    from keepfast.store.place import Place
    from keepfast.store.repository import Repository
    from keepfast.store.rows import WorkspaceRow
    from keepfast.workspace.marker import Marker
    from keepfast.workspace.reader import Sink


PATIENT, QUICK, FOREVER = 1.0, 0.2, float("inf")
"""Seconds in which the entries of a folder are counted: at a session's start, and before other events protect it."""
DAY = 86_400_000_000_000
MOST_SHOWN = 300


class Engine:
    """Everything a front end may ask for. `progress(done, total)` is called during long work."""

    def __init__(self, place: Place, settings: Settings, home: bytes, clock: Callable[[], int]) -> None:
        self.place, self.settings, self.home, self.clock = place, settings, home, clock
        self.progress: Callable[[int, int], None] | None = None
        self._repository: Repository | None = None
        self.renewed = b""
        """The folder whose marker was another folder's and is its own again; whoever speaks to somebody says so."""

    # Saving

    def handle(self, event: Event) -> Outcome:
        """Make a checkpoint if the event deserves one.

        Outside any workspace the outcome says so. Raises a `KeepfastError` where saving was due and failed.
        """
        try:
            found = self.locate(event.cwd, adopt=event.adopt)
        except Elsewhere as apart:
            found = self.separate(apart)
        if found is None:
            return Outcome(OUTSIDE)
        root, workspace = found
        try:
            outcome = self._handle(event, root, workspace)
        except OSError as error:
            from keepfast.fsutil.durable import explain

            said = explain(error, "Saving", self.place.path)
            self._note_unsaved(event, workspace, said)
            raise said from None
        except Exception as error:
            self._note_unsaved(event, workspace, error)
            raise
        if not event.only:
            try:
                unlink(self.place.folder(workspace) + UNSAVED)
            except OSError:
                pass  # as a rule there is none: the last save did not fail
        return outcome

    def _handle(self, event: Event, root: bytes, workspace: str) -> Outcome:
        self.place.check_folders()
        if not event.only and self._is_counted_first(self.place.folder(workspace)):
            # Without the lock: whoever saves what a command names does not wait until all the rest was counted.
            self.refuse_too_many(root, FOREVER)
        with Folder(self, root, workspace) as folder:
            changes: Any = None
            if event.only:
                folder.look_up()
            elif (fresh := folder.fresh()) is not None:
                changes = stat_cache.check(fresh, folder.fd, folder.capture.accelerated)
                same = not len(changes[0]) and not len(changes[1]) and not event.keep
                if same and not takes(event.trigger, False, False, event.moved_on):
                    return Outcome(UNCHANGED, root)
            from keepfast.app.checkpoint_save import make

            return make(self, event, folder, changes)

    def _is_counted_first(self, folder: str) -> bool:
        """Was the tree never saved as a whole, or had it too many files when that was last tried?"""
        try:
            stat(folder + "/cache")
            stat(folder + UNSAVED)
        except OSError as error:
            return str(error.filename) == folder + "/cache"
        from keepfast.state.notices import unsaved

        found = unsaved(folder)
        return found is not None and found.kind == TooMany.kind

    def _note_unsaved(self, event: Event, workspace: str, error: Exception) -> None:
        """Let hooks and `doctor` know that the folder could not be saved, until it is."""
        if event.only or isinstance(error, Unreachable | ImportError | SyntaxError):
            # Nothing is written into a store that is not ours to write; a module that is missing is there after an upgrade.
            return
        from keepfast.secrets.light_redaction import without_secrets
        from keepfast.state.notices import note_unsaved

        ours = error if isinstance(error, KeepfastError) else shortage(error)
        text = f"{ours} {ours.hint}".rstrip() if ours is not None else sentence(error)
        kind = ours.kind if ours is not None else KeepfastError.kind
        note_unsaved(self.place.folder(workspace), self.clock(), kind, without_secrets(text))

    def compose(self, event: Event, root: bytes, workspace: str, contents: dict[bytes, tuple[Entry, bytes]]) -> Any:
        """Make a version that is the newest one with other contents for some files. Nothing on disk is looked at."""
        from keepfast.app.checkpoint_save import compose

        return compose(self, event, root, workspace, contents)

    # Looking

    def look(
        self, root: bytes, workspace: str, sink: Sink, only: tuple[bytes, ...] = ()
    ) -> tuple[list[Entry], dict[bytes, Entry], list[str]]:
        """Return the rows that a save would record now, the rows they replace, and what was odd about the tree.

        Contents go to the sink, which need not keep them. Nothing is written, the stat cache included.
        """
        from keepfast.app.checkpoint_save import look

        return look(self, root, workspace, sink, only)

    def note(self, cwd: bytes, kind: str, trigger: str, text: str, told: bool = False) -> bool:
        """Keep for `status` what was skipped or failed; False if it cannot be kept, or concerns no workspace.

        `told`: somebody hears of it now, too.
        """
        from keepfast.secrets.light_redaction import without_secrets
        from keepfast.state.notices import append

        found = self.near(cwd)
        text = without_secrets(text)
        return found is not None and append(self.notice_folders(*found), self.clock(), kind, trigger, text, told)

    def note_once(self, cwd: bytes, kind: str, trigger: str, text: str) -> bool:
        """The same, unless it stands there already and is not a day old."""
        from keepfast.state.notices import read

        found = self.near(cwd)
        known = read(self.notice_folders(*found)) if found is not None else []
        since = self.clock() - DAY
        if any((one.kind, one.text) == (kind, text) and one.at >= since for one in known):
            return True
        return self.note(cwd, kind, trigger, text)

    def notice_folders(self, root: bytes, workspace: str) -> list[str]:
        """Where notices go: the store, or the marker's folder while the store is out of reach."""
        return [self.place.folder(workspace), (root + b"/.keepfast").decode("utf-8", "surrogateescape")]

    # Finding

    def repository(self) -> Repository:
        if self._repository is None:
            self._repository = self.place.open()
        return self._repository

    def create(self, anew: bool = False) -> Repository:
        """The same, and the store is made if there is none yet; with `anew` also in the place of one that is missing."""
        self._repository = self.place.create(anew)
        return self._repository

    def near(self, cwd: bytes) -> tuple[bytes, str] | None:
        """Return root and id of the workspace that `cwd` lies in, as far as small files tell. Nothing is opened or raised."""
        found = find(cwd, self.place.path, self.place.list)
        return (found[0], found[1]) if found is not None and found[2] in (HERE, LOST) else None

    def locate(self, cwd: bytes, *, adopt: bool = False) -> tuple[bytes, str] | None:
        """Return root and id of the workspace that `cwd` lies in; `adopt` lets the setting of that name make one.

        Raises what `known` raises.
        """
        found = self.known(cwd, adopting=adopt)
        if found is not None or not adopt:
            return found
        try:
            return self.adopt(cwd)
        except Refused:
            return None  # the start of a session and `status` say why

    def known(self, cwd: bytes, *, adopting: bool = False) -> tuple[bytes, str] | None:
        """Return root and id of the workspace that `cwd` lies in. `adopting`: whoever asks makes one if there is none.

        Raises `MissingStore` if the store of that workspace is not there, `Usage` if it is another one than ours, and
        `Elsewhere` if its history belongs to another folder, and no workspace is around that. Where it is not `adopting`
        also what `refuse_strange` raises.
        """
        registered, folder = self.place.registered(), cwd
        while True:
            try:
                workspace = self.known_at(folder, registered.get(folder, ""))
            except Elsewhere:
                if not self._is_within(folder):
                    raise
                workspace = ""  # an ordinary folder of the workspace around it, whatever it brought along
            if workspace:
                return folder, workspace
            if folder in (b"/", b""):
                break
            folder = folder.rpartition(b"/")[0] or b"/"
        if not adopting:
            if self.place.expected:
                self._refuse_if_missing()
            self.refuse_strange(cwd)
        return None

    def refuse_strange(self, cwd: bytes) -> None:
        """Raise `OtherStore` or `MissingStore` where the nearest marker names a store that this user has not used.

        It may be a repository's: the store is not opened. It may be the user's own: nobody says that there is no history.
        """
        found = find_foreign(cwd, self.place.path, self.place.list)
        if found is not None:
            raise self._stranger(*found)

    def _stranger(self, root: bytes, said: Marker) -> KeepfastError:
        path = show(said[1].encode("utf-8", "surrogateescape"))
        anew = "To start a new history here, run `keepfast init --new-store`."
        if not is_genuine_store(said, self.home):
            message = f"The marker in {show(root)} names a store that does not exist here: {head_of(path)}."
            hint = (
                "If it is yours, mount it, or set HOME and XDG_DATA_HOME to the values they had when the "
                "folder was protected"
            )
            return MissingStore(message, f"{hint}. {anew}")
        data = said[1].removesuffix("/keepfast/store")
        way = f"set XDG_DATA_HOME={data}, or give" if data != said[1] else "give"
        return OtherStore(
            f"The checkpoints of {show(root)} are in the store {path}, but this command uses {self.place.path}.",
            f"If it is yours, {way} --store {path}. {anew}",
        )

    def other_store(self, root: bytes) -> str:
        """The store that a folder's marker names while this one keeps it by its path; empty if it is this one.

        `?` for one that is not there, or not this user's: what a repository says of it is not repeated.
        """
        said = marker(root)
        if said is None or not is_foreign(root, said, self.place.path, self.place.list):
            return ""
        return show(said[1].encode("utf-8", "surrogateescape")) if is_genuine_store(said, self.home) else "?"

    def _is_within(self, folder: bytes) -> bool:
        """Does the folder lie below the root of a workspace?"""
        return folder not in (b"/", b"") and self.near(folder.rpartition(b"/")[0] or b"/") is not None

    def known_at(self, folder: bytes, registered: str) -> str:
        """The id of the workspace whose root this folder is, nothing if it is none. `registered`: the one of its path.

        Raises as `known` does, and `Elsewhere` also where a workspace is around the folder.
        """
        said = marker(folder)
        if said is not None:
            verdict = judge(folder, said, self.place.path, self.place.list)
            if self._is_asked(said, verdict) and not (verdict == ELSEWHERE and (registered or self._is_within(folder))):
                self.place.check_marker(*said)
            if verdict in (HERE, LOST):
                return said[0]
            if self._is_of(folder, said[0], registered):
                return said[0]
        if registered and (said is None or not is_foreign(folder, said, self.place.path, self.place.list)):
            self._mark_again(folder, registered)
            self.renewed = folder if said is not None else self.renewed
        return registered

    def _is_asked(self, said: Marker, verdict: str) -> bool:
        """Does it matter which store the marker names?

        Not of one that is nobody's, nor where it has the id of another folder and names a store that this user has not used:
        somebody wrote that, and the folder is as good as one without a marker.
        """
        if verdict == ELSEWHERE:
            return names_known_store(said, self.place.path, self.place.list)
        return verdict != UNKNOWN

    def _is_of(self, folder: bytes, workspace: str, registered: str) -> bool:
        """Is this the folder of that workspace? False for a marker of nobody here. Raises `Elsewhere`."""
        try:
            repository = self.repository()
        except NoWorkspace:
            return False
        row = repository.workspace(workspace)
        if row is None:
            return False
        if row.path == folder or is_same_folder(row.path, folder):
            self._list_paths(repository)  # it was lost, or is older than the ledger
            return True
        if self._outweighs(registered, folder, row):
            return False
        raise self._elsewhere(folder, row)

    def _outweighs(self, registered: str, folder: bytes, row: WorkspaceRow) -> bool:
        """Does the path count, by which the folder is registered, and not its marker, which is that of `row`?

        Not where the folder may have been moved to this path: then a person says whose history it has.
        """
        if not registered:
            return False
        if row.parent == registered:
            return True  # it moved, was protected apart, and is back where it was
        return _is_original(row) or self._was_saved(registered, folder)

    def _was_saved(self, workspace: str, folder: bytes) -> bool:
        """Is this the very folder that the last save of the workspace looked at?"""
        from posix import stat

        from keepfast.workspace.stat_cache import peek

        known = peek(self.place.folder(workspace) + "/cache")
        try:
            here = stat(folder)
        except OSError:
            return False
        saved = known[0].partition(b"\n")[2].split(b" ", 3)[1:3] if known is not None else []
        return saved == [b"%d" % here.st_dev, b"%d" % here.st_ino]

    def _elsewhere(self, root: bytes, row: WorkspaceRow) -> Elsewhere:
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

    def separate(self, apart: Elsewhere) -> tuple[bytes, str]:
        """Make the folder a workspace of its own: nothing is unprotected until a person says whose history it has."""
        return apart.root, self.init(apart.root, by_path=True)

    def follow(self, root: bytes) -> str:
        """Go on here with the history of the folder that this one was, as a person has said. Return the workspace's id.

        Raises `Usage` where there is none, and `Elsewhere` in a copy.
        """
        repository = self.repository()
        lock = self._hold()
        try:
            row = self._followed(repository, root)
            if _is_original(row):
                raise self._elsewhere(root, row)
            self.register(repository, row.id, root, self.clock())
            self.mark(root, row.id)
            self._note_protected(root)
        finally:
            close(lock)
        return row.id

    def _followed(self, repository: Repository, root: bytes) -> WorkspaceRow:
        """The workspace that this folder was before it moved; it may have been protected apart since."""
        said = marker(root)
        row = repository.workspace(said[0]) if said is not None else None
        registered = self.place.registered().get(root, "")
        if row is not None and self._outweighs(registered, root, row):
            row = repository.workspace(registered)
        if row is not None and (row.path == root or is_same_folder(row.path, root)):
            row = repository.workspace(row.parent) if row.parent and not self._is_fork(repository, row) else None
        if row is None:
            raise Usage(f"{show(root)} has no former history to continue.", "Run `keepfast init` without --moved.")
        return row

    def _is_fork(self, repository: Repository, row: WorkspaceRow) -> bool:
        from keepfast.store.rows import Query

        return bool(repository.find(Query(workspace=row.id, trigger="fork", forgotten=True, limit=1)))

    def adopt(self, cwd: bytes, project: bytes = b"", most: int = 0) -> tuple[bytes, str] | None:
        """Make a workspace for a session in `cwd`, as the setting `adopt` says; None if it asks for none.

        `most`: leave a folder alone that has more entries, without finding out how many of them would be kept.
        Raises `Refused` for a folder that holds more than a project. One with too many files is protected as far as
        commands name what they destroy, and its first save says so.
        """
        mode = self.settings["adopt"]
        if mode not in ("any", "git"):
            return None
        from keepfast.workspace.adoption import is_large, root_for

        root = root_for(cwd, project, mode, self.home)
        if root is None or self.is_unprotected(root):
            return None
        if most and is_large(root, self.settings["capture.exclude"], most, QUICK) is not False:
            return None
        return root, self.init(root, by_path=True)

    def refuse_too_many(self, root: bytes, seconds: float = PATIENT) -> None:
        """Raise `TooMany` if the folder is known in this time to have more files than a save takes."""
        if self.is_large(root, seconds):
            from keepfast.app.scan import count

            count(self, root)

    def is_large(self, root: bytes, seconds: float = PATIENT) -> bool | None:
        """Has the folder more entries than a save takes files? None if it took too long to find out."""
        from keepfast.workspace.adoption import is_large

        return is_large(root, self.settings["capture.exclude"], self.settings["capture.max_files"], seconds)

    def _refuse_if_missing(self) -> None:
        """No store, no list of folders: then nobody can say that a folder is not protected."""
        try:
            self.place.id()
        except MissingStore:
            raise
        except KeepfastError:
            pass  # whoever needs the store is told

    def root(self, cwd: bytes) -> tuple[bytes, WorkspaceRow]:
        """Return root and row of the workspace that `cwd` lies in. Raises `NoWorkspace`."""
        found = self.locate(cwd)
        if found is None:
            raise NoWorkspace(f"{show(cwd)} is not inside a workspace.")
        row = self.repository().workspace(found[1])
        if row is None:
            row = self.register(self.repository(), found[1], found[0], self.clock())
        return found[0], row

    def init(self, root: bytes, anew: bool = False, by_path: bool = False) -> str:
        """Adopt the folder: its own workspace in the store, its marker in the folder. Returns the workspace's id.

        With `anew` this store is to be used from now on, whatever became of the one before. With `by_path` it is enough that
        the store knows the folder's path, where something else lies in the place of its marker, or one that names another
        store. Raises what `refuse_strange` raises.
        """
        from keepfast.workspace.adoption import refuse_whole

        refuse_whole(root, self.home)
        # What another store has of this folder is not given up without a word: its marker stays until somebody says so.
        is_others = not anew and self._is_others(root, by_path)
        repository = self.create(anew)
        # Two hooks may adopt the same folder at once: the second must find the marker of the first.
        lock = self._hold()
        try:
            own, parent = self._own(repository, root)
            workspace = own or self._earlier(repository, root)
            # Registered first: whoever reads the new marker finds the folder in the store, and between the two its path counts.
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

    def _is_others(self, root: bytes, by_path: bool) -> bool:
        """Does the folder's marker name another store? Only with `by_path` that is no error; one that moved is admitted."""
        said = marker(root)
        if said is None:
            self._refuse_lost(root)
            return False
        if self._is_asked(said, judge(root, said, self.place.path, self.place.list)):
            self.place.check_marker(*said, root)
        if not is_foreign(root, said, self.place.path, self.place.list):
            return False
        if not by_path:
            if self.place.expected:
                self.place.id()
            raise self._stranger(root, said)
        return True

    def _refuse_lost(self, root: bytes) -> None:
        """Raise `MissingStore` where the user's own list names a store for the folder that is out of reach."""
        from keepfast.store.small_files import missing_store, read_folder_list

        identity = read_folder_list(self.place.folders).get(root, ("", ""))[0]
        if identity and root not in self.place.registered():
            path = lost_store_path(identity, self.place.path, self.place.list)
            if path:
                raise missing_store(path)

    def _hold(self) -> int:
        """Take the lock under which folders become workspaces; closing the descriptor gives it back."""
        lock = open_fd(self.place.path + "/workspaces", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        try:
            wait_for(lock, "the list of workspaces")
        except BaseException:
            close(lock)
            raise
        return lock

    def _own(self, repository: Repository, root: bytes) -> tuple[str, str]:
        """The id that the folder has in this store, and that of the one it is a copy of or was; either may be empty.

        A marker that this store knows nothing of was written by somebody else, or belongs to the history of another store.
        """
        said, registered = marker(root), self.place.registered().get(root, "")
        row = repository.workspace(said[0]) if said is not None else None
        if row is None:
            return registered, ""
        if row.path == root or is_same_folder(row.path, root):
            return row.id, ""
        return (registered, "") if self._outweighs(registered, root, row) else ("", row.id)

    def is_unprotected(self, root: bytes) -> bool:
        """Has somebody stopped protecting this folder, or one above it?"""
        from keepfast.store.known_stores import read_unprotected

        listed, folder = read_unprotected(self.place.unprotected), root
        while listed and folder not in listed and folder not in (b"/", b""):
            folder = folder.rpartition(b"/")[0] or b"/"
        return folder in listed

    def _earlier(self, repository: Repository, root: bytes) -> str:
        """The id that the folder had before somebody stopped protecting it, if its history is still there; else a new one."""
        from keepfast.store.known_stores import read_unprotected

        workspace = read_unprotected(self.place.unprotected).get(root, "")
        row = repository.workspace(workspace) if workspace else None
        return workspace if row is not None and not row.path else urandom(16).hex()

    def _note_protected(self, root: bytes) -> None:
        from keepfast.store.known_stores import note_protected

        try:
            note_protected(self.place.unprotected, root)
        except OSError as error:
            raise Failed(f"{self.place.unprotected} cannot be written: {error.strerror}.") from None

    def register(self, repository: Repository, workspace: str, root: bytes, now: int, parent: str = "") -> WorkspaceRow:
        row = repository.register(workspace, root, now, parent)
        for other in repository.workspaces():
            if root and other.path == root and other.id != workspace:
                repository.register(other.id, b"", now)  # that folder is gone: this one lies in its place
        self._list_paths(repository)
        return row

    def _list_paths(self, repository: Repository) -> None:
        known = [(row.id, row.path) for row in repository.workspaces()]
        self.place.list_paths(known)
        if self.place.is_in_data_folder():
            return
        from keepfast.store.known_stores import note_folders

        try:
            note_folders(self.place.folders, repository.id, known)
        except OSError:
            pass  # the next save notes the folder again

    def mark(self, root: bytes, workspace: str) -> None:
        """Write the folder's marker: ids of workspace and store, and a rule that keeps all of it out of git."""
        from posix import mkdir

        from keepfast.fsutil.durable import replace_in, sync_folder
        from keepfast.model.light_json import dumps
        from keepfast.workspace.marker import MARKER, open_marker

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
                # Durable: after a power cut an empty marker would stop every hook, and none would begin a new history.
                replace_in(folder, "workspace.json", text.encode("ascii") + b"\n")
            finally:
                close(folder)
            sync_folder(root.decode("utf-8", "surrogateescape"))
        except OSError as error:
            there = obstacle(root)
            hint = f"Move {show(there)} elsewhere." if there else "Check the write permissions."
            raise Failed(f"{show(root)} cannot be marked as a workspace: {error.strerror}.", hint) from None

    def _mark_again(self, root: bytes, workspace: str) -> None:
        """The marker was wiped or overwritten; the path is known. Whatever keeps us from writing it does not stop us."""
        unmarked = "" if obstacle(root) else self._mark_if_possible(root, workspace)
        if unmarked:
            self.note_once(root, "noticed", "marker", unmarked)

    def _mark_if_possible(self, root: bytes, workspace: str) -> str:
        """Write the marker; return why it cannot be written, nothing if it could."""
        try:
            self.mark(root, workspace)
        except Failed as error:
            return f"{error} {error.hint} Until then the folder is identified only by its path."
        return ""

    def list_store(self, root: bytes, workspace: str) -> OSError | None:
        """Let the user's own lists name the store, and the folder in it; return why they cannot be written, if they cannot.

        They vouch for the marker, which alone would not be believed, and know of both when the marker or the store is gone.
        """
        from keepfast.store.known_stores import add_store, drop_folder, note_folder

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
        """Raise `Failed` where only a flag names the store and no list can: the next command would not find it."""
        from keepfast.settings import STORE_FLAGS
        from keepfast.store.small_files import read_store_list

        error = self.list_store(root, workspace)
        if error is None or self.settings.origins.get("store.url") not in STORE_FLAGS or self.place.is_in_data_folder():
            return  # the store of the settings needs no voucher
        if read_store_list(self.place.list).get(self.place.path) != self.place.id():
            raise Failed(
                f"{self.place.list} cannot be written: {error.strerror}. The next command could not find this store.",
                "Make the data folder writable and run the command again; the folder is not protected in this store yet.",
            )

    def close(self) -> None:
        if self._repository is not None:
            self._repository.close()
            self._repository = None


def head_of(path: str) -> str:
    """As much of a path that anybody may have written as a person reads."""
    return path if len(path) <= MOST_SHOWN else path[:MOST_SHOWN] + "…"


def _is_original(row: WorkspaceRow) -> bool:
    """Is the folder that the store knows still there, with the workspace's own marker in it?"""
    return bool(row.path) and identity(row.path) == row.id
