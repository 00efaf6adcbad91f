"""`keepfast restore`, `undo`, `redo`: bring a state back, and take that back again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from keepfast.cli import restore_flow as bring
from keepfast.cli.diff import PATHS, WithPaths
from keepfast.cli.reference import REFERENCE
from keepfast.cli.session import Session, common
from keepfast.model.errors import Usage


@click.command(cls=WithPaths, options_metavar="[OPTIONS]")
@click.argument("reference", metavar="[REF] [-- PATH...]", type=REFERENCE, required=False)
@click.option("--files", is_flag=True, help="Bring back files; the default.")
@click.option("--conversation", is_flag=True, help="Bring back the conversation as a new session.")
@click.option("--both", is_flag=True, help="Bring back files and conversation.")
@click.option("--launch", is_flag=True, help="Start the agent's client on that session.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--keep-mine", is_flag=True, help="Leave files that were changed since the last checkpoint.")
@click.option("--theirs", is_flag=True, help="Overwrite those too; the safety checkpoint has them.")
@click.option("-p", "--patch", is_flag=True, help="Ask for every hunk of every text file.")
@click.option("--mtimes", is_flag=True, help="Give rewritten files their recorded times instead of now.")
@click.option(
    "--privileged", is_flag=True, help="Bring back `security.*` and `trusted.*` attributes, and root's ACLs, too."
)
@click.option("--continue", "go_on", is_flag=True, help="Finish a restore that was cut off.")
@click.option("--abort", is_flag=True, help="Take back a restore that was cut off.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@common
def restore(
    session: Session,
    reference: str | None,
    files: bool,
    conversation: bool,
    both: bool,
    launch: bool,
    dry_run: bool,
    keep_mine: bool,
    theirs: bool,
    patch: bool,
    mtimes: bool,
    privileged: bool,
    go_on: bool,
    abort: bool,
    yes: bool,
) -> int:
    """Bring files back to how they were in checkpoint REF: everything, or the paths after `--`.

    What is there now is saved first, always, so `keepfast undo` takes any restore back. The conversation with the agent
    up to REF becomes a session of its own; the one that goes on is not touched.
    """
    typed: list[str] = click.get_current_context().meta.get(PATHS, [])
    conflicts = _conflicts(keep_mine, theirs)
    if privileged:
        session.settings.put("restore.privileged_attributes", True, "--privileged")
    how = {"conflicts": conflicts, "patch": patch, "mtimes": mtimes, "go_on": go_on, "abort": abort, "yes": yes}
    if conversation or both:
        from keepfast.cli import conversation as converse

        if typed:
            raise Usage("A conversation goes back as a whole: no paths.", "Restore those with --files.")
        return converse.restore(session, reference, files=both or files, launch=launch, dry_run=dry_run, **how)
    if launch:
        raise Usage("--launch goes on with a conversation.", "Add --conversation or --both.")
    return bring.restore(session, reference, typed, dry_run=dry_run, **how)  # type: ignore[arg-type]


def _steps(command: Callable[..., Any]) -> Callable[..., Any]:
    """What `undo` and `redo` take."""
    for option in reversed(
        (
            click.option("-n", "--dry-run", is_flag=True, help="Show what would be done, and do nothing."),
            click.option("--keep-mine", is_flag=True, help="Leave files that were changed since."),
            click.option("--theirs", is_flag=True, help="Overwrite those too; they are saved first."),
            click.option("-y", "--yes", is_flag=True, help="Do not ask."),
        )
    ):
        command = option(command)
    return command


@click.command()
@_steps
@common
def undo(session: Session, dry_run: bool, keep_mine: bool, theirs: bool, yes: bool) -> int:
    """Take back the last restore. Again: the one before it."""
    return bring.undo(session, dry_run=dry_run, conflicts=_conflicts(keep_mine, theirs), yes=yes)


@click.command()
@_steps
@common
def redo(session: Session, dry_run: bool, keep_mine: bool, theirs: bool, yes: bool) -> int:
    """Take back the last undo."""
    return bring.redo(session, dry_run=dry_run, conflicts=_conflicts(keep_mine, theirs), yes=yes)


def _conflicts(keep_mine: bool, theirs: bool) -> str | None:
    if keep_mine and theirs:
        raise Usage("--keep-mine and --theirs exclude each other.", "Give one of them.")
    return "mine" if keep_mine else "theirs" if theirs else None
