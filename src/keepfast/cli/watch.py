"""`keepfast watch`: save whenever files changed and no change follows for a while."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import click

from keepfast.app.watch import Watch
from keepfast.cli.numbers import Number
from keepfast.cli.session import Session, common
from keepfast.fsutil.lock_wait import WAITING
from keepfast.model.errors import Failed
from keepfast.model.event import Outcome
from keepfast.model.save_schedule import SaveSchedule
from keepfast.present.json_forms import of_checkpoint
from keepfast.present.terminal import age, plural
from keepfast.workspace.marker import show

SETTLE_SECONDS, AT_MOST_SECONDS = 2.0, 15.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option(
    "--settle",
    default=SETTLE_SECONDS,
    type=Number(0.1),
    metavar="SECONDS",
    help="Save after SECONDS without a change (default 2).",
)
@click.option(
    "--at-most",
    default=AT_MOST_SECONDS,
    type=Number(0.1),
    metavar="SECONDS",
    help="Save at most once in SECONDS; no change waits longer (default 15).",
)
@click.option("--poll", is_flag=True, help="Poll the files instead of using kernel notifications.")
@common
def watch(session: Session, settle: float, at_most: float, poll: bool) -> None:
    """Save a checkpoint whenever files change, until Ctrl-C. Meant for agents without hooks.

    Excluded folders (capture.exclude) are not watched. Unsaved changes are saved at the end.
    """
    reporter = _JsonReporter(session) if session.json else _TextReporter(session)
    WAITING.seconds = None  # wait for locks without limit
    watcher = Watch(session.engine, session.cwd, SaveSchedule(settle, at_most), monotonic, reporter)
    with _stop_at_signals(watcher.stop.set):
        try:
            watcher.run(poll)
        except OSError as error:
            raise Failed(f"Stopped watching: {error.strerror or error}.") from None
        finally:
            reporter.clear()
    reporter.ended()


@contextmanager
def _stop_at_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Stop the watch in order at the first signal, and at once at the second."""
    was_interrupted = False

    def end(number: int, frame: object) -> None:
        nonlocal was_interrupted
        if was_interrupted:
            raise KeyboardInterrupt
        was_interrupted = True
        stop()

    before = {number: signal.signal(number, end) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class _TextReporter:
    """Reports events as lines of text, with a status line below them on a terminal."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.live = sys.stderr.isatty() and not session.quiet
        self.last: Outcome | None = None
        self.status_line = ""

    def watching(self, root: bytes, how: str) -> None:
        self.clear()
        self.session.say(f"Watching {show(root)}. Press Ctrl-C to stop.")
        if how:
            self.session.warn(f"No kernel notifications: {how}.")
        sys.stdout.flush()

    def saved(self, outcome: Outcome, seconds: float) -> None:
        self.clear()
        self.last = outcome
        took = f"{seconds * 1000:.0f}ms" if seconds < 10 else f"{seconds:.1f}s"
        self.session.say(f'Created v{outcome.version} "{outcome.message}" ({took})')
        for notice in outcome.notices:
            self.session.warn(notice)
        sys.stdout.flush()

    def failed(self, message: str, hint: str) -> None:
        self.clear()
        self.session.warn(f"keepfast: not saved: {message}" + (f"\n{hint}" if hint else ""))

    def tick(self, waiting: bool) -> None:
        if not self.live:
            return
        text = self._standing() + (" · waiting for changes to settle" if waiting else "")
        if text != self.status_line:
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()
            self.status_line = text

    def _standing(self) -> str:
        if self.last is None or self.last.checkpoint is None:
            return "No changes yet"
        row = self.last.checkpoint
        return f"v{row.version}, {plural(row.files, 'file')}, {age(row.created_at, self.session.now())}"

    def clear(self) -> None:
        if self.status_line:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self.status_line = ""

    def ended(self) -> None:
        self.session.say("Stopped watching.")


class _JsonReporter:
    """Reports events as lines of JSON (docs/json.md)."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def watching(self, root: bytes, how: str) -> None:
        self._write({"event": "watching", "root": show(root), "polling": how or None})

    def saved(self, outcome: Outcome, seconds: float) -> None:
        self._write(
            {
                "event": "saved",
                "checkpoint": of_checkpoint(outcome.checkpoint),
                "duration_ms": int(seconds * 1000),
                "notices": outcome.notices,
            }
        )

    def failed(self, message: str, hint: str) -> None:
        self._write({"event": "failed", "message": message, "hint": hint})

    def tick(self, waiting: bool) -> None:
        pass

    def clear(self) -> None:
        pass

    def ended(self) -> None:
        self._write({"event": "ended"})

    def _write(self, value: dict[str, Any]) -> None:
        text = json.dumps(value, ensure_ascii=False) + "\n"
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()
