"""What an agent knows when it starts again: its own conversation, or a brief of it, whichever is there and costs less."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from keepfast.agents.claude.usage import last_usage
from keepfast.app.resume import Resumer, SavedWork
from keepfast.app.worker import MAX_SUMMARY_CHARS
from keepfast.model.budget import NOTICE, Usage, usage
from keepfast.model.errors import KeepfastError
from keepfast.runner.actions import checkpoints, restores
from keepfast.runner.actions import rollback as returning
from keepfast.runner.actions.seals import struck_out
from keepfast.runner.actions.vault import agent_of, values
from keepfast.runner.db import queries
from keepfast.runner.process.drivers import Driver, driver
from keepfast.secrets.cuts import head
from keepfast.secrets.marks import is_secret_by_name
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from keepfast.resume.brief import Brief
    from keepfast.runner.actions.environment import Ground
    from keepfast.runner.actions.rollback import Back
    from keepfast.runner.domain.records import Run, Task

HISTORY, BRIEF, AUTO = "history", "brief", "auto"
SECOND = 1_000_000_000
COLD = 300.0
"""Seconds after which a model's endpoint no longer has a conversation at hand: all of it is paid for again."""
SESSIONS = 5
MENTIONS, APART = 24, 12
"""Ranges that a prompt names at most, and lines between two of a file that are read as one."""
STRUCK = "[redacted"
LED = re.compile(r"(?<!\S)@(?=\S)")


class Memory(NamedTuple):
    """How the next run begins: with this session, or with a fresh one that is told this brief."""

    resumes: bool
    why: str
    session: str
    brief: str = ""
    back: Back | None = None
    """The checkpoint from which a lost conversation was brought back."""
    is_lost: bool = False
    """There was a conversation, and it cannot be brought back."""
    messages: int = 0
    """Messages with which the run goes on."""
    missing: Sequence[str] = ()
    """Files that the task had made and that are gone."""
    unknown: str = ""
    """Why nobody can tell now whether these files are there: the run cannot begin. Empty if it can."""


def choose(mode: str, has_session: bool, used: Usage, idle: float, most: int) -> tuple[bool, str]:
    """Does the next run go on with the session? And why so. Pure.

    `idle` is the seconds since the last run, `most` the tokens of a cold history that are worth their price.
    """
    if not has_session:
        return False, "there is no session to go on with"
    if mode != AUTO:
        return mode == HISTORY, f"resume_with is {mode}"
    if used.percent >= NOTICE:
        return False, f"the conversation fills {used.reached} % of the model's window"
    if most and used.used > most and idle >= COLD:
        return False, f"{used.used:,} tokens of history would be paid for again"
    return True, "its session is there"


def recall(ground: Ground, task: Task, last: Run | None) -> Memory:
    """Decide how the next run of a task begins, and build the brief if it begins afresh."""
    how = driver(agent_of(ground, task), ground.options)
    mode = str(task.agent.get("resume_with", ground.options.resume_with))
    work = restores.look_for_work(ground, task) if task.attempt else restores.Missing()
    if work.unknown:
        return Memory(False, work.unknown, task.session, unknown=work.unknown)
    missing = [show(path) for path in work.paths]
    if work.is_all:
        return Memory(False, restores.INVALID, task.session, tell(ground, task, how), is_lost=True, missing=missing)
    found = _conversation(ground, task, last, how, mode)
    idle = (ground.now() - last.ended_at) / SECOND if last is not None and last.ended_at else 0.0
    used, model = last_usage(found.path) if found.path else (0, "")
    full = usage(used, model, ground.options.context_tokens, ground.options.context_windows, {})
    resumes, why = choose(mode, bool(found.path) and how.can_resume, full, idle, ground.options.cold_history)
    if resumes and found.back is not None:
        why = f"its conversation was {found.what}, and brought back from v{found.back.checkpoint.version}"
    brief = "" if resumes or not task.attempt else tell(ground, task, how)
    return Memory(
        resumes, found.lost or why, found.back.session if found.back else task.session, brief, found.back,
        bool(found.lost), _count(found.path) if resumes else 0, missing,
    )  # fmt: skip


class _Found(NamedTuple):
    """Where the conversation of a task is now."""

    path: str
    """The client's transcript; empty if there is none."""
    back: Back | None
    lost: str
    """Why it is lost; empty if it is not, or there was none."""
    what: str
    """What had become of the one that was brought back."""


