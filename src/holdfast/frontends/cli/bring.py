"""What `restore`, `undo` and `redo` do once their words are understood: show, ask, do, report."""

from __future__ import annotations

import sys

from holdfast.core.errors import Usage
from holdfast.frontends.cli.session import Session, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from holdfast.core.planning import Plan
    from holdfast.previewing import Preview
    from holdfast.restoring import Restored, Restoring

SHOWN = 40
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
    from holdfast.frontends.cli.paths import candidates

    root, restoring = _restoring(session)
    if go_on or abort:
        if reference is not None or (go_on and abort):
            raise Usage("--continue and --abort go alone.")
        with session.progress("Restoring") as progress:
            session.engine.progress = progress
            done = restoring.resume() if go_on else restoring.abort()
        return _report(session, done, "Continued: at" if go_on else "Taken back: at")
    if reference is None:
        raise Usage("Which checkpoint? Give a reference such as v5.", "`holdfast list` shows what there is.")
    target = session.resolve(restoring.row, reference)
    paths = [candidates(path, session.cwd, root)[0] for path in typed]
    if b"" in paths:
        paths = []
    restoring.refuse_unknown(target, paths)
    if patch:
        from holdfast.frontends.cli.hunks import choose

        chosen = choose(session, restoring, target, paths)
        if chosen is None:
            session.say("Nothing was chosen, nothing was changed.")
            return 0
        target, paths, yes, conflicts = chosen[0], chosen[1], True, "mine"
    if dry_run:
        _show(session, restoring.preview(target, paths), f"v{target.version}", dry_run=True, also=also)
        return 0

    def work(ask: Callable[[Preview], bool] | None) -> Restored | None:
        how = conflicts or "ask"
        return restoring.restore(target, paths, conflicts=how, mtimes=mtimes, ask=ask, at_once=yes)

    return _run(session, work, f"v{target.version}", conflicts, yes, also)


def undo(session: Session, *, dry_run: bool = False, conflicts: str | None = None, yes: bool = False) -> int:
    """Take back the last restore; return the exit code."""
    return _step(session, _restoring(session)[1].undo, dry_run, conflicts, yes)


def redo(session: Session, *, dry_run: bool = False, conflicts: str | None = None, yes: bool = False) -> int:
    """Take back the last undo; return the exit code."""
    return _step(session, _restoring(session)[1].redo, dry_run, conflicts, yes)


def _restoring(session: Session) -> tuple[bytes, Restoring]:
    from holdfast.restoring import Restoring

    root, row = session.workspace()
    return root, Restoring(session.engine, root, row)


def _step(
    session: Session, step: Callable[..., Restored | None], dry_run: bool, conflicts: str | None, yes: bool
) -> int:
    if dry_run:

        def only_show(preview: Preview) -> bool:
            _show(session, preview, "that", dry_run=True)
            return False

        if step(conflicts=conflicts or "ask", ask=only_show) is None and not session.json:
            session.remark("Nothing was changed.")
        return 0
    return _run(
        session,
        lambda ask: step(conflicts=conflicts or "ask", ask=ask, at_once=yes),
        "the state before",
        conflicts,
        yes,
    )


def _run(
    session: Session,
    work: Callable[[Callable[[Preview], bool] | None], Restored | None],
    what: str,
    conflicts: str | None,
    yes: bool,
    also: Callable[[], dict[str, Any]] | None = None,
) -> int:
    """Show, ask, do, report. In scripts conflicts stop with exit code 14 unless a flag says what to do."""
    said_no = False
    alone = session.json or not sys.stdin.isatty()

    def ask(preview: Preview) -> bool:
        nonlocal said_no
        if preview.conflicts and conflicts is None and (yes or alone):
            from holdfast.restoring import conflict

            raise conflict(preview.conflicts)
        if not yes:
            _show(session, preview, what)
        said_no = not session.agreed(f"Restore {what}?", yes)
        return not said_no

    with session.progress("Restoring") as progress:
        session.engine.progress = progress
        done = work(ask)
    more = also() if also is not None and not said_no else {}
    if done is not None:
        return _report(session, done, "Restored", more)
    if session.json:
        write_json({"restored": False, "reason": "refused" if said_no else "nothing to do", **more})
    else:
        session.say("Nothing was changed." if said_no else "Everything is as it was then; nothing to do.")
    return 0


def _show(
    session: Session,
    preview: Preview,
    what: str,
    dry_run: bool = False,
    also: Callable[[], dict[str, Any]] | None = None,
) -> None:
    """The list of what would be done: conflicts first."""
    if session.json:
        if dry_run:
            conflicts = [_path(path) for path in preview.conflicts]
            more = also() if also is not None else {}
            write_json({"dry_run": True, "conflicts": conflicts, **_plan(preview.plan), **more})
        return
    from holdfast.frontends.paint import plural
    from holdfast.workspace.find import show

    plan, paint = preview.plan, session.paint
    if not plan.steps:
        session.print("Everything is as it was then; nothing to do.")
    if preview.conflicts:
        session.print(paint("bold", "Changed since the last checkpoint, by whoever it was:"))
        for path in preview.conflicts[:SHOWN]:
            session.print(f"  {paint('red', '!')} {show(path)}")
        session.print("")
    for step in plan.steps[:SHOWN]:
        sign, colour = SIGNS["new" if step.old is None else step.action]
        session.print(f"  {paint(colour, sign)} {show(step.path)}")
    if len(plan.steps) > SHOWN:
        session.print(f"  … and {len(plan.steps) - SHOWN} more")
    if plan.untouched:
        session.print(
            paint("dim", f"{plural(len(plan.untouched), 'path')} left alone: outside of what is captured, then or now.")
        )
        for path, why in plan.untouched[:5]:
            session.print(paint("dim", f"    {show(path)}: {why}"))


def _report(session: Session, done: Restored, word: str, more: dict[str, Any] | None = None) -> int:
    """Say what was done; exit code 14 if something is not as it was asked for."""
    from holdfast.core.errors import Conflict
    from holdfast.workspace.find import show

    applied, way = done.applied, done.taken_back_by
    if session.json:
        from holdfast.frontends.facts import of_restored

        write_json(
            {
                **of_restored(done),
                "not_empty": [_path(path) for path in applied.filled],
                "aside": [{**_path(path), "at": show(where)} for path, where in applied.aside],
                "untouched": [{**_path(path), "why": why} for path, why in done.plan.untouched],
                **(more or {}),
            }
        )
        return Conflict.exit_code if applied.kept else 0
    modes = "mode set" if applied.modes == 1 else "modes set"
    parts = [(applied.written, "written"), (applied.deleted, "deleted"), (applied.modes, modes)]
    counts = ", ".join(f"{number} {what}" for number, what in parts if number) or "nothing to do"
    session.say(f"{word} v{done.target}: {counts} ({session.milliseconds()}ms)")
    session.say(f"Before it: v{done.before}." + (f" `holdfast {way}` takes it back." if way else ""))
    for path, why in applied.kept:
        session.warn(f"  kept {show(path)}: {why}")
    for path in applied.filled:
        session.remark(f"  left the folder {show(path)}: it holds something that is not captured")
    for path, where in applied.aside:
        session.warn(f"  {show(path)} was moved to {show(where)}")
    return Conflict.exit_code if applied.kept else 0


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "steps": [
            {**_path(step.path), "action": "create" if step.old is None and step.action == "write" else step.action}
            for step in plan.steps
        ],
        "untouched": [{**_path(path), "why": why} for path, why in plan.untouched],
    }


def _path(path: bytes) -> dict[str, str]:
    from holdfast.frontends.facts import of_path

    return of_path(path)
