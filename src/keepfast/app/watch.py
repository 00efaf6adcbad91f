"""Save without hooks, whenever the tree settles after changes: `keepfast watch`."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from threading import Event as Flag
from typing import Any, Protocol

from keepfast.app.checkpoint import Engine
from keepfast.app.inspect import pending
from keepfast.model.entry import FOLDER
from keepfast.model.errors import KeepfastError, NoWorkspace, sentence
from keepfast.model.event import CREATED, OUTSIDE, Event, Outcome
from keepfast.model.save_schedule import SaveSchedule
from keepfast.state.workers import Worker
from keepfast.workspace.capture import GIT, OWN_FOLDERS
from keepfast.workspace.ignore import parse
from keepfast.workspace.marker import show

TRIGGER = "watch"
TICK_SECONDS = 0.5
STEP_MS, GROUP_MS = 200, 1000
"""How often the kernel's notifications are read, and how long they are collected at most."""
MAX_POLL_SECONDS, MIN_POLL_SECONDS = 3.0, 0.5
MAX_ATTEMPTS = 3


class Listener(Protocol):
    """Gets reports of the watch. All methods are called from the thread that watches."""

    def watching(self, root: bytes, how: str) -> None:
        """Report that watching began, or continues in another way, which `how` says."""

    def saved(self, outcome: Outcome, seconds: float) -> None: ...
    def failed(self, message: str, hint: str) -> None: ...
    def tick(self, waiting: bool) -> None:
        """Called regularly; `waiting` if something changed and is not saved yet."""


class Source(Protocol):
    """Where news of changes come from."""

    def wait(self, seconds: float, stop: Flag) -> bool:
        """Wait at most so long; True if something changed. Raises `NotificationsUnavailable` if it cannot know any more."""

    def saved(self) -> bool:
        """Called after a save; True if changes during it may have been missed."""

    def close(self) -> None: ...


class NotificationsUnavailable(Exception):
    """The kernel does not notify us of changes, for the reason given."""


class Watch:
    """One watcher of one workspace. `run` returns when `stop` is set, after a last save if one is due."""

    def __init__(
        self, engine: Engine, cwd: bytes, rhythm: SaveSchedule, monotonic: Callable[[], float], listener: Listener
    ) -> None:
        self.engine, self.rhythm, self.monotonic, self.listener = engine, rhythm, monotonic, listener
        self.root, row = engine.workspaces.root(cwd)
        self.workspace = row.id
        self.stop = Flag()
        status = os.stat(self.root)
        self.place = status.st_dev, status.st_ino

    def run(self, poll: bool = False) -> None:
        """Watch until stopped. Raises `Busy` if another process watches, `NoWorkspace` if the folder is moved or removed."""
        self.worker = Worker(self.engine.place.folder(self.workspace), self.engine.clock())
        try:
            source = self._begin(poll)
            try:
                self._run(source)
            finally:
                source.close()
        finally:
            self.worker.close()

    def _begin(self, poll: bool) -> Source:
        if not poll:
            try:
                source = KernelSource(self.engine, self.root, self.workspace)
                self.listener.watching(self.root, "")
                return source
            except NotificationsUnavailable as error:
                return self._poll(str(error))
        return self._poll("as asked")

    def _poll(self, why: str) -> Source:
        source = PollingSource(self.engine, self.root, self.rhythm.settle, self.monotonic)
        self.listener.watching(self.root, f"polling every {_seconds(source.interval)}: {why}")
        return source

    def _run(self, source: Source) -> None:
        self._save(source)  # changes from before the start
        while not self.stop.is_set():
            due = self.rhythm.due()
            try:
                changed = source.wait(
                    TICK_SECONDS if due is None else min(TICK_SECONDS, due - self.monotonic()), self.stop
                )
            except NotificationsUnavailable as error:
                source.close()
                source, changed = self._poll(str(error)), True
            self._check_folder()
            now = self.monotonic()
            if changed:
                self.rhythm.changed(now)
            due = self.rhythm.due()
            if due is not None and now >= due:
                self._save(source)
            self.listener.tick(self.rhythm.unsaved)
        self._save(source)  # the last changes may not have been notified yet

    def _check_folder(self) -> None:
        try:
            status = os.stat(self.root)
            here = (status.st_dev, status.st_ino) == self.place
        except OSError:
            here = False
        if not here:
            raise NoWorkspace(
                f"{show(self.root)} was moved or removed; stopped watching.",
                "Run `keepfast watch` in its new location.",
            )
        if (own := self.engine.workspaces.nearest(self.root)) is not None and own != (self.root, self.workspace):
            raise NoWorkspace(f"{show(self.root)} is another workspace now.", "Run `keepfast watch` again.")

    def _save(self, source: Source) -> None:
        started = self.monotonic()
        event = Event(self.root, self.engine.clock(), trigger=TRIGGER, created_by="auto")
        try:
            outcome = self.engine.handle(event)
            if outcome.status == OUTSIDE:
                raise NoWorkspace(f"{show(self.root)} is not inside a workspace.")
        except Exception as error:
            # Keep watching after any error.
            self._check_folder()
            text = sentence(error)
            self.engine.workspaces.note(self.root, "failed", TRIGGER, text)
            self.rhythm.failed(self.monotonic())
            self.listener.failed(text, error.hint if isinstance(error, KeepfastError) else "")
            return
        now = self.monotonic()
        self.rhythm.saved(now, outcome.status == CREATED)
        if outcome.status == CREATED:
            self.worker.saved(event.at, outcome.version)
            self.listener.saved(outcome, now - started)
        if source.saved():
            self.rhythm.changed(now)


