"""Make a checkpoint: scan, read, store, write its header and remember; or only compute what it would record.

The companion of `checkpoint.py`, loaded only when something is saved or previewed: a save of an unchanged folder does not
need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from os import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close, urandom
from os import open as open_fd
from typing import TYPE_CHECKING, Any

from keepfast.agents.registry import sessions
from keepfast.app.active_files import active_of
from keepfast.app.coverage import is_at_newest
from keepfast.app.known_secrets import guard
from keepfast.app.scan import ensure_registered, free_room, include_excluded, include_files, mark_vanished, scan_only
from keepfast.app.scan import scan as scan_changes
from keepfast.app.workspace_lock import Folder
from keepfast.model.age import amount
from keepfast.model.entry import FILE, FOLDER, GONE, LINK, SEALED, UNREADABLE, Entry
from keepfast.model.errors import Failed, KeepfastError, TooMany
from keepfast.model.event import BY_THEMSELVES, CREATED, UNCHANGED, Event, Outcome, takes
from keepfast.model.ids import checkpoint_id
from keepfast.model.steps import step
from keepfast.secrets.light_redaction import without_secrets
from keepfast.settings import Settings
from keepfast.store.conversations import (
    MAX_TRANSCRIPT_LENGTH,
    SavedConversation,
    latest_conversation,
    store_side_files,
    store_transcript,
)
from keepfast.store.maintenance.space import is_over_cap
from keepfast.store.save import CheckpointWriter, SaveConflict
from keepfast.workspace import stat_cache
from keepfast.workspace.git import GitFacts, facts
from keepfast.workspace.marker import show
from keepfast.workspace.reader import Sink, TimeLimit, capture
from keepfast.workspace.scan import Scan
from keepfast.workspace.secret_check import is_secret

if TYPE_CHECKING:
    from keepfast.app.checkpoint import Engine

MAX_ATTEMPTS = 5
MAX_UNREAD_NAMED = 5
MANY_PACKS = 64
SAFETY = "before_restore"
"""Trigger of the checkpoint that a restore makes first."""
TRIGGERS_AWAITED = frozenset(("before_command", "auto_70", "auto_80", "auto_90"))
MAX_AWAITED_BYTES = 4 << 20
"""Somebody waits for these saves: they save a conversation up to this size, or leave it to the next save."""
MAX_NAMED = 3
TOOL = "0.1.0"
PRIVACY_SETTINGS = (
    "mode",
    "capture_files",
    "capture_analysis",
    "max_checkpoint_size",
    "max_file_size",
    "exclude_patterns",
)
"""Settings `checkpoint.*` that limit what is shown of the work. The values at the time of the save hold later, too."""


def make(engine: Engine, event: Event, folder: Folder, changes: Any) -> Outcome:
    """Make a checkpoint of what differs; try again if a sweep removed blobs that it relied on."""
    repository = engine.repository()
    ensure_registered(folder, repository, event.at)
    for _ in range(MAX_ATTEMPTS):
        saving = repository.begin(folder.workspace)
        if event.guarded:
            saving.copies.noted = {}
        try:
            return _attempt(engine, event, folder, saving, changes)
        except SaveConflict:
            saving.abort()
            changes = None
        except BaseException:
            saving.abort()
            raise
    raise Failed("Other processes kept saving this workspace; nothing was saved.", "Try again.")


def _attempt(engine: Engine, event: Event, folder: Folder, saving: CheckpointWriter, changes: Any) -> Outcome:
    started = engine.clock()
    scans = _scan(engine, event, folder, saving, changes)
    step("save:scanned")
    limit = _time_limit(engine, event, scans)
    rows = scans.capture(folder, saving, engine, limit)
    step("save:read")
    late = _mark_if_late(event, engine.clock())
    if event.named and not event.only and scans.whole is not None:
        mark_vanished(folder, scans.whole, rows, event.named, saving)
    chosen = _store_chosen(event, folder, rows, saving)
    changed, old = saving.changes(rows, scans.seen())
    del rows
    row = saving.row
    if not takes(event.trigger, bool(changed), row.version == 0, event.moved_on):
        saving.abort()
        if not event.only and scans.whole is not None:
            folder.remember(scans.whole, row.document)
        outcome = Outcome(UNCHANGED, folder.root)
        outcome.notices = scans.notices()
        return outcome
    notices = [*scans.notices(), *late, *_unread_notices(limit)]
    if event.partial:
        notices.append(
            "The tree has too many files to save all of them; this version covers only what the command names."
        )
    conversation = _conversation_of(event, folder.root, saving, notices) if event.transcript else None
    notices += saving.repository.contents.warnings()
    _fill_in_words(engine, event, saving, changed)
    event.active_files = active_of(event, changed, saving, engine.settings["checkpoint.exclude_patterns"])
    git, now = facts(folder.root), engine.clock()
    header = _header_of(event, folder.root, event.cwd, started, now, git, notices, engine.settings)
    if conversation is not None:
        header["conversation"] = conversation.to_json()
    if event.partial:
        header["partial"] = [path.decode("utf-8", "surrogateescape") for path in event.partial]
    checkpoint = saving.finish(header, changed, old)
    if scans.whole is not None:
        folder.remember(scans.whole, checkpoint.document)
    if event.only:
        # A deleted folder took everything below it: those paths must be looked at again even if they come back unchanged.
        folder.renew(checkpoint.document, tuple({*event.only, *[entry.path for entry in changed]}))
    step("save:remembered")
    outcome = Outcome(CREATED, folder.root, version=checkpoint.version, id=checkpoint.id, message=header["message"])
    outcome.checkpoint, outcome.chosen = checkpoint, chosen
    outcome.needs_tidying = _is_untidy(engine)
    outcome.notices = notices
    return outcome


class Scans:
    """What a save looks at: some paths, the whole tree, or both. What is found at a named path counts before the rules."""

    def __init__(self, named: Scan | None, whole: Scan | None) -> None:
        self.named, self.whole = named, whole

    def capture(
        self, folder: Folder, saving: CheckpointWriter, engine: Engine, limit: TimeLimit | None
    ) -> dict[bytes, Entry]:
        """Read what differs and return its rows by path, the named paths first: a command may be about to change them.

        `limit` is for the named paths if there are any.
        """
        rows: dict[bytes, Entry] = {}
        if self.named is not None:
            rows, limit = capture(folder.fd, self.named, folder.now, saving, engine.progress, limit), None
        if self.whole is None:
            return rows
        others = capture(folder.fd, self.whole, folder.now, saving, engine.progress, limit)
        others.update(rows)
        return others

    def seen(self) -> set[bytes] | None:
        """Return every path that exists, after a walk; None if the rows alone say what is gone."""
        return self.whole.seen if self.whole is not None and self.whole.full else None

    def notices(self) -> list[str]:
        return [notice for scan in (self.named, self.whole) if scan is not None for notice in scan.notices]


def _scan(engine: Engine, event: Event, folder: Folder, saving: CheckpointWriter, changes: Any) -> Scans:
    """Scan what the event names, and the whole tree unless the rest of it is known to be as in the newest version.

    A version is a state that the disk had: after a restore of another version the newest one does not describe the disk.
    """
    if not event.only:
        whole = scan_changes(folder, saving, changes)
        _include(event, folder, whole, saving)
        return Scans(None, whole)
    named = scan_only(folder, event.only, saving, event.keep)
    _include(event, folder, named, saving)
    if event.partial or event.rest_unchanged:
        return Scans(named, None)
    # What a restore saves is a state to go back to, unsaved edits elsewhere included; a command does not wait for that.
    if event.trigger != SAFETY and is_at_newest(folder, saving.repository, saving.row.version):
        return Scans(named, None)
    fresh = folder.fresh()
    changes = stat_cache.check(fresh, folder.fd, folder.capture.accelerated) if fresh is not None else None
    try:
        return Scans(named, scan_changes(folder, saving, changes))
    except TooMany:
        event.partial = event.only
        return Scans(named, None)


def _include(event: Event, folder: Folder, scan: Scan, saving: CheckpointWriter) -> None:
    """Include files that the event wants saved whatever the rules say."""
    if event.force:
        include_files(folder, scan, event.force, saving)
    if event.keep:
        include_excluded(folder, scan, event.keep, free_room(folder.engine.place.path))


def _store_chosen(
    event: Event, folder: Folder, rows: dict[bytes, Entry], saving: CheckpointWriter
) -> dict[bytes, Entry]:
    """Store the contents that the event brings; return the rows of their files with them. A file that is gone has none."""
    if not event.chosen:
        return {}
    present = {**saving.repository.current(folder.workspace, list(event.chosen)), **rows}
    return {
        path: _with_content(row, saving, data)
        for path, data in sorted(event.chosen.items())
        if (row := present.get(path)) is not None and row.kind == FILE
    }


def _fill_in_words(engine: Engine, event: Event, saving: CheckpointWriter, changed: list[Entry]) -> None:
    """Give the event a message and a summary if it lacks them, and redact values of sealed files in its texts."""

    if not event.message and event.trigger != "manual":
        event.message = _title_of(changed, saving.row.version)
    if _lacks_words(event) and engine.settings["checkpoint.auto_summary_enabled"]:
        event.summary = _title_of(changed, saving.row.version)
    if event.guarded:
        guard(event, saving, changed)


def _mark_if_late(event: Event, read_at: int) -> list[str]:
    """Rename "before …" to "during …" if files were read after the command began; return the notice about that."""
    if not (event.until and read_at > event.until and event.message.startswith("before ")):
        return []
    event.message = "during" + event.message[6:]
    return ["It was read after the command had started, so it may already include changes made by the command."]


def _time_limit(engine: Engine, event: Event, scans: Scans) -> TimeLimit | None:
    """Return the limit for files that are read only because of the event's command; None if there are none."""
    if not event.until or not (event.only or event.keep):
        return None
    forced = scans.whole.forced if scans.whole is not None and scans.named is None else None
    return TimeLimit(lambda: engine.clock() >= event.until, forced)


