"""Restore a task to one of its checkpoints, and fork its workspace: files and conversation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from keepfast.app.checkpoint import Engine
from keepfast.app.conversation import ConversationRestorer
from keepfast.app.fork import Forker
from keepfast.app.restore import Restorer
from keepfast.model.errors import NotFound
from keepfast.model.event import Event
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.vault import agent_of
from keepfast.runner.db import queries
from keepfast.runner.domain.records import Task
from keepfast.runner.process.drivers import driver
from keepfast.store.references import resolve
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.git_clone import GitPlumbing

MESSAGES = (b'"type":"user"', b'"type":"assistant"', b'"type": "user"', b'"type": "assistant"')


class RestoredTask(NamedTuple):
    """The result of a restore: the checkpoint and the new session; no session if the conversation was not restored."""

    checkpoint: CheckpointRow
    session: str
    messages: int


def restore(
    runtime: Runtime, task: Task, reference: str, conversation: bool, ask: Callable[[CheckpointRow], bool] | None
) -> RestoredTask | None:
    """Restore files to a checkpoint, and the conversation as a new session; None if `ask` returned False.

    The current state is saved first. Raises `WrongKey` before anything changes if the conversation cannot be decrypted.
    """
    with runtime.engine() as engine:
        root, row = engine.workspaces.root(os.fsencode(task.workspace))
        target = resolve(engine.repository(), row.id, reference, runtime.now())
        if ask is not None and not ask(target):
            return None
        session = read_conversation(runtime, engine, task, target, root) if conversation else None
        Restorer(engine, root, row).restore(target, conflicts="theirs")
        return RestoredTask(target, *write_session(session))


def fork(runtime: Runtime, task: Task, folder: str, with_git: bool) -> tuple[str, int]:
    """Save the workspace and fork it; return the session that continues there, and its number of messages."""
    with runtime.engine() as engine:
        engine.handle(Event(os.fsencode(task.workspace), runtime.now(), message="before a fork", task=task.id))
        root, row = engine.workspaces.root(os.fsencode(task.workspace))
        checkpoint = resolve(engine.repository(), row.id, "@", runtime.now())
        git = GitPlumbing(runtime.variables.get("PATH", os.defpath), root) if with_git else None
        Forker(engine, root, row, checkpoint).fork(os.fsencode(folder), git)
        newest = queries.newest_checkpoint(runtime.tables, task.id)
        source = engine.repository().checkpoint(row.id, newest.version) if newest is not None else None
        if source is None or source.forgotten:
            return "", 0
        return write_session(read_conversation(runtime, engine, task, source, os.fsencode(folder)))


def read_conversation(
    runtime: Runtime, engine: Engine, task: Task, target: CheckpointRow, root: bytes
) -> ConversationRestorer | None:
    """Read the whole conversation of a checkpoint; None if it has none, or the agent cannot resume one."""
    agent = agent_of(runtime, task)
    how = driver(agent, runtime.options)
    if not how.can_resume:
        return None
    variables = {**runtime.variables, **{str(name): str(value) for name, value in agent.get("set", {}).items()}}
    try:
        conversation = ConversationRestorer(
            engine.repository(), target, root, os.fsencode(variables.get("HOME", "")), variables
        )
    except NotFound:
        return None
    conversation.read()  # before any file is touched: what cannot be read must not leave the files without it
    return conversation


def write_session(conversation: ConversationRestorer | None) -> tuple[str, int]:
    """Write a conversation as a new session of the client; return its id and its number of messages."""
    if conversation is None:
        return "", 0
    return conversation.restore().id, count_messages(conversation.lines)


def count_messages(lines: Iterable[bytes]) -> int:
    """Return the number of messages in the lines of a transcript."""
    return sum(1 for line in lines if any(mark in line for mark in MESSAGES))
