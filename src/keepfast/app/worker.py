"""Pending events become checkpoints: in order, by one process per workspace, and never silently without one."""

from __future__ import annotations

from os.path import isdir, isfile
from posix import close

from keepfast.agents.claude.usage import tokens
from keepfast.app.checkpoint_header import MOST_ACTIVE
from keepfast.model.errors import Busy, sentence
from keepfast.model.event import CONVERSED, CREATED, OUTSIDE, UNCHANGED, Event, Outcome
from keepfast.model.policy import failed_trigger_time, rest_period
from keepfast.state import brief_parts as parts
from keepfast.state import pending_events as pending
from keepfast.state import sessions, workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from keepfast.app.checkpoint import Engine
    from keepfast.app.checkpoint_save import Aside
    from keepfast.settings import Settings
    from keepfast.state.pending_events import PendingEvent
    from keepfast.store.rows import WorkspaceRow

SUMMARY, POINT, MOST_POINTS = 80, 200, 8
MOSTLY = 0.6
"""A point that is so much of a longer one is the same again."""
LINE = 1000
"""Characters of a line that are looked at for secrets, before it is cut to the length of a point."""
PATIENCE, STEP = 1.0, 0.01
LAG, MOST_READ = 0.5, 8 << 20
"""Seconds by which a transcript may lag behind its events, and how much of its end is read."""
HASTY = ("before_command",)
"""Triggers at which the agent waits: of its notes they have the task and the last words, the rest comes with the next one."""
KEPT = ("analysis", "context", "tasks", "last_test", "unfinished", "files", "session", "read_by")
"""What of the notes stands in the checkpoint itself; the conversation has the rest."""


def finish(
    engine: Engine, root: bytes, workspace: str, tidy: Callable[[bytes], None] | None = None, own: str = ""
) -> bool:
    """Do every pending event of a workspace. False if somebody else is at it: then he does them all.

    `own`: the session whose last words are known to be in its transcript, as far as they will ever be.

    Whoever adds an event looks for a worker afterwards, and a worker looks for events after it has let go of its lock:
    one of the two finds the other's.
    """
    folder = engine.place.folder(workspace)
    while pending.names(folder):
        lock = workers.try_to_become_worker(folder, engine.clock())
        if lock < 0:
            return False
        try:
            _finish_all(engine, root, folder, tidy, own)
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
    while waiting and any(workers.running_worker(folder, name) is not None for name in (workers.HOOKS, "/lock")):
        if monotonic() >= end:
            return
        sleep(STEP)
        waiting &= set(pending.names(folder))
    if waiting:
        try:
            finish(engine, root, workspace)
        except Busy:
            return  # the events stay pending
        except OSError as error:
            engine.note(root, "failed", "pending", f"Pending events were not saved: {error.strerror}.")


def _finish_all(engine: Engine, root: bytes, folder: str, tidy: Callable[[bytes], None] | None, own: str) -> None:
    while names := pending.names(folder):
        done: dict[tuple[str, str], bool] = {}
        for name in names:
            told = pending.read(folder, name)
            if told is None:
                continue
            # The tree is what it is now: a second event of the same kind and session would find nothing new in it.
            key = told.trigger, told.session
            if key not in done:
                done[key] = True
                if told.session != own:
                    _let_write(engine, told)
                _finish(engine, root, folder, told, tidy)
            pending.done(folder, name)
    sessions.sweep(folder, engine.clock())
    parts.sweep(folder, engine.clock())


def _finish(engine: Engine, root: bytes, folder: str, told: PendingEvent, tidy: Callable[[bytes], None] | None) -> None:
    try:
        if told.trigger == sessions.CUT_OFF and not moved_on(engine, root, folder, told):
            outcome = Outcome(UNCHANGED, root)
        else:
            outcome = save(engine, root, folder, told)
        result: dict[str, object] = {"status": outcome.status, "id": outcome.id, "version": outcome.version}
        if outcome.untidy and tidy is not None:
            tidy(root)
    except (ImportError, SyntaxError, Busy):
        raise  # files of our own are missing, or somebody has a lock: the event stays pending until that is over
    except Exception as error:
        engine.note(root, "failed", told.trigger, sentence(error))
        result = {"status": "failed", "id": "", "version": 0}
        _ease(engine, folder, told)
    if told.trigger == sessions.CUT_OFF:
        _note_cut_off(engine, root, folder, told.session, result["status"] != "failed")
    if told.trigger == "before_clear":
        try:
            sessions.note_saved(folder, told.client, told.session, **result)
        except OSError as error:
            engine.note(root, "failed", "before_clear", f"The cleared session was not recorded: {error.strerror}.")


