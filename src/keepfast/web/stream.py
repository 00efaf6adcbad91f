"""Numbered events to any number of browsers: what they missed first, then what happens."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from os import scandir
from typing import TYPE_CHECKING, Any

from keepfast.model.errors import KeepfastError
from keepfast.present.json_forms import of_checkpoint
from keepfast.present.terminal import rfc3339
from keepfast.store.rows import Query
from keepfast.web.sessions import Book, Happening

if TYPE_CHECKING:
    from keepfast.app.checkpoint import Engine
    from keepfast.runner.actions.runtime import Runtime

EVERY, BEAT = 1.0, 15.0
MOST_AT_ONCE = 200
WAITING = 1_000
"""A browser that is this many events behind is cut off; it comes back and asks for what it missed."""


class Stream:
    """Watches the store for what others do, records it, and tells whoever listens."""

    def __init__(self, book: Book, build: Callable[[], Engine], ground: Callable[[], Runtime] | None = None) -> None:
        self.beat = BEAT
        self.book, self.build, self.ground = book, build, ground
        self.listeners: dict[asyncio.Queue[Happening | None], str] = {}
        """Each with the hash of the visitor who listens."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self._known: dict[str, tuple[int, int]] = {}
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    # Watching

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        # Before anybody can open a page, so that nothing falls between what a page shows and what it is told.
        self._try_to_look()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        for queue in list(self.listeners):
            _end(queue)

    def end_of(self, owner: str) -> None:
        """End what a visitor listens to."""
        for queue in [queue for queue, whose in self.listeners.items() if whose == owner]:
            _end(queue)

    def wait(self) -> None:
        """Return once nothing is looked at any more, so that the book can be closed."""
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(EVERY):
            self._try_to_look()

    def _try_to_look(self) -> None:
        # A store that cannot be looked at now is looked at again in a second; the health page names the trouble.
        with suppress(KeepfastError, OSError, sqlite3.Error):
            self.look()

    def look(self) -> None:
        """Record what came into the store since the last look."""
        engine = self.build()
        try:
            grown = [name for name, stamp in _logs(engine.place.path) if self._known.get(name) != stamp]
            stamps = dict(_logs(engine.place.path))
            for name in grown:
                self._told(engine, name)
                self._known[name] = stamps[name]
        finally:
            engine.close()
        if self.ground is not None:
            self._tasks(self.ground())

    def _tasks(self, ground: Runtime) -> None:
        """Pass on what the supervisor and people have logged about tasks."""
        from keepfast.runner.actions.event_files import event
        from keepfast.runner.db import queries

        try:
            last = queries.last_sequence(ground.tables)
            known = int(self.book.keep("task events", lambda: str(last)))
            if last <= known:
                return
            rows = queries.events_after(ground.tables, known, 500)
            for row in rows:
                told = event(row)
                self.tell(told.pop("type"), "", told, str(told["taskId"]))
            self.book.put("task events", str(rows[-1].sequence if rows else last))
        finally:
            ground.close()

    def _told(self, engine: Engine, workspace: str) -> None:
        repository = engine.repository()
        row = repository.workspace(workspace)
        if row is None:
            return
        key = f"version {workspace}"
        known = int(self.book.keep(key, lambda: str(row.version)))
        if row.version <= known:
            if workspace in self._known:
                self.tell("checkpoint_changed", workspace, {"version": f"v{row.version}"})
            return
        fresh = repository.find(Query(workspace=workspace, limit=min(row.version - known, MOST_AT_ONCE)))
        for checkpoint in sorted(fresh, key=lambda found: found.version):
            if checkpoint.version > known:
                self.tell("checkpoint_created", workspace, of_checkpoint(checkpoint))
        self.book.put(key, str(row.version))

    def tell(self, type: str, workspace: str, data: dict[str, Any], task: str = "") -> None:
        """Record an event and pass it on; may be called from any thread."""
        happening = self.book.record(type, workspace, task, data)
        if self.loop is not None:
            with suppress(RuntimeError):  # the server has ended; whoever comes back asks the book
                self.loop.call_soon_threadsafe(self._pass_on, happening)

    def _pass_on(self, happening: Happening) -> None:
        for queue in list(self.listeners):
            try:
                queue.put_nowait(happening)
            except asyncio.QueueFull:
                self.listeners.pop(queue, None)
                _end(queue)

    # Listening

    async def listen(
        self, since: int, task: str = "", owner: str = "", may_hear: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[str]:
        """The lines of an event stream: everything after `since`, then what comes, and a beat while nothing does.

        With a task, what concerns that one alone. It ends as soon as whoever listens may no longer hear it.
        """
        queue: asyncio.Queue[Happening | None] = asyncio.Queue(WAITING)
        self.listeners[queue] = owner
        try:
            yield "retry: 1000\n\n"
            while may_hear() and (missed := self.book.since(since)):
                for happening in missed:
                    if not task or happening.task == task:
                        yield as_lines(happening)
                since = missed[-1].sequence
            while True:
                try:
                    waiting = await asyncio.wait_for(queue.get(), self.beat)
                except TimeoutError:
                    if not may_hear():
                        return
                    yield ": beat\n\n"
                    continue
                if waiting is None or not may_hear():
                    return
                if waiting.sequence > since:
                    since = waiting.sequence
                    if not task or waiting.task == task:
                        yield as_lines(waiting)
        finally:
            self.listeners.pop(queue, None)


def as_lines(happening: Happening) -> str:
    return f"id: {happening.sequence}\ndata: {json.dumps(as_json(happening), ensure_ascii=False)}\n\n"


def as_json(happening: Happening) -> dict[str, Any]:
    return {
        "id": f"ev-{happening.sequence}",
        "sequence": happening.sequence,
        "timestamp": rfc3339(happening.at),
        "type": happening.type,
        "workspace": happening.workspace or None,
        "taskId": happening.task or None,
        "data": happening.data,
    }


def _logs(store: str) -> Iterable[tuple[str, tuple[int, int]]]:
    """Each workspace and what tells whether its log has grown."""
    try:
        with scandir(store + "/log") as entries:
            for entry in entries:
                if entry.name.endswith(".log") and entry.name != "store.log":
                    seen = entry.stat()
                    yield entry.name[:-4], (seen.st_size, seen.st_mtime_ns)
    except FileNotFoundError:
        return


def _end(queue: asyncio.Queue[Happening | None]) -> None:
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
