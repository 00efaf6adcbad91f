"""`keepfast task pause`, `freeze`, `resume`, `restore`, `cancel`, `retry`, `budget`, `try-now`, `archive`."""

from __future__ import annotations

import os

import click

from keepfast.cli import restore_flow
from keepfast.cli.numbers import Number, Whole
from keepfast.cli.session import Session, common
from keepfast.cli.task_session import REF, continuation, say, tasks_of
from keepfast.model.errors import Usage
from keepfast.store.rows import CheckpointRow


@click.command("pause")
@REF
@click.option("--now", is_flag=True, help="Stop at once instead of after the current tool call.")
@common
def pause(session: Session, ref: str, now: bool) -> None:
    """Pause a task after its current tool call, with a checkpoint."""
    with tasks_of(session) as tasks:
        say(
            session,
            tasks,
            done := tasks.pause(ref, now=now),
            f"{done.id} {'is being paused' if done.request else 'is paused'}.",
        )


@click.command("freeze")
@REF
@common
def freeze(session: Session, ref: str) -> None:
    """Freeze every process of the agent. To continue, use `task resume`."""
    with tasks_of(session) as tasks:
        say(session, tasks, done := tasks.freeze(ref), f"{done.id} is being frozen.")


@click.command("resume")
@REF
@click.option("--allow", "allowed", metavar="TOOL", multiple=True, help="Allow the agent to use TOOL from now on.")
@common
def resume(session: Session, ref: str, allowed: tuple[str, ...]) -> None:
    """Resume a paused, frozen or stopped task, or retry the failed last checkpoint of a complete one."""
    with tasks_of(session, "resume") as tasks:
        done = tasks.resume(ref, allow=allowed)
        text = "is done" if done.state == "done" else continuation(tasks.views.describe(done))
        say(session, tasks, done, f"{done.id} {text}.")


@click.command("restore")
@REF
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option(
    "--files", "only_files", is_flag=True, help=("Restore files only; a new session starts with a resume brief.")
)
@click.option("-n", "--dry-run", is_flag=True, help="Show which files would change, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@common
def restore(session: Session, ref: str, checkpoint: str, only_files: bool, dry_run: bool, yes: bool) -> None:
    """Restore a task's files and conversation to a checkpoint, and continue from there."""
    if dry_run:
        with tasks_of(session) as tasks:
            folder = tasks.views.find(ref).workspace
        restore_flow.preview(session, os.fsencode(folder), checkpoint)
        return

    def ask(target: CheckpointRow) -> bool:
        return session.confirm(f"Restore the task to v{target.version}? The state now is saved first.", yes)

    with tasks_of(session, "restore") as tasks:
        done = tasks.restore(ref, checkpoint, conversation=not only_files, ask=ask)
        if done is None:
            raise click.Abort
        say(session, tasks, done, f"{done.id} continues from {checkpoint}.")


@click.command("cancel")
@REF
@common
def cancel(session: Session, ref: str) -> None:
    """Cancel a task."""
    with tasks_of(session, "cancel") as tasks:
        say(
            session,
            tasks,
            done := tasks.cancel(ref),
            f"{done.id} {'is being cancelled' if done.request else 'is cancelled'}.",
        )


@click.command("retry")
@REF
@click.option("--history", is_flag=True, help="Continue its session instead of starting a new one with a resume brief.")
@common
def retry(session: Session, ref: str, history: bool) -> None:
    """Retry a failed or cancelled task from its current phase, with the files as they are."""
    with tasks_of(session) as tasks:
        say(session, tasks, done := tasks.retry(ref, history=history), f"Queued {done.id} again.")


@click.command("budget")
@REF
@click.option("--tokens", type=Whole(0), metavar="N", help="Budget in tokens; 0: no limit.")
@click.option("--money", type=Number(0), metavar="DOLLARS", help="Budget in dollars; 0: no limit.")
@click.option("--minutes", type=Number(0), metavar="N", help="Budget in minutes of running; 0: no limit.")
@common
def budget(session: Session, ref: str, tokens: int | None, money: float | None, minutes: float | None) -> None:
    """Change the budget of a task."""
    if tokens is None and money is None and minutes is None:
        raise Usage("Give --tokens, --money or --minutes.")
    with tasks_of(session, "budget") as tasks:
        done = tasks.answers.budget(ref, tokens=tokens, money=money, minutes=minutes)
        say(session, tasks, done, f"Changed the budget of {done.id}.")


@click.command("try-now")
@REF
@common
def try_now(session: Session, ref: str) -> None:
    """Try again now instead of waiting for a limit or a back-off."""
    with tasks_of(session, "try_now") as tasks:
        say(session, tasks, done := tasks.try_now(ref), f"{done.id} is trying again.")


@click.command("archive")
@REF
@common
def archive(session: Session, ref: str) -> None:
    """Hide an ended task from lists."""
    with tasks_of(session) as tasks:
        say(session, tasks, done := tasks.archive(ref), f"{done.id} is archived.")
