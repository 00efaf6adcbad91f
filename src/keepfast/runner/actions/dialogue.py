"""The dialogue of a task over all its runs: the newest messages, redacted and bounded, and how many there were in all."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from keepfast.model.errors import KeepfastError
from keepfast.runner.actions import documents, run_outputs
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.runner.domain.moments import nanoseconds
from keepfast.runner.domain.records import Run
from keepfast.runner.process import shims
from keepfast.runner.process.output import MESSAGES, SHOWN, Output
from keepfast.runner.process.redaction import clean_text
from keepfast.runner.process.run_folder import write_file

FILE = "said.json"


class Line(NamedTuple):
    """A message of a document, redacted."""

    role: str
    content: str
    at: int
    metadata: dict[str, Any]
    """The metadata in the document."""


class Dialogue(NamedTuple):
    """The newest messages of a task, oldest first, and how many there were."""

    total: int = 0
    messages: tuple[Line, ...] = ()


def read(runtime: Runtime, run: Run, output: Output | None) -> Dialogue:
    """Return the dialogue up to this moment of a run; without its `output`, it is read from its folder."""
    if output is None:
        saved = _saved(run)
        if saved is not None:
            return saved
    return _with_run(runtime, _before(runtime, run), run, output or run_outputs.read(runtime, run))


def save(runtime: Runtime, run: Run, output: Output) -> None:
    """Write the dialogue up to the end of a run into its folder, where later runs find it.

    A failure only costs time: the dialogue is read from the logs again.
    """
    _write(run, _with_run(runtime, _before(runtime, run), run, output))


def _before(runtime: Runtime, run: Run) -> Dialogue:
    """Return the dialogue before a run. The logs of runs without a saved dialogue, as of older versions, are read."""
    earlier = queries.runs_before(runtime.tables, run)
    dialogue, unread = Dialogue(), []
    for earlier_run in reversed(earlier):
        saved = _saved(earlier_run)
        if saved is not None:
            dialogue = saved
            break
        unread.append(earlier_run)
    first = unread[-1] if unread else run
    if not dialogue.total and first.number > 1:
        dialogue = documented(runtime, run.task, first.started_at)
    for earlier_run in reversed(unread):
        dialogue = _with_run(runtime, dialogue, earlier_run, run_outputs.read(runtime, earlier_run))
        _write(earlier_run, dialogue)
    return dialogue


def documented(runtime: Runtime, task: str, before: int) -> Dialogue:
    """Return the dialogue of the newest document before that time: all that is left of runs whose rows were lost."""
    rows = queries.documented_before(runtime.tables, task, before)
    workspace = runtime.tables.task(task).workspace
    for row in rows:
        with suppress(KeepfastError, KeyError, ValueError):
            history = documents.read(runtime, workspace, row.file)["conversationHistory"]
            messages = [
                Line(one["role"], one["content"], nanoseconds(one["timestamp"]), one.get("metadata") or {})
                for one in history["messages"]
            ]
            return Dialogue(history["lastMessageIndex"] + 1, tuple(messages))
    return Dialogue()


def _with_run(runtime: Runtime, before: Dialogue, run: Run, output: Output) -> Dialogue:
    # Until the agent reports another step, it works on the one of the task when the run began.
    first = runtime.tables.first_step(run) or None
    metadata = {"phase": run.phase, "step": first, "type": "log"}
    begun = Line("user", clean_text(run.prompt)[:SHOWN], run.started_at, metadata)
    lines = [begun]
    for message in output.messages:
        metadata = {"phase": run.phase, "step": message.step or first, "type": message.type}
        lines.append(Line(message.role, _redacted(message.content), message.at or run.started_at, metadata))
    if output.count > len(output.messages):
        lines = lines[1:]  # messages between the prompt and these are missing: the dialogue must have no gaps
        before = Dialogue(before.total)
    return Dialogue(before.total + 1 + output.count, (*before.messages, *lines)[-MESSAGES:])


@lru_cache(8 * MESSAGES)
def _redacted(content: str) -> str:
    """Return the text, redacted; cached, since every checkpoint repeats a run's messages."""
    return clean_text(content)


def _saved(run: Run) -> Dialogue | None:
    content = shims.read(f"{run.folder}/{FILE}", most=64 << 20)
    return (
        Dialogue(content["total"], tuple(Line(**one) for one in content["messages"])) if content is not None else None
    )


def _write(run: Run, dialogue: Dialogue) -> None:
    content = {"total": dialogue.total, "messages": [one._asdict() for one in dialogue.messages]}
    try:
        if os.path.isdir(run.folder):
            write_file(f"{run.folder}/{FILE}", content, durable=False)
    except OSError:
        pass
