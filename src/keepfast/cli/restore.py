"""`keepfast restore`, `undo`, `redo`: restore a checkpoint, and revert that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from keepfast.cli import conversation as conversation_flow
from keepfast.cli import restore_flow
from keepfast.cli.diff import PATHS, WithPaths
from keepfast.cli.reference import REFERENCE
from keepfast.cli.session import Session, common
from keepfast.model.errors import Usage


@click.command(cls=WithPaths, options_metavar="[OPTIONS]")
@click.argument("reference", metavar="[REF] [-- PATH...]", type=REFERENCE, required=False)
@click.option("--files", is_flag=True, help="Restore files (default).")
@click.option("--conversation", is_flag=True, help="Restore the conversation as a new session.")
@click.option("--both", is_flag=True, help="Restore files and conversation.")
@click.option("--launch", is_flag=True, help="Start the agent's client with the restored session.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--keep-mine", is_flag=True, help="Keep files with unsaved changes.")
@click.option("--theirs", is_flag=True, help="Overwrite files with unsaved changes; the safety checkpoint keeps them.")
@click.option("-p", "--patch", is_flag=True, help="Ask about each hunk of each text file.")
@click.option(
    "--mtimes",
    is_flag=True,
    help=("Set the modification times of restored files to the recorded times (default: now)."),
)
@click.option(
    "--privileged", is_flag=True, help="Also restore `security.*` and `trusted.*` attributes and root's ACLs."
)
@click.option("--continue", "go_on", is_flag=True, help="Finish an interrupted restore.")
@click.option("--abort", is_flag=True, help="Undo an interrupted restore.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
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
    """Restore all files, or the paths after `--`, to checkpoint REF.

    The current state is always saved first, so `keepfast undo` can revert any restore. --conversation creates a new
    session with the agent's conversation up to REF; the current session is not changed.
    """
    typed: list[str] = click.get_current_context().meta.get(PATHS, [])
    conflicts = _conflicts(keep_mine, theirs)
    if privileged:
        session.settings.put("restore.privileged_attributes", True, "--privileged")
    options = {"conflicts": conflicts, "patch": patch, "mtimes": mtimes, "go_on": go_on, "abort": abort, "yes": yes}
    if conversation or both:
        if typed:
            raise Usage("A conversation can only be restored as a whole, without paths.", "Restore paths with --files.")
        return conversation_flow.restore(
            session, reference, files=both or files, launch=launch, dry_run=dry_run, **options
        )
    if launch:
        raise Usage("--launch needs a restored conversation.", "Add --conversation or --both.")
    return restore_flow.restore(session, reference, typed, dry_run=dry_run, **options)  # type: ignore[arg-type]


def _steps(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `undo` and `redo` to a command."""
    for option in reversed(
        (
            click.option("-n", "--dry-run", is_flag=True, help="Show what would change, and change nothing."),
            click.option("--keep-mine", is_flag=True, help="Keep files with unsaved changes."),
            click.option("--theirs", is_flag=True, help="Overwrite files with unsaved changes; they are saved first."),
            click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation."),
        )
    ):
        command = option(command)
    return command


@click.command()
@_steps
@common
def undo(session: Session, dry_run: bool, keep_mine: bool, theirs: bool, yes: bool) -> int:
    """Undo the last restore. Run it again to undo the restore before it."""
    return restore_flow.undo(session, dry_run=dry_run, conflicts=_conflicts(keep_mine, theirs), yes=yes)


@click.command()
@_steps
@common
def redo(session: Session, dry_run: bool, keep_mine: bool, theirs: bool, yes: bool) -> int:
    """Redo the last undone restore."""
    return restore_flow.redo(session, dry_run=dry_run, conflicts=_conflicts(keep_mine, theirs), yes=yes)


def _conflicts(keep_mine: bool, theirs: bool) -> str | None:
    if keep_mine and theirs:
        raise Usage("--keep-mine and --theirs cannot be combined.", "Give one of them.")
    return "mine" if keep_mine else "theirs" if theirs else None
