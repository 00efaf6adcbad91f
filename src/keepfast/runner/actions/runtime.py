"""What everything in the supervisor stands on: tables, clocks, options, engine, secrets, environment."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Protocol

from keepfast.runner.actions.seals import DocumentKey, StoreSeals
from keepfast.runner.db.tables import Tables
from keepfast.runner.domain.options import Options
from keepfast.runner.process.tree import boot_id

if TYPE_CHECKING:
    from keepfast.app.checkpoint import Engine

SECOND = 1_000_000_000


class Seals(Protocol):
    """Whoever can seal a named value and open it again."""

    def seal_value(self, name: str, value: bytes) -> str: ...

    def open_value(self, name: str, text: str) -> bytes: ...


class Runtime:
    """All of it in one place; made by the front end, which knows the environment and the clock."""

    def __init__(
        self,
        folder: str,
        options: Options,
        clock: Callable[[], int],
        variables: Mapping[str, str],
        build: Callable[[], Engine],
        seals: Seals | None = None,
        folders: Sequence[str] = (),
        follow: Callable[[], tuple[Options, str]] | None = None,
    ) -> None:
        """`follow` gives the options as they are now, and why newer ones are not in force: for whoever stays."""
        self.folder, self.options, self.now, self.variables = folder, options, clock, variables
        self.build, self.folders, self._follow = build, folders, follow
        self.tables = Tables(options.database or folder + "/tasks.db")
        self.key = DocumentKey(folder + "/key")
        self.seals: Seals = seals or StoreSeals(self.engine)
        self.boot = boot_id()
        self.host = os.uname().nodename
        self.trouble = ""
        """Why a step could not even say what stopped it."""
        self.unread = ""
        """Why the settings that are there now are not in force."""
        self.noise: Callable[[], float] = random.random

    def follow_settings(self) -> None:
        """Go by the settings as they are now. The database stays the one that was opened."""
        if self._follow is not None:
            options, self.unread = self._follow()
            self.options = options.but(database=self.options.database)

    def close(self) -> None:
        self.tables.close()

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """An engine of one's own: its ledger belongs to the thread that opened it."""
        engine = self.build()
        try:
            yield engine
        finally:
            engine.close()

    @property
    def zone(self) -> tzinfo:
        """The time zone of this machine, as TZ or the system say."""
        from keepfast.runner.domain.limits import zone_of

        named = zone_of(self.variables["TZ"]) if self.variables.get("TZ") else None
        found = named or datetime.fromtimestamp(self.now() / SECOND).astimezone().tzinfo
        assert found is not None
        return found

    def since_boot(self) -> int:
        """A clock that nobody can set: back-off goes by it. It goes on while the machine sleeps."""
        number = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime_ns(number)

    def runs_folder(self, run: str) -> str:
        return f"{self.folder}/runs/{run.replace(':', '-')}"
