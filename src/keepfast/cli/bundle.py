"""`keepfast export` and `keepfast import`: checkpoints in a bundle file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from keepfast import __version__
from keepfast.app.checkpoint import Engine
from keepfast.cli.passphrase import passphrase, passphrase_option
from keepfast.cli.reference import REFERENCE
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Conflict, Failed, KeepfastError, NotFound, NoWorkspace, Usage
from keepfast.model.ids import checkpoint_id
from keepfast.present.json_forms import of_checkpoint, of_path, title
from keepfast.present.terminal import one_line, plural, size
from keepfast.store.bundle import Bundle
from keepfast.store.bundle_check import CheckedBundle
from keepfast.store.bundle_import import ImportResult, import_bundle
from keepfast.store.keys import open_backup
from keepfast.store.rows import CheckpointRow, Query, WorkspaceRow
from keepfast.workspace.adoption import refuse_whole
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from keepfast.store.bundle_export import LeftOut

MAX_SHOWN = 10


@click.command()
@click.argument("words", metavar="[REF]... FILE", type=REFERENCE, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Export all checkpoints of the workspace.")
@click.option("--since", metavar="REF", default=None, type=REFERENCE, help="Export all checkpoints newer than REF.")
@click.option(
    "--with-secrets", is_flag=True, help="Include sealed contents, with their keys encrypted by a passphrase."
)
@passphrase_option
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@common
def export(
    session: Session,
    words: tuple[str, ...],
    everything: bool,
    since: str | None,
    with_secrets: bool,
    source: str | None,
    force: bool,
) -> None:
    """Write the checkpoints REF (default: all) to the bundle FILE, with everything they need; `keepfast import` reads it.

    FILE is not encrypted. Secret files and conversations are excluded, unless --with-secrets includes them sealed.
    """
    from keepfast.store.bundle_export import export_bundle as write

    if not words:
        raise Usage(
            "No output file given. It is the last argument.", "For example: keepfast export v5 v6 project.keepfast"
        )
    root, row = session.workspace()
    *references, name = words
    if not references and not everything and since is None:
        _refuse_reference(session, row, name)
        everything = True
    chosen = _select(session, row, references, everything, since)
    path = os.path.join(os.fsdecode(session.cwd), name)
    sealer = session.repository.contents.sealer()
    keys = (
        sealer.keys.backup(passphrase(session, source, new=True)) if with_secrets and sealer.keys.is_in_use() else None
    )
    with session.progress("Exporting") as progress:
        length, left_out = write(
            session.repository, session.engine.place, row, chosen, path,
            tool=__version__, now=session.now(), force=force, progress=progress, keys=keys,
        )  # fmt: skip
    if session.json:
        listed = [of_checkpoint(checkpoint) for checkpoint in chosen]
        write_json(
            {
                "file": show(os.fsencode(path)),
                "bytes": length,
                "checkpoints": listed,
                "left_out": left_out.contents,
                "left_out_files": [of_path(checkpoint) for checkpoint in left_out.files],
                "left_out_conversations": left_out.conversations,
            }
        )
        return
    versions = ", ".join([f"v{checkpoint.version}" for checkpoint in chosen[:MAX_SHOWN]]) + (
        " …" if len(chosen) > MAX_SHOWN else ""
    )
    took = f"({size(length)}, {session.milliseconds()}ms)"
    session.say(f"Wrote {plural(len(chosen), 'checkpoint')} ({versions}) to {show(os.fsencode(path))} {took}")
    if left_out.contents:
        _warn_of_left_out(session, left_out)
    if os.path.realpath(os.fsencode(path)).startswith(root.rstrip(b"/") + b"/"):
        session.remark("The file is inside the workspace; the next save may include it.")


def _refuse_reference(session: Session, row: WorkspaceRow, name: str) -> None:
    """Raise `Usage` if the only word names a checkpoint: then FILE is what was forgotten."""
    try:
        session.resolve(row, name)
    except KeepfastError:
        return
    raise Usage(
        f"{name} is a checkpoint; no output file given.", f"For example: keepfast export {name} project.keepfast"
    )


def _warn_of_left_out(session: Session, left_out: LeftOut) -> None:
    """List what the bundle lacks now, not only when it is imported elsewhere."""
    parts = [
        plural(number, what)
        for number, what in ((len(left_out.files), "secret file"), (left_out.conversations, "conversation"))
        if number
    ]
    session.warn(f"Excluded: {' and '.join(parts)}. `--with-secrets` includes them, sealed.")
    for path in left_out.files:
        session.warn(f"  {show(path)}")


def _select(
    session: Session, row: WorkspaceRow, references: Sequence[str], everything: bool, since: str | None
) -> list[CheckpointRow]:
    if sum((bool(references), everything, since is not None)) != 1:
        raise Usage(
            "Give only one of: references, --all, --since REF.",
            "For example: keepfast export v5 v6 project.keepfast",
        )
    if references:
        rows = {checkpoint.version: checkpoint for checkpoint in [session.resolve(row, text) for text in references]}
        return [rows[version] for version in sorted(rows)]
    oldest = session.resolve(row, since).version if since is not None else 0
    chosen = [
        checkpoint
        for checkpoint in session.repository.find(Query(workspace=row.id))[::-1]
        if checkpoint.version > oldest
    ]
    if not chosen:
        raise NotFound("No checkpoint matches; nothing to export.")
    return chosen


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--into", metavar="DIR", default=None, help="Attach the checkpoints to the folder DIR.")
@click.option("--here", is_flag=True, help="Add the checkpoints to the current workspace.")
@passphrase_option
@common
def import_(session: Session, file: str, into: str | None, here: bool, source: str | None) -> None:
    """Import checkpoints from the bundle FILE, after checking everything in it.

    They are added to the workspace they came from if it is in the store, else to a new one. Only the store is
    changed; restore files with `keepfast restore` or `keepfast fork`.
    """
    if into is not None and here:
        raise Usage("--into and --here cannot be combined.")
    engine = session.engine
    current = session.workspace()[1] if here else None
    bundle = Bundle(os.path.join(os.fsdecode(session.cwd), file))
    try:
        folder = os.path.realpath(os.path.join(session.cwd, os.fsencode(into))) if into is not None else b""
        target = current.id if current is not None else _target(engine, bundle, folder)
        checked = CheckedBundle(bundle)
        words = _passphrase(session, bundle, source)
        repository = engine.repository() if current is not None else engine.create()
        with session.progress("Importing") as progress:
            done = import_bundle(
                repository, engine.place, checked, target, path=folder, now=session.now(),
                new_id=lambda: checkpoint_id(session.now(), os.urandom(10)), progress=progress,
            )  # fmt: skip
        if folder and done.is_new and done.versions:
            _create_folder(engine, folder, target)
        if words:
            repository.contents.sealer().keys.import_backup(bundle.keys, words)
    finally:
        bundle.close()
    _announce(session, bundle, done)


def _passphrase(session: Session, bundle: Bundle, source: str | None) -> str:
    """Return the passphrase of the bundle's keys, checked before anything is imported; empty if none was given."""
    if bundle.keys is None:
        return ""
    if source is None and (session.json or not sys.stdin.isatty()):
        session.warn(
            "Its sealed contents cannot be read until you run `keepfast key import` with this file and its passphrase."
        )
        return ""
    words = passphrase(session, source)
    open_backup(bundle.keys, words)
    return words