def _conversation(ground: Ground, task: Task, last: Run | None, how: Driver, mode: str) -> _Found:
    """Find the conversation of a task, brought back from its checkpoint if the client has lost it or a part of it."""
    path = "" if restores.is_refused(last) else how.transcript(task.session, ground.variables)
    what = "lost"
    if not how.can_resume or mode == BRIEF:
        return _Found(path, None, "", what)
    if path and restores.is_cut_short(ground, task, path):
        path, what = "", "cut short"
    if path or not task.session:
        return _Found(path, None, "", what)
    back, lost = _find_again(ground, task, last)
    return _Found(how.transcript(back.session, ground.variables) if back is not None else "", back, lost, what)


def _find_again(ground: Ground, task: Task, last: Run | None) -> tuple[Back | None, str]:
    """A conversation that the client no longer has, from its checkpoint; else why it is lost, empty if there was none."""
    if last is not None and restores.is_refused(last) and _is_refused(ground, task, last.number - 1):
        return None, "the client refused its conversation, and what was brought back of it"
    try:
        back = restores.bring_back(ground, task)
    except (KeepfastError, OSError) as error:
        return None, f"its conversation could not be brought back: {error}"
    was_kept = restores.is_refused(last) or not task.attempt or not checkpoints.is_any_left(ground, task)
    return back, "no checkpoint holds its conversation" if back is None and was_kept else ""


def _is_refused(ground: Ground, task: Task, number: int) -> bool:
    return restores.is_refused(queries.find_run(ground.tables, f"{task.id}:{number}"))


def _count(path: str) -> int:
    try:
        with open(path, "rb") as file:
            return returning.count_messages(file)
    except OSError:
        return 0


def tell(ground: Ground, task: Task, how: Driver) -> str:
    """A brief of the task's newest checkpoint as a part of a prompt; empty if there is nothing to tell.

    Of an agent whose conversation cannot be read it tells the files that its runs changed, and what it said last.
    """
    try:
        with ground.engine() as engine:
            root, row = engine.root(os.fsencode(task.workspace))
            resumer = Resumer(engine, root, row.id)
            told = _worth_telling(ground, task, resumer, bool(how.client))
            if told is None:
                return ""
            brief = resumer.brief(told, exact=True)
        secrets = values(ground, task)
    except (KeepfastError, OSError):
        return ""  # a task that cannot be told of its past still goes on
    text = render(brief, os.fsdecode(root), how)
    last = None if how.client else ground.tables.last_run(task.id)
    if last is not None and last.said:
        text += "\n\n## What you said last\n> " + LED.sub("'@", last.said).replace("\n", "\n> ")
    return struck_out(text, secrets)


def _worth_telling(ground: Ground, task: Task, resumer: Resumer, has_conversation: bool) -> SavedWork | None:
    """The newest checkpoint whose session did something; a run that was cut off at once has nothing to tell."""
    newest, seen = None, set()
    repository = resumer.engine.repository()
    for taken in checkpoints.lineage(ground, task.id):
        row = checkpoints.row_of(repository, resumer.workspace, taken)
        told = resumer.work_at(row) if row is not None and not row.forgotten else None
        if told is None or not told.session or told.session in seen:
            continue
        if has_conversation and not told.header.conversation:
            continue
        seen.add(told.session)
        if not has_conversation:
            if resumer.notes_and_files(told, exact=True)[1]:
                return told._replace(summary=head(task.title.split("\n")[0], MAX_SUMMARY_CHARS))
            if len(seen) >= SESSIONS:
                break
            continue
        newest = newest or told
        if told.header.notes.get("files"):
            return told
        if len(seen) >= SESSIONS:
            break
    return newest


def render(brief: Brief, root: str, how: Driver) -> str:
    """The brief as text; where the client reads mentioned lines by itself, mentions stand for the excerpts.

    An agent may edit at once what it was shown that way; of files that a text merely quotes, it would be refused.
    """
    mentions = [words for words in (how.mention(*one) for one in ranges(brief, root)) if words]
    if not mentions:
        return LED.sub("'@", brief.text)
    first = "The files you worked on, as they are on disk now:"
    return "\n".join([LED.sub("'@", brief.notes), first, *mentions[:MENTIONS]])


def ranges(brief: Brief, root: str) -> list[tuple[str, int, int]]:
    """The lines that a brief shows, as relative path, first and last; near ones of a file together, secret files left out."""
    found: list[tuple[str, int, int]] = []
    for excerpt in brief.excerpts:
        name = excerpt.path.removeprefix(root.rstrip("/") + "/")
        if name.startswith("/") or is_secret_by_name(os.fsencode(name)) or STRUCK in excerpt.text:
            continue  # the client would show what we keep to ourselves
        if found and found[-1][0] == name and 0 <= excerpt.start - found[-1][2] <= APART:
            found[-1] = (name, found[-1][1], max(found[-1][2], excerpt.end))
        else:
            found.append((name, excerpt.start, excerpt.end))
    return found
