"""A checkpoint is made: scanned, read, kept and remembered; or only looked at. The engine calls this once something is due."""

from __future__ import annotations

from holdfast.core.errors import Failed
from holdfast.core.model import CREATED, UNCHANGED, Event, Outcome, takes
from holdfast.core.steps import step
from holdfast.guarding import Folder
from holdfast.scanning import force, scan_only, settle
from holdfast.scanning import scan as scan_changes
from holdfast.workspace import cache as stat_cache
from holdfast.workspace.find import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holdfast.core.entry import Entry
    from holdfast.engine import Engine
    from holdfast.store.saving import Saving
    from holdfast.workspace.read import Sink

ATTEMPTS = 5
MANY_PACKS = 64


def make(engine: Engine, event: Event, folder: Folder, changes: Any) -> Outcome:
    """Make a checkpoint of what differs, again where a sweep took what it relied on."""
    from holdfast.store.saving import Swept

    repository = engine.repository()
    settle(folder, repository, event.at)
    for _ in range(ATTEMPTS):
        saving = repository.begin(folder.workspace)
        try:
            return _attempt(engine, event, folder, saving, changes)
        except Swept:
            saving.abort()
            changes = None
        except BaseException:
            saving.abort()
            raise
    raise Failed("The workspace kept changing hands while it was saved; nothing was saved.", "Try again.")


def _attempt(engine: Engine, event: Event, folder: Folder, saving: Saving, changes: Any) -> Outcome:
    from holdfast.heading import conversation_of, header_of
    from holdfast.workspace.git import facts
    from holdfast.workspace.read import capture

    started = engine.clock()
    scan = scan_only(folder, event.only, saving) if event.only else scan_changes(folder, saving, changes)
    if event.force:
        force(folder, scan, event.force, saving)
    step("save:scanned")
    rows = capture(folder.fd, scan, folder.now, saving, engine.progress, folder.capture.accelerated)
    step("save:read")
    changed, old = saving.changes(rows, scan.seen if scan.full else None)
    row = saving.row
    if not takes(event.trigger, bool(changed), row.version == 0):
        saving.abort()
        if not event.only:
            folder.remember(scan, row.document)
        outcome = Outcome(UNCHANGED, folder.root)
        outcome.notices = scan.notices
        return outcome
    notices = list(scan.notices)
    conversation = conversation_of(event, folder.root, saving, notices) if event.transcript else None
    notices += saving.repository.warnings()
    header = header_of(event, folder.root, event.cwd, started, engine.clock(), facts(folder.root), notices)
    if conversation is not None:
        header["conversation"] = conversation
    checkpoint = saving.finish(header, changed, old)
    if event.only:
        # With a folder went all that was below it: what comes back just as it was is not what this version has.
        folder.renew(checkpoint.document, tuple({*event.only, *[entry.path for entry in changed]}))
    else:
        folder.remember(scan, checkpoint.document)
    step("save:remembered")
    outcome = Outcome(CREATED, folder.root, version=checkpoint.version, id=checkpoint.id, message=header["message"])
    outcome.checkpoint = checkpoint
    packs = len(engine.repository().ledger.packs())
    outcome.untidy = packs >= MANY_PACKS and packs % 16 == 0
    outcome.notices = notices
    return outcome


def compose(engine: Engine, event: Event, root: bytes, workspace: str, contents: dict[bytes, bytes]) -> Any:
    """Make a version that is the newest one with other contents for some files. Nothing on disk is looked at."""
    from holdfast.heading import filled, header_of

    with Folder(engine, root, workspace):
        saving = engine.repository().begin(workspace)
        try:
            old = engine.repository().ledger.current(workspace, list(contents))
            changed = [filled(old[path], saving, data) for path, data in sorted(contents.items())]
            now = event.at
            header = header_of(event, root, root, now, now, None, [])
            return saving.finish(header, changed, old)
        except BaseException:
            saving.abort()
            raise


def look(
    engine: Engine, root: bytes, workspace: str, sink: Sink, only: tuple[bytes, ...] = ()
) -> tuple[list[Entry], dict[bytes, Entry], list[str]]:
    """Return the rows that a save would record now, the rows they replace, and what was odd about the tree.

    Contents go to the sink, which need not keep them. Nothing is written, the stat cache included.
    """
    from holdfast.workspace.read import capture

    try:
        with Folder(engine, root, workspace, reading=True) as folder:
            changes: Any = None
            if not only and (fresh := folder.fresh()) is not None:
                changes = stat_cache.check(fresh, folder.fd, folder.capture.accelerated)
                if not len(changes[0]) and not len(changes[1]):
                    return [], {}, []
            saving = engine.repository().begin(workspace)
            scan = scan_only(folder, only, saving) if only else scan_changes(folder, saving, changes)
            rows = capture(folder.fd, scan, folder.now, sink, engine.progress, folder.capture.accelerated)
            return *saving.changes(rows, scan.seen if scan.full else None), scan.notices
    except OSError as error:
        raise Failed(f"{show(root)} could not be looked at: {error.strerror or error}.") from None
