"""`keepfast fork`: create a folder from a checkpoint, and get its changes back."""

from __future__ import annotations

import os
import shlex

import click

from keepfast.app.fork import Forked, Forker, fork_point
from keepfast.app.fork_patch import ForkPatch, patch_of_fork
from keepfast.cli.reference import REFERENCE
from keepfast.cli.session import Session, common, write_bytes, write_json
from keepfast.fsutil.durable import replace
from keepfast.model.errors import Conflict, KeepfastError, NotFound, NoWorkspace, Usage
from keepfast.present.json_forms import of_checkpoint, of_path
from keepfast.present.terminal import plural
from keepfast.store.bundle_writer import already_exists, exists
from keepfast.store.rows import CheckpointRow, Query, WorkspaceRow
from keepfast.workspace.git import facts
from keepfast.workspace.git_clone import GitPlumbing
from keepfast.workspace.git_pointers import POINTS_IN
from keepfast.workspace.marker import show

MAX_SHOWN = 10


@click.command()
@click.argument("reference", metavar="[REF]", type=REFERENCE, required=False)
@click.argument("folder", metavar="DIR", type=click.Path(), required=False)
@click.option("--git", "with_git", is_flag=True, help="Make DIR a git repository at the commit of the checkpoint.")
@click.option(
    "--privileged", is_flag=True, help="Also restore `security.*` and `trusted.*` attributes and root's ACLs."
)
@click.option("--back", is_flag=True, help="Get the changes made in the fork DIR, as a patch.")
@click.option(
    "--patch", metavar="FILE", default=None, help="With --back: write the patch to FILE (default: standard output)."
)
@click.option(
    "--branch", metavar="NAME", default=None, help="With --back: print the command that fetches DIR's branch as NAME."
)
@click.option("--force", is_flag=True, help="With --patch: overwrite FILE if it exists.")
@common
def fork(
    session: Session,
    reference: str | None,
    folder: str | None,
    with_git: bool,
    privileged: bool,
    back: bool,
    patch: str | None,
    branch: str | None,
    force: bool,
) -> int:
    """Create the folder DIR from checkpoint REF, as an independent workspace.

    REF defaults to the newest checkpoint; it may be the id of any checkpoint or workspace in the store. --git only
    reads your repository. With --back, give DIR without REF.
    """
    words = [word for word in (reference, folder) if word is not None]
    if len(words) != 1 and (back or not words):
        example = "keepfast fork --back ../trial" if back else "keepfast fork v5 ../trial"
        raise Usage("Give the folder of the fork." if back else "No folder given.", f"For example: {example}")
    if not back and (patch is not None or branch is not None):
        raise Usage("--patch and --branch need --back.")
    if back and (with_git or (patch is not None and branch is not None)):
        raise Usage("--patch and --branch cannot be combined.")
    target = os.path.realpath(os.path.join(session.cwd, os.fsencode(words[-1])))
    if privileged:
        session.settings.put("restore.privileged_attributes", True, "--privileged")
    if not back:
        return _fork(session, words[0] if len(words) > 1 else _newest(session, words[0]), target, with_git)
    if branch is not None:
        say_branch(session, session.workspace()[1], target, branch)
    else:
        _write_changes(session, target, patch, force)
    return 0


def _newest(session: Session, folder: str) -> str:
    """Return the reference of the newest checkpoint. Raises `Usage` if `folder` names a checkpoint."""
    try:
        _resolve(session, folder)
    except KeepfastError:
        return "@"
    raise Usage(f"{folder} is a checkpoint.", f"Give the new folder too: `keepfast fork {folder} ../trial`.")


def _fork(session: Session, reference: str, target: bytes, with_git: bool) -> int:
    """Create the fork and report it; return the exit code, 14 if it differs from the checkpoint."""
    root, row, checkpoint = _resolve(session, reference)
    git = GitPlumbing(session.environment.text("PATH"), root or b"/nonexistent") if with_git else None
    outer = session.engine.workspaces.nearest(target.rpartition(b"/")[0] or b"/")
    with session.progress("Forker") as progress:
        session.engine.progress = progress
        done = Forker(session.engine, root, row, checkpoint).fork(target, git)
    _report(session, target, checkpoint, done)
    if outer is not None and outer[1] != row.id:
        session.remark(f"It is inside the workspace {show(outer[0])}, which may save its files too.")
    return Conflict.exit_code if done.applied.untouched else 0


