"""`keepfast status`: how this workspace is protected right now."""

from __future__ import annotations

import click

from keepfast.agents.claude.usage import tokens
from keepfast.app.inspect import Change, Coverage, compare, coverage, not_covered, pending
from keepfast.app.restore import Restorer, Unfinished
from keepfast.cli.client_files import hint_about_hooks, hooks_problem, hooks_summary, last_failure, launcher_path
from keepfast.cli.daemon import summary
from keepfast.cli.session import Session, common, write_json
from keepfast.model.budget import TokenUsage
from keepfast.model.errors import KeepfastError, NoWorkspace, Refused
from keepfast.present.json_forms import (
    COLOURS,
    changed_line,
    excluded_counts,
    git_folders,
    of_change,
    of_checkpoint,
    of_coverage,
    of_notice,
    of_path,
    of_pending,
    of_resident,
    of_unfinished,
    of_usage,
    of_worker,
    saved_counts,
    title,
)
from keepfast.present.resident import ResidentState
from keepfast.present.resident import state as resident_state
from keepfast.present.supervision import CLAIM_IGNORED, HOOKS_SUSPENDED
from keepfast.present.terminal import age_in_words, plural, printable, size
from keepfast.state import pending_events, sessions
from keepfast.state.notices import Notice, read
from keepfast.state.pending_events import PendingEvent
from keepfast.state.workers import HOOKS, NAME, RunningWorker, running_worker
from keepfast.store.maintenance.space import store_size
from keepfast.store.rows import CheckpointRow, Query, WorkspaceRow
from keepfast.workspace.adoption import root_for
from keepfast.workspace.marker import git_root, show

MAX_SHOWN, MAX_NOTICES = 20, 5
WEEK = 7 * 86_400_000_000_000
ABOUT_HOOKS = (HOOKS_SUSPENDED, CLAIM_IGNORED)
"""Kinds of notices that are about hooks, not about one checkpoint."""


class WorkspaceStatus:
    """Everything that `status` says."""

    root: bytes
    workspace: str
    last: CheckpointRow | None
    base: CheckpointRow | None
    """The version that the folder was last saved as or restored to; `changes` are since then."""
    changes: list[Change] | None
    """None if they could not be determined."""
    remarks: list[str]
    coverage: Coverage
    not_covered: list[bytes]
    """Git's own folders."""
    notices: list[Notice]
    size: int
    versions: int
    forgotten: int
    """Versions removed by the retention policy, the size limit or `keepfast forget`."""
    restore: Unfinished | None
    """An interrupted restore, or one in progress."""
    workers: list[RunningWorker]
    resident: ResidentState
    """The process that answers hooks."""
    pending: list[PendingEvent]
    """Events of hooks that are not saved yet."""
    usage: TokenUsage | None
    """Token use of the session with the newest event."""


@click.command()
@common
def status(session: Session) -> None:
    """Show the last checkpoint of this workspace, unsaved changes, excluded paths and problems."""
    status_facts = _collect(session)
    if session.json:
        _print_json(session, status_facts)
    else:
        _print_text(session, status_facts)


def _collect(session: Session) -> WorkspaceStatus:
    try:
        with hint_about_hooks(session):
            root, row = session.workspace(patience=0)
    except NoWorkspace as error:
        raise NoWorkspace(str(error), _how_to_protect(session)) from None
    status_facts = WorkspaceStatus()
    status_facts.root, status_facts.workspace = root, row.id
    status_facts.base = session.repository.base(row.id)
    newest = session.repository.find(Query(workspace=row.id, limit=1, safety=False))
    status_facts.last = newest[0] if newest else status_facts.base
    status_facts.coverage = _coverage(session, row, status_facts.base)
    status_facts.not_covered = (
        not_covered(session.repository, status_facts.base) if status_facts.base is not None else []
    )
    since = session.now() - WEEK
    notices = read(session.engine.workspaces.notice_folders(root, row.id))
    failed = last_failure(launcher_path(session))
    notices = sorted([*notices, *([failed] if failed else [])], key=lambda notice: notice.at)
    status_facts.notices = [notice for notice in notices if notice.at >= since]
    status_facts.size = store_size(session.repository)
    status_facts.versions = session.repository.count(row.id)
    status_facts.forgotten = max(0, row.version - status_facts.versions)
    status_facts.restore = Restorer(session.engine, root, row).unfinished()
    _collect_hooks(session, status_facts)
    with session.progress("Looking") as progress:
        session.engine.progress = progress
        try:
            status_facts.changes, status_facts.remarks = _changes(session, root, row, status_facts.base)
        except KeepfastError as error:
            status_facts.changes, status_facts.remarks = None, [f"Unsaved changes are unknown: {error}"]
    status_facts.remarks = [*status_facts.remarks, *_keys(session), *filter(None, [hooks_problem(session)])]
    return status_facts


