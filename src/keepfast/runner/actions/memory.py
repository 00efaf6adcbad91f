"""How the next run begins: with the agent's own conversation, or with a brief of it, whichever exists and costs less."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from keepfast.agents.claude.usage import last_usage
from keepfast.app.resume import Resumer, SavedWork
from keepfast.app.worker import MAX_SUMMARY_CHARS
from keepfast.model.budget import NOTICE, TokenUsage, usage
from keepfast.model.errors import KeepfastError
from keepfast.resume.brief import Brief
from keepfast.runner.actions import checkpoints, restores, rollback
from keepfast.runner.actions.rollback import RestoredTask
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.seals import redact_spellings
from keepfast.runner.actions.vault import agent_of, secret_values
from keepfast.runner.db import queries
from keepfast.runner.domain.records import Run, Task
from keepfast.runner.process.drivers import Driver, driver
from keepfast.secrets.cuts import head
from keepfast.secrets.marks import is_secret_by_name
from keepfast.workspace.marker import show

HISTORY, BRIEF, AUTO = "history", "brief", "auto"
SECOND = 1_000_000_000
COLD = 300.0
"""Seconds after which a model's endpoint has dropped a conversation from its cache: all of it is paid for again."""
SESSIONS = 5
MENTIONS, MAX_GAP_LINES = 24, 12
"""Maximum number of mentions in a prompt, and of lines between two ranges of a file that become one."""
REDACTED = "[redacted"
MENTION = re.compile(r"(?<!\S)@(?=\S)")


class Start(NamedTuple):
    """How the next run begins: with this session, or with a fresh one that gets this brief."""

    resumes: bool
    why: str
    session: str
    brief: str = ""
    restored: RestoredTask | None = None
    """The checkpoint from which a lost conversation was restored."""
    is_lost: bool = False
    """There was a conversation, and it cannot be restored."""
    messages: int = 0
    """Messages of the conversation that the run resumes."""
    missing: Sequence[str] = ()
    """Files that the task had created and that are missing now."""
    unknown: str = ""
    """Why it cannot be checked now whether files are missing: the run cannot begin. Empty if it can."""


def choose(mode: str, has_session: bool, used: TokenUsage, idle: float, most: int) -> tuple[bool, str]:
    """Decide whether the next run resumes the session, and say why. Pure.

    `idle` is the seconds since the last run, `most` the tokens of a cold history that are worth their price.
    """
    if not has_session:
        return False, "there is no session to resume"
    if mode != AUTO:
        return mode == HISTORY, f"resume_with is {mode}"
    if used.percent >= NOTICE:
        return False, f"the conversation fills {used.reached} % of the model's window"
    if most and used.used > most and idle >= COLD:
        return False, f"{used.used:,} tokens of history would be paid for again"
    return True, "its session is available"


def plan_start(runtime: Runtime, task: Task, last: Run | None) -> Start:
    """Decide how the next run of a task begins, and build the brief if it begins afresh."""
    how = driver(agent_of(runtime, task), runtime.options)
    mode = str(task.agent.get("resume_with", runtime.options.resume_with))
    missing_files = restores.find_missing_files(runtime, task) if task.attempt else restores.MissingFiles()
    if missing_files.unknown:
        return Start(False, missing_files.unknown, task.session, unknown=missing_files.unknown)
    missing_names = [show(path) for path in missing_files.paths]
    if missing_files.is_all:
        return Start(
            False, restores.INVALID, task.session, build_brief(runtime, task, how), is_lost=True, missing=missing_names
        )
    transcript = _conversation(runtime, task, last, how, mode)
    idle = (runtime.now() - last.ended_at) / SECOND if last is not None and last.ended_at else 0.0
    used, model = last_usage(transcript.path) if transcript.path else (0, "")
    context_usage = usage(used, model, runtime.options.context_tokens, runtime.options.context_windows, {})
    resumes, why = choose(
        mode, bool(transcript.path) and how.can_resume, context_usage, idle, runtime.options.cold_history
    )
    if resumes and transcript.restored is not None:
        why = f"its conversation was {transcript.state}, and restored from v{transcript.restored.checkpoint.version}"
    brief = "" if resumes or not task.attempt else build_brief(runtime, task, how)
    restored = transcript.restored
    return Start(
        resumes, transcript.lost or why, restored.session if restored else task.session, brief, restored,
        bool(transcript.lost), _count(transcript.path) if resumes else 0, missing_names,
    )  # fmt: skip


class _Transcript(NamedTuple):
    """The conversation of a task, as found or restored."""

    path: str
    """The client's transcript; empty if there is none."""
    restored: RestoredTask | None
    lost: str
    """Why it is lost; empty if it is not, or there was none."""
    state: str
    """What had happened to one that was restored: `lost` or `cut short`."""


