"""The worker: turns pending events into checkpoints, in order, one process per workspace. Every failure becomes a notice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import close
from os.path import isdir, isfile
from time import monotonic, sleep
from typing import Any

from keepfast.agents.claude.usage import tokens
from keepfast.agents.registry import sessions as sessions_of
from keepfast.app.active_files import MAX_ACTIVE_FILES
from keepfast.app.checkpoint import Engine
from keepfast.app.checkpoint_save import ReadAhead
from keepfast.app.inspect import coverage
from keepfast.app.inspect import pending as unsaved
from keepfast.app.known_secrets import KnownSecrets
from keepfast.model.artefacts import is_in_always_generated_folder
from keepfast.model.errors import Busy, sentence
from keepfast.model.event import AFTER_TOOL_CALLS, CONVERSED, CREATED, OUTSIDE, UNCHANGED, Event, Outcome
from keepfast.model.exclusion import excluded_by
from keepfast.model.policy import failed_trigger_time, rest_period
from keepfast.resume.last_words import last_words
from keepfast.resume.notes import shortened
from keepfast.secrets.cuts import first_line, head
from keepfast.secrets.light_redaction import without_secrets
from keepfast.settings import Settings
from keepfast.state import brief_parts as parts
from keepfast.state import pending_events as pending
from keepfast.state import sessions, workers
from keepfast.state.pending_events import PendingEvent
from keepfast.store.conversations import latest_conversation
from keepfast.store.rows import LIGHT_TRIGGERS, Query, WorkspaceRow

MAX_SUMMARY_CHARS, MAX_POINT_CHARS, MAX_POINTS = 80, 200, 8
REPEAT_SHARE = 0.6
"""A point repeats a longer one if it makes up this share of it."""
MAX_LINE_CHARS = 1000
"""So much of a line is searched for secrets before it is cut to the length of a point."""
WAIT_SECONDS, POLL_SECONDS = 1.0, 0.01
TRANSCRIPT_LAG_SECONDS, MAX_TAIL_BYTES = 0.5, 8 << 20
"""How long a transcript may lag behind its events, and how much of its end is read."""
TRIGGERS_IN_A_HURRY = ("before_command",)
"""Triggers at which the agent waits: their notes are the task and the last words; the next checkpoint has the rest."""
SAVED_NOTES = ("analysis", "context", "tasks", "last_test", "unfinished", "files", "session", "read_by")
"""The notes that the checkpoint itself has; the conversation has the rest."""


def save_pending(
    engine: Engine, root: bytes, workspace: str, tidy: Callable[[bytes], None] | None = None, own: str = ""
) -> bool:
    """Save every pending event of a workspace. Return False if another worker is running: it saves them all.

    `own`: the session whose transcript is as complete as it gets, so that nobody waits for it.

    Adding an event comes before looking for a worker, and releasing the worker's lock before looking for events: no event is
    missed.
    """
    folder = engine.place.folder(workspace)
    while pending.names(folder):
        lock = workers.try_to_become_worker(folder, engine.clock())
        if lock < 0:
            return False
        try:
            _save_all(engine, root, folder, tidy, own)
        finally:
            close(lock)
    return True


def row_after_pending(engine: Engine, row: WorkspaceRow, seconds: float = WAIT_SECONDS) -> WorkspaceRow:
    """Return the workspace's row after its pending events are saved. Call this before showing checkpoints."""
    if not pending.names(engine.place.folder(row.id)) or not isdir(row.path):
        return row  # what cannot be saved now stays pending: the folder may be on a disk that comes back
    save_or_await_pending(engine, row.path, row.id, seconds)
    return engine.repository().workspace(row.id) or row


def save_or_await_pending(engine: Engine, root: bytes, workspace: str, seconds: float) -> None:
    """Save what is pending; if a worker is running, wait for it instead, at most for `seconds`."""
    folder = engine.place.folder(workspace)
    waiting, end = set(pending.names(folder)), monotonic() + seconds
    while waiting and any(workers.running_worker(folder, name) is not None for name in (workers.HOOKS, "/lock")):
        if monotonic() >= end:
            return
        sleep(POLL_SECONDS)
        waiting &= set(pending.names(folder))
    if waiting:
        try:
            save_pending(engine, root, workspace)
        except Busy:
            return  # the events stay pending
        except OSError as error:
            engine.workspaces.note(root, "failed", "pending", f"Pending events were not saved: {error.strerror}.")


