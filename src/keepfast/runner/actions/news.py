"""News of all tasks: every event once, in order, for whoever watches a supervisor at work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keepfast.runner.actions import event_files
from keepfast.runner.db import queries
from keepfast.runner.db.tables import Tables

MOST = 1_000
OnEvent = Callable[[dict[str, Any]], None]


class News:
    """Tells what happens from now on; without anybody to tell, it looks at nothing."""

    def __init__(self, tables: Tables, tell: OnEvent | None) -> None:
        self.tables, self.tell = tables, tell
        self.since = queries.last_sequence(tables) if tell is not None else 0

    def look(self) -> None:
        """Tell what is new."""
        while self.tell is not None:
            rows = queries.events_after(self.tables, self.since, MOST)
            for row in rows:
                self.since = row.sequence
                self.tell(event_files.event(row))
            if len(rows) < MOST:
                return
