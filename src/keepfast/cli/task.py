"""`keepfast task`: unattended tasks, from a new one to what came of it; a room for each kind of verb."""

from __future__ import annotations

import click

from keepfast.cli import task_answers as answering
from keepfast.cli import task_control as steering
from keepfast.cli import task_creation as making
from keepfast.cli import task_results as results
from keepfast.cli import task_views as looking
from keepfast.cli.lazy import Listed


@click.group(cls=Listed)
def task() -> None:
    """Manage unattended tasks. `keepfast supervise` runs them."""


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
