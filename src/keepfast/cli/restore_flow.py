"""What `restore`, `undo` and `redo` do once their words are understood: show, ask, do, report."""

from __future__ import annotations

import sys

from keepfast.cli.session import Session, write_json
from keepfast.model.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from keepfast.app.preview import Missing, Preview
    from keepfast.app.restore import Restored, Restorer
    from keepfast.model.restore_plan import Plan

SHOWN = 40
NAMED = 5
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
    """Bring the typed paths, or everything, to that checkpoint; return the exit code.

    `also` is done once the files are back, and tells what of it belongs into the JSON form.
    """
    from keepfast.cli.paths import candidates

    # An open restore, and a version made of chosen hunks, belong to the history that is there.
    root, restorer = _restorer(session)
    if go_on or abort:
        if reference is not None or (go_on and abort):
            raise Usage("--continue and --abort cannot be combined with each other or with a checkpoint.")
        if dry_run:
            return _show_end(session, restorer, abort)
        with session.progress("Restoring") as progress:
            session.engine.progress = progress
            done = restorer.resume() if go_on else restorer.abort()
        return _report(session, done, "Restore finished at" if go_on else "Restore aborted; back at")
    if reference is None:
        raise Usage("No checkpoint given. Give a reference such as v5.", "Run `keepfast list` to see all checkpoints.")
    target = session.resolve(restorer.row, reference)
    paths = [candidates(path, session.cwd, root)[0] for path in typed]
    if b"" in paths:
        paths = []
    restorer.planner.refuse_unknown(target, paths)
    if patch:
        from keepfast.cli.hunks import choose

        chosen = choose(session, restorer, target, paths)
        if not chosen:
            session.say("No hunk chosen; nothing changed.")
            return 0
        return _run(session, lambda _: restorer.restore_parts(target, chosen, mtimes=mtimes), "", True)
    if dry_run:
        preview, missing = restorer.planner.preview(target, paths), restorer.planner.missing(target, paths)
        if conflicts == "mine":
            preview = preview.without(set(preview.conflicts))
        left = restorer.planner.left_out(target, paths)
        _show(session, preview, f"v{target.version}", dry_run=True, also=also, missing=missing, left=left)
        return 0

    def work(ask: Callable[[Preview], bool] | None) -> Restored | None:
        how = _how(conflicts, yes)
        return restorer.restore(target, paths, conflicts=how, mtimes=mtimes, ask=ask, at_once=yes)

    return _run(
        session,
        work,
        f"v{target.version}",
        yes,
        also,
        conflicts,
        lambda: restorer.planner.missing(target, paths),
        lambda: restorer.planner.left_out(target, paths),
        restorer,
    )


def _show_end(session: Session, restorer: Restorer, abort: bool) -> int:
    """What ending a restore that was cut off would do; nothing is changed."""
    goal, preview = restorer.preview_finish(aborting=abort)
    what, missing = f"v{goal.version}", restorer.planner.missing(goal, preview.scope.paths)
    cut = restorer.cut_off()
    if not session.json:
        end = f"--abort would go back to {what}" if abort else f"--continue would finish it at {what}"
        left = len(preview.plan.steps)
        session.print(
            f"A restore of v{cut.target if cut is not None else goal.version} was interrupted; {end}: {left:,} steps left."
        )
    _show(session, preview, what, dry_run=True, also=lambda: {"target": what}, missing=missing)
    return 0


def preview(session: Session, folder: bytes, reference: str) -> None:
    """Show what bringing a folder to that checkpoint would do."""
    from keepfast.app.restore import Restorer

    root, row = session.engine.root(folder)
    target = session.resolve(row, reference)
    restorer = Restorer(session.engine, root, row)
    missing, left = restorer.planner.missing(target), restorer.planner.left_out(target)
    _show(session, restorer.planner.preview(target), f"v{target.version}", dry_run=True, missing=missing, left=left)


def _how(conflicts: str | None, yes: bool) -> str:
    """What becomes of work that no checkpoint has: `-y` says yes to everything, for the safety checkpoint has it."""
    return conflicts or ("theirs" if yes else "ask")


def undo(session: Session, *, dry_run: bool = False, conflicts: str | None = None, yes: bool = False) -> int:
    """Take back the last restore; return the exit code."""
    return _step(session, _restorer(session)[1].undo, dry_run, conflicts, yes)


def redo(session: Session, *, dry_run: bool = False, conflicts: str | None = None, yes: bool = False) -> int:
    """Take back the last undo; return the exit code."""
    return _step(session, _restorer(session)[1].redo, dry_run, conflicts, yes)


def _restorer(session: Session) -> tuple[bytes, Restorer]:
    from keepfast.app.restore import Restorer

    root, row = session.workspace()
    return root, Restorer(session.engine, root, row)