def _save_all(engine: Engine, root: bytes, folder: str, tidy: Callable[[bytes], None] | None, own: str) -> None:
    while names := pending.names(folder):
        done: dict[tuple[str, str], bool] = {}
        for name in names:
            event = pending.read(folder, name)
            if event is None:
                continue
            # A second event of the same trigger and session would find the tree unchanged.
            key = event.trigger, event.session
            if key not in done:
                done[key] = True
                if event.session != own:
                    _await_transcript(engine, event)
                _save_event(engine, root, folder, event, tidy)
            pending.done(folder, name)
    sessions.sweep(folder, engine.clock())
    parts.sweep(folder, engine.clock())


def _save_event(
    engine: Engine, root: bytes, folder: str, event: PendingEvent, tidy: Callable[[bytes], None] | None
) -> None:
    try:
        if event.trigger == sessions.CUT_OFF and not _has_unsaved_work(engine, root, folder, event):
            outcome = Outcome(UNCHANGED, root)
        else:
            outcome = save(engine, root, folder, event)
        result: dict[str, object] = {"status": outcome.status, "id": outcome.id, "version": outcome.version}
        if outcome.needs_tidying and tidy is not None:
            tidy(root)
    except (ImportError, SyntaxError, Busy):
        raise  # files of our own are missing, or a lock is held: the event stays pending until that is over
    except Exception as error:
        engine.workspaces.note(root, "failed", event.trigger, sentence(error))
        result = {"status": "failed", "id": "", "version": 0}
        _shorten_rest(engine, folder, event)
    if event.trigger == sessions.CUT_OFF:
        _note_crash_saved(engine, root, folder, event.session, result["status"] != "failed")
    if event.trigger == "before_clear":
        try:
            sessions.note_saved(folder, event.client, event.session, **result)
        except OSError as error:
            engine.workspaces.note(
                root, "failed", "before_clear", f"The cleared session was not recorded: {error.strerror}."
            )


def _has_unsaved_work(engine: Engine, root: bytes, folder: str, event: PendingEvent) -> bool:
    """Return whether a crashed session went on since its last checkpoint, by its conversation or by files changed in its turn."""
    if moved_on(engine, root, folder, event):
        return True
    location = engine.workspaces.locate(root) if sessions.was_in_turn(sessions.facts(folder, event.session)) else None
    row = engine.repository().workspace(location[1]) if location is not None else None
    if row is None:
        return False
    return bool(unsaved(engine, root, row)[0])


def _note_crash_saved(engine: Engine, root: bytes, folder: str, session: str, is_kept: bool) -> None:
    """Record that the crashed session is saved; if saving failed, record the attempt, and the next session's start tries again."""
    facts: dict[str, str | int] = {"ended": sessions.CUT_OFF} if is_kept else {"tried": engine.clock()}
    try:
        sessions.remember(folder, session, **facts)
    except OSError as error:
        engine.workspaces.note(
            root, "failed", sessions.CUT_OFF, f"The crashed session was not recorded: {error.strerror}."
        )


def _shorten_rest(engine: Engine, folder: str, event: PendingEvent) -> None:
    """Let the next event of this trigger try again soon: its checkpoint failed."""
    if not rest_period(event.trigger):
        return
    try:
        sessions.set_trigger_time(
            folder, event.session, event.trigger, failed_trigger_time(event.trigger, engine.clock())
        )
    except OSError:
        pass  # then the trigger rests as long as after a success


