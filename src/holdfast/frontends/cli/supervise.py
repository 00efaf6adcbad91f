"""`holdfast supervise`: run tasks until told to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event as Flag

import click

from holdfast.frontends.cli.session import Session, common
from holdfast.frontends.cli.task_ground import ground_of

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option("--until-idle", is_flag=True, help="End when nothing goes on without a person.")
@common
def supervise(session: Session, until_idle: bool) -> None:
    """Run tasks until Ctrl-C; agents live on and are found again by the next supervisor."""
    until_told(session, until_idle)


def until_told(session: Session, until_idle: bool = False) -> None:
    from holdfast.supervisor.serving import run
    from holdfast.supervisor.wake import wake

    stop = Flag()
    with ground_of(session) as ground:

        def end(number: int, frame: object) -> None:
            stop.set()
            wake(ground.folder)

        before = {number: signal.signal(number, end) for number in ENDING}
        session.remark("Supervising. Press Ctrl-C to end; agents live on.")
        try:
            run(ground, stop, until_idle=until_idle)
        finally:
            for number, old in before.items():
                signal.signal(number, old)


@contextmanager
def supervising(session: Session) -> Iterator[None]:
    """Run tasks beside something else, unless another supervisor does; what goes wrong is said at the end."""
    from holdfast.core.errors import Busy
    from holdfast.supervisor.serving import Background

    with ground_of(session) as ground:
        background = Background(ground)
        background.start()
        try:
            yield
        finally:
            background.close()
            if background.error is not None and not isinstance(background.error, Busy):
                session.warn(f"holdfast: tasks were not run: {background.error}")
