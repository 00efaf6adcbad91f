"""`keepfast export` and `keepfast import`: checkpoints in one checked file, to take along."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from keepfast.cli.passphrase import passphrase, passphrase_option
from keepfast.cli.reference import REFERENCE
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Conflict, Failed, NotFound, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keepfast.app.checkpoint import Engine
    from keepfast.store.bundle import Bundle
    from keepfast.store.bundle_export import LeftOut
    from keepfast.store.bundle_import import ImportResult
    from keepfast.store.repository import Repository
    from keepfast.store.rows import CheckpointRow, WorkspaceRow

SHOWN = 10


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
    """Write the checkpoints REF to the bundle FILE, with everything they need; `keepfast import` reads it.

    FILE is not encrypted. Secret files and conversations are excluded, unless --with-secrets includes them sealed.
    """
    from keepfast import __version__
    from keepfast.present.terminal import plural, size
    from keepfast.store.bundle_export import export_bundle as write
    from keepfast.workspace.marker import show

    if not words:
        raise Usage("No output file given. It is the last argument.", "keepfast export v5 v6 project.keepfast")
    root, row = session.workspace()
    *references, name = words
    chosen = _chosen(session, row, references, everything, since)
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
        from keepfast.present.json_forms import of_checkpoint, of_path

        listed = [of_checkpoint(one) for one in chosen]
        write_json(
            {
                "file": show(os.fsencode(path)),
                "bytes": length,
                "checkpoints": listed,
                "left_out": left_out.contents,
                "left_out_files": [of_path(one) for one in left_out.files],
                "left_out_conversations": left_out.conversations,
            }
        )
        return
    versions = ", ".join([f"v{one.version}" for one in chosen[:SHOWN]]) + (" …" if len(chosen) > SHOWN else "")
    took = f"({size(length)}, {session.milliseconds()}ms)"
    session.say(f"Wrote {plural(len(chosen), 'checkpoint')} ({versions}) to {show(os.fsencode(path))} {took}")
    if left_out.contents:
        _warn_of_left_out(session, left_out)
    if os.path.realpath(os.fsencode(path)).startswith(root.rstrip(b"/") + b"/"):
        session.remark("The file is inside the workspace; the next save may include it.")


def _warn_of_left_out(session: Session, left_out: LeftOut) -> None:
    """Name what is missing in the file: who takes it elsewhere must not learn that there."""
    from keepfast.present.terminal import plural
    from keepfast.workspace.marker import show

    parts = [
        plural(number, what)
        for number, what in ((len(left_out.files), "secret file"), (left_out.conversations, "conversation"))
        if number
    ]
    session.warn(f"Excluded: {' and '.join(parts)}. `--with-secrets` includes them, sealed.")
    for path in left_out.files:
        session.warn(f"  {show(path)}")


def _chosen(
    session: Session, row: WorkspaceRow, references: Sequence[str], everything: bool, since: str | None
) -> list[CheckpointRow]:
    from keepfast.store.rows import Query

    if sum((bool(references), everything, since is not None)) != 1:
        raise Usage("Give exactly one of: references, --all, --since REF.", "keepfast export v5 v6 project.keepfast")
    if references:
        found = {one.version: one for one in [session.resolve(row, text) for text in references]}
        return [found[version] for version in sorted(found)]
    oldest = session.resolve(row, since).version if since is not None else 0
    chosen = [one for one in session.repository.find(Query(workspace=row.id))[::-1] if one.version > oldest]
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
    from keepfast.model.ids import checkpoint_id
    from keepfast.store.bundle import Bundle
    from keepfast.store.bundle_import import import_bundle
    from keepfast.store.bundle_proof import CheckedBundle

    if into is not None and here:
        raise Usage("--into and --here cannot be combined.")
    engine = session.engine
    around = session.workspace()[1] if here else None
    bundle = Bundle(os.path.join(os.fsdecode(session.cwd), file))
    try:
        folder = os.path.realpath(os.path.join(session.cwd, os.fsencode(into))) if into is not None else b""
        target = around.id if around is not None else _target(engine, bundle, folder)
        checked = CheckedBundle(bundle)
        words = _passphrase(session, bundle, source)
        repository = engine.repository() if around is not None else _create(engine)
        with session.progress("Importing") as progress:
            done = import_bundle(
                repository, engine.place, checked, target, path=folder, now=session.now(),
                new_id=lambda: checkpoint_id(session.now(), os.urandom(10)), progress=progress,
            )  # fmt: skip
        if folder and done.is_new and done.versions:
            _adopt(engine, folder, target)
        if words:
            repository.contents.sealer().keys.import_backup(bundle.keys, words)
    finally:
        bundle.close()
    _announce(session, bundle, done)


def _passphrase(session: Session, bundle: Bundle, source: str | None) -> str:
    """The passphrase of the bundle's keys, tried before anything is taken over; empty if nobody gives one."""
    from keepfast.store.keys import open_backup

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


