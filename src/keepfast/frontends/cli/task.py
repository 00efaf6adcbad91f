"""`keepfast task`: unattended tasks, from a new one to what came of it; a room for each kind of verb."""

from __future__ import annotations

import click

from keepfast.frontends.cli import task_answering as answering
from keepfast.frontends.cli import task_looking as looking
from keepfast.frontends.cli import task_making as making
from keepfast.frontends.cli import task_results as results
from keepfast.frontends.cli import task_steering as steering
from keepfast.frontends.cli.lazy import Listed


@click.group(cls=Listed)
def task() -> None:
    """Agents that work while nobody watches; `keepfast supervise` runs them."""


for verb in (
    making.new,
    making.start,
    looking.list_,
    looking.show,
    looking.log,
    steering.pause,
    steering.freeze,
    steering.resume,
    steering.restore,
    steering.cancel,
    steering.retry,
    answering.approve,
    answering.accept,
    answering.reject,
    answering.answer,
    answering.secret,
    steering.budget,
    steering.try_now,
    making.fork,
    results.diff,
    results.apply,
    steering.archive,
    looking.inbox,
):
    task.add_command(verb)
