"""`keepfast pin`, `unpin` and `name`: protect checkpoints from retention, and name them."""

from __future__ import annotations

import click

from keepfast.cli.reference import REFERENCE
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Usage
from keepfast.present.json_forms import of_checkpoint
from keepfast.store import labels
from keepfast.store.references import checked_name


@click.command()
@click.argument("reference", metavar="REF", type=REFERENCE)
@common
def pin(session: Session, reference: str) -> None:
    """Pin the checkpoint REF: retention never forgets it."""
    _pin(session, reference, True)


@click.command()
@click.argument("reference", metavar="REF", type=REFERENCE)
@common
def unpin(session: Session, reference: str) -> None:
    """Unpin the checkpoint REF, so that retention can forget it."""
    _pin(session, reference, False)


@click.command()
@click.argument("reference", metavar="REF", type=REFERENCE)
@click.argument("text", metavar="[NAME]", required=False)
@click.option("--remove", is_flag=True, help="Remove the checkpoint's name.")
@common
def name(session: Session, reference: str, text: str | None, remove: bool) -> None:
    """Name the checkpoint REF. If several have the same name, it refers to the newest."""
    if (text is None) != remove:
        raise Usage("Give either a name or --remove.")
    row = session.resolve(session.workspace()[1], reference)
    new_name = checked_name(text) if text is not None else ""
    changed = labels.name(session.repository, row, new_name)
    if new_name:
        _answer(session, row.version, changed, f"v{row.version} is {'now' if changed else 'already'} named {new_name}.")
    else:
        _answer(session, row.version, changed, f"v{row.version} has no name {'any more' if changed else 'to remove'}.")


def _pin(session: Session, reference: str, pinned: bool) -> None:
    row = session.resolve(session.workspace()[1], reference)
    changed = labels.pin(session.repository, row, pinned)
    if pinned:
        text = f"Pinned v{row.version}." if changed else f"v{row.version} is already pinned."
    else:
        text = f"Unpinned v{row.version}." if changed else f"v{row.version} is not pinned."
    _answer(session, row.version, changed, text)


def _answer(session: Session, version: int, changed: bool, text: str) -> None:
    """Print the result: the checkpoint with --json, else a sentence."""
    if not session.json:
        session.say(text)
        return
    row = session.repository.checkpoint(session.workspace()[1].id, version)
    assert row is not None
    write_json({"changed": changed, "checkpoint": of_checkpoint(row)})
