"""`keepfast supervise`: run tasks until a signal stops it."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event as Flag
from typing import Any

import click

from keepfast.cli.event_lines import supervisor_line
from keepfast.cli.session import Session, common, write_bytes
from keepfast.cli.task_session import open_runtime
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.tasks import Tasks
from keepfast.runner.process.wake import wake

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option("--until-idle", is_flag=True, help="Exit when every task is done or waits for a person.")
@common
def supervise(session: Session, until_idle: bool) -> None:
    """Run tasks until Ctrl-C. Agents keep running; the next supervisor continues with them."""
    run_supervisor(session, until_idle)


def run_supervisor(session: Session, until_idle: bool = False) -> None:
    from keepfast.runner.scheduler.service import run

    stop = Flag()
    with open_runtime(session, stays=True) as runtime:

        def end(number: int, frame: object) -> None:
            stop.set()
            wake(runtime.folder)

        before = {number: signal.signal(number, end) for number in STOP_SIGNALS}
        session.remark("Supervisor running. Press Ctrl-C to stop it; agents keep running.")
        try:
            _print_unfinished(session, runtime)
            run(
                runtime,
                stop,
                until_idle=until_idle,
                on_event=None if session.quiet else lambda event: _print_event(session, event),
            )
        finally:
            for number, old in before.items():
                signal.signal(number, old)


def _print_unfinished(session: Session, runtime: Runtime) -> None:
    """Print the tasks that are not finished, and what each waits for."""
    for task in Tasks(runtime).views.listing():
        if task["state"] in ("queued", "active", "review"):
            hold = f", {task['hold']['kind'].replace('_', ' ')}" if task["hold"] else ""
            session.say(f"Unfinished: {task['id']} ({task['title']}), {task['status'].replace('_', ' ')}{hold}")


def _print_event(session: Session, event: dict[str, Any]) -> None:
    """Print an event: as a line of JSON, or in words if it is worth a line."""
    text = json.dumps(event, ensure_ascii=False) if session.json else supervisor_line(event)
    if not text:
        return
    with suppress(BrokenPipeError):  # the reader is gone; tasks continue
        write_bytes(text.encode("utf-8", "replace") + b"\n")
        sys.stdout.flush()


@contextmanager
def background_supervisor(session: Session) -> Iterator[None]:
    """Run tasks in the background, as soon as no other supervisor does; print which one runs them, and errors."""
    from keepfast.runner.scheduler.service import Background

    with open_runtime(session, stays=True) as runtime:
        background = Background(runtime, session.remark)
        background.start()
        try:
            yield
        finally:
            background.close()
            if background.error is not None:
                session.warn(f"keepfast: tasks were not run: {background.error}")
