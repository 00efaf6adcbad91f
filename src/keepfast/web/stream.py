"""The event stream: numbered events to any number of clients, first what they missed, then new ones."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from os import scandir
from typing import Any

from keepfast.app.checkpoint import Engine
from keepfast.model.errors import KeepfastError
from keepfast.present.json_forms import of_checkpoint
from keepfast.present.terminal import rfc3339
from keepfast.runner.actions.event_files import event
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.store.rows import Query
from keepfast.web.sessions import StreamEvent, WebDatabase

EVERY, BEAT = 1.0, 15.0
MAX_AT_ONCE = 200
WAITING = 1_000
"""A client that is this many events behind is disconnected; it reconnects and asks for what it missed."""


class Stream:
    """Polls the store for changes, records them as events, and sends them to listeners."""

    def __init__(
        self, database: WebDatabase, build: Callable[[], Engine], runtime: Callable[[], Runtime] | None = None
    ) -> None:
        self.beat = BEAT
        self.database, self.build, self.runtime = database, build, runtime
        self.listeners: dict[asyncio.Queue[StreamEvent | None], str] = {}
        """Queues by the session hash of their visitor."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self._stamps: dict[str, tuple[int, int]] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    # Watching

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        # Before the first page, so that no event falls between a page and its stream.
        self._try_to_poll()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for queue in list(self.listeners):
            _end(queue)

    def end_of(self, owner: str) -> None:
        """End the streams of a visitor."""
        for queue in [queue for queue, whose in self.listeners.items() if whose == owner]:
            _end(queue)

    def wait(self) -> None:
        """Wait for the polling thread, so that the database can be closed."""
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(EVERY):
            self._try_to_poll()

    def _try_to_poll(self) -> None:
        # A store that cannot be read now is polled again in a second; the health page shows the problem.
        with suppress(KeepfastError, OSError, sqlite3.Error):
            self.poll()

    def poll(self) -> None:
        """Publish what changed in the store since the last poll."""
        engine = self.build()
        try:
            grown = [name for name, stamp in _logs(engine.place.path) if self._stamps.get(name) != stamp]
            stamps = dict(_logs(engine.place.path))
            for name in grown:
                self._publish_checkpoints(engine, name)
                self._stamps[name] = stamps[name]
        finally:
            engine.close()
        if self.runtime is not None:
            self._publish_task_events(self.runtime())

    def _publish_task_events(self, runtime: Runtime) -> None:
        """Publish new events of tasks."""
        try:
            last = queries.last_sequence(runtime.tables)
            last_passed = int(self.database.get_or_create("task events", lambda: str(last)))
            if last <= last_passed:
                return
            rows = queries.events_after(runtime.tables, last_passed, 500)
            for row in rows:
                payload = event(row)
                self.publish(payload.pop("type"), "", payload, str(payload["taskId"]))
            self.database.set_value("task events", str(rows[-1].sequence if rows else last))
        finally:
            runtime.close()

    def _publish_checkpoints(self, engine: Engine, workspace: str) -> None:
        repository = engine.repository()
        row = repository.workspace(workspace)
        if row is None:
            return
        key = f"version {workspace}"
        last_told = int(self.database.get_or_create(key, lambda: str(row.version)))
        if row.version <= last_told:
            if workspace in self._stamps:
                self.publish("checkpoint_changed", workspace, {"version": f"v{row.version}"})
            return
        fresh = repository.find(Query(workspace=workspace, limit=min(row.version - last_told, MAX_AT_ONCE)))
        for checkpoint in sorted(fresh, key=lambda row: row.version):
            if checkpoint.version > last_told:
                self.publish("checkpoint_created", workspace, of_checkpoint(checkpoint))
        self.database.set_value(key, str(row.version))

    def publish(self, type: str, workspace: str, data: dict[str, Any], task: str = "") -> None:
        """Record an event and pass it on; may be called from any thread."""
        event = self.database.record_event(type, workspace, task, data)
        if self.loop is not None:
            with suppress(RuntimeError):  # the server has ended; clients ask for the event when they reconnect
                self.loop.call_soon_threadsafe(self._pass_on, event)

    def _pass_on(self, event: StreamEvent) -> None:
        for queue in list(self.listeners):
            try:
                queue.put_nowait(event)
            except asyncio.QueueFull:
                self.listeners.pop(queue, None)
                _end(queue)

    # Listening

    async def listen(
        self, since: int, task: str = "", owner: str = "", may_hear: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[str]:
        """Yield the lines of an event stream: all events after `since`, then new ones, and a comment every 15 seconds.

        With `task`, only the events of that task. It ends when `may_hear` returns false.
        """
        queue: asyncio.Queue[StreamEvent | None] = asyncio.Queue(WAITING)
        self.listeners[queue] = owner
        try:
            yield "retry: 1000\n\n"
            while may_hear() and (missed := self.database.events_since(since)):
                for event in missed:
                    if not task or event.task == task:
                        yield as_lines(event)
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


def as_lines(event: StreamEvent) -> str:
    return f"id: {event.sequence}\ndata: {json.dumps(as_json(event), ensure_ascii=False)}\n\n"


def as_json(event: StreamEvent) -> dict[str, Any]:
    return {
        "id": f"ev-{event.sequence}",
        "sequence": event.sequence,
        "timestamp": rfc3339(event.at),
        "type": event.type,
        "workspace": event.workspace or None,
        "taskId": event.task or None,
        "data": event.data,
    }


def _logs(store: str) -> Iterable[tuple[str, tuple[int, int]]]:
    """Yield each workspace with the size and time of its log."""
    try:
        with scandir(store + "/log") as entries:
            for entry in entries:
                if entry.name.endswith(".log") and entry.name != "store.log":
                    seen = entry.stat()
                    yield entry.name[:-4], (seen.st_size, seen.st_mtime_ns)
    except FileNotFoundError:
        return


def _end(queue: asyncio.Queue[StreamEvent | None]) -> None:
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