def _note_cut_off(engine: Engine, root: bytes, folder: str, session: str, is_kept: bool) -> None:
    """The crashed session has ended for good, or the next start tries again."""
    known: dict[str, str | int] = {"ended": sessions.CUT_OFF} if is_kept else {"tried": engine.clock()}
    try:
        sessions.remember(folder, session, **known)
    except OSError as error:
        engine.note(root, "failed", sessions.CUT_OFF, f"The crashed session was not recorded: {error.strerror}.")


def _ease(engine: Engine, folder: str, told: PendingEvent) -> None:
    """The next event of this kind tries again soon: only a checkpoint that exists claims a long rest."""
    if not rest_period(told.trigger):
        return
    try:
        sessions.set_trigger_time(folder, told.session, told.trigger, failed_trigger_time(told.trigger, engine.clock()))
    except OSError:
        pass  # then it rests for as long as others


def save(
    engine: Engine,
    root: bytes,
    folder: str,
    told: PendingEvent,
    only: tuple[bytes, ...] = (),
    keep: tuple[bytes, ...] = (),
) -> Outcome:
    """Make the checkpoint of an event that a hook recorded. Raises what `Engine.handle` raises."""
    event = event_of(engine, root, folder, told, only)
    event.moved_on = told.trigger in CONVERSED and moved_on(engine, root, folder, told)
    event.keep = keep
    outcome = engine.handle(event)
    if outcome.status == OUTSIDE:
        event.cwd = root  # the folder that the agent was in is gone
        outcome = engine.handle(event)
    if outcome.status == CREATED and not only:
        _warn_of_poor(engine, root, outcome, told.trigger)
    return outcome


def record(engine: Engine, root: bytes, folder: str, told: PendingEvent, aside: Aside) -> Outcome:
    """Make the checkpoint of what was read before the command, while somebody else was saving. Raises what that raises."""
    return aside.record(event_of(engine, root, folder, told))


def event_of(engine: Engine, root: bytes, folder: str, told: PendingEvent, only: tuple[bytes, ...] = ()) -> Event:
    """The event with all that is known of its session: notes, tokens, files, conversation."""
    known = sessions.facts(folder, told.session)
    prompt, answer = known.get("prompt"), known.get("said")
    settings = engine.settings
    notes, said = _notes(engine, root, folder, told)
    if isinstance(answer, str) and (told.trigger == "turn" or not said):
        said = answer or said  # the client told the last words of the turn; at other times the transcript is newer
    task = notes["analysis"]["current_task"] if notes is not None else ""
    summary = _short(task or (prompt if isinstance(prompt, str) else ""))
    if not settings["checkpoint.auto_summary_enabled"]:
        summary = ""
    if settings["checkpoint.mode"] == "summary":
        notes = None
    usage = tokens(
        folder,
        told.session,
        told.transcript,
        told.model,
        settings["budget.tokens"],
        settings["budget.windows"],
    )
    return Event(
        told.cwd.encode("utf-8", "surrogateescape") or root,
        told.at,
        trigger=told.trigger,
        message=_message(told, summary),
        session=told.session[:200],
        created_by="auto",
        only=only,
        command=told.command,
        agent=told.agent,
        transcript=told.transcript,
        summary=summary,
        tokens_used=usage.used,
        token_budget=usage.budget,
        active_files=_active(folder, told, root, settings["checkpoint.exclude_patterns"]),
        key_points=_points(notes, said),
        notes=notes,
        named=told.named,
        until=told.until,
        partial=told.partial,
    )


