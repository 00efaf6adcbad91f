"""Going back to a checkpoint of a task, and branching off from one: its files, its conversation, its phase."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from keepfast.app.conversation import ConversationRestorer
from keepfast.app.fork import Forker
from keepfast.app.restore import Restorer
from keepfast.model.errors import NotFound
from keepfast.model.event import Event
from keepfast.runner.actions.vault import agent_of
from keepfast.runner.db import queries
from keepfast.runner.process.drivers import driver
from keepfast.store.references import resolve
from keepfast.workspace.git_clone import Git

if TYPE_CHECKING:
    from keepfast.app.checkpoint import Engine
    from keepfast.runner.actions.environment import Ground
    from keepfast.runner.domain.records import Task
    from keepfast.store.rows import CheckpointRow

MESSAGES = (b'"type":"user"', b'"type":"assistant"', b'"type": "user"', b'"type": "assistant"')


class Back(NamedTuple):
    """Where a task is now: at this checkpoint, in this session; no session if the conversation was not brought back."""

    checkpoint: CheckpointRow
    session: str
    messages: int


def bring_back(
    ground: Ground, task: Task, reference: str, conversation: bool, ask: Callable[[CheckpointRow], bool] | None
) -> Back | None:
    """Bring files back to a checkpoint, and the conversation as a new session; None if `ask` said no.

    What is there now is saved first. Raises `WrongKey` before anything is touched if the conversation cannot be opened.
    """
    with ground.engine() as engine:
        root, row = engine.root(os.fsencode(task.workspace))
        target = resolve(engine.repository(), row.id, reference, ground.now())
        if ask is not None and not ask(target):
            return None
        held = read_conversation(ground, engine, task, target, root) if conversation else None
        Restorer(engine, root, row).restore(target, conflicts="theirs")
        return Back(target, *write(held))


def branch_off(ground: Ground, task: Task, folder: str, with_git: bool) -> tuple[str, int]:
    """Make a fork of the workspace as it is now, saved first; return the session that goes on there, and its messages."""
    with ground.engine() as engine:
        engine.handle(Event(os.fsencode(task.workspace), ground.now(), message="before a fork", task=task.id))
        root, row = engine.root(os.fsencode(task.workspace))
        checkpoint = resolve(engine.repository(), row.id, "@", ground.now())
        git = Git(ground.variables.get("PATH", os.defpath), root) if with_git else None
        Forker(engine, root, row, checkpoint).fork(os.fsencode(folder), git)
        newest = queries.newest_checkpoint(ground.tables, task.id)
        told = engine.repository().checkpoint(row.id, newest.version) if newest is not None else None
        if told is None or told.forgotten:
            return "", 0
        return write(read_conversation(ground, engine, task, told, os.fsencode(folder)))


def read_conversation(
    ground: Ground, engine: Engine, task: Task, target: CheckpointRow, root: bytes
) -> ConversationRestorer | None:
    """The conversation of a checkpoint, read whole; None if it has none, or the agent cannot go on with one."""
    agent = agent_of(ground, task)
    how = driver(agent, ground.options)
    if not how.can_resume:
        return None
    variables = {**ground.variables, **{str(name): str(value) for name, value in agent.get("set", {}).items()}}
    try:
        found = ConversationRestorer(
            engine.repository(), target, root, os.fsencode(variables.get("HOME", "")), variables
        )
    except NotFound:
        return None
    found.read()  # before any file is touched: what cannot be read must not leave the files without it
    return found


def write(held: ConversationRestorer | None) -> tuple[str, int]:
    """Make a new session of a conversation; return its id and how many messages it has."""
    if held is None:
        return "", 0
    return held.bring_back().id, count_messages(held.lines)


def count_messages(lines: Iterable[bytes]) -> int:
    """How many messages there are in the lines of a transcript."""
    return sum(1 for line in lines if any(mark in line for mark in MESSAGES))
