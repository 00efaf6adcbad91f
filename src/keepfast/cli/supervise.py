"""`keepfast supervise`: run tasks until told to stop."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event as Flag
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.session import Session, common, write_bytes
from keepfast.cli.task_session import ground_of

if TYPE_CHECKING:
    from keepfast.runner.actions.environment import Ground

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option("--until-idle", is_flag=True, help="Exit when every task is done or waits for a person.")
@common
def supervise(session: Session, until_idle: bool) -> None:
    """Run tasks until Ctrl-C. Agents keep running; the next supervisor continues with them."""
    until_told(session, until_idle)


def until_told(session: Session, until_idle: bool = False) -> None:
    from keepfast.runner.process.wake import wake
    from keepfast.runner.scheduler.service import run

    stop = Flag()
    with ground_of(session, stays=True) as ground:

        def end(number: int, frame: object) -> None:
            stop.set()
            wake(ground.folder)

        before = {number: signal.signal(number, end) for number in ENDING}
        session.remark("Supervisor running. Press Ctrl-C to stop it; agents keep running.")
        try:
            _say_found(session, ground)
            run(
                ground, stop, until_idle=until_idle, tell=None if session.quiet else lambda event: _tell(session, event)
            )
        finally:
            for number, old in before.items():
                signal.signal(number, old)


def _say_found(session: Session, ground: Ground) -> None:
    """The tasks that were begun before, and what each waits for."""
    from keepfast.runner.actions.tasks import Tasks

    for one in Tasks(ground).views.listing():
        if one["state"] in ("queued", "active", "review"):
            hold = f", waits for {one['hold']['kind'].replace('_', ' ')}" if one["hold"] else ""
            session.say(f"Resumed {one['id']} ({one['title']}): {one['status'].replace('_', ' ')}{hold}")


def _tell(session: Session, event: dict[str, Any]) -> None:
    """An event as a line: of JSON, or in words if it is of interest."""
    from keepfast.cli.event_lines import progress_line

    text = json.dumps(event, ensure_ascii=False) if session.json else progress_line(event)
    if not text:
        return
    with suppress(BrokenPipeError):  # nobody reads any more; tasks go on
        write_bytes(text.encode("utf-8", "replace") + b"\n")
        sys.stdout.flush()


@contextmanager
def supervising(session: Session) -> Iterator[None]:
    """Run tasks beside something else, or once the supervisor that does has ended; who does, and what goes wrong, is said."""
    from keepfast.runner.scheduler.service import Background

    with ground_of(session, stays=True) as ground:
        background = Background(ground, session.remark)
        background.start()
        try:
            yield
        finally:
            background.close()
            if background.error is not None:
                session.warn(f"keepfast: tasks were not run: {background.error}")