def _unread_notices(limit: TimeLimit | None) -> list[str]:
    """Return the notice about files that the command may have changed before they could be read."""
    if limit is None or not limit.unread:
        return []
    return [
        f"{amount(len(limit.unread), 'file')} could not be read before the command started: {_first_of(limit.unread)}."
    ]


def _first_of(paths: list[bytes]) -> str:
    more = f" and {len(paths) - MAX_UNREAD_NAMED:,} more" if len(paths) > MAX_UNREAD_NAMED else ""
    return ", ".join([show(path) for path in paths[:MAX_UNREAD_NAMED]]) + more


class ReadAhead:
    """Some paths, read without the workspace's lock while another process holds it; `record` makes them a version afterwards."""

    def __init__(
        self, engine: Engine, folder: Folder, saving: CheckpointWriter, rows: dict[bytes, Entry], started: int
    ) -> None:
        self.engine, self.folder, self.saving, self.rows = engine, folder, saving, rows
        self.started, self.ended = started, engine.clock()

    def record(self, event: Event) -> Outcome:
        """Make a version: the newest one with these paths as they were. `UNCHANGED` if it has them, or there is none yet.

        If the folder is not at the newest version, the version covers these paths alone.
        """
        with Folder(self.engine, self.folder.root, self.folder.workspace) as folder:
            saving = self.saving
            folder.look_up()
            late = _mark_if_late(event, self.ended)
            try:
                if not saving.rebase_on_newest():
                    saving.abort()
                    return Outcome(UNCHANGED, folder.root)
                changed, old = saving.changes(self.rows, None)
                if not changed:
                    saving.abort()
                    return Outcome(UNCHANGED, folder.root)
                times, settings = (self.started, self.ended), self.engine.settings
                header = _header_of(event, folder.root, event.cwd, *times, None, late, settings)
                if not is_at_newest(folder, saving.repository, saving.row.version):
                    header["partial"] = [path.decode("utf-8", "surrogateescape") for path in sorted(self.rows)]
                checkpoint = saving.finish(header, changed, old)
                folder.renew(checkpoint.document, tuple([entry.path for entry in changed]))
            except SaveConflict:
                saving.abort()
                return Outcome(UNCHANGED, folder.root)
            except BaseException:
                saving.abort()
                raise
        outcome = Outcome(CREATED, folder.root, version=checkpoint.version, id=checkpoint.id, message=event.message)
        outcome.checkpoint = checkpoint
        return outcome


