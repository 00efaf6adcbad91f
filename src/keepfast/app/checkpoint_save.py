"""Make a checkpoint: scan, read, store and remember; or only compute what it would record. The engine calls this if one is due."""

from __future__ import annotations

from keepfast.app.scan import ensure_registered, free_room, include_excluded, include_files, mark_vanished, scan_only
from keepfast.app.scan import scan as scan_changes
from keepfast.app.workspace_lock import Folder
from keepfast.model.errors import Failed
from keepfast.model.event import CREATED, UNCHANGED, Event, Outcome, takes
from keepfast.model.steps import step
from keepfast.workspace import stat_cache
from keepfast.workspace.marker import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from keepfast.app.checkpoint import Engine
    from keepfast.model.entry import Entry
    from keepfast.store.save import CheckpointWriter
    from keepfast.workspace.reader import Sink, TimeLimit
    from keepfast.workspace.walk import Scan

MAX_ATTEMPTS = 5
MAX_NAMED = 5
MANY_PACKS = 64


def make(engine: Engine, event: Event, folder: Folder, changes: Any) -> Outcome:
    """Make a checkpoint of what differs; try again if a sweep removed blobs that it relied on."""
    from keepfast.store.save import SaveConflict

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
    from keepfast.app.checkpoint_header import active_of, conversation_of, header_of
    from keepfast.workspace.git import facts
    from keepfast.workspace.reader import capture

    started = engine.clock()
    scan = scan_only(folder, event.only, saving, event.keep) if event.only else scan_changes(folder, saving, changes)
    if event.force:
        include_files(folder, scan, event.force, saving)
    if event.keep:
        include_excluded(folder, scan, event.keep, free_room(engine.place.path))
    step("save:scanned")
    limit = _time_limit(engine, event, scan)
    rows = capture(folder.fd, scan, folder.now, saving, engine.progress, limit)
    step("save:read")
    late = _mark_if_late(event, engine.clock())
    if event.named and not event.only:
        mark_vanished(folder, scan, rows, event.named, saving)
    changed, old = saving.changes(rows, scan.seen if scan.full else None)
    del rows
    row = saving.row
    if not takes(event.trigger, bool(changed), row.version == 0, event.moved_on):
        saving.abort()
        if not event.only:
            folder.remember(scan, row.document)
        outcome = Outcome(UNCHANGED, folder.root)
        outcome.notices = scan.notices
        return outcome
    notices = [*scan.notices, *late, *_unread_notices(limit)]
    if event.partial:
        notices.append(
            "The tree has too many files to save all of them; this version covers only what the command names."
        )
    conversation = conversation_of(event, folder.root, saving, notices) if event.transcript else None
    notices += saving.repository.contents.warnings()
    _fill_in_words(engine, event, saving, changed)
    event.active_files = active_of(event, changed, saving, engine.settings["checkpoint.exclude_patterns"])
    git, now = facts(folder.root), engine.clock()
    header = header_of(event, folder.root, event.cwd, started, now, git, notices, engine.settings)
    if conversation is not None:
        header["conversation"] = conversation.to_json()
    if event.partial:
        header["partial"] = [path.decode("utf-8", "surrogateescape") for path in event.partial]
    checkpoint = saving.finish(header, changed, old)
    if event.only:
        # A deleted folder took everything below it: those paths must be looked at again even if they come back unchanged.
        folder.renew(checkpoint.document, tuple({*event.only, *[entry.path for entry in changed]}))
    else:
        folder.remember(scan, checkpoint.document)
    step("save:remembered")
    outcome = Outcome(CREATED, folder.root, version=checkpoint.version, id=checkpoint.id, message=header["message"])
    outcome.checkpoint = checkpoint
    outcome.needs_tidying = _is_untidy(engine)
    outcome.notices = notices
    return outcome