def _conversation(runtime: Runtime, task: Task, last: Run | None, how: Driver, mode: str) -> _Transcript:
    """Find the conversation of a task; restore it from its checkpoint if the client has lost it or a part of it."""
    path = "" if restores.is_refused(last) else how.transcript(task.session, runtime.variables)
    state = "lost"
    if not how.can_resume or mode == BRIEF:
        return _Transcript(path, None, "", state)
    if path and restores.is_cut_short(runtime, task, path):
        path, state = "", "cut short"
    if path or not task.session:
        return _Transcript(path, None, "", state)
    restored, lost = _restore_conversation(runtime, task, last)
    return _Transcript(
        how.transcript(restored.session, runtime.variables) if restored is not None else "", restored, lost, state
    )


def _restore_conversation(runtime: Runtime, task: Task, last: Run | None) -> tuple[RestoredTask | None, str]:
    """Restore a conversation that the client no longer has; else return why it is lost, empty if there was none."""
    if last is not None and restores.is_refused(last) and _is_refused(runtime, task, last.number - 1):
        return None, "the client refused its conversation, and the restored copy too"
    try:
        restored = restores.restore_conversation(runtime, task)
    except (KeepfastError, OSError) as error:
        return None, f"its conversation could not be restored: {error}"
    was_kept = restores.is_refused(last) or not task.attempt or not checkpoints.is_any_left(runtime, task)
    return restored, "no checkpoint contains its conversation" if restored is None and was_kept else ""


def _is_refused(runtime: Runtime, task: Task, number: int) -> bool:
    return restores.is_refused(queries.find_run(runtime.tables, f"{task.id}:{number}"))


def _count(path: str) -> int:
    try:
        with open(path, "rb") as file:
            return rollback.count_messages(file)
    except OSError:
        return 0


def build_brief(runtime: Runtime, task: Task, how: Driver) -> str:
    """Return a brief of the task's newest checkpoint, as a part of a prompt; empty if there is none.

    If the agent's conversations cannot be read, it has the files that its runs changed, and its last message.
    """
    try:
        with runtime.engine() as engine:
            root, row = engine.workspaces.root(os.fsencode(task.workspace))
            resumer = Resumer(engine, root, row.id)
            source = _source_of_brief(runtime, task, resumer, bool(how.client))
            if source is None:
                return ""
            brief = resumer.brief(source, exact=True)
        secrets = secret_values(runtime, task)
    except (KeepfastError, OSError):
        return ""  # without a brief the task continues all the same
    text = render(brief, os.fsdecode(root), how)
    last = None if how.client else runtime.tables.last_run(task.id)
    if last is not None and last.last_message:
        text += "\n\n## What you said last\n> " + MENTION.sub("'@", last.last_message).replace("\n", "\n> ")
    return redact_spellings(text, secrets)


def _source_of_brief(runtime: Runtime, task: Task, resumer: Resumer, has_conversation: bool) -> SavedWork | None:
    """Return the newest checkpoint whose session did something: a run that was cut off at once gives no brief."""
    newest, seen = None, set()
    repository = resumer.engine.repository()
    for reference in checkpoints.lineage(runtime, task.id):
        row = checkpoints.row_of(repository, resumer.workspace, reference)
        source = resumer.work_at(row) if row is not None and not row.forgotten else None
        if source is None or not source.session or source.session in seen:
            continue
        if has_conversation and not source.header.conversation:
            continue
        seen.add(source.session)
        if not has_conversation:
            if resumer.notes_and_files(source, exact=True)[1]:
                return source._replace(summary=head(task.title.split("\n")[0], MAX_SUMMARY_CHARS))
            if len(seen) >= SESSIONS:
                break
            continue
        newest = newest or source
        if source.header.notes.get("files"):
            return source
        if len(seen) >= SESSIONS:
            break
    return newest


def render(brief: Brief, root: str, how: Driver) -> str:
    """Return the brief as text; if the client itself reads mentioned lines, mentions replace the excerpts.

    The agent may then edit these files at once; files that a text only quotes it would have to read first.
    """
    mentions = [words for words in (how.mention(*one) for one in ranges(brief, root)) if words]
    if not mentions:
        return MENTION.sub("'@", brief.text)
    first = "The files you worked on, as they are on disk now:"
    return "\n".join([MENTION.sub("'@", brief.notes), first, *mentions[:MENTIONS]])


def ranges(brief: Brief, root: str) -> list[tuple[str, int, int]]:
    """Return the lines that a brief shows, as relative path, first and last line: close ranges joined, secret files left out."""
    result: list[tuple[str, int, int]] = []
    for excerpt in brief.excerpts:
        name = excerpt.path.removeprefix(root.rstrip("/") + "/")
        if name.startswith("/") or is_secret_by_name(os.fsencode(name)) or REDACTED in excerpt.text:
            continue  # the client would read what we redact
        if result and result[-1][0] == name and 0 <= excerpt.start - result[-1][2] <= MAX_GAP_LINES:
            result[-1] = (name, result[-1][1], max(result[-1][2], excerpt.end))
        else:
            result.append((name, excerpt.start, excerpt.end))
    return result
