"""`keepfast task diff`, `apply`: bring a forked task's changes back to the original workspace."""

from __future__ import annotations

import os
import subprocess

import click

from keepfast.app.fork_patch import ForkPatch, patch_of_fork
from keepfast.cli.fork import say_branch, write_patch
from keepfast.cli.session import Session, common, write_bytes, write_json
from keepfast.cli.task_session import REF, tasks_of
from keepfast.model.errors import Conflict
from keepfast.model.event import Event
from keepfast.runner.actions.tasks import Tasks
from keepfast.workspace.git_clone import GitPlumbing


@click.command("diff")
@REF
@click.option("--patch", "file", metavar="FILE", help="Write the patch to FILE (default: standard output).")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@common
def diff(session: Session, ref: str, file: str | None, force: bool) -> None:
    """Show the changes of a forked task as a patch."""
    with tasks_of(session) as tasks:
        patch = _patch(session, tasks, ref)
    if file is not None:
        write_patch(os.path.join(os.fsdecode(session.cwd), file), patch, force)
        if session.json:
            write_json({"files": patch.files, "file": file})
        else:
            session.say(f"Wrote a patch of {patch.files} files to {file}; apply it with `git apply`.")
        return
    if session.json:
        write_json({"files": patch.files, "patch": _text(patch).decode("utf-8", "replace")})
        return
    write_bytes(_text(patch))


@click.command("apply")
@REF
@click.option("-n", "--dry-run", is_flag=True, help="Check whether the patch applies, and change nothing.")
@click.option(
    "--branch", metavar="NAME", help=("Print the command that fetches the fork's branch as NAME, and change nothing.")
)
@common
def apply(session: Session, ref: str, dry_run: bool, branch: str | None) -> None:
    """Apply the changes of a forked task to the original workspace, after saving a checkpoint."""
    with tasks_of(session) as tasks:
        if branch is not None:
            _, row = session.engine.workspaces.root(os.fsencode(tasks.home(ref).workspace))
            say_branch(session, row, os.fsencode(tasks.views.find(ref).workspace), branch)
            return
        patch, home = _patch(session, tasks, ref), tasks.home(ref)
        if not patch.lines:
            session.say("The fork has no changes.")
            return
        if not dry_run:
            session.engine.handle(
                Event(
                    os.fsencode(home.workspace),
                    session.now(),
                    trigger="before_restore",
                    message="before applying a fork",
                )
            )
        _git_apply(session, _text(patch), home.workspace, dry_run)
        if session.json:
            write_json({"files": patch.files, "applied": not dry_run, "workspace": home.workspace})
        else:
            session.say(f"{'Would change' if dry_run else 'Changed'} {patch.files} files in {home.workspace}.")


def _git_apply(session: Session, patch: bytes, folder: str, dry_run: bool) -> None:
    """Apply a patch in a folder with `git apply`. Raises `Conflict`."""
    git = GitPlumbing(session.environment.text("PATH"), os.fsencode(folder))
    words = [git.program, "apply", "--whitespace=nowarn", *(["--check"] if dry_run else []), "-"]
    # GIT_DIR names no repository: `git apply` then changes files only, and reads no index.
    variables = {"PATH": git.search, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_DIR": "/nonexistent"}
    done = subprocess.run(words, cwd=folder, input=patch, capture_output=True, env=variables)
    if done.returncode:
        raise Conflict(
            f"The patch does not apply: {done.stderr.decode('utf-8', 'replace').strip()}",
            "Run `keepfast task diff` to see it.",
        )


def _text(patch: ForkPatch) -> bytes:
    return b"".join([line + b"\n" for line in patch.lines])


def _patch(session: Session, tasks: Tasks, ref: str) -> ForkPatch:
    forked, home = tasks.views.find(ref), tasks.home(ref)
    _, row = session.engine.workspaces.root(os.fsencode(home.workspace))
    return patch_of_fork(session.engine, row, os.fsencode(forked.workspace))
