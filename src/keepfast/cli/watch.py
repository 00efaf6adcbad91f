"""`keepfast watch`: save whenever the tree settles."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.numbers import Number
from keepfast.cli.session import Session, common
from keepfast.fsutil.lock_wait import WAITING
from keepfast.model.errors import Failed

if TYPE_CHECKING:
    from keepfast.model.event import Outcome

SETTLE, AT_MOST = 2.0, 15.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option(
    "--settle",
    default=SETTLE,
    type=Number(0.1),
    metavar="SECONDS",
    help="Save after SECONDS without a change.",
)
@click.option(
    "--at-most",
    default=AT_MOST,
    type=Number(0.1),
    metavar="SECONDS",
    help="Save at most once in SECONDS; no change waits longer.",
)
@click.option("--poll", is_flag=True, help="Poll the files instead of using kernel notifications.")
@common
def watch(session: Session, settle: float, at_most: float, poll: bool) -> None:
    """Save a checkpoint whenever files change, until Ctrl-C. Meant for agents without hooks.

    Excluded folders (capture.exclude) are not watched. Unsaved changes are saved at the end.
    """
    from keepfast.app.watch import Watch
    from keepfast.model.save_schedule import SaveSchedule

    teller = _Lines(session) if session.json else _Teller(session)
    WAITING.seconds = None  # it has all the time there is
    watching = Watch(session.engine, session.cwd, SaveSchedule(settle, at_most), monotonic, teller)
    with _told_to_end(watching.stop.set):
        try:
            watching.run(poll)
        except OSError as error:
            raise Failed(f"Stopped watching: {error.strerror or error}.") from None
        finally:
            teller.clear()
    teller.ended()


@contextmanager
def _told_to_end(stop: Callable[[], None]) -> Iterator[None]:
    """The first signal ends the watch in order, the second at once."""
    told = False

    def end(number: int, frame: object) -> None:
        nonlocal told
        if told:
            raise KeyboardInterrupt
        told = True
        stop()

    before = {number: signal.signal(number, end) for number in ENDING}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class _Teller:
    """Says it in lines, and on a terminal shows below them how things stand."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.live = sys.stderr.isatty() and not session.quiet
        self.last: Outcome | None = None
        self.shown = ""

    def watching(self, root: bytes, how: str) -> None:
        from keepfast.workspace.marker import show

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
        if text != self.shown:
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()
            self.shown = text

    def _standing(self) -> str:
        from keepfast.present.terminal import age, plural

        if self.last is None or self.last.checkpoint is None:
            return "No changes yet"
        row = self.last.checkpoint
        return f"v{row.version}, {plural(row.files, 'file')}, {age(row.created_at, self.session.now())}"

    def clear(self) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self.shown = ""

    def ended(self) -> None:
        self.session.say("Stopped watching.")


class _Lines:
    """The same as JSON, one object a line (docs/json.md)."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def watching(self, root: bytes, how: str) -> None:
        from keepfast.workspace.marker import show

        self._write({"event": "watching", "root": show(root), "polling": how or None})

    def saved(self, outcome: Outcome, seconds: float) -> None:
        from keepfast.present.json_forms import of_checkpoint

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