def _create(engine: Engine) -> Repository:
    return engine.create()


def _target(engine: Engine, bundle: Bundle, folder: bytes) -> str:
    """The workspace that gets the checkpoints: that of the folder if it is one, else the one they come from."""
    from keepfast.workspace.adoption import refuse_whole
    from keepfast.workspace.marker import show

    if not folder:
        return bundle.workspace
    refuse_whole(folder, engine.home or b"")
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise Conflict(f"{show(folder)} is not a folder.")
    own = engine.find_workspace(folder, adopting=True)
    if own is not None and own[0] == folder:
        return own[1]
    known = _known(engine, bundle.workspace)
    if known is not None:
        where = f"at {show(known.path)}" if known.path else "without a folder"
        raise Conflict(
            f"This workspace is already in the store, {where}.",
            "Import without --into, then run `keepfast fork` to create a folder from a checkpoint.",
        )
    return bundle.workspace


def _known(engine: Engine, workspace: str) -> WorkspaceRow | None:
    from keepfast.model.errors import NoWorkspace

    try:
        return engine.repository().workspace(workspace)
    except NoWorkspace:
        return None  # there is no store yet


def _adopt(engine: Engine, folder: bytes, workspace: str) -> None:
    """The checkpoints are in the store; now the folder says whose it is."""
    from keepfast.workspace.marker import show

    try:
        os.makedirs(folder, exist_ok=True)
        engine.mark(folder, workspace)
        engine.place.list_paths([(known.id, known.path) for known in engine.repository().workspaces()])
    except OSError as error:
        raise Failed(
            f"The checkpoints are imported, but {show(folder)} cannot be created: {error.strerror}.",
            "Run `keepfast fork` with one of their ids to create a folder elsewhere.",
        ) from None


def _announce(session: Session, bundle: Bundle, done: ImportResult) -> None:
    from keepfast.present.json_forms import of_checkpoint, title
    from keepfast.present.terminal import one_line, plural
    from keepfast.workspace.marker import show

    repository = session.repository
    rows = [(there, repository.checkpoint(done.workspace, here)) for there, here, _ in done.versions]
    row = repository.workspace(done.workspace)
    path = row.path if row is not None else b""
    if session.json:
        write_json(
            {
                "workspace": done.workspace,
                "root": show(path) if path else None,
                "new_workspace": done.is_new and bool(rows),
                "imported": [{"was": f"v{there}", "checkpoint": of_checkpoint(one)} for there, one in rows if one],
                "skipped": done.skipped,
            }
        )
        return
    where = show(path) if path else "a workspace without a folder"
    if rows:
        session.say(f"Imported {plural(len(rows), 'checkpoint')} of {one_line(bundle.folder)} into {where}:")
    for there, one in rows[:SHOWN]:
        if one is not None:
            session.say(f"  {title(one)}" + (f", was v{there}" if there != one.version else "") + f"  {one.id}")
    if len(rows) > SHOWN:
        session.say(f"  … and {len(rows) - SHOWN} more")
    if bundle.left_out:
        session.remark(f"Excluded when the file was exported: {plural(bundle.left_out, 'sealed content')}.")
    if done.skipped:
        session.say(f"Already in the store: {plural(len(done.skipped), 'checkpoint')}.")
    if rows and not path:
        session.remark("Run `keepfast fork` with one of these ids to create a folder from it.")