def _resolve(session: Session, reference: str) -> tuple[bytes, WorkspaceRow, CheckpointRow]:
    """Find a checkpoint in this workspace, or in the store by its id or its workspace's id.

    Return the folder of its workspace, empty if that is gone, the workspace and the checkpoint.
    """
    try:
        root, row = session.workspace()
        return root, row, session.resolve(row, reference)
    except (NoWorkspace, NotFound):
        checkpoint = _anywhere(session, reference) if reference.startswith("cp-") else _newest_of(session, reference)
        if checkpoint is None:
            raise
    workspace_row = session.repository.workspace(checkpoint.workspace)
    assert workspace_row is not None
    return workspace_row.path if os.path.isdir(workspace_row.path) else b"", workspace_row, checkpoint


def _anywhere(session: Session, reference: str) -> CheckpointRow | None:
    if not reference.isascii():
        return None
    rows = session.repository.find(Query(id_prefix=reference.lower(), limit=2))
    return rows[0] if len(rows) == 1 else None


def _newest_of(session: Session, workspace: str) -> CheckpointRow | None:
    """Return the newest checkpoint of the workspace with this id, which may no longer have a folder."""
    if len(workspace) != 32 or session.repository.workspace(workspace) is None:
        return None
    rows = session.repository.find(Query(workspace=workspace, limit=1))
    return rows[0] if rows else None


def _report(session: Session, target: bytes, checkpoint: CheckpointRow, done: Forked) -> None:
    if session.json:
        write_json(
            {
                "root": show(target),
                "workspace": done.workspace,
                "parent": checkpoint.workspace,
                "from": of_checkpoint(checkpoint),
                "checkpoint": of_checkpoint(done.checkpoint),
                "branch": done.branch or None,
                "written": done.applied.written,
                "same": not done.differs,
                "left_out": [{**of_path(path), "why": why} for path, why in done.left_out],
                "kept": [{**of_path(path), "why": why} for path, why in done.applied.untouched],
            }
        )
        return
    files = plural(done.checkpoint.files, "file")
    session.say(f"Forked v{checkpoint.version} to {show(target)}: {files} ({session.milliseconds()}ms)")
    if done.branch:
        session.say(f"It is a git repository on the branch {done.branch}.")
    for path, why in sorted(done.left_out, key=lambda one: one[1] != POINTS_IN)[:MAX_SHOWN]:
        session.remark(f"  skipped {show(path)}: it {why}")
    if len(done.left_out) > MAX_SHOWN:
        session.remark(f"  … and {len(done.left_out) - MAX_SHOWN} more skipped")
    for path, why in done.applied.untouched:
        session.warn(f"  differs: {show(path)}: {why}")
    if done.differs and not done.applied.untouched:
        session.warn(
            "The first checkpoint of the fork differs from the original: files changed meanwhile, or this file "
            "system cannot represent them."
        )


def _write_changes(session: Session, target: bytes, file: str | None, force: bool) -> None:
    _, row = session.workspace()
    with session.progress("Looking") as progress:
        session.engine.progress = progress
        patch = patch_of_fork(session.engine, row, target)
    if file is not None:
        write_patch(os.path.join(os.fsdecode(session.cwd), file), patch, force)
    if session.json:
        text = b"".join([line + b"\n" for line in patch.lines])
        omitted = [{**of_path(path), "why": why} for path, why in patch.omitted]
        target_facts = {"patch": text.decode("utf-8", "backslashreplace")} if file is None else {"file": file}
        write_json({"files": patch.files, "omitted": omitted, **target_facts})
        return
    if file is None:
        for line in patch.lines:
            write_bytes(line + b"\n")
    else:
        session.say(f"Wrote a patch of {plural(patch.files, 'file')} to {file}; apply it with `git apply`.")
    for path, why in patch.omitted:
        session.warn(f"not in the patch: {show(path)}, it {why}")
    if not patch.files and not patch.omitted:
        session.remark("The fork has no changes.")


def write_patch(path: str, patch: ForkPatch, force: bool) -> None:
    """Write a patch to a new file. Raises `Conflict` if one is there, unless `force`."""
    if exists(path) and not force:
        raise already_exists(path)
    replace(path, b"".join([line + b"\n" for line in patch.lines]), durable=False)


def say_branch(session: Session, row: WorkspaceRow, target: bytes, name: str) -> None:
    """Print the command that fetches the fork's branch; keepfast does not change the user's repository itself."""
    fork_point(session.engine, row, target)
    repository = facts(target)
    if repository is None or repository.work_tree != target:
        raise NotFound(
            f"{show(target)} is not a git repository.", "Run `keepfast fork --back` without --branch to get a patch."
        )
    words = ["git", "fetch", os.fsdecode(target), f"{repository.branch or 'HEAD'}:{name}"]
    if session.json:
        write_json({"command": words, "branch": repository.branch, "commit": repository.commit})
        return
    session.print(shlex.join(words))
    session.remark("Run this in your repository. It fetches what is committed in the fork, so commit there first.")
