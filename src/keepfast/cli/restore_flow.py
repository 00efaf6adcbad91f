"""What `restore`, `undo` and `redo` do after parsing: show the plan, ask, restore, report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from keepfast.app.preview import Missing, Preview
from keepfast.app.restore import Restored, Restorer, conflict
from keepfast.cli.hunks import choose
from keepfast.cli.paths import candidates
from keepfast.cli.session import Session, write_json
from keepfast.model.errors import Conflict, Usage
from keepfast.model.restore_plan import BELOW_NOT_READ, KEPT_AS_IT_IS, NOT_READ, OUTSIDE, Plan
from keepfast.present.json_forms import of_left_out, of_missing, of_path, of_restored
from keepfast.present.terminal import plural
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.git_pointers import POINTS_IN
from keepfast.workspace.marker import show

MAX_SHOWN = 40
MAX_NAMED = 5
SIGNS = {"write": ("~", "yellow"), "mode": ("m", "yellow"), "delete": ("-", "red"), "new": ("+", "green")}


def restore(
    session: Session,
    reference: str | None,
    typed: Sequence[str],
    *,
    dry_run: bool = False,
    conflicts: str | None = None,
    patch: bool = False,
    mtimes: bool = False,
    go_on: bool = False,
    abort: bool = False,
    yes: bool = False,
    also: Callable[[], dict[str, Any]] | None = None,
) -> int:
    """Restore the typed paths, or everything, to the checkpoint; return the exit code.

    `also` is called after the files are restored, and returns members to add to the JSON form.
    """
    # An open restore and a version made of chosen hunks belong to this history.
    root, restorer = _restorer(session)
    if go_on or abort:
        if reference is not None or (go_on and abort):
            raise Usage("--continue and --abort cannot be combined with each other or with a checkpoint.")
        return _preview_ending(session, restorer, abort) if dry_run else _end(session, restorer, abort)
    if reference is None:
        raise Usage("No checkpoint given. Give a reference such as v5.", "Run `keepfast list` to see all checkpoints.")
    target = session.resolve(restorer.row, reference)
    paths = [candidates(path, session.cwd, root)[0] for path in typed]
    if b"" in paths:
        paths = []
    restorer.planner.refuse_unknown(target, paths)
    if patch:
        return _restore_hunks(session, restorer, target, paths, mtimes)
    if dry_run:
        preview, missing = restorer.planner.preview(target, paths), restorer.planner.missing(target, paths)
        if conflicts == "mine":
            preview = preview.without(set(preview.conflicts))
        left_out = restorer.planner.left_out(target, paths)
        _show(session, preview, f"v{target.version}", dry_run=True, also=also, missing=missing, left_out=left_out)
        return 0

    def work(ask: Callable[[Preview], bool] | None) -> Restored | None:
        how = _conflict_policy(conflicts, yes)
        return restorer.restore(target, paths, conflicts=how, mtimes=mtimes, ask=ask, at_once=yes)

    return _run(
        session,
        work,
        f"v{target.version}",
        yes,
        also=also,
        conflicts=conflicts,
        missing=lambda: restorer.planner.missing(target, paths),
        left_out=lambda: restorer.planner.left_out(target, paths),
        restorer=restorer,
    )


def _restore_hunks(
    session: Session, restorer: Restorer, target: CheckpointRow, paths: Sequence[bytes], mtimes: bool
) -> int:
    """Ask about each hunk and restore the chosen ones; return the exit code."""
    chosen = choose(session, restorer, target, paths)
    if not chosen:
        session.say("No hunk chosen; nothing changed.")
        return 0
    return _run(session, lambda _: restorer.restore_parts(target, chosen, mtimes=mtimes), "", True)


def _end(session: Session, restorer: Restorer, abort: bool) -> int:
    """Finish or abort an interrupted restore; return the exit code."""
    with session.progress("Restoring") as progress:
        session.engine.progress = progress
        done = restorer.abort() if abort else restorer.resume()
    return _report(session, done, "Restore aborted; back at" if abort else "Restore finished at")


def _preview_ending(session: Session, restorer: Restorer, abort: bool) -> int:
    """Show what finishing or aborting an interrupted restore would do; change nothing."""
    goal, preview = restorer.preview_finish(aborting=abort)
    what, missing = f"v{goal.version}", restorer.planner.missing(goal, preview.scope.paths)
    cut = restorer.cut_off()
    if not session.json:
        end = f"--abort would go back to {what}" if abort else f"--continue would finish it at {what}"
        steps_left = len(preview.plan.steps)
        session.print(
            f"A restore of v{cut.target if cut is not None else goal.version} was interrupted; {end}: {steps_left:,} steps left."
        )
    _show(session, preview, what, dry_run=True, also=lambda: {"target": what}, missing=missing)
    return 0


def preview(session: Session, folder: bytes, reference: str) -> None:
    """Show what restoring a folder to the checkpoint would do."""
    root, row = session.engine.workspaces.root(folder)
    target = session.resolve(row, reference)
    restorer = Restorer(session.engine, root, row)
    missing, left_out = restorer.planner.missing(target), restorer.planner.left_out(target)
    _show(
        session,
        restorer.planner.preview(target),
        f"v{target.version}",
        dry_run=True,
        missing=missing,
        left_out=left_out,
    )


def _conflict_policy(conflicts: str | None, yes: bool) -> str:
    """Return what to do with unsaved changes: `-y` overwrites them, because the safety checkpoint has them."""
    return conflicts or ("theirs" if yes else "ask")


def undo(session: Session, *, dry_run: bool = False, conflicts: str | None = None, yes: bool = False) -> int:
    """Undo the last restore; return the exit code."""
    step = _restorer(session)[1].undo
    return _undo_or_redo(session, step, "the state before the last restore", dry_run, conflicts, yes)


def redo(session: Session, *, dry_run: bool = False, conflicts: str | None = None, yes: bool = False) -> int:
    """Redo the last undone restore; return the exit code."""
    step = _restorer(session)[1].redo
    return _undo_or_redo(session, step, "the state before the last undo", dry_run, conflicts, yes)


def _restorer(session: Session) -> tuple[bytes, Restorer]:
    root, row = session.workspace()
    return root, Restorer(session.engine, root, row)


def _undo_or_redo(
    session: Session, step: Callable[..., Restored | None], what: str, dry_run: bool, conflicts: str | None, yes: bool
) -> int:
    if dry_run:

        def only_show(preview: Preview) -> bool:
            _show(session, preview, what, dry_run=True)
            return False

        if step(conflicts=conflicts or "ask", ask=only_show) is None and not session.json:
            session.remark("Nothing changed.")
        return 0
    how = _conflict_policy(conflicts, yes)
    return _run(
        session,
        lambda ask: step(conflicts=how, ask=ask, at_once=yes),
        what,
        yes,
        conflicts=conflicts,
    )


def _run(
    session: Session,
    work: Callable[[Callable[[Preview], bool] | None], Restored | None],
    what: str,
    yes: bool,
    *,
    also: Callable[[], dict[str, Any]] | None = None,
    conflicts: str | None = None,
    missing: Callable[[], list[Missing]] = list,
    left_out: Callable[[], list[tuple[bytes, int]]] = list,
    restorer: Restorer | None = None,
) -> int:
    """Show the plan, ask, restore and report; return the exit code.

    If nobody can be asked, unsaved changes raise `Conflict` (exit code 14) unless a flag says what to do.
    """
    said_no = False
    alone = session.json or not sys.stdin.isatty()

    def ask(preview: Preview) -> bool:
        nonlocal said_no
        if preview.conflicts and conflicts is None and alone and not yes:
            raise conflict(preview.conflicts)
        if not yes:
            _show(session, preview, what, missing=missing())
        said_no = not session.confirm(f"Restore {what}?", yes)
        return not said_no

    with session.progress("Restoring") as progress:
        session.engine.progress = progress
        done = work(ask)
    more = also() if also is not None and not said_no else {}
    if done is not None:
        return _report(session, done, "Restored", more)
    missing_paths, spared, not_read = missing(), list[tuple[bytes, str]](), list[tuple[bytes, str]]()
    if restorer is not None:
        spared, not_read = restorer.planner.spared, restorer.planner.not_read
    if session.json:
        reason = "refused" if said_no else "nothing to do"
        extra = {"missing": of_missing(missing_paths), "left_out": of_left_out(left_out())}
        untouched = [{**_path(path), "why": why} for path, why in [*spared, *not_read]]
        write_json({"restored": False, "reason": reason, **extra, "untouched": untouched, **more})
    elif said_no:
        session.say("Nothing changed.")
    else:
        session.say("Nothing changed." if spared or not_read else _nothing_to_do_message(what, left_out()))
        _print_spared(session, spared)
        _print_not_read(session, what, not_read)
        _print_missing(session, what, missing_paths)
    return 0


def _show(
    session: Session,
    preview: Preview,
    what: str,
    dry_run: bool = False,
    also: Callable[[], dict[str, Any]] | None = None,
    missing: Sequence[Missing] = (),
    left_out: Sequence[tuple[bytes, int]] = (),
) -> None:
    """Show what would be done: conflicts first."""
    if session.json:
        if dry_run:
            _write_preview(preview, also() if also is not None else {}, missing, left_out)
        return
    plan, paint = preview.plan, session.paint
    if not plan.steps and not any(why in (KEPT_AS_IT_IS, NOT_READ) for _, why in plan.untouched):
        session.print(_nothing_to_do_message(what, left_out))
    if preview.conflicts:
        session.print(paint("bold", "Unsaved changes:"))
        for path in preview.conflicts[:MAX_SHOWN]:
            session.print(f"  {paint('red', '!')} {show(path)}")
        session.print("")
    for step in plan.steps[:MAX_SHOWN]:
        sign, colour = SIGNS["new" if step.old is None else step.action]
        session.print(f"  {paint(colour, sign)} {show(step.path)}")
    if len(plan.steps) > MAX_SHOWN:
        session.print(f"  … and {len(plan.steps) - MAX_SHOWN} more")
    kept_paths = [path for path, why in plan.untouched if why == KEPT_AS_IT_IS]
    for path in kept_paths[:MAX_SHOWN]:
        session.print(f"  = {show(path)} (kept)")
    if len(kept_paths) > MAX_SHOWN:
        session.print(f"  … and {len(kept_paths) - MAX_SHOWN} more")
    # Missing paths are not skipped ones: `_print_missing` lists them.
    absent = {entry.path for entry in missing if entry.state == "missing"}
    _show_skipped(session, [(path, why) for path, why in plan.untouched if why != KEPT_AS_IT_IS and path not in absent])
    _print_missing(session, what, missing)


def _write_preview(
    preview: Preview, more: dict[str, Any], missing: Sequence[Missing], left_out: Sequence[tuple[bytes, int]]
) -> None:
    conflicts = [_path(path) for path in preview.conflicts]
    facts = {"conflicts": conflicts, **_plan(preview.plan), "missing": of_missing(missing)}
    write_json({"dry_run": True, **facts, "left_out": of_left_out(left_out), **more})


def _show_skipped(session: Session, skipped: Sequence[tuple[bytes, str]]) -> None:
    """List the first few skipped paths with the reasons."""
    if skipped:
        text = f"Skipped {plural(len(skipped), 'path')} that are excluded, in the checkpoint or now:"
        session.print(session.paint("dim", text))
    for path, why in skipped[:MAX_NAMED]:
        session.print(session.paint("dim", f"    {show(path)}: {why}"))


def _nothing_to_do_message(what: str, left_out: Sequence[tuple[bytes, int]]) -> str:
    """Return the message for a restore that has nothing to do; name the excluded paths, which it cannot compare."""
    if not left_out:
        # True of the paths on the command line; nothing is said about others.
        return f"Already at {what}."
    names = ", ".join(
        [show(path) + (f" (v{holder} has it)" if holder else "") for path, holder in left_out[:MAX_NAMED]]
    )
    more = f" and {len(left_out) - MAX_NAMED:,} more" if len(left_out) > MAX_NAMED else ""
    return f"All saved files are already at {what}. Excluded from it: {names}{more}."


def _print_missing(session: Session, what: str, missing: Sequence[Missing]) -> None:
    """List what this restore cannot bring back because it was excluded, and the version or command that can."""
    if not missing:
        return
    session.warn(
        f"{plural(len(missing), 'path')} excluded from {what} and missing or changed now; {what} cannot restore:"
    )
    for entry in missing[:MAX_SHOWN]:
        way = entry.holder_hint() or (f"run `{entry.command}` to recreate it" if entry.command else "")
        state = entry.state if entry.state == "missing" else f"{entry.state} now"
        session.warn(f"  {show(entry.path)} ({state}): {entry.why}{'; ' + way if way else ''}")
    if len(missing) > MAX_SHOWN:
        session.warn(f"  … and {len(missing) - MAX_SHOWN:,} more; --json names them.")


def _print_spared(session: Session, spared: Sequence[tuple[bytes, str]]) -> None:
    """List all git pointer files that were not written because of where they lead."""
    for path, why in spared:
        session.warn(f"  skipped {show(path)}: it {why}")


def _print_not_read(session: Session, what: str, not_read: Sequence[tuple[bytes, str]]) -> None:
    """List what a version has in folders that are excluded now, and how to restore it."""
    for path, why in not_read[:MAX_SHOWN]:
        session.warn(f"  skipped {show(path)}: it {why}")
    if not_read:
        session.warn(f"To restore a skipped folder as of {what}, move it away and run the same command again.")


def _print_untouched(session: Session, done: Restored) -> None:
    """List the paths that differ from the target and were not changed."""
    for path, why in [pair for pair in done.plan.untouched if pair[1] == OUTSIDE][:MAX_SHOWN]:
        session.warn(f"  skipped {show(path)}: it {why}")
    _print_spared(session, [pair for pair in done.plan.untouched if pair[1] == POINTS_IN])
    _print_not_read(
        session,
        f"v{done.target}",
        [pair for pair in done.plan.untouched if pair[1] in (NOT_READ, BELOW_NOT_READ)][:MAX_NAMED],
    )
    for path, why in [pair for pair in done.plan.untouched if pair[1] == KEPT_AS_IT_IS]:
        session.remark(f"  skipped {show(path)}: it {why}")


def _report(session: Session, done: Restored, word: str, more: dict[str, Any] | None = None) -> int:
    """Report what was done; return 14 if some path was kept instead of restored."""
    applied, way = done.applied, done.taken_back_by
    if session.json:
        write_json(
            {
                **of_restored(done),
                "not_empty": [_path(path) for path in applied.filled],
                "aside": [{**_path(path), "at": show(where)} for path, where in applied.aside],
                "untouched": [{**_path(path), "why": why} for path, why in done.plan.untouched],
                **(more or {}),
            }
        )
        return Conflict.exit_code if applied.untouched else 0
    modes = "mode set" if applied.modes == 1 else "modes set"
    parts = [(applied.written, "written"), (applied.deleted, "deleted"), (applied.modes, modes)]
    counts = ", ".join(f"{number} {what}" for number, what in parts if number) or "nothing to do"
    session.say(f"{word} v{done.target}: {counts} ({session.milliseconds()}ms)")
    session.say(f"Previous state saved as v{done.before}." + (f" Run `keepfast {way}` to revert." if way else ""))
    for path, why in applied.untouched:
        session.warn(f"  kept {show(path)}: {why}")
    _print_untouched(session, done)
    for path in applied.filled:
        session.remark(f"  kept the folder {show(path)}: it contains excluded files")
    for path, where in applied.aside:
        session.warn(f"  {show(path)} was moved to {show(where)}")
    _print_missing(session, f"v{done.target}", done.missing)
    return Conflict.exit_code if applied.untouched else 0


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "steps": [
            {**_path(step.path), "action": "create" if step.old is None and step.action == "write" else step.action}
            for step in plan.steps
        ],
        "untouched": [{**_path(path), "why": why} for path, why in plan.untouched],
    }


def _path(path: bytes) -> dict[str, str]:
    return of_path(path)
