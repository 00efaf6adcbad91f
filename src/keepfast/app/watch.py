"""Saving by ourselves, for agents without hooks: whenever the tree settles after changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from threading import Event as Flag
from typing import TYPE_CHECKING, Any, Protocol

from keepfast.app.inspect import pending
from keepfast.model.entry import FOLDER
from keepfast.model.errors import KeepfastError, NoWorkspace, sentence
from keepfast.model.event import CREATED, OUTSIDE, Event, Outcome
from keepfast.model.save_schedule import SaveSchedule
from keepfast.state.workers import Worker
from keepfast.workspace.capture import GIT, OWN_FOLDERS
from keepfast.workspace.ignore import parse
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from keepfast.app.checkpoint import Engine

TRIGGER = "watch"
TICK = 0.5
STEP, GROUP = 200, 1000
"""Milliseconds: how often the kernel is asked for news, and how long news are gathered at most."""
SLOWEST_POLL, QUICKEST_POLL = 3.0, 0.5
ATTEMPTS = 3


class Listener(Protocol):
    """Who is told what happens. All of it is called from the thread that watches."""

    def watching(self, root: bytes, how: str) -> None:
        """It has begun; or goes on in another way, which `how` says."""

    def saved(self, outcome: Outcome, seconds: float) -> None: ...
    def failed(self, message: str, hint: str) -> None: ...
    def tick(self, waiting: bool) -> None:
        """Now and then; `waiting` if something changed and is not saved yet."""


class Source(Protocol):
    """Where news of changes come from."""

    def wait(self, seconds: float, stop: Flag) -> bool:
        """Wait so long at most; True if something has changed. Raises `Blind` if it cannot know any more."""

    def saved(self) -> bool:
        """A save is over; True if changes around it may have been missed."""

    def close(self) -> None: ...


class Blind(Exception):
    """The kernel does not tell us of changes, for the reason given."""


class Watch:
    """One watcher of one workspace. `run` returns when `stop` is set, after a last save if one is due."""

    def __init__(
        self, engine: Engine, cwd: bytes, rhythm: SaveSchedule, monotonic: Callable[[], float], listener: Listener
    ) -> None:
        self.engine, self.rhythm, self.monotonic, self.listener = engine, rhythm, monotonic, listener
        self.root, row = engine.root(cwd)
        self.workspace = row.id
        self.stop = Flag()
        found = os.stat(self.root)
        self.place = found.st_dev, found.st_ino

    def run(self, poll: bool = False) -> None:
        """Raises `Busy` if somebody else watches, `NoWorkspace` when the folder is moved or removed."""
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
                source = Notified(self.engine, self.root, self.workspace)
                self.listener.watching(self.root, "")
                return source
            except Blind as error:
                return self._poll(str(error))
        return self._poll("as asked")

    def _poll(self, why: str) -> Source:
        source = Polled(self.engine, self.root, self.rhythm.settle, self.monotonic)
        self.listener.watching(self.root, f"polling every {_seconds(source.interval)}: {why}")
        return source

    def _run(self, source: Source) -> None:
        self._save(source)  # whatever happened before we came
        while not self.stop.is_set():
            due = self.rhythm.due()
            try:
                changed = source.wait(TICK if due is None else min(TICK, due - self.monotonic()), self.stop)
            except Blind as error:
                source.close()
                source, changed = self._poll(str(error)), True
            self._see_that_it_is_there()
            now = self.monotonic()
            if changed:
                self.rhythm.changed(now)
            due = self.rhythm.due()
            if due is not None and now >= due:
                self._save(source)
            self.listener.tick(self.rhythm.unsaved)
        self._save(source)  # what has just changed may not have been told to us; if nothing has, nothing is made

    def _see_that_it_is_there(self) -> None:
        try:
            found = os.stat(self.root)
            here = (found.st_dev, found.st_ino) == self.place
        except OSError:
            here = False
        if not here:
            raise NoWorkspace(
                f"{show(self.root)} was moved or removed; stopped watching.",
                "Run `keepfast watch` in its new location.",
            )
        if (own := self.engine.near(self.root)) is not None and own != (self.root, self.workspace):
            raise NoWorkspace(f"{show(self.root)} is another workspace now.", "Run `keepfast watch` again.")

    def _save(self, source: Source) -> None:
        started = self.monotonic()
        event = Event(self.root, self.engine.clock(), trigger=TRIGGER, created_by="auto")
        try:
            outcome = self.engine.handle(event)
            if outcome.status == OUTSIDE:
                raise NoWorkspace(f"{show(self.root)} is not inside a workspace.")
        except Exception as error:
            # Whatever it is, the next change must find us here.
            self._see_that_it_is_there()
            text = sentence(error)
            self.engine.note(self.root, "failed", TRIGGER, text)
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
    """`second`, or `2 seconds`: what follows `every`."""
    return "second" if number == 1 else f"{number:g} seconds"


class Notified:
    """News from the kernel (watchfiles), of the folders that are captured and no others.

    Each folder is watched by itself: dependency folders would use up the kernel's watches and wake us for nothing.
    """

    def __init__(self, engine: Engine, root: bytes, workspace: str) -> None:
        self.engine, self.root, self.workspace = engine, root, workspace
        self.exclude = parse("\n".join(engine.settings["capture.exclude"]).encode("utf-8", "surrogateescape"))
        self.stop = Flag()
        self._news: Generator[set[tuple[Any, str]], None, None] | None = None
        self.folders: set[bytes] = set()
        self._stale = False
        """May there be a folder that nobody watches?"""
        self._missed = False
        self._blind: Blind | None = None
        self._begin(self._captured())

    def wait(self, seconds: float, stop: Flag) -> bool:
        if self._blind is not None:
            raise self._blind
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
        except Blind as error:
            self._blind = error  # the next wait says so
        return True

    def close(self) -> None:
        if self._news is not None:
            self._news.close()
            self._news = None

    def _begin(self, folders: set[bytes]) -> None:
        try:
            import watchfiles
        except ImportError:
            raise Blind("the package watchfiles is not installed (`pip install '.[watch]'`)") from None
        for _ in range(ATTEMPTS):
            self.close()
            self.folders = folders
            try:
                names = [name.decode("utf-8") for name in folders]
            except UnicodeDecodeError:
                raise Blind("a folder's name is not UTF-8") from None
            self._news = watchfiles.watch(
                *names,
                watch_filter=None,
                recursive=False,
                step=STEP,
                debounce=GROUP,
                rust_timeout=int(TICK * 1000),
                yield_on_timeout=True,
                stop_event=self.stop,
                force_polling=False,
                ignore_permission_denied=False,  # if true, it is silent when the kernel's watches run out, too
            )
            try:
                self._missed = self._look(self._next())  # the first turn is what sets the watches
            except FileNotFoundError:
                folders = self._captured()
                continue
            # A folder made before the watches were set tells nobody of what is in it. The next save has seen it.
            self._stale = True
            return
        raise Blind("folders are created and deleted too quickly")

    def _next(self) -> set[tuple[Any, str]]:
        assert self._news is not None
        try:
            return next(self._news, set())
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Blind(f"the kernel's limit of watches is reached ({str(error).split('(')[0].strip()})") from None
        except RuntimeError as error:
            raise Blind(str(error)) from None

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
        """The root and every folder that the newest version holds, as far as they are still there."""
        repository = self.engine.repository()
        row = repository.workspace(self.workspace)
        rows = repository.state(self.workspace, row.version) if row is not None else ()
        below = [self.root + b"/" + entry.path for entry in rows if entry.kind == FOLDER]
        return {self.root, *[path for path in below if os.path.isdir(path) and not os.path.islink(path)]}


class Polled:
    """Without the kernel's help: every known file is compared with the stat cache, every few seconds."""

    def __init__(self, engine: Engine, root: bytes, settle: float, monotonic: Callable[[], float]) -> None:
        self.engine, self.root, self.monotonic = engine, root, monotonic
        # Not less often than the tree may settle: what is saved as settled was looked at twice.
        self.interval = max(QUICKEST_POLL, min(SLOWEST_POLL, settle))
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
        """A number for what differs from the newest version, 0 if nothing does."""
        try:
            row = self.engine.root(self.root)[1]
            changes = pending(self.engine, self.root, row)[0]
        except KeepfastError as error:
            return hash(str(error)) or 1
        return hash(tuple([(change.path, change.new) for change in changes])) or 1 if changes else 0
