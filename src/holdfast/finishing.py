"""Pending events become checkpoints: in order, by one process per workspace, and never silently without one."""

from __future__ import annotations

from os.path import isdir
from posix import close

from holdfast.conversation.usage import tokens
from holdfast.core.errors import HoldfastError
from holdfast.core.model import CREATED, OUTSIDE, Event, Outcome
from holdfast.store import parts, pending, sessions, workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.engine import Engine
    from holdfast.settings import Settings
    from holdfast.store.rows import WorkspaceRow

SUMMARY, POINT, MOST_FILES = 80, 200, 50
PATIENCE, STEP = 1.0, 0.01
HASTY = ("before_command",)
"""Triggers at which the agent waits: its notes come with the next checkpoint."""
KEPT = ("analysis", "context", "tasks", "last_test", "unfinished", "files", "session", "read_by")
"""What of the notes stands in the checkpoint itself; the conversation has the rest."""


def finish(engine: Engine, root: bytes, workspace: str, tidy: Callable[[bytes], None] | None = None) -> bool:
    """Do every pending event of a workspace. False if somebody else is at it: then he does them all.

    Whoever adds an event looks for a worker afterwards, and a worker looks for events after it has let go of its lock:
    one of the two finds the other's.
    """
    folder = engine.place.folder(workspace)
    while pending.names(folder):
        lock = workers.begin(folder, engine.clock())
        if lock < 0:
            return False
        try:
            _finish_all(engine, root, folder, tidy)
        finally:
            close(lock)
    return True


def settled(engine: Engine, row: WorkspaceRow, seconds: float = PATIENCE) -> WorkspaceRow:
    """The row of the workspace once what hooks left to be saved is saved. Whoever shows checkpoints asks here first."""
    if not pending.names(engine.place.folder(row.id)) or not isdir(row.path):
        return row  # what cannot be saved now stays pending: the folder may be on a disk that comes back
    settle(engine, row.path, row.id, seconds)
    return engine.repository().workspace(row.id) or row


def settle(engine: Engine, root: bytes, workspace: str, seconds: float) -> None:
    """Do what nobody is left to do; if somebody is at it, wait so long at most."""
    from time import monotonic, sleep

    folder = engine.place.folder(workspace)
    waiting, end = set(pending.names(folder)), monotonic() + seconds
    while waiting and workers.living(folder, workers.HOOKS) is not None:
        if monotonic() >= end:
            return
        sleep(STEP)
        waiting &= set(pending.names(folder))
    if waiting:
        try:
            finish(engine, root, workspace)
        except OSError as error:
            engine.note(root, "failed", "pending", f"Pending events are not done: {error.strerror}.")


def _finish_all(engine: Engine, root: bytes, folder: str, tidy: Callable[[bytes], None] | None) -> None:
    while names := pending.names(folder):
        done: dict[tuple[str, str], bool] = {}
        for name in names:
            told = pending.read(folder, name)
            if told is None:
                continue
            # The tree is what it is now: a second event of the same kind would find nothing new in it.
            key = told["trigger"], told["session"]
            if key not in done:
                done[key] = True
                _finish(engine, root, folder, told, tidy)
            pending.done(folder, name)
    sessions.sweep(folder, engine.clock())
    parts.sweep(folder, engine.clock())


def _finish(
    engine: Engine, root: bytes, folder: str, told: dict[str, Any], tidy: Callable[[bytes], None] | None
) -> None:
    try:
        outcome = save(engine, root, folder, told)
        result: dict[str, object] = {"status": outcome.status, "id": outcome.id, "version": outcome.version}
        if outcome.untidy and tidy is not None:
            tidy(root)
    except Exception as error:
        why = str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
        engine.note(root, "failed", told["trigger"], why)
        result = {"status": "failed", "id": "", "version": 0}
    if told["trigger"] == "before_clear" and told["client"]:
        try:
            sessions.note_cleared(folder, told["client"], session=told["session"], **result)
        except OSError as error:
            engine.note(root, "failed", "before_clear", f"The cleared session was not noted: {error.strerror}.")


