"""What was said in a task, run after run: its newest messages, redacted and bounded, and how many there were in all."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from keepfast.model.errors import KeepfastError
from keepfast.runner.actions import documents, run_outputs
from keepfast.runner.db import queries
from keepfast.runner.domain.moments import nanoseconds
from keepfast.runner.process import shims as process
from keepfast.runner.process.output import MESSAGES, SHOWN
from keepfast.runner.process.redaction import clean_text
from keepfast.runner.process.run_folder import write_file

if TYPE_CHECKING:
    from keepfast.runner.actions.runtime import Runtime
    from keepfast.runner.domain.records import Run
    from keepfast.runner.process.output import Output

KEPT = "said.json"


class Line(NamedTuple):
    """A message as documents tell it, redacted."""

    role: str
    content: str
    at: int
    metadata: dict[str, Any]
    """As it stands in the document."""


class Dialogue(NamedTuple):
    """The newest messages of a task, oldest first, and how many there were."""

    total: int = 0
    messages: tuple[Line, ...] = ()


def read(runtime: Runtime, run: Run, output: Output | None) -> Dialogue:
    """All that was said up to this moment of a run; without its `output`, what its folder tells."""
    if output is None:
        kept = _kept(run)
        if kept is not None:
            return kept
    return _joined(runtime, _before(runtime, run), run, output or run_outputs.read(runtime, run))


def keep(runtime: Runtime, run: Run, output: Output) -> None:
    """Note in the folder of a run that has ended what was said up to its end: later runs go on from there.

    A failure costs time alone: it is read from the logs again.
    """
    _note(run, _joined(runtime, _before(runtime, run), run, output))


def _before(runtime: Runtime, run: Run) -> Dialogue:
    """What was said before a run. Runs that have no note, as those of older versions, are read."""
    earlier = queries.runs_before(runtime.tables, run)
    found, unread = Dialogue(), []
    for one in reversed(earlier):
        kept = _kept(one)
        if kept is not None:
            found = kept
            break
        unread.append(one)
    first = unread[-1] if unread else run
    if not found.total and first.number > 1:
        found = documented(runtime, run.task, first.started_at)
    for one in reversed(unread):
        found = _joined(runtime, found, one, run_outputs.read(runtime, one))
        _note(one, found)
    return found


def documented(runtime: Runtime, task: str, before: int) -> Dialogue:
    """What the newest document of that time tells: all that is known of runs whose rows were lost."""
    rows = queries.documented_before(runtime.tables, task, before)
    workspace = runtime.tables.task(task).workspace
    for row in rows:
        with suppress(KeepfastError, KeyError, ValueError):
            told = documents.read(runtime, workspace, row.file)["conversationHistory"]
            messages = [
                Line(one["role"], one["content"], nanoseconds(one["timestamp"]), one.get("metadata") or {})
                for one in told["messages"]
            ]
            return Dialogue(told["lastMessageIndex"] + 1, tuple(messages))
    return Dialogue()


def _joined(runtime: Runtime, before: Dialogue, run: Run, output: Output) -> Dialogue:
    # Until the agent tells of another step, it is at the one that the task was at when the run began.
    first = runtime.tables.first_step(run) or None
    metadata = {"phase": run.phase, "step": first, "type": "log"}
    begun = Line("user", clean_text(run.prompt)[:SHOWN], run.started_at, metadata)
    said = [begun]
    for message in output.messages:
        metadata = {"phase": run.phase, "step": message.step or first, "type": message.type}
        said.append(Line(message.role, _redacted(message.content), message.at or run.started_at, metadata))
    if output.count > len(output.messages):
        said = said[1:]  # messages between the prompt and these are left out: what is shown has no gaps
        before = Dialogue(before.total)
    return Dialogue(before.total + 1 + output.count, (*before.messages, *said)[-MESSAGES:])


@lru_cache(8 * MESSAGES)
def _redacted(content: str) -> str:
    """Once for each text: a run's messages are told of at every checkpoint."""
    return clean_text(content)


def _kept(run: Run) -> Dialogue | None:
    noted = process.read(f"{run.folder}/{KEPT}", most=64 << 20)
    return Dialogue(noted["total"], tuple(Line(**one) for one in noted["messages"])) if noted is not None else None


def _note(run: Run, dialogue: Dialogue) -> None:
    noted = {"total": dialogue.total, "messages": [one._asdict() for one in dialogue.messages]}
    try:
        if os.path.isdir(run.folder):
            write_file(f"{run.folder}/{KEPT}", noted, durable=False)
    except OSError:
        pass