def save(
    engine: Engine,
    root: bytes,
    folder: str,
    pending_event: PendingEvent,
    only: tuple[bytes, ...] = (),
    keep: tuple[bytes, ...] = (),
) -> Outcome:
    """Make the checkpoint of an event that a hook recorded. Raises what `Engine.handle` raises."""
    event = event_of(engine, root, folder, pending_event, only)
    if pending_event.trigger in CONVERSED:
        event.moved_on = moved_on(engine, root, folder, pending_event)
    elif pending_event.trigger in AFTER_TOOL_CALLS:
        event.moved_on = _is_tool_call_newest(engine, root)
    event.keep = keep
    outcome = engine.handle(event)
    if outcome.status == OUTSIDE:
        event.cwd = root  # the agent's folder was deleted
        outcome = engine.handle(event)
    if outcome.status == CREATED and not only:
        _note_poor_coverage(engine, root, outcome, pending_event.trigger)
    return outcome


def record(engine: Engine, root: bytes, folder: str, pending_event: PendingEvent, ahead: ReadAhead) -> Outcome:
    """Make the checkpoint of what was read ahead of the command while another process was saving. Raises as `ReadAhead.record`."""
    return ahead.record(event_of(engine, root, folder, pending_event))


def event_of(
    engine: Engine, root: bytes, folder: str, pending_event: PendingEvent, only: tuple[bytes, ...] = ()
) -> Event:
    """Return the event with everything known of its session: notes, tokens, files, conversation."""
    facts = sessions.facts(folder, pending_event.session)
    prompt, answer = facts.get("prompt"), facts.get("said")
    settings = engine.settings
    notes, last_words = _notes(engine, root, folder, pending_event)
    if isinstance(answer, str) and (pending_event.trigger == "turn" or not last_words):
        # At a turn's end the client reports the last words; at other times the transcript is newer.
        last_words = answer or last_words
    task = notes["analysis"]["current_task"] if notes is not None else ""
    summary = _short(task or (prompt if isinstance(prompt, str) else ""))
    if not settings["checkpoint.auto_summary_enabled"]:
        summary = ""
    if settings["checkpoint.mode"] == "summary":
        notes = None
    usage = tokens(
        folder,
        pending_event.session,
        pending_event.transcript,
        pending_event.model,
        settings["budget.tokens"],
        settings["budget.windows"],
    )
    return Event(
        pending_event.cwd.encode("utf-8", "surrogateescape") or root,
        pending_event.at,
        trigger=pending_event.trigger,
        message=_message(pending_event, summary),
        session=pending_event.session[:200],
        created_by="auto",
        only=only,
        command=pending_event.command,
        agent=pending_event.agent,
        transcript=pending_event.transcript,
        summary=summary,
        tokens_used=usage.used,
        token_budget=usage.budget,
        active_files=_active_files(folder, pending_event, root, settings["checkpoint.exclude_patterns"]),
        key_points=_key_points(notes, last_words),
        notes=notes,
        named=pending_event.named,
        until=pending_event.until,
        partial=pending_event.partial,
    )


def _is_tool_call_newest(engine: Engine, root: bytes) -> bool:
    """Return whether the newest checkpoint is one of a single tool call."""
    location = engine.workspaces.locate(root)
    rows = engine.repository().find(Query(workspace=location[1], limit=1)) if location is not None else []
    return bool(rows) and rows[0].trigger in LIGHT_TRIGGERS


def moved_on(engine: Engine, root: bytes, folder: str, event: PendingEvent) -> bool:
    """Return whether the conversation of the event's session went on since that session's last checkpoint.

    It did if the client reported a prompt or an answer since, or if the transcript is longer than what that checkpoint saved.
    """
    session, location = event.session, engine.workspaces.locate(root)
    if not session or location is None:
        return False
    repository = engine.repository()
    rows = repository.find(Query(workspace=location[1], session=session, limit=1, light=False))
    last_heard = sessions.facts(folder, session).get("heard")
    times = [last_heard if isinstance(last_heard, int) else 0, event.at if event.conversed else 0]
    if max(times) > (rows[0].created_at if rows else 0):
        return True
    conversation = latest_conversation(repository, location[1], session)
    return _has_message_after(
        event.transcript, event.agent, conversation.transcript.size if conversation is not None else 0
    )


def _has_message_after(path: str, agent: str, start: int) -> bool:
    """Return whether the transcript has a message after this offset."""
    client = sessions_of(agent)
    if client is None or not isfile(path):
        return False  # opening a pipe could block forever
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            # A transcript that became shorter was rewritten.
            file.seek(max(start if start <= size else 0, size - MAX_TAIL_BYTES))
            return client.has_message(file.read(MAX_TAIL_BYTES))
    except OSError:
        return False