def save(engine: Engine, root: bytes, folder: str, told: dict[str, Any], only: tuple[bytes, ...] = ()) -> Outcome:
    """Make the checkpoint of an event that a hook recorded. Raises what `Engine.handle` raises."""
    event = event_of(engine, root, folder, told, only)
    outcome = engine.handle(event)
    if outcome.status == OUTSIDE:
        event.cwd = root  # the folder that the agent was in is gone
        outcome = engine.handle(event)
    if outcome.status == CREATED and not only:
        _warn_of_poor(engine, root, outcome, told["trigger"])
    return outcome


def event_of(engine: Engine, root: bytes, folder: str, told: dict[str, Any], only: tuple[bytes, ...] = ()) -> Event:
    """The event with all that is known of its session: notes, tokens, files, conversation."""
    known = sessions.facts(folder, told["session"])
    prompt, said = known.get("prompt"), known.get("said")
    settings = engine.settings
    notes = _notes(folder, told, settings)
    task = notes["analysis"]["current_task"].split("\n")[0] if notes is not None else ""
    summary = (task or (prompt if isinstance(prompt, str) else ""))[:SUMMARY]
    if not settings["checkpoint.auto_summary_enabled"]:
        summary = ""
    usage = tokens(
        folder,
        told["session"],
        told["transcript"],
        told["model"],
        settings["budget.tokens"],
        settings["budget.windows"],
    )
    return Event(
        told["cwd"].encode("utf-8", "surrogateescape") or root,
        told["at"],
        trigger=told["trigger"],
        message=summary or told["trigger"],
        session=told["session"][:200],
        created_by="auto",
        only=only,
        agent=told["agent"],
        transcript=told["transcript"],
        summary=summary,
        tokens_used=usage.used,
        token_budget=usage.budget,
        active_files=_active(folder, told["session"], root),
        key_points=(said[:POINT],) if isinstance(said, str) and said else (),
        notes=notes,
    )


def _notes(folder: str, told: dict[str, Any], settings: Settings) -> dict[str, Any] | None:
    """Task, next steps, decisions, blockers, commands and files of the session, without secrets. What was said stays sealed."""
    if not told["transcript"] or told["trigger"] in HASTY or settings["checkpoint.mode"] == "summary":
        return None
    from holdfast.resuming import extract_of, notes_of, struck

    session = told["session"]
    found = notes_of(told["transcript"], extract_of(folder, session), folder, session)
    if found is None:
        return None
    kept: dict[str, Any] = struck({key: value for key, value in found.to_json().items() if key in KEPT})
    if not settings["checkpoint.capture_analysis"]:
        kept["analysis"] = {key: "" if isinstance(value, str) else [] for key, value in kept["analysis"].items()}
    if not settings["checkpoint.capture_files"]:
        kept["files"] = []
    return kept


def _active(folder: str, session: str, root: bytes) -> tuple[str, ...]:
    """The files that tools wrote in this session, the newest first, relative to the root."""
    start = "w " + root.decode("utf-8", "surrogateescape").rstrip("/") + "/"
    found = [line[len(start) :] for line in sessions.touched(folder, session) if line.startswith(start)]
    # A name that is not UTF-8 has no place in a JSON header.
    return tuple([path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for path in found[:MOST_FILES]])


def _warn_of_poor(engine: Engine, root: bytes, outcome: Outcome, trigger: str) -> None:
    """A checkpoint of nothing, or of the smaller part, is told although nobody asked."""
    from holdfast.looking import coverage

    row = engine.repository().workspace(outcome.checkpoint.workspace)
    if row is None:
        return
    found = coverage(row)
    if found.files + found.links == 0:
        engine.note(root, "empty", trigger, f"v{outcome.version} holds no file.")
    elif found.is_poor:
        left = sum(found.left_out.values())
        engine.note(root, "poor", trigger, f"v{outcome.version} leaves out {left:,} entries, more than it holds.")
    for notice in outcome.notices:
        engine.note(root, "noticed", trigger, notice)