def _step(
    session: Session, step: Callable[..., Restored | None], dry_run: bool, conflicts: str | None, yes: bool
) -> int:
    if dry_run:

        def only_show(preview: Preview) -> bool:
            _show(session, preview, "that", dry_run=True)
            return False

        if step(conflicts=conflicts or "ask", ask=only_show) is None and not session.json:
            session.remark("Nothing changed.")
        return 0
    how = _how(conflicts, yes)
    return _run(
        session,
        lambda ask: step(conflicts=how, ask=ask, at_once=yes),
        "the state before",
        yes,
        conflicts=conflicts,
    )


def _run(
    session: Session,
    work: Callable[[Callable[[Preview], bool] | None], Restored | None],
    what: str,
    yes: bool,
    also: Callable[[], dict[str, Any]] | None = None,
    conflicts: str | None = None,
    missing: Callable[[], list[Missing]] = list,
    left: Callable[[], list[tuple[bytes, int]]] = list,
    restorer: Restorer | None = None,
) -> int:
    """Show, ask, do, report. In scripts conflicts stop with exit code 14 unless a flag says what to do."""
    said_no = False
    alone = session.json or not sys.stdin.isatty()

    def ask(preview: Preview) -> bool:
        nonlocal said_no
        if preview.conflicts and conflicts is None and alone and not yes:
            from keepfast.app.restore import conflict

            raise conflict(preview.conflicts)
        if not yes:
            _show(session, preview, what, missing=missing())
        said_no = not session.agreed(f"Restore {what}?", yes)
        return not said_no

    with session.progress("Restoring") as progress:
        session.engine.progress = progress
        done = work(ask)
    more = also() if also is not None and not said_no else {}
    if done is not None:
        return _report(session, done, "Restored", more)
    lost, spared, not_read = missing(), list[tuple[bytes, str]](), list[tuple[bytes, str]]()
    if restorer is not None:
        spared, not_read = restorer.planner.spared, restorer.planner.not_read
    if session.json:
        from keepfast.present.json_forms import of_left_out, of_missing

        reason = "refused" if said_no else "nothing to do"
        found = {"missing": of_missing(lost), "left_out": of_left_out(left())}
        untouched = [{**_path(path), "why": why} for path, why in [*spared, *not_read]]
        write_json({"restored": False, "reason": reason, **found, "untouched": untouched, **more})
    elif said_no:
        session.say("Nothing changed.")
    else:
        session.say("Nothing changed." if spared or not_read else _unchanged(what, left()))
        _tell_spared(session, spared)
        _tell_not_read(session, what, not_read)
        _tell_missing(session, what, lost)
    return 0


def _show(
    session: Session,
    preview: Preview,
    what: str,
    dry_run: bool = False,
    also: Callable[[], dict[str, Any]] | None = None,
    missing: Sequence[Missing] = (),
    left: Sequence[tuple[bytes, int]] = (),
) -> None:
    """The list of what would be done: conflicts first."""
    if session.json:
        if dry_run:
            _write_preview(preview, also() if also is not None else {}, missing, left)
        return
    from keepfast.model.restore_plan import KEPT_AS_IT_IS, NOT_READ
    from keepfast.workspace.marker import show

    plan, paint = preview.plan, session.paint
    if not plan.steps and not any(why in (KEPT_AS_IT_IS, NOT_READ) for _, why in plan.untouched):
        session.print(_unchanged(what, left))
    if preview.conflicts:
        session.print(paint("bold", "Unsaved changes:"))
        for path in preview.conflicts[:SHOWN]:
            session.print(f"  {paint('red', '!')} {show(path)}")
        session.print("")
    for step in plan.steps[:SHOWN]:
        sign, colour = SIGNS["new" if step.old is None else step.action]
        session.print(f"  {paint(colour, sign)} {show(step.path)}")
    if len(plan.steps) > SHOWN:
        session.print(f"  … and {len(plan.steps) - SHOWN} more")
    kept = [path for path, why in plan.untouched if why == KEPT_AS_IT_IS]
    for path in kept[:SHOWN]:
        session.print(f"  = {show(path)} (kept)")
    if len(kept) > SHOWN:
        session.print(f"  … and {len(kept) - SHOWN} more")
    # What is not there cannot be left alone: it is named below.
    absent = {one.path for one in missing if one.state == "missing"}
    _show_alone(session, [(path, why) for path, why in plan.untouched if why != KEPT_AS_IT_IS and path not in absent])
    _tell_missing(session, what, missing)