def _await_transcript(engine: Engine, event: PendingEvent) -> None:
    """Give the client of another session time to write its last words: that session's own worker would wait for them, too."""
    if event.trigger != "turn" or not event.conversed:
        return
    sleep(min(TRANSCRIPT_LAG_SECONDS, max(0.0, (event.at - engine.clock()) / 1e9 + TRANSCRIPT_LAG_SECONDS)))


def _message(event: PendingEvent, summary: str) -> str:
    """Return the checkpoint's message: for one before a command, the command."""
    command = " ".join(event.command.split())
    if command:
        return head(without_secrets(f"before {command}"), MAX_SUMMARY_CHARS)
    return summary


def _notes(engine: Engine, root: bytes, folder: str, event: PendingEvent) -> tuple[dict[str, Any] | None, str]:
    """Return the session's notes and the first line of its last words, both redacted.

    Notes are task, next steps, decisions, blockers, commands and files. The full texts stay in the sealed conversation.
    """
    settings = engine.settings
    if event.trigger in TRIGGERS_IN_A_HURRY:
        return _quick_notes(folder, event, settings)
    if not event.transcript:
        return None, ""
    from keepfast.app.resume import extract_of, notes_of

    session, place = event.session, engine.workspaces.locate(root)
    session_notes = notes_of(event.transcript, extract_of(folder, session), folder, session)
    if session_notes is None:
        return None, ""
    secrets = KnownSecrets(engine.repository(), place[1] if place is not None else "")
    notes: dict[str, Any] = secrets.redact_all(
        {key: value for key, value in session_notes.to_json().items() if key in SAVED_NOTES}
    )
    inherited = sessions.inherited(folder, session)
    if inherited:
        notes["inherited"] = (
            inherited if settings["checkpoint.capture_files"] else {**inherited, "files": [], "places": []}
        )
    if not settings["checkpoint.capture_analysis"]:
        notes["analysis"] = {key: "" if isinstance(value, str) else [] for key, value in notes["analysis"].items()}
        notes.pop("inherited", None)
    if not settings["checkpoint.capture_files"]:
        notes["files"] = []
    _drop_excluded(notes, settings["checkpoint.exclude_patterns"])
    return notes, secrets.redact_text(first_line(session_notes.last_answer, MAX_LINE_CHARS))


def _quick_notes(folder: str, event: PendingEvent, settings: Settings) -> tuple[dict[str, Any] | None, str]:
    """Return the same without reading the conversation: the last prompt, or the task that was resumed."""
    session = event.session
    task = sessions.facts(folder, session).get("prompt") or sessions.inherited(folder, session).get("task")
    answer = without_secrets(first_line(last_words(event.transcript), MAX_LINE_CHARS))
    if not isinstance(task, str) or not task or not settings["checkpoint.capture_analysis"]:
        return None, answer
    return {"analysis": {"current_task": without_secrets(task)}}, answer


def _drop_excluded(notes: dict[str, Any], patterns: list[str]) -> None:
    """Drop folders and documents that the patterns exclude, or that a tool can recreate."""

    def is_wanted(path: str) -> bool:
        return not excluded_by(path, patterns) and not is_in_always_generated_folder(path.encode("utf-8", "replace"))

    packages, documents = notes["context"]["relevant_packages"], notes["analysis"]["relevant_docs"]
    notes["context"]["relevant_packages"] = [folder for folder in packages if is_wanted(f"{folder}/*")]
    notes["analysis"]["relevant_docs"] = [path for path in documents if is_wanted(path)]


def _short(text: str) -> str:
    """Return a redacted line of eighty characters at most.

    It is redacted again after the cut: `[redacted:…]` may be longer than the secret.
    """
    text = without_secrets(text)
    if len(text) <= MAX_SUMMARY_CHARS and "\n" not in text:
        return text
    return head(without_secrets(shortened(text, MAX_SUMMARY_CHARS)), MAX_SUMMARY_CHARS)