def moved_on(engine: Engine, root: bytes, folder: str, told: PendingEvent) -> bool:
    """Did the conversation of the event's session go on since the last checkpoint of that session?

    It did if the client told of a prompt or an answer since, or if its transcript has more than that checkpoint kept.
    """
    session, found = told.session, engine.locate(root)
    if not session or found is None:
        return False
    from keepfast.store.conversations import latest_conversation
    from keepfast.store.rows import Query

    repository = engine.repository()
    rows = repository.find(Query(workspace=found[1], session=session, limit=1))
    heard = sessions.facts(folder, session).get("heard")
    times = [heard if isinstance(heard, int) else 0, told.at if told.conversed else 0]
    if max(times) > (rows[0].created_at if rows else 0):
        return True
    kept = latest_conversation(repository, found[1], session)
    return _says_more(told.transcript, told.agent, kept.transcript.size if kept is not None else 0)


def _says_more(path: str, agent: str, start: int) -> bool:
    """Does the transcript say anything after so many bytes?"""
    from keepfast.agents.registry import sessions as sessions_of

    known = sessions_of(agent)
    if known is None or not isfile(path):
        return False  # a pipe would let us wait for ever
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            # One that became shorter was written anew.
            file.seek(max(start if start <= size else 0, size - MOST_READ))
            return known.has_message(file.read(MOST_READ))
    except OSError:
        return False


def _let_write(engine: Engine, told: PendingEvent) -> None:
    """Give another session's client time to write down what it said last: its own worker would wait for that, too."""
    if told.trigger != "turn" or not told.conversed:
        return
    from time import sleep

    sleep(min(LAG, max(0.0, (told.at - engine.clock()) / 1e9 + LAG)))


def _message(told: PendingEvent, summary: str) -> str:
    """What `list` shows: of a checkpoint before a command, the command."""
    command = " ".join(told.command.split())
    if command:
        from keepfast.secrets.cuts import head
        from keepfast.secrets.light_redaction import without_secrets

        return head(without_secrets(f"before {command}"), SUMMARY)
    return summary


def _notes(engine: Engine, root: bytes, folder: str, told: PendingEvent) -> tuple[dict[str, Any] | None, str]:
    """Task, next steps, decisions, blockers, commands and files of the session, and the first line of what was said last.

    Without secrets. The rest of what was said stays sealed.
    """
    settings = engine.settings
    if told.trigger in HASTY:
        return _hasty(folder, told, settings)
    if not told.transcript:
        return None, ""
    from keepfast.app.known_secrets import KnownSecrets
    from keepfast.app.resume import extract_of, notes_of
    from keepfast.secrets.cuts import first_line

    session, place = told.session, engine.locate(root)
    found = notes_of(told.transcript, extract_of(folder, session), folder, session)
    if found is None:
        return None, ""
    secrets = KnownSecrets(engine.repository(), place[1] if place is not None else "")
    kept: dict[str, Any] = secrets.strike_all({key: value for key, value in found.to_json().items() if key in KEPT})
    inherited = sessions.inherited(folder, session)
    if inherited:
        kept["inherited"] = (
            inherited if settings["checkpoint.capture_files"] else {**inherited, "files": [], "places": []}
        )
    if not settings["checkpoint.capture_analysis"]:
        kept["analysis"] = {key: "" if isinstance(value, str) else [] for key, value in kept["analysis"].items()}
        kept.pop("inherited", None)
    if not settings["checkpoint.capture_files"]:
        kept["files"] = []
    _leave_out(kept, settings["checkpoint.exclude_patterns"])
    return kept, secrets.strike(first_line(found.said, LINE))


def _hasty(folder: str, told: PendingEvent, settings: Settings) -> tuple[dict[str, Any] | None, str]:
    """The same as far as it is known without reading the conversation: the last prompt, or the work that was resumed."""
    from keepfast.resume.last_words import last_words
    from keepfast.secrets.cuts import first_line
    from keepfast.secrets.light_redaction import without_secrets

    session = told.session
    task = sessions.facts(folder, session).get("prompt") or sessions.inherited(folder, session).get("task")
    said = without_secrets(first_line(last_words(told.transcript), LINE))
    if not isinstance(task, str) or not task or not settings["checkpoint.capture_analysis"]:
        return None, said
    return {"analysis": {"current_task": without_secrets(task)}}, said


def _leave_out(notes: dict[str, Any], patterns: list[str]) -> None:
    """Name no folders and documents that the patterns exclude, or that a tool can make again."""
    from keepfast.model.artefacts import is_in_always_generated_folder
    from keepfast.model.exclusion import excluded_by

    def is_wanted(path: str) -> bool:
        return not excluded_by(path, patterns) and not is_in_always_generated_folder(path.encode("utf-8", "replace"))

    packages, documents = notes["context"]["relevant_packages"], notes["analysis"]["relevant_docs"]
    notes["context"]["relevant_packages"] = [folder for folder in packages if is_wanted(f"{folder}/*")]
    notes["analysis"]["relevant_docs"] = [path for path in documents if is_wanted(path)]