def _fill_in_words(engine: Engine, event: Event, saving: CheckpointWriter, changed: list[Entry]) -> None:
    """Give the event a message and a summary if it lacks them, and redact values of sealed files in its texts."""
    from keepfast.app.checkpoint_header import lacks_words, title_of

    if not event.message and event.trigger != "manual":
        event.message = title_of(changed, saving.row.version)
    if lacks_words(event) and engine.settings["checkpoint.auto_summary_enabled"]:
        event.summary = title_of(changed, saving.row.version)
    if event.guarded:
        from keepfast.app.known_secrets import guard

        guard(event, saving, changed)


def _mark_if_late(event: Event, read_at: int) -> list[str]:
    """Rename "before …" to "during …" if files were read after the command began; return the notice about that."""
    if not (event.until and read_at > event.until and event.message.startswith("before ")):
        return []
    event.message = "during" + event.message[6:]
    return ["It was read after the command had started, so it may already include changes made by the command."]


def _time_limit(engine: Engine, event: Event, scan: Scan) -> TimeLimit | None:
    """Return the limit for files that are read only because of the event's command; None if there are none."""
    if not event.until or not (event.only or event.keep):
        return None
    from keepfast.workspace.reader import TimeLimit

    return TimeLimit(lambda: engine.clock() >= event.until, None if event.only else scan.forced)


def _unread_notices(limit: TimeLimit | None) -> list[str]:
    """Return the notice about files that the command may have changed before they could be read."""
    if limit is None or not limit.unread:
        return []
    from keepfast.model.age import amount

    return [
        f"{amount(len(limit.unread), 'file')} could not be read before the command started: {_first_of(limit.unread)}."
    ]


def _first_of(paths: list[bytes]) -> str:
    more = f" and {len(paths) - MAX_NAMED:,} more" if len(paths) > MAX_NAMED else ""
    return ", ".join([show(path) for path in paths[:MAX_NAMED]]) + more


class ReadAhead:
    """Some paths, read without the workspace's lock while another process holds it; `record` makes them a version afterwards."""

    def __init__(
        self, engine: Engine, folder: Folder, saving: CheckpointWriter, rows: dict[bytes, Entry], started: int
    ) -> None:
        self.engine, self.folder, self.saving, self.rows = engine, folder, saving, rows
        self.started, self.ended = started, engine.clock()

    def record(self, event: Event) -> Outcome:
        """Make a version: the newest one with these paths as they were. `UNCHANGED` if it has them, or there is none yet."""
        from keepfast.app.checkpoint_header import header_of
        from keepfast.store.save import SaveConflict

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
                header = header_of(event, folder.root, event.cwd, *times, None, late, settings)
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
    from posix import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close
    from posix import open as open_fd

    from keepfast.model.entry import GONE, UNREADABLE
    from keepfast.workspace.reader import TimeLimit, capture

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
    from keepfast.store.maintenance.space import is_over_cap

    return is_over_cap(engine.place.path, size, most)


def compose(
    engine: Engine, event: Event, root: bytes, workspace: str, contents: dict[bytes, tuple[Entry, bytes]]
) -> Any:
    """Make a version from the newest one with other contents for some files. The disk is not read."""
    from keepfast.app.checkpoint_header import header_of, with_content
    from keepfast.store.save import ReplacedRows

    with Folder(engine, root, workspace):
        saving = engine.repository().begin(workspace)
        try:
            old = ReplacedRows()
            for path, row in engine.repository().current(workspace, list(contents)).items():
                old.add(path, row)
            changed = [with_content(entry, saving, data) for _, (entry, data) in sorted(contents.items())]
            now = event.at
            header = header_of(event, root, root, now, now, None, [], engine.settings)
            return saving.finish(header, changed, old)
        except BaseException:
            saving.abort()
            raise


def look(
    engine: Engine, root: bytes, workspace: str, sink: Sink, only: tuple[bytes, ...] = ()
) -> tuple[list[Entry], dict[bytes, Entry], list[str]]:
    """Return the rows that a save would record now, the rows they replace, and notices about the tree.

    Contents go to the sink, which need not keep them. Nothing is written, not even the stat cache.
    """
    from keepfast.workspace.reader import capture

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