def _key_points(notes: dict[str, Any] | None, last_words: str) -> tuple[str, ...]:
    """Return decisions, blockers and the last words, as far as the notes have them."""
    analysis = notes["analysis"] if notes is not None else {}
    points = [*analysis.get("decisions_made", ()), *analysis.get("blockers", ())][: MAX_POINTS - 1]
    bare = [without_heading(point) for point in (*points, last_words)]
    return without_repeats([head(point, MAX_POINT_CHARS) for point in bare if point])


def without_heading(line: str) -> str:
    """Return the line without a heading at its end, or nothing if it is a heading: it only announces what follows."""
    text = line.strip()
    bare = text.rstrip("*_ ")
    if bare.endswith((":", "：")):
        ends = [bare.rfind(mark) for mark in (". ", "! ", "? ")]
        start = max(ends)
        if start >= 0:
            return bare[: start + 1]
    is_heading = text.startswith("#") or (
        text.startswith("**") and text.rstrip(":： ").endswith("**") and text.count("**") == 2
    )
    return "" if is_heading else text


def without_repeats(points: Iterable[str]) -> tuple[str, ...]:
    """Return the points without those that repeat an earlier one: the same words, or those with a few more or fewer around them."""
    kept_points: dict[str, str] = {}
    for point in points:
        words = "".join([letter if letter.isalnum() else " " for letter in point[:MAX_POINT_CHARS].casefold()])
        text = f" {' '.join(words.split())} "
        if not any(_is_repeat(text, other) for other in kept_points):
            kept_points[text] = point
    return tuple(kept_points.values())


def _is_repeat(point: str, other: str) -> bool:
    shorter, longer = sorted((point, other), key=len)
    return shorter in longer and len(shorter) >= len(longer) * REPEAT_SHARE


def _record_written_files(folder: str, event: PendingEvent) -> None:
    """Record once, from the end of the transcript, which files the session wrote before hooks were installed."""
    session, transcript = event.session, event.transcript
    if not session or not isfile(transcript) or isfile(sessions.path(folder, session, "touched")):
        return
    from keepfast.agents import transcript as transcripts

    try:
        with open(transcript, "rb") as file:
            start = max(0, file.seek(0, 2) - MAX_TAIL_BYTES)
            file.seek(start)
            data = file.read(MAX_TAIL_BYTES)
        files = transcripts.read(data[data.find(b"\n") + 1 :] if start else data).files.newest_first()
        paths = [f"w {entry.path}" for entry in files if entry.edited and "\n" not in entry.path]
        sessions.touch(folder, session, paths[::-1])
    except OSError:
        return


def _active_files(folder: str, event: PendingEvent, root: bytes, patterns: list[str]) -> tuple[str, ...]:
    """Return the files that tools wrote in this session, newest first, relative to the root.

    Without what the patterns exclude and what a tool can recreate.
    """
    _record_written_files(folder, event)
    start = "w " + root.decode("utf-8", "surrogateescape").rstrip("/") + "/"
    paths = [line[len(start) :] for line in sessions.touched(folder, event.session) if line.startswith(start)]
    if not paths:
        return ()
    # A name that is not UTF-8 does not fit into a JSON header.
    names = [path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for path in paths]
    names = [
        name
        for name in names
        if not excluded_by(name, patterns) and not is_in_always_generated_folder(name.encode("utf-8"))
    ]
    return tuple(names[:MAX_ACTIVE_FILES])


def _note_poor_coverage(engine: Engine, root: bytes, outcome: Outcome, trigger: str) -> None:
    """Note a checkpoint that has no files, or excludes more entries than it has."""
    row = engine.repository().workspace(outcome.checkpoint.workspace)
    if row is None:
        return
    covered = coverage(row)
    if covered.files + covered.links == 0:
        engine.workspaces.note(root, "empty", trigger, f"v{outcome.version} has no files.")
    elif covered.is_poor:
        excluded = sum(covered.left_out.values())
        engine.workspaces.note(
            root, "poor", trigger, f"v{outcome.version} leaves out {excluded:,} entries, more than it has."
        )
    for notice in outcome.notices:
        engine.workspaces.note(root, "noticed", trigger, notice)