def _coverage(session: Session, row: WorkspaceRow, base: CheckpointRow | None) -> Coverage:
    """Return the coverage of the version that the folder is at; of the newest if that one cannot be read."""
    if base is None or (base.workspace, base.version) == (row.id, row.version):
        return coverage(row)
    try:
        return Coverage(session.repository.document(base)[0].counts)
    except KeepfastError:
        return coverage(row)  # `verify` reports the damage


def _changes(
    session: Session, root: bytes, row: WorkspaceRow, base: CheckpointRow | None
) -> tuple[list[Change], list[str]]:
    """Return the changes on disk since the folder was last saved or restored, and remarks about the tree."""
    if base is None or (base.workspace, base.version) == (row.id, row.version):
        return pending(session.engine, root, row)
    return compare(session.engine, root, row, base, None), []


def _keys(session: Session) -> list[str]:
    """Return remarks about missing keys and missing backups of the key."""
    sealer = session.repository.contents.sealer()
    try:
        if not sealer.keys.is_in_use():
            return []
        if any(not opens for _, opens in sealer.keys.sets()):
            return ["Some contents are sealed with a key that is missing here: see `keepfast key`."]
        if not sealer.keys.is_backed_up():
            return ["There is no backup of the encryption key: run `keepfast key export FILE`."]
    except KeepfastError as error:
        return [str(error)]
    return []


def _collect_hooks(session: Session, status_facts: WorkspaceStatus) -> None:
    folder, settings = session.engine.place.folder(status_facts.workspace), session.settings
    status_facts.resident = resident_state(session.environment, settings)
    status_facts.workers = [
        worker for worker in (running_worker(folder, NAME), running_worker(folder, HOOKS)) if worker is not None
    ]
    events = [pending_events.read(folder, name) for name in pending_events.names(folder)]
    status_facts.pending = [event for event in events if event is not None]
    session_facts = {key: str(value) for key, value in sessions.newest_facts(folder).items()}
    usage = tokens(
        folder,
        session_facts.get("session", ""),
        session_facts.get("transcript", ""),
        session_facts.get("model", ""),
        settings["budget.tokens"],
        settings["budget.windows"],
    )
    status_facts.usage = usage if usage.used else None


def _restore_advice(restore: Unfinished) -> str:
    """Return the state of an unfinished restore and what to do about it."""
    if restore.error is not None:
        return f"{restore.error} {restore.error.hint}"
    cut = restore.cut
    if cut is None:
        return "A restore is in progress."
    target, before = f"v{cut.target}", f"v{cut.before}"
    return (
        f"The restore of {target} was interrupted. Run `keepfast restore --continue` to finish it, or `--abort` "
        f"to go back to {before}."
    )


def _how_to_protect(session: Session) -> str:
    """Return the hint for a folder that is not protected."""
    folder = git_root(session.cwd) or session.cwd
    try:
        root = root_for(session.cwd, b"", session.settings["adopt"], session.engine.home)
    except Refused as error:
        return f"Hooks do not protect it: {error} {error.hint}"
    if session.engine.workspaces.is_unprotected(root or session.cwd):
        return "It was unprotected by `keepfast unprotect`. Run `keepfast init` to protect it again."
    if root is None:
        return f"Run `keepfast init {show(folder)}`. The setting `adopt` keeps hooks from doing it."
    if problem := hooks_summary(session):
        return f"Run `keepfast init {show(root)}`. {problem}"
    return f"Run `keepfast init {show(root)}`, or let hooks do it at their first event."


def _print_json(session: Session, status_facts: WorkspaceStatus) -> None:
    write_json(
        {
            "workspace": {"id": status_facts.workspace, "root": show(status_facts.root)},
            "store": {
                "path": session.engine.place.path,
                "bytes": status_facts.size,
                "max_bytes": session.settings["retention.max_size"],
            },
            "versions": {"kept": status_facts.versions, "forgotten": status_facts.forgotten},
            "last": of_checkpoint(status_facts.last) if status_facts.last is not None else None,
            "base": of_checkpoint(status_facts.base) if status_facts.base is not None else None,
            "changes": [of_change(change) for change in status_facts.changes]
            if status_facts.changes is not None
            else None,
            "coverage": of_coverage(status_facts.coverage),
            "not_covered": [of_path(path) for path in status_facts.not_covered],
            "notices": [of_notice(notice) for notice in status_facts.notices],
            "remarks": status_facts.remarks,
            "restore": {**of_unfinished(status_facts.restore), "text": _restore_advice(status_facts.restore)}
            if status_facts.restore
            else None,
            "warnings": session.settings.warnings,
            "resident": of_resident(status_facts.resident),
            "workers": [of_worker(worker) for worker in status_facts.workers],
            "pending": [of_pending(event) for event in status_facts.pending],
            "tokens": of_usage(status_facts.usage) if status_facts.usage is not None else None,
        }
    )


