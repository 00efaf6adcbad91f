"""What all parts of the runner share: tables, clocks, options, engine, secrets, environment."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, tzinfo
from typing import Protocol

from keepfast.app.checkpoint import Engine
from keepfast.runner.actions.seals import DocumentKey, StoreSeals
from keepfast.runner.db.tables import Tables
from keepfast.runner.domain.limits import zone_of
from keepfast.runner.domain.options import Options
from keepfast.runner.process.tree import boot_id

SECOND = 1_000_000_000


class Seals(Protocol):
    """Seals a named value and opens it again: the port; `StoreSeals` does it with the store's keys."""

    def seal_value(self, name: str, value: bytes) -> str: ...

    def open_value(self, name: str, text: str) -> bytes: ...


class Runtime:
    """The tables, clocks, options and keys of unattended tasks. A front end makes it, with its environment and clock."""

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
        """A process that goes on running passes `follow`: it returns the current options, and why newer ones are not in force."""
        self.folder, self.options, self.now, self.variables = folder, options, clock, variables
        self.build, self.folders, self._follow = build, folders, follow
        self.tables = Tables(options.database or folder + "/tasks.db")
        self.key = DocumentKey(folder + "/key")
        self.seals: Seals = seals or StoreSeals(self.engine)
        self.boot = boot_id()
        self.host = os.uname().nodename
        self.problem = ""
        """An error that could not be written to the task's log."""
        self.unread = ""
        """Why the current settings files are not in force."""
        self.noise: Callable[[], float] = random.random

    def follow_settings(self) -> None:
        """Take over the current settings, except for the address of the database that is open."""
        if self._follow is not None:
            options, self.unread = self._follow()
            self.options = options.but(database=self.options.database)

    def close(self) -> None:
        self.tables.close()

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """Open an engine for the calling thread: a ledger belongs to the thread that opened it."""
        engine = self.build()
        try:
            yield engine
        finally:
            engine.close()

    @property
    def zone(self) -> tzinfo:
        """The time zone of this machine, by TZ or the system's configuration."""
        named = zone_of(self.variables["TZ"]) if self.variables.get("TZ") else None
        zone = named or datetime.fromtimestamp(self.now() / SECOND).astimezone().tzinfo
        assert zone is not None
        return zone

    def since_boot(self) -> int:
        """Return nanoseconds since boot, sleep included. Nobody can set this clock, so back-off goes by it."""
        number = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime_ns(number)

    def runs_folder(self, run: str) -> str:
        return f"{self.folder}/runs/{run.replace(':', '-')}"
