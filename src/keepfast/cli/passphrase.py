"""Reads passphrases from a file or a prompt; never from the command line, which other users can read."""

from __future__ import annotations

import os
import sys

import click

from keepfast.cli.session import Session
from keepfast.model.errors import Failed, Usage

passphrase_option = click.option(
    "--passphrase-file",
    "source",
    metavar="FILE",
    default=None,
    help="Read the passphrase from the first line of FILE (default: ask).",
)


def passphrase(session: Session, file: str | None, *, new: bool = False) -> str:
    """Return the passphrase. Raises `Usage` if no file is given and stdin is not a terminal."""
    if file is not None:
        try:
            with open(os.path.join(os.fsdecode(session.cwd), file), encoding="utf-8") as opened:
                line = opened.readline(4096).rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise Failed(f"The passphrase cannot be read from {file}: {error}.") from None
        if not line:
            raise Usage(f"{file} has an empty first line.", "Put the passphrase on its first line.")
        return line
    if session.json or not sys.stdin.isatty():
        raise Usage("A passphrase is needed, but stdin is not a terminal.", "Give --passphrase-file FILE.")
    return str(click.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True))
