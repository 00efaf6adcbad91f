"""`holdfast supervise`: run tasks until told to stop."""

from __future__ import annotations

import signal
from threading import Event as Flag

import click

from holdfast.frontends.cli.session import Session, common
from holdfast.frontends.cli.task import ground_of

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option("--until-idle", is_flag=True, help="End when nothing goes on without a person.")
@common
def supervise(session: Session, until_idle: bool) -> None:
    """Run tasks until Ctrl-C; agents live on and are found again by the next supervisor."""
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
