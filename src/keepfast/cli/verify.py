"""`keepfast verify` and `keepfast rebuild`: check the store, repair it, and rebuild its ledger."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.session import Session, common, write_json
from keepfast.cli.task_session import open_runtime
from keepfast.model.errors import Damaged, Usage
from keepfast.present.terminal import plural, size
from keepfast.runner.actions.recovery import RebuiltTask, workspaces
from keepfast.runner.actions.recovery import rebuild as take_over
from keepfast.store.maintenance.last_verify import write_last_verify

if TYPE_CHECKING:
    from keepfast.store.maintenance.verify import Problem

MAX_CHECKPOINTS = 10


@click.command()
@click.option("--quick", is_flag=True, help="Check the structure only, without reading contents.")
@click.option("--repair", is_flag=True, help="Repair what can be repaired, and list what cannot.")
@common
def verify(session: Session, quick: bool, repair: bool) -> int:
    """Read all data in the store and check it against its digests.

    Affected checkpoints are listed. Exit code 13 if anything is damaged.
    """
    if quick and repair:
        raise Usage("--quick and --repair cannot be combined.")
    return _repair(session) if repair else _verify(session, quick)


@click.command()
@click.argument("folders", nargs=-1, metavar="[DIR]...")
@common
def rebuild(session: Session, folders: tuple[str, ...]) -> None:
    """Rebuild the ledger from packs and logs, and lost tasks from their workspaces.

    Tasks are searched below each DIR, below `supervisor.roots` and in every known workspace. Restored tasks wait for
    you to resume them.
    """
    from keepfast.store.maintenance.verify import rebuild as rebuild_ledger

    _require_store(session)
    with session.progress("Rebuilding") as progress:
        report = rebuild_ledger(session.engine.place, progress=progress)
    tasks = _rebuild_tasks(session, folders)
    if session.json:
        task_facts = [
            {
                "workspace": task.workspace,
                "task": task.task or None,
                "outcome": task.outcome,
                "refused": [refused._asdict() for refused in task.refused],
            }
            for task in tasks
        ]
        facts = {"workspaces": report.workspaces, "checkpoints": report.checkpoints, "notices": report.notices}
        write_json({**facts, "tasks": task_facts})
        return
    session.say(
        f"Ledger rebuilt: {plural(report.checkpoints, 'checkpoint')} of {plural(report.workspaces, 'workspace')}."
    )
    for notice in report.notices:
        session.warn(notice)
    for task in tasks:
        session.say(f"Task {task.task or '?'} in {task.workspace}: {task.outcome}")
        for refused in task.refused:
            if refused.why != task.outcome:
                session.warn(f"Not used: {refused.why}")


def _rebuild_tasks(session: Session, folders: tuple[str, ...]) -> list[RebuiltTask]:
    """Restore tasks from their documents. Without any, the task database is not created."""
    folders_of_workspaces = [os.fsdecode(row.path) for row in session.repository.workspaces() if row.path]
    roots = [
        *folders,
        *session.settings["supervisor.roots"],
        *[path for path in folders_of_workspaces if os.path.isdir(path + "/.metadata")],
    ]
    if not any(True for _ in workspaces(roots)):
        return []
    with open_runtime(session) as runtime:
        return take_over(runtime, roots)


def _require_store(session: Session) -> None:
    """Raise if there is no store of ours; a damaged one is accepted."""
    try:
        session.engine.place.id()
    except Damaged:
        pass  # the caller repairs it


def _verify(session: Session, quick: bool) -> int:
    from keepfast.store.maintenance.verify import verify as verify_store

    with session.progress("Verifying") as progress:
        report = verify_store(session.repository, session.engine.place.path, quick=quick, progress=progress)
    if report.is_read_only:
        session.remark("The store is not writable: the result of this verify was not recorded.")
    else:
        write_last_verify(session.engine.place.path, session.now(), quick, report.problems, report.checkpoints)
    if session.json:
        write_json(
            {
                "problems": [_problem(problem) for problem in report.problems],
                "checkpoints": report.checkpoints,
                "blobs": report.blobs,
                "bytes": report.bytes,
                "quick": quick,
            }
        )
        return Damaged.exit_code if report.problems else 0
    what = f"{plural(report.checkpoints, 'checkpoint')}, {plural(report.blobs, 'blob')}, {size(report.bytes)}"
    if not report.problems:
        session.say(f"No problems found: {what}{'; contents were not read' if quick else ''}.")
        return 0
    session.print(f"{plural(len(report.problems), 'problem')} in {what}:")
    _print_problems(session, report.problems)
    session.warn(Damaged.hint)
    return Damaged.exit_code


def _repair(session: Session) -> int:
    from keepfast.store.maintenance.repair import repair as repair_store

    _require_store(session)
    with session.progress("Repairing") as progress:
        report = repair_store(session.engine.place, progress=progress)
    write_last_verify(session.engine.place.path, session.now(), False, report.lost, None)
    if session.json:
        write_json({"healed": report.healed, "lost": [_problem(problem) for problem in report.lost]})
        return Damaged.exit_code if report.lost else 0
    for text in report.healed:
        session.say(f"Repaired: {text}")
    if not report.lost:
        session.say("No problems found." if not report.healed else "Everything was repaired.")
        return 0
    session.print(f"{plural(len(report.lost), 'problem')} could not be repaired:")
    _print_problems(session, report.lost)
    return Damaged.exit_code


def _print_problems(session: Session, problems: list[Problem]) -> None:
    for problem in problems:
        session.print("  " + session.paint("red", problem.text))
        for name in problem.checkpoints[:MAX_CHECKPOINTS]:
            session.print(f"    {name}")
        if len(problem.checkpoints) > MAX_CHECKPOINTS:
            session.print(f"    … and {len(problem.checkpoints) - MAX_CHECKPOINTS:,} more; --json names all")


def _problem(problem: Problem) -> dict[str, Any]:
    return {"text": problem.text, "checkpoints": problem.checkpoints}
