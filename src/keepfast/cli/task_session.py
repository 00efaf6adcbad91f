"""What the task commands share: opening the task database, naming a task, and printing results."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from keepfast.cli.event_lines import local
from keepfast.cli.session import Session, write_json
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.tasks import Tasks, only_people
from keepfast.runner.actions.view_types import TaskView
from keepfast.runner.domain.records import Task
from keepfast.runner.scheduler.lock import supervisor_problem

REF = click.argument("ref", metavar="TASK")


@contextmanager
def open_runtime(session: Session, stays: bool = False) -> Iterator[Runtime]:
    """Open what task commands need: database, settings and engine. With `stays`, settings are reloaded when they change."""
    from keepfast.runner.scheduler.service import make_runtime

    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in session.environment.variables.items()}
    environment = session.environment
    following = session.follow_settings(here=True) if stays else None
    runtime = make_runtime(
        session.settings,
        environment.data,
        environment.home,
        session.now,
        variables,
        folders=environment.folders,
        following=following,
    )
    try:
        yield runtime
    finally:
        runtime.close()


@contextmanager
def tasks_of(session: Session, verb: str = "") -> Iterator[Tasks]:
    """Open the task actions. Raises `Refused` if `verb` is for people only and an agent's process runs it."""
    only_people(os.getpid(), verb)
    with open_runtime(session) as runtime:
        yield Tasks(runtime)


def say(session: Session, tasks: Tasks, done: Task, text: str) -> None:
    """Print the result: the task with --json, else the text."""
    if session.json:
        write_json(tasks.views.describe(done))
    else:
        session.say(text)


def continuation(facts: TaskView) -> str:
    """Return what a task does after an answer: whether it continues, or what it still waits for."""
    if facts["asks"]:
        return "still waits for " + "; ".join(
            [f"{question_text(prompt, facts['id'])} ({prompt['id']})" for prompt in facts["asks"]]
        )
    hold = facts["hold"]
    limit = facts["limit"] or (hold if hold is not None and hold["kind"] == "rate_limit" else None)
    if limit is not None and limit["until"]:
        return f"continues when the limit resets, {local(limit['until'])}"
    if limit is not None:
        return f"waits at its limit and needs you: {limit['reason'] or ''}".rstrip(": ")
    if hold is not None:
        return f"still waits: {hold['kind'].replace('_', ' ')}, {hold['reason'] or ''}".rstrip(", ")
    return "continues" if facts["state"] in ("queued", "active") else f"is {facts['status']}"


def question_text(prompt: Mapping[str, Any], task: str) -> str:
    """Return the text of a question; for a needed secret, also its name and the command that provides it."""
    text, name = str(prompt["text"]), prompt.get("name")
    named = text if not name or name in text else f"{name}: {text}"
    return f"{named} (`keepfast task secret {task} {name}`)" if prompt["kind"] == "secret" else named


def clock(seconds: int) -> str:
    """Format seconds as `1:02:03` or `4:05`."""
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def remark_unsupervised(session: Session) -> None:
    """Print a remark if no supervisor is running, because tasks do not start then."""
    if problem(session) is None:
        session.remark("No supervisor is running. Run `keepfast supervise` to start one.")


def problem(session: Session) -> str | None:
    """Return the supervisor's error, empty if it has none; None if no supervisor is running."""
    from keepfast.runner.scheduler.service import FOLDER

    return supervisor_problem(session.environment.data + FOLDER)
