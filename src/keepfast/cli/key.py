"""`keepfast key`: show, back up, import and rotate the encryption key."""

from __future__ import annotations

import os
from typing import Any

import click

from keepfast.cli.lazy import OrderedGroup
from keepfast.cli.passphrase import passphrase, passphrase_option
from keepfast.cli.session import Session, common, write_json
from keepfast.fsutil.durable import replace
from keepfast.model.errors import Conflict, Damaged, Failed, NotFound
from keepfast.model.strict_json import dumps, loads
from keepfast.present.terminal import plural
from keepfast.store.bundle import Bundle
from keepfast.store.key_use import count_key_use
from keepfast.store.sealed import Sealer


@click.group(cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def key(ctx: click.Context) -> None:
    """Manage the key that decrypts sealed contents: conversations and secret files."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(show)


@key.command()
@common
def show(session: Session) -> None:
    """Show where the key is, and whether it can decrypt everything."""
    sealer = session.repository.contents.sealer()
    sets = count_key_use(session.repository)
    problem = sealer.keys.problem()
    backed_up = sealer.keys.is_backed_up()
    if session.json:
        write_json(
            {
                "folder": sealer.keys.folder,
                "key_file": sealer.keys.key_in_use() or None,
                "key_files": [{"file": file, "sets": ids} for file, ids in sealer.keys.key_files().items()],
                "in_use": sealer.keys.is_in_use(),
                "sets": [
                    {"id": key_set.id, "opens": key_set.opens, "seals": key_set.seals, "contents": key_set.contents}
                    for key_set in sets
                ],
                "backed_up": backed_up,
                "problem": problem or None,
            }
        )
        return
    session.print(f"key     {sealer.keys.key_in_use() or sealer.keys.folder}")
    if not sets:
        session.print("Nothing is sealed yet; the key is created with the first secret file or conversation.")
    for key_set in sets:
        state = "can be decrypted" if key_set.opens else "cannot be decrypted: its key is missing"
        state += ", used for new contents" if key_set.seals else ""
        session.print(f"set     {key_set.id}  {plural(key_set.contents, 'content')}, {state}")
    if problem:
        session.warn(f"{problem}; `keepfast verify --repair` restores it from the copy next to the key.")
    if sets and not backed_up:
        session.remark(
            "No backup: if this file is lost, sealed contents are lost.\nTo make a backup, run `keepfast "
            "key export FILE`"
        )


@key.command("export")
@click.argument("file", metavar="FILE")
@passphrase_option
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@common
def export(session: Session, file: str, source: str | None, force: bool) -> None:
    """Write a backup of all available keys to FILE, encrypted by a passphrase."""
    sealer = session.repository.contents.sealer()
    path = os.path.join(os.fsdecode(session.cwd), file)
    if os.path.lexists(path) and not force:
        raise Conflict(f"{file} already exists.", "Give another name, or --force to overwrite it.")
    backup = sealer.keys.backup(passphrase(session, source, new=True))
    try:
        replace(path, dumps(backup).encode("ascii") + b"\n")
        sealer.keys.note_backup()
    except OSError as error:
        raise Failed(f"{file} cannot be written: {error.strerror}.") from None
    if session.json:
        write_json({"file": path, "sets": len([key_set for key_set, opens in sealer.keys.sets() if opens])})
    session.say(
        f"Wrote a backup of the keys to {file}. Store it on another machine or disk, and its passphrase in a "
        "different place."
    )


@key.command("import")
@click.argument("file", metavar="FILE")
@passphrase_option
@common
def import_(session: Session, file: str, source: str | None) -> None:
    """Import the keys in FILE: a key backup, or a bundle exported with --with-secrets."""
    backup = _backup_in(os.path.join(os.fsdecode(session.cwd), file))
    new = session.repository.contents.sealer().keys.import_backup(backup, passphrase(session, source))
    if session.json:
        write_json({"new": new})
    session.say(
        (f"Imported {new} key set{'' if new == 1 else 's'}.") if new else "All of these keys are already present."
    )


@key.command()
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@common
def rotate(session: Session, yes: bool, dry_run: bool) -> None:
    """Replace the key file, and seal new contents with new keys.

    The new key decrypts everything. Contents sealed before are not changed: an old key file with the old store, or an
    old backup, still decrypts them, but nothing sealed from now on.
    """
    sealer = session.repository.contents.sealer()
    if dry_run:
        _show_rotation(session, sealer)
        return
    if not session.confirm("Replace the key? Copies of the old key cannot decrypt anything sealed from now on.", yes):
        return
    new_set = sealer.keys.rotate()
    closed = [key_set for key_set, opens in sealer.keys.sets() if not opens]
    if session.json:
        write_json({"key_file": sealer.keys.key_in_use(), "set": new_set, "closed_sets": closed, "dry_run": False})
    session.say(f"{sealer.keys.key_in_use()} is a new key; new contents are sealed with the key set {new_set}.")
    session.remark("Older backups cannot decrypt them. To make a new backup, run `keepfast key export FILE`")
    _warn_of_others(session, closed)


def _show_rotation(session: Session, sealer: Sealer) -> None:
    """Show what a rotation would do. Raises `Failed` if there is no key, as a rotation does."""
    sealer.keys.require_key()
    opened = [key_set for key_set, opens in sealer.keys.sets() if opens]
    closed = [key_set for key_set, opens in sealer.keys.sets() if not opens]
    if session.json:
        write_json({"key_file": sealer.keys.key_in_use(), "set": None, "closed_sets": closed, "dry_run": True})
        return
    session.print(f"Would replace the key {sealer.keys.key_in_use()}, and seal new contents with a new key set.")
    session.print(
        f"The new key would open the same {plural(len(opened), 'key set')} as the old one; contents do not change."
    )
    session.print("Copies and backups of the old key could not decrypt anything sealed from then on.")
    _warn_of_others(session, closed)


def _warn_of_others(session: Session, closed: list[str]) -> None:
    if closed:
        session.warn(
            f"{plural(len(closed), 'key set')} of this store {'is' if len(closed) == 1 else 'are'} another "
            "user's, whose keys cannot decrypt what you seal from now on; that user can run `keepfast key "
            "import` with your new backup."
        )


def _backup_in(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            data = file.read(1 << 20)
    except FileNotFoundError:
        raise NotFound(f"File {path} not found.", "Give the path of a key backup.") from None
    except OSError as error:
        raise Failed(f"{path} cannot be read: {error.strerror}.") from None
    if data.startswith(b"HFBUND"):
        bundle = Bundle(path)
        bundle.close()
        if bundle.keys is None:
            raise NotFound(f"{path} was exported without its secrets.", "Export it again with `--with-secrets`.")
        return bundle.keys
    try:
        return loads(data)
    except ValueError:
        raise Damaged(f"{path} is not a key backup, or it is damaged.", "Use another copy of the file.") from None