def _seconds(number: float) -> str:
    """Return `second`, or `2 seconds`: what follows `every`."""
    return "second" if number == 1 else f"{number:g} seconds"


class KernelSource:
    """Notifications of the kernel (watchfiles) about the folders that are saved, and no others.

    Each folder is watched by itself: dependency folders would use up the kernel's watches and cause needless saves.
    """

    def __init__(self, engine: Engine, root: bytes, workspace: str) -> None:
        self.engine, self.root, self.workspace = engine, root, workspace
        self.exclude = parse("\n".join(engine.settings["capture.exclude"]).encode("utf-8", "surrogateescape"))
        self.stop = Flag()
        self._news: Generator[set[tuple[Any, str]], None, None] | None = None
        self.folders: set[bytes] = set()
        self._stale = False
        """Whether there may be a folder that is not watched."""
        self._missed = False
        self._failure: NotificationsUnavailable | None = None
        self._begin(self._captured())

    def wait(self, seconds: float, stop: Flag) -> bool:
        if self._failure is not None:
            raise self._failure
        if stop.is_set():
            self.stop.set()
        missed, self._missed = self._missed, False
        return self._look(self._next()) or missed

    def saved(self) -> bool:
        if not self._stale:
            return False
        self._stale = False
        folders = self._captured()
        if folders == self.folders:
            return False
        try:
            self._begin(folders)
        except NotificationsUnavailable as error:
            self._failure = error  # the next `wait` raises it
        return True

    def close(self) -> None:
        if self._news is not None:
            self._news.close()
            self._news = None

    def _begin(self, folders: set[bytes]) -> None:
        try:
            import watchfiles
        except ImportError:
            raise NotificationsUnavailable(
                "the package watchfiles is not installed (`pip install '.[watch]'`)"
            ) from None
        for _ in range(MAX_ATTEMPTS):
            self.close()
            self.folders = folders
            try:
                names = [name.decode("utf-8") for name in folders]
            except UnicodeDecodeError:
                raise NotificationsUnavailable("a folder's name is not UTF-8") from None
            self._news = watchfiles.watch(
                *names,
                watch_filter=None,
                recursive=False,
                step=STEP_MS,
                debounce=GROUP_MS,
                rust_timeout=int(TICK_SECONDS * 1000),
                yield_on_timeout=True,
                stop_event=self.stop,
                force_polling=False,
                ignore_permission_denied=False,  # True would also hide that the kernel's watches ran out
            )
            try:
                self._missed = self._look(self._next())  # the first call sets the watches
            except FileNotFoundError:
                folders = self._captured()
                continue
            # A folder made before its watch was set gives no notification; the next save finds it.
            self._stale = True
            return
        raise NotificationsUnavailable("folders are created and deleted too quickly")

    def _next(self) -> set[tuple[Any, str]]:
        assert self._news is not None
        try:
            return next(self._news, set())
        except FileNotFoundError:
            raise
        except OSError as error:
            raise NotificationsUnavailable(
                f"the kernel's limit of watches is reached ({str(error).split('(')[0].strip()})"
            ) from None
        except RuntimeError as error:
            raise NotificationsUnavailable(str(error)) from None

    def _look(self, news: set[tuple[Any, str]]) -> bool:
        changed = False
        for _, name in news:
            path = os.fsencode(name)
            is_folder = os.path.isdir(path) and not os.path.islink(path)
            inside = path[len(self.root) + 1 :]
            last = os.path.basename(path)
            if inside in OWN_FOLDERS or (last == GIT and is_folder):
                continue
            if self.exclude.match(inside, is_folder or not os.path.lexists(path)):
                continue
            changed = True
            self._stale = self._stale or (is_folder and path not in self.folders)
        return changed

    def _captured(self) -> set[bytes]:
        """Return the root and every folder of the newest version that still exists."""
        repository = self.engine.repository()
        row = repository.workspace(self.workspace)
        rows = repository.state(self.workspace, row.version) if row is not None else ()
        below = [self.root + b"/" + entry.path for entry in rows if entry.kind == FOLDER]
        return {self.root, *[path for path in below if os.path.isdir(path) and not os.path.islink(path)]}


class PollingSource:
    """Compares every known file with the stat cache every few seconds, without the kernel's help."""

    def __init__(self, engine: Engine, root: bytes, settle: float, monotonic: Callable[[], float]) -> None:
        self.engine, self.root, self.monotonic = engine, root, monotonic
        # At least as often as the settling time: a settled tree was compared twice.
        self.interval = max(MIN_POLL_SECONDS, min(MAX_POLL_SECONDS, settle))
        self._next = monotonic()
        self._seen = 0

    def wait(self, seconds: float, stop: Flag) -> bool:
        stop.wait(max(0.0, min(seconds, self._next - self.monotonic())))
        if self.monotonic() < self._next and not stop.is_set():
            return False
        seen = self._look()
        self._next = self.monotonic() + self.interval
        changed, self._seen = seen not in (0, self._seen), seen
        return changed

    def saved(self) -> bool:
        self._seen = 0
        return False

    def close(self) -> None:
        pass

    def _look(self) -> int:
        """Return a hash of what differs from the newest version, 0 if nothing does."""
        try:
            row = self.engine.workspaces.root(self.root)[1]
            changes = pending(self.engine, self.root, row)[0]
        except KeepfastError as error:
            return hash(str(error)) or 1
        return hash(tuple([(change.path, change.new) for change in changes])) or 1 if changes else 0