def _write_preview(
    preview: Preview, more: dict[str, Any], missing: Sequence[Missing], left: Sequence[tuple[bytes, int]]
) -> None:
    from keepfast.present.json_forms import of_left_out, of_missing

    conflicts = [_path(path) for path in preview.conflicts]
    found = {"conflicts": conflicts, **_plan(preview.plan), "missing": of_missing(missing)}
    write_json({"dry_run": True, **found, "left_out": of_left_out(left), **more})


def _show_alone(session: Session, alone: Sequence[tuple[bytes, str]]) -> None:
    """The first few of what is left alone, each with the reason."""
    from keepfast.present.terminal import plural
    from keepfast.workspace.marker import show

    if alone:
        text = f"Skipped {plural(len(alone), 'path')} that are excluded, in the checkpoint or now:"
        session.print(session.paint("dim", text))
    for path, why in alone[:NAMED]:
        session.print(session.paint("dim", f"    {show(path)}: {why}"))


def _unchanged(what: str, left: Sequence[tuple[bytes, int]]) -> str:
    """Of what a version left out nobody knows for sure that it is as it was."""
    if not left:
        # Some paths may have been named: of all others nothing is said.
        return f"Already at {what}."
    from keepfast.workspace.marker import show

    names = ", ".join([show(path) + (f" (v{held} has it)" if held else "") for path, held in left[:NAMED]])
    more = f" and {len(left) - NAMED:,} more" if len(left) > NAMED else ""
    return f"All saved files are already at {what}. Excluded from it: {names}{more}."


def _tell_missing(session: Session, what: str, missing: Sequence[Missing]) -> None:
    """Name what this restore cannot bring back, because it was left out, and the version or the command that does."""
    if not missing:
        return
    from keepfast.present.terminal import plural
    from keepfast.workspace.marker import show

    session.warn(
        f"{plural(len(missing), 'path')} excluded from {what} and missing or changed now; {what} cannot restore:"
    )
    for one in missing[:SHOWN]:
        way = one.holder_hint() or (f"run `{one.command}` to recreate it" if one.command else "")
        state = one.state if one.state == "missing" else f"{one.state} now"
        session.warn(f"  {show(one.path)} ({state}): {one.why}{'; ' + way if way else ''}")
    if len(missing) > SHOWN:
        session.warn(f"  … and {len(missing) - SHOWN:,} more; --json names them.")


def _tell_spared(session: Session, spared: Sequence[tuple[bytes, str]]) -> None:
    """Name what is not written because of where it leads: every one, as none of them is expected."""
    from keepfast.workspace.marker import show

    for path, why in spared:
        session.warn(f"  skipped {show(path)}: it {why}")


def _tell_not_read(session: Session, what: str, not_read: Sequence[tuple[bytes, str]]) -> None:
    """Name what a version has in folders that are left out now, and how it comes back."""
    from keepfast.workspace.marker import show

    for path, why in not_read[:SHOWN]:
        session.warn(f"  left {show(path)}: it {why}")
    if not_read:
        session.warn(f"Move the whole folder away, and the same restore brings it back as {what} has it.")


def _tell_untouched(session: Session, done: Restored) -> None:
    """Name what stays as it is although it is not as the target has it."""
    from keepfast.model.restore_plan import BELOW_NOT_READ, KEPT_AS_IT_IS, NOT_READ, OUTSIDE
    from keepfast.workspace.git_pointers import POINTS_IN
    from keepfast.workspace.marker import show

    for path, why in [one for one in done.plan.untouched if one[1] == OUTSIDE][:SHOWN]:
        session.warn(f"  skipped {show(path)}: it {why}")
    _tell_spared(session, [one for one in done.plan.untouched if one[1] == POINTS_IN])
    _tell_not_read(
        session, f"v{done.target}", [one for one in done.plan.untouched if one[1] in (NOT_READ, BELOW_NOT_READ)][:NAMED]
    )
    for path, why in [one for one in done.plan.untouched if one[1] == KEPT_AS_IT_IS]:
        session.remark(f"  skipped {show(path)}: it {why}")


def _report(session: Session, done: Restored, word: str, more: dict[str, Any] | None = None) -> int:
    """Say what was done; exit code 14 if something is not as it was asked for."""
    from keepfast.model.errors import Conflict
    from keepfast.workspace.marker import show

    applied, way = done.applied, done.taken_back_by
    if session.json:
        from keepfast.present.json_forms import of_restored

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
    _tell_untouched(session, done)
    for path in applied.filled:
        session.remark(f"  kept the folder {show(path)}: it contains excluded files")
    for path, where in applied.aside:
        session.warn(f"  {show(path)} was moved to {show(where)}")
    _tell_missing(session, f"v{done.target}", done.missing)
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
    from keepfast.present.json_forms import of_path

    return of_path(path)
