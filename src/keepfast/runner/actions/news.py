"""New events of all tasks: each is reported once, in order, to the caller of a supervisor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keepfast.runner.actions import event_files
from keepfast.runner.db import queries
from keepfast.runner.db.tables import Tables

EVENTS_PER_QUERY = 1_000
OnEvent = Callable[[dict[str, Any]], None]


class News:
    """Reports events from now on; without a callback it does nothing."""

    def __init__(self, tables: Tables, on_event: OnEvent | None) -> None:
        self.tables, self.on_event = tables, on_event
        self.since = queries.last_sequence(tables) if on_event is not None else 0

    def look(self) -> None:
        """Report what is new."""
        while self.on_event is not None:
            rows = queries.events_after(self.tables, self.since, EVENTS_PER_QUERY)
            for row in rows:
                self.since = row.sequence
                self.on_event(event_files.event(row))
            if len(rows) < EVENTS_PER_QUERY:
                return