def _target(engine: Engine, bundle: Bundle, folder: bytes) -> str:
    """Return the id of the workspace to import into: the folder's own, else the one that the bundle comes from."""
    if not folder:
        return bundle.workspace
    refuse_whole(folder, engine.home or b"")
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise Conflict(f"{show(folder)} is not a folder.")
    own = engine.workspaces.find_workspace(folder, adopting=True)
    if own is not None and own[0] == folder:
        return own[1]
    workspace_row = _workspace_row(engine, bundle.workspace)
    if workspace_row is not None:
        where = f"at {show(workspace_row.path)}" if workspace_row.path else "without a folder"
        raise Conflict(
            f"This workspace is already in the store, {where}.",
            "Import without --into, then run `keepfast fork` to create a folder from a checkpoint.",
        )
    return bundle.workspace


def _workspace_row(engine: Engine, workspace: str) -> WorkspaceRow | None:
    try:
        return engine.repository().workspace(workspace)
    except NoWorkspace:
        return None  # no store yet


def _create_folder(engine: Engine, folder: bytes, workspace: str) -> None:
    """Create the folder and its marker, after its checkpoints are in the store."""
    try:
        os.makedirs(folder, exist_ok=True)
        engine.workspaces.mark(folder, workspace)
        engine.place.list_paths([(row.id, row.path) for row in engine.repository().workspaces()])
    except OSError as error:
        raise Failed(
            f"The checkpoints are imported, but {show(folder)} cannot be created: {error.strerror}.",
            "Run `keepfast fork` with one of their ids to create a folder elsewhere.",
        ) from None


def _announce(session: Session, bundle: Bundle, done: ImportResult) -> None:
    repository = session.repository
    rows = [
        (exported_version, repository.checkpoint(done.workspace, version))
        for exported_version, version, _ in done.versions
    ]
    row = repository.workspace(done.workspace)
    path = row.path if row is not None else b""
    if session.json:
        write_json(
            {
                "workspace": done.workspace,
                "root": show(path) if path else None,
                "new_workspace": done.is_new and bool(rows),
                "imported": [
                    {"was": f"v{exported_version}", "checkpoint": of_checkpoint(checkpoint)}
                    for exported_version, checkpoint in rows
                    if checkpoint
                ],
                "skipped": done.skipped,
            }
        )
        return
    where = show(path) if path else "a workspace without a folder"
    if rows:
        session.say(f"Imported {plural(len(rows), 'checkpoint')} of {one_line(bundle.folder)} into {where}:")
    for exported_version, checkpoint in rows[:MAX_SHOWN]:
        if checkpoint is not None:
            session.say(
                f"  {title(checkpoint)}"
                + (f", was v{exported_version}" if exported_version != checkpoint.version else "")
                + f"  {checkpoint.id}"
            )
    if len(rows) > MAX_SHOWN:
        session.say(f"  … and {len(rows) - MAX_SHOWN} more")
    if bundle.left_out:
        session.remark(f"Excluded when the file was exported: {plural(bundle.left_out, 'sealed content')}.")
    if done.skipped:
        session.say(f"Already in the store: {plural(len(done.skipped), 'checkpoint')}.")
    if rows and not path:
        session.remark("Run `keepfast fork` with one of these ids to create a folder from it.")
