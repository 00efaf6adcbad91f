"""`keepfast task`: the group of commands for unattended tasks."""

from __future__ import annotations

import click

from keepfast.cli import task_answers, task_control, task_creation, task_results, task_views
from keepfast.cli.lazy import OrderedGroup


@click.group(cls=OrderedGroup)
def task() -> None:
    """Manage unattended tasks. `keepfast supervise` runs them."""


for verb in (
    task_creation.new,
    task_creation.start,
    task_views.list_,
    task_views.show,
    task_views.log,
    task_control.pause,
    task_control.freeze,
    task_control.resume,
    task_control.restore,
    task_control.cancel,
    task_control.retry,
    task_answers.approve,
    task_answers.accept,
    task_answers.reject,
    task_answers.answer,
    task_answers.secret,
    task_control.budget,
    task_control.try_now,
    task_creation.fork,
    task_results.diff,
    task_results.apply,
    task_control.archive,
    task_views.inbox,
):
    task.add_command(verb)
