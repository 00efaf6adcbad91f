"""What the commands about tasks share: their ground, how a task is named, and how they answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.event_lines import local_time
from keepfast.cli.session import Session, write_json

if TYPE_CHECKING:
    from keepfast.runner.actions.environment import Ground
    from keepfast.runner.actions.tasks import Tasks
    from keepfast.runner.domain.records import Task

REF = click.argument("ref", metavar="TASK")


@contextmanager
def ground_of(session: Session, stays: bool = False) -> Iterator[Ground]:
    """What commands about tasks stand on, for as long as they need it; one that stays goes by settings as they change."""
    from keepfast.runner.scheduler.service import make_ground

    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in session.around.variables.items()}
    around = session.around
    following = session.following(here=True) if stays else None
    ground = make_ground(
        session.settings,
        around.data,
        around.home,
        session.now,
        variables,
        folders=around.folders,
        following=following,
    )
    try:
        yield ground
    finally:
        ground.close()


@contextmanager
def tasks_of(session: Session, verb: str = "") -> Iterator[Tasks]:
    """The function layer; human-only verbs refuse processes that belong to a run."""
    from keepfast.runner.actions.tasks import Tasks, only_people

    only_people(os.getpid(), verb)
    with ground_of(session) as ground:
        yield Tasks(ground)


def say(session: Session, tasks: Tasks, done: Task, text: str) -> None:
    """What became of a task: as JSON, or in words."""
    if session.json:
        write_json(tasks.views.describe(done))
    else:
        session.say(text)


def goes_on(shown: dict[str, Any]) -> str:
    """What a task does once it was told something: it goes on, or what it still waits for."""
    if shown["asks"]:
        return "still waits for " + "; ".join([f"{asked(one, shown['id'])} ({one['id']})" for one in shown["asks"]])
    hold = shown["hold"]
    limit = shown["limit"] or (hold if hold is not None and hold["kind"] == "rate_limit" else None)
    if limit is not None and limit["until"]:
        return f"continues when the limit resets, {local_time(limit['until'])}"
    if limit is not None:
        return f"waits at its limit and needs you: {limit['reason'] or ''}".rstrip(": ")
    if hold is not None:
        return f"still waits: {shown['hold']['kind'].replace('_', ' ')}, {shown['hold']['reason'] or ''}".rstrip(", ")
    return "goes on" if shown["state"] in ("queued", "active") else f"is {shown['status']}"


def asked(one: dict[str, Any], task: str) -> str:
    """What a person is asked; of a value that is needed, its name and the command that takes it."""
    text, name = str(one["text"]), one.get("name")
    named = text if not name or name in text else f"{name}: {text}"
    return f"{named} (`keepfast task secret {task} {name}`)" if one["kind"] == "secret" else named


def clock(seconds: int) -> str:
    """A countdown: `1:02:03`, `4:05`."""
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def remark_unsupervised(session: Session) -> None:
    """Say why nothing begins, if no supervisor runs."""
    if trouble(session) is None:
        session.remark("No supervisor is running. Run `keepfast supervise` to start one.")


def trouble(session: Session) -> str | None:
    """What the supervisor cannot do now; None if there is none."""
    from keepfast.runner.scheduler.lock import trouble_of
    from keepfast.runner.scheduler.service import FOLDER

    return trouble_of(session.around.data + FOLDER)