def _print_text(session: Session, status_facts: WorkspaceStatus) -> None:
    last, paint = status_facts.last, session.paint
    session.print(f"Workspace  {show(status_facts.root)}")
    most: int = session.settings["retention.max_size"]
    text = f"{session.engine.place.path}, {size(status_facts.size)}"
    if status_facts.size > most:
        text += paint("bold yellow", f", over its limit of {size(most)} (retention.max_size)")
    session.print(f"Store      {text}")
    if last is None:
        session.print("Last       " + paint("yellow", "no checkpoint yet; run `keepfast save`"))
    else:
        session.print(
            f"Last       {title(last)}, {age_in_words(last.created_at, session.now())}, trigger {last.trigger}"
        )
        base = status_facts.base
        if status_facts.restore is not None:
            session.print("At         " + paint("bold yellow", "unfinished restore"))
        elif base is not None and (base.workspace, base.version) != (last.workspace, last.version):
            session.print(f"At         {title(base)}, restored")
        if status_facts.forgotten:
            text = f"{status_facts.versions:,}; {status_facts.forgotten:,} more were forgotten, by retention or by hand"
            session.print(f"Versions   {text}")
        session.print(f"Saved      {saved_counts(status_facts.coverage)}")
        if status_facts.coverage.left_out:
            text = excluded_counts(status_facts.coverage)
            session.print("Excluded   " + (paint("bold yellow", text) if status_facts.coverage.is_poor else text))
        if status_facts.not_covered:
            session.print("Not saved  " + git_folders(status_facts.not_covered))
    if status_facts.restore is not None:
        session.print("Restore    " + paint("bold yellow", _restore_advice(status_facts.restore)))
    _print_hooks(session, status_facts)
    _print_changes(session, status_facts)
    _print_notices(session, status_facts)
    for warning in session.settings.warnings:
        session.print(paint("yellow", f"Settings: {warning}"))


def _print_hooks(session: Session, status_facts: WorkspaceStatus) -> None:
    session.print(f"Resident   {summary(session, status_facts.resident)}")
    session.print("Workers    " + (", ".join([_worker(session, worker) for worker in status_facts.workers]) or "none"))
    if status_facts.pending:
        names = ", ".join(dict.fromkeys([event.trigger for event in status_facts.pending]))
        since = age_in_words(status_facts.pending[0].at, session.now())
        session.print(
            "Pending    " + session.paint("yellow", f"{len(status_facts.pending)} to save ({names}), since {since}")
        )
    usage = status_facts.usage
    if usage is None:
        return
    if usage.budget:
        text = f"{usage.used:,} of {usage.budget:,} ({usage.reached}%); used according to {usage.used_from},"
        session.print(f"Tokens     {text} budget according to {usage.budget_from}")
    else:
        session.print(f"Tokens     {usage.used:,} according to {usage.used_from}; limit unknown")


def _worker(session: Session, worker: RunningWorker) -> str:
    if worker.kind == "hooks":
        return f"saving events of hooks, pid {worker.pid}"
    saved = worker.last_save
    last = f"last save v{worker.version} {age_in_words(saved, session.now())}" if saved else "nothing saved yet"
    return f"watch, pid {worker.pid}, {last}"


def _print_changes(session: Session, status_facts: WorkspaceStatus) -> None:
    changes, base = status_facts.changes or [], status_facts.base
    if changes or (base is not None and status_facts.changes is not None):
        since = f"since v{base.version}" if base is not None else "to save"
        session.print(f"{plural(len(changes), 'change')} {since}:" if changes else f"No changes {since}.")
    for change in changes[:MAX_SHOWN]:
        letter, text = changed_line(change)
        session.print(f"  {session.paint(COLOURS[letter], letter)}  {text}")
    if len(changes) > MAX_SHOWN:
        session.print(f"  … and {len(changes) - MAX_SHOWN:,} more; run `keepfast diff --name-only` to list them.")
    for remark in status_facts.remarks:
        session.print(session.paint("yellow", remark))


def _print_notices(session: Session, status_facts: WorkspaceStatus) -> None:
    if not status_facts.notices:
        return
    session.print(session.paint("bold yellow", "Problems in the last 7 days:"))
    for notice in reversed(status_facts.notices[-MAX_NOTICES:]):
        became = "" if notice.kind == "noticed" else f" {notice.kind}"
        reported = " (already reported)" if notice.was_reported else ""
        age = age_in_words(notice.at, session.now())
        what = f"{age}, a checkpoint ({notice.trigger}){became}" if notice.kind not in ABOUT_HOOKS else age
        session.print(printable(f"  {what}: {notice.text}{reported}"))
    if len(status_facts.notices) > MAX_NOTICES:
        session.print(
            f"  … and {len(status_facts.notices) - MAX_NOTICES:,} more; run `keepfast status --json` to list them."
        )
