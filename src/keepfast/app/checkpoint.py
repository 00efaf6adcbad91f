"""The engine of saving: an event comes in, a checkpoint and an outcome come out. `workspaces.py` finds the folder's workspace."""

from __future__ import annotations

from collections.abc import Callable
from os import stat, unlink
from typing import Any

from keepfast.app.checkpoint_save import make, preview_save
from keepfast.app.open_stores import OpenStores
from keepfast.app.scan import count
from keepfast.app.workspace_lock import Folder
from keepfast.app.workspaces import Workspaces
from keepfast.fsutil.durable import explain
from keepfast.model.entry import Entry
from keepfast.model.errors import Elsewhere, KeepfastError, TooMany, Unreachable, sentence, shortage
from keepfast.model.event import OUTSIDE, UNCHANGED, Event, Outcome, takes
from keepfast.secrets.light_redaction import without_secrets
from keepfast.settings import Settings
from keepfast.state.names import UNSAVED
from keepfast.state.notices import note_unsaved, unsaved
from keepfast.store.place import Place
from keepfast.store.repository import Repository
from keepfast.workspace import stat_cache
from keepfast.workspace.adoption import is_large
from keepfast.workspace.reader import Sink

COUNT_SECONDS, FOREVER = 1.0, float("inf")
"""For how long a folder's entries are counted: by default, and always."""


class Engine:
    """Saves the workspaces of a store. `progress(done, total)` is called during long work."""

    def __init__(
        self,
        place: Place,
        settings: Settings,
        home: bytes,
        clock: Callable[[], int],
        open_stores: OpenStores | None = None,
    ) -> None:
        """`open_stores`: repositories that outlive this engine; without them it opens, and closes, one of its own."""
        self.place, self.settings, self.home, self.clock = place, settings, home, clock
        self._repository = LazyRepository(place, open_stores)
        self.workspaces = Workspaces(place, settings, home, clock, self._repository)
        self.progress: Callable[[int, int], None] | None = None

    def handle(self, event: Event) -> Outcome:
        """Make a checkpoint if the event deserves one.

        The outcome is `OUTSIDE` if there is no workspace. Raises a `KeepfastError` if a checkpoint was due and failed.
        """
        try:
            location = self.workspaces.locate(event.cwd, adopt=event.adopt)
        except Elsewhere as elsewhere:
            location = self.workspaces.protect_separately(elsewhere)
        if location is None:
            return Outcome(OUTSIDE)
        root, workspace = location
        try:
            outcome = self._handle(event, root, workspace)
        except OSError as error:
            explained = explain(error, "Saving", self.place.path)
            self._note_unsaved(event, workspace, explained)
            raise explained from None
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
            # Without the lock: a save of what a command names does not wait for this count.
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
            return make(self, event, folder, changes)

    def _is_counted_first(self, folder: str) -> bool:
        """Return whether the tree was never saved as a whole, or had too many files at the last attempt."""
        try:
            stat(folder + "/cache")
            stat(folder + UNSAVED)
        except OSError as error:
            return str(error.filename) == folder + "/cache"
        failure = unsaved(folder)
        return failure is not None and failure.kind == TooMany.kind

    def _note_unsaved(self, event: Event, workspace: str, error: Exception) -> None:
        """Record that the folder could not be saved, for hooks and `doctor`, until a save succeeds."""
        if event.only or isinstance(error, Unreachable | ImportError | SyntaxError):
            # Never write into another store. A missing module is back after the upgrade that removed it.
            return
        ours = error if isinstance(error, KeepfastError) else shortage(error)
        text = f"{ours} {ours.hint}".rstrip() if ours is not None else sentence(error)
        kind = ours.kind if ours is not None else KeepfastError.kind
        note_unsaved(self.place.folder(workspace), self.clock(), kind, without_secrets(text))

    def refuse_too_many(self, root: bytes, seconds: float = COUNT_SECONDS) -> None:
        """Raise `TooMany` if a count within this time shows more files than a save takes."""
        if self.is_large(root, seconds):
            count(self, root)

    def is_large(self, root: bytes, seconds: float = COUNT_SECONDS) -> bool | None:
        """Return whether the folder has more entries than a save takes files; None if counting took too long."""
        return is_large(root, self.settings["capture.exclude"], self.settings["capture.max_files"], seconds)

    def preview_save(
        self, root: bytes, workspace: str, sink: Sink, only: tuple[bytes, ...] = ()
    ) -> tuple[list[Entry], dict[bytes, Entry], list[str]]:
        """Return the rows that a save would record now, the rows they replace, and notices about the tree.

        Contents go to the sink, which need not keep them. Nothing is written, not even the stat cache.
        """
        return preview_save(self, root, workspace, sink, only)

    def repository(self) -> Repository:
        return self._repository.get()

    def create(self, new_store: bool = False) -> Repository:
        """Return the repository and make the store if there is none; `new_store`: also in place of one that is missing."""
        return self._repository.create(new_store)

    def close(self) -> None:
        self._repository.close()


class LazyRepository:
    """The repository of an engine, opened when it is first needed."""

    def __init__(self, place: Place, open_stores: OpenStores | None) -> None:
        self.place, self.open_stores = place, open_stores
        self._open: Repository | None = None

    def get(self) -> Repository:
        if self._open is None:
            self._open = self.open_stores.repository(self.place) if self.open_stores else self.place.open()
        return self._open

    def create(self, new_store: bool) -> Repository:
        self._open = self.place.create(new_store)
        return self._open

    def close(self) -> None:
        if self._open is not None and self.open_stores is None:
            self._open.close()
        self._open = None
