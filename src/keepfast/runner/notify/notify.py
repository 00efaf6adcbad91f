"""Notifications: sent at least once, not in quiet hours, retried after a failure, without delaying a task."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from threading import Lock, Thread
from time import monotonic

from keepfast.model.errors import KeepfastError
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.tasks import Tasks
from keepfast.runner.db import changes, queries
from keepfast.runner.domain.records import Notification, Prompt
from keepfast.runner.domain.waits import is_quiet
from keepfast.runner.notify import channels
from keepfast.secrets.redaction import redact

SECOND = 1_000_000_000
RETRY_SECONDS = (5.0, 30.0, 120.0, 600.0, 1800.0)
"""Seconds before each retry; after the last one the failure is logged."""
BATCH = 20
FETCH_SECONDS = 10.0
"""Seconds between two polls for answers from ntfy's buttons, while a question is open."""
CLOSE_SECONDS = 30.0


class Notices:
    """Sends notices and fetches answers. Channels may be slow: they work in a thread, which a tick only starts."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._lock = Lock()
        self._thread: Thread | None = None
        self._next: dict[str, float] = {}
        self._delivered: set[tuple[str, str]] = set()
        self._bell_rung: set[str] = set()
        self._fetched = 0.0
        self._since = ""

    @property
    def _channels(self) -> dict[str, Callable[[Runtime, channels.Body], str]]:
        """The channels in the current settings."""
        return {name: way for name, way in channels.CHANNELS.items() if getattr(self.runtime.options, name)}

    def tick(self) -> None:
        """Send what is due; return at once."""
        due = self._due()
        for notice in due:
            if notice.id not in self._bell_rung:
                self._bell_rung.add(notice.id)
                channels.ring(self.runtime, notice.kind)
        if not self._channels:
            for notice in due:
                self._sent(notice)
            return
        if not due and not self._is_time_to_fetch():
            return
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._work, args=(due,), name="notices", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Wait for notices that are being sent, for a limited time."""
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _due(self) -> list[Notification]:
        rows = queries.unsent_notices(self.runtime.tables, len(RETRY_SECONDS), BATCH)
        if not rows or self._is_quiet():
            return []
        now = monotonic()
        return [row for row in rows if self._next.get(row.id, 0.0) <= now]

    def _is_quiet(self) -> bool:
        local = datetime.fromtimestamp(self.runtime.now() / SECOND, self.runtime.zone)
        return is_quiet(local.hour * 60 + local.minute, self.runtime.options.quiet_hours)

    def _work(self, due: list[Notification]) -> None:
        try:
            for notice in due:
                self._send(notice)
            if self._is_time_to_fetch():
                self._fetched = monotonic()
                self._fetch()
        except KeepfastError:
            pass  # the database is away: the next tick begins again

    def _send(self, notice: Notification) -> None:
        if notice.prompt and not self._is_open(notice.prompt):
            self._sent(notice)  # answered in the meantime
            return
        content, failure = channels.body(self.runtime, notice), ""
        for name, channel in self._channels.items():
            if (notice.id, name) in self._delivered:
                continue
            why = channel(self.runtime, content)
            if why:
                failure = failure or f"{name}: {redact(why)}"
            else:
                self._delivered.add((notice.id, name))
        if failure:
            self._failed(notice, failure)
        else:
            self._sent(notice)

    def _sent(self, notice: Notification) -> None:
        with self.runtime.tables.write() as tables:
            changes.sent(tables, notice.id, self.runtime.now())
        self._delivered -= {(notice.id, name) for name in channels.CHANNELS}
        self._bell_rung.discard(notice.id)
        self._next.pop(notice.id, None)

    def _failed(self, notice: Notification, why: str) -> None:
        tries = notice.tries
        with self.runtime.tables.write() as tables:
            changes.count_failure(tables, notice.id)
            if tries >= len(RETRY_SECONDS):
                tables.log(notice.task, self.runtime.now(), "notice_failed", {"id": notice.id, "why": why})
        if tries < len(RETRY_SECONDS):
            self._next[notice.id] = monotonic() + RETRY_SECONDS[tries]

    # What comes back

    def _is_open(self, prompt: str) -> bool:
        return queries.find_waiting_prompt(self.runtime.tables, prompt) is not None

    def _is_time_to_fetch(self) -> bool:
        if "notify_ntfy" not in self._channels or monotonic() - self._fetched < FETCH_SECONDS:
            return False
        return bool(self._questions())

    def _questions(self) -> list[Prompt]:
        return queries.waiting_choices(self.runtime.tables)

    def _fetch(self) -> None:
        """Fetch answers given by buttons. One that comes twice, or too late, changes nothing."""
        open_ones = {prompt.id: prompt for prompt in self._questions()}
        since = self._since or str(min(prompt.created_at for prompt in open_ones.values()) // SECOND)
        try:
            for message, id, number in channels.answers(self.runtime, since):
                self._since = message
                prompt = open_ones.get(id)
                if prompt is not None and number < len(prompt.options):
                    try:
                        Tasks(self.runtime).answers.answer(id, prompt.options[number], by="ntfy")
                    except KeepfastError:
                        continue  # it was answered already
        except (OSError, ValueError):
            pass  # the next poll tries again