def read_ahead(engine: Engine, root: bytes, workspace: str, paths: tuple[bytes, ...], until: int) -> ReadAhead | None:
    """Read these paths into the store, as far as time suffices; None if the store does not know the workspace yet."""
    repository = engine.repository()
    if repository.workspace(workspace) is None:
        return None
    started, folder, saving = engine.clock(), Folder(engine, root, workspace), repository.begin(workspace)
    folder.fd = open_fd(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        limit = TimeLimit(lambda: engine.clock() >= until, None)
        rows = capture(folder.fd, scan_only(folder, paths, saving), 0, saving, limit=limit)
        saving.store_waiting_blobs()
    except BaseException:
        saving.abort()
        raise
    finally:
        close(folder.fd)
        folder.fd = -1
    # Of paths that disappeared meanwhile the save that is running may know more.
    existing = {path: row for path, row in rows.items() if row.kind not in (GONE, UNREADABLE)}
    return ReadAhead(engine, folder, saving, existing, started)


def _is_untidy(engine: Engine) -> bool:
    """Return whether many packs piled up, or the store is over its size limit."""
    packs = engine.repository().packs()
    if len(packs) >= MANY_PACKS and len(packs) % 16 == 0:
        return True
    size, most = sum([pack.size for pack in packs]), engine.settings["retention.max_size"]
    if size <= most:
        return False
    return is_over_cap(engine.place.path, size, most)


def preview_save(
    engine: Engine, root: bytes, workspace: str, sink: Sink, only: tuple[bytes, ...] = ()
) -> tuple[list[Entry], dict[bytes, Entry], list[str]]:
    """Return the rows that a save would record now, the rows they replace, and notices about the tree.

    Contents go to the sink, which need not keep them. Nothing is written, not even the stat cache.
    """
    try:
        with Folder(engine, root, workspace, reading=True) as folder:
            changes: Any = None
            if not only and (fresh := folder.fresh()) is not None:
                changes = stat_cache.check(fresh, folder.fd, folder.capture.accelerated)
                if not len(changes[0]) and not len(changes[1]):
                    return [], {}, []
            saving = engine.repository().begin(workspace)
            scan = scan_only(folder, only, saving) if only else scan_changes(folder, saving, changes)
            rows = capture(folder.fd, scan, folder.now, sink, engine.progress)
            old: dict[bytes, Entry] = {}
            return saving.compare(rows, scan.seen if scan.full else None, old.__setitem__), old, scan.notices
    except OSError as error:
        raise Failed(f"{show(root)} could not be read: {error.strerror or error}.") from None


def _conversation_of(
    event: Event, root: bytes, saving: CheckpointWriter, notices: list[str]
) -> SavedConversation | None:
    """Save the conversation and return its part of the header. A problem with a transcript becomes a notice."""
    previous = latest_conversation(saving.repository, saving.row.id, event.session)
    max_bytes = MAX_AWAITED_BYTES if event.trigger in TRIGGERS_AWAITED else MAX_TRANSCRIPT_LENGTH
    client = sessions(event.agent)
    try:
        stored, newest = store_transcript(
            saving, event.transcript, previous.transcript if previous is not None else None, max_bytes
        )
        if stored is None:
            return previous
        known_files = previous.side_files if previous is not None else []
        side_files = store_side_files(saving, event.transcript.removesuffix(".jsonl"), known_files, max_bytes)
    except FileNotFoundError:
        return previous  # a client creates the file with the first message
    except (OSError, KeepfastError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        notices.append(f"The conversation was not saved: {why}.".replace("..", "."))
        return previous
    last = (client.last_message(newest) if client is not None else "") or (
        previous.last if previous is not None else ""
    )
    text = root.decode("utf-8", "surrogateescape")
    return SavedConversation(event.session, event.agent, event.transcript, text, last, stored, side_files)


def _lacks_words(event: Event) -> bool:
    """Return whether nothing but the changed files describes the checkpoint: no message by a person or agent, no session."""
    if event.summary or event.session or event.trigger not in BY_THEMSELVES:
        return False
    return event.message == "auto" or event.trigger == "watch"


def _title_of(changed: Sequence[Entry], version: int) -> str:
    """Return a title made of what changed against `version`, for a checkpoint without a message."""
    if not version:
        files = len([entry for entry in changed if entry.kind in (FILE, LINK)])
        return f"First checkpoint: {files:,} file{'' if files == 1 else 's'}"
    names = [entry.path for entry in changed if entry.kind != FOLDER] or [entry.path for entry in changed]
    if not names:
        return f"No file changed since v{version}"
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f"Changed: {', '.join([show(name) for name in sorted(names)[:MAX_NAMED]])}{more}"


def _with_content(entry: Entry, saving: CheckpointWriter, data: bytes) -> Entry:
    """Return the row with other contents, stored; sealed if the path or the contents are secret."""
    if entry.flags & SEALED or is_secret(entry.path, data) or saving.is_copy(len(data), data):
        return entry._replace(content=saving.sealed(BytesIO(data).read), size=len(data), flags=entry.flags | SEALED)
    return entry._replace(content=saving.store_content(data), size=len(data))


def _header_of(
    event: Event,
    root: bytes,
    cwd: bytes,
    started: int,
    ended: int,
    git: GitFacts | None,
    notices: list[str],
    settings: Settings,
) -> dict[str, Any]:
    """Return a checkpoint's header, without what the store adds (docs/format/checkpoint.md)."""
    header = {
        "id": _new_id(event.at),
        "created_at": event.at,
        "event_at": event.at,
        "scan_started": started,
        "scan_ended": ended,
        "trigger": event.trigger,
        "created_by": event.created_by,
        "message": without_secrets(event.message),
        "name": without_secrets(event.name) or None,
        "tags": [without_secrets(tag) for tag in event.tags],
        "pinned": event.pinned,
        "session": event.session or None,
        "task": event.task or None,
        "cwd": cwd[len(root) + 1 :].decode("utf-8", "surrogateescape"),
        "git": {"branch": git.branch, "commit": git.commit, "in_progress": git.in_progress}
        if git is not None
        else None,
        "notices": [without_secrets(notice) for notice in notices],
        "tool": TOOL,
        "bounds": {key: settings["checkpoint." + key] for key in PRIVACY_SETTINGS},
    }
    # Only agents report these: empty ones are left out.
    agent_facts = {
        "agent": event.agent,
        "summary": without_secrets(event.summary),
        "tokens_used": event.tokens_used,
        "token_budget": event.token_budget,
        "active_files": list(event.active_files),
        "key_points": [without_secrets(point) for point in event.key_points],
        "notes": event.notes,
        "tool_call": event.tool_call,
    }
    if event.command:
        agent_facts["command"] = without_secrets(event.command)
    header.update({key: value for key, value in agent_facts.items() if value})
    if not event.only:
        header["git_files"] = True  # the whole tree was scanned: a `.git` file without a row did not exist
    return header


def _new_id(now: int) -> str:
    return checkpoint_id(now, urandom(10))