def _short(text: str) -> str:
    """One line of eighty characters at most, also once it is without secrets: the words for one may be longer than it was."""
    from keepfast.secrets.light_redaction import without_secrets

    text = without_secrets(text)
    if len(text) <= SUMMARY and "\n" not in text:
        return text
    from keepfast.resume.notes import shortened
    from keepfast.secrets.cuts import head

    return head(without_secrets(shortened(text, SUMMARY)), SUMMARY)


def _points(notes: dict[str, Any] | None, said: str) -> tuple[str, ...]:
    """What must not be forgotten: what was decided, what stands in the way, and the last words, as far as notes tell."""
    from keepfast.secrets.cuts import head

    analysis = notes["analysis"] if notes is not None else {}
    found = [*analysis.get("decisions_made", ()), *analysis.get("blockers", ())][: MOST_POINTS - 1]
    return without_repeats([head(point, POINT) for point in (*found, said) if point])


def without_repeats(points: Iterable[str]) -> tuple[str, ...]:
    """The points without those that say an earlier one again: the same words, or those with a few more or fewer around them."""
    found: dict[str, str] = {}
    for point in points:
        words = "".join([letter if letter.isalnum() else " " for letter in point[:POINT].casefold()])
        text = f" {' '.join(words.split())} "
        if not any(_is_repeat(text, other) for other in found):
            found[text] = point
    return tuple(found.values())


def _is_repeat(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    return shorter in longer and len(shorter) >= len(longer) * MOSTLY


def _note_written(folder: str, told: PendingEvent) -> None:
    """Note once what the transcript's end says of written files, where hooks have noted none: they came later than the session."""
    session, transcript = told.session, told.transcript
    if not session or not isfile(transcript) or isfile(sessions.path(folder, session, "touched")):
        return
    from keepfast.agents import transcript as transcripts

    try:
        with open(transcript, "rb") as file:
            start = max(0, file.seek(0, 2) - MOST_READ)
            file.seek(start)
            data = file.read(MOST_READ)
        files = transcripts.read(data[data.find(b"\n") + 1 :] if start else data).files.newest_first()
        paths = [f"w {one.path}" for one in files if one.edited and "\n" not in one.path]
        sessions.touch(folder, session, paths[::-1])
    except OSError:
        return


def _active(folder: str, told: PendingEvent, root: bytes, patterns: list[str]) -> tuple[str, ...]:
    """The files that tools wrote in this session, the newest first, relative to the root.

    Without what the patterns exclude, and what lies in a folder that a checkpoint never looks into.
    """
    _note_written(folder, told)
    start = "w " + root.decode("utf-8", "surrogateescape").rstrip("/") + "/"
    found = [line[len(start) :] for line in sessions.touched(folder, told.session) if line.startswith(start)]
    if not found:
        return ()
    from keepfast.model.artefacts import is_in_always_generated_folder
    from keepfast.model.exclusion import excluded_by

    # A name that is not UTF-8 has no place in a JSON header.
    names = [path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for path in found]
    names = [
        name
        for name in names
        if not excluded_by(name, patterns) and not is_in_always_generated_folder(name.encode("utf-8"))
    ]
    return tuple(names[:MOST_ACTIVE])


def _warn_of_poor(engine: Engine, root: bytes, outcome: Outcome, trigger: str) -> None:
    """A checkpoint of nothing, or of the smaller part, is told although nobody asked."""
    from keepfast.app.inspect import coverage

    row = engine.repository().workspace(outcome.checkpoint.workspace)
    if row is None:
        return
    found = coverage(row)
    if found.files + found.links == 0:
        engine.note(root, "empty", trigger, f"v{outcome.version} has no files.")
    elif found.is_poor:
        left = sum(found.left_out.values())
        engine.note(root, "poor", trigger, f"v{outcome.version} leaves out {left:,} entries, more than it has.")
    for notice in outcome.notices:
        engine.note(root, "noticed", trigger, notice)
