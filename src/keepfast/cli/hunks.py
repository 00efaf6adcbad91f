"""Choosing single hunks for `restore --patch`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from keepfast.app.inspect import compare as compare_states
from keepfast.app.restore import Restorer
from keepfast.cli.session import Session
from keepfast.model.entry import Entry
from keepfast.model.errors import Usage
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.diff import Hunk, apply, compare
from keepfast.workspace.marker import show

HELP = "y restore this hunk · n skip it · a restore it and the rest of the file · d skip the rest of the file · q quit"


def choose(
    session: Session, restorer: Restorer, target: CheckpointRow, paths: Sequence[bytes]
) -> dict[bytes, tuple[Entry, bytes]]:
    """Ask about every hunk between disk and target; return for each file its current entry and its new content."""
    if session.json or not sys.stdin.isatty():
        raise Usage("--patch asks about each hunk, but stdin is not a terminal.", "Name paths after `--` instead.")
    changes = compare_states(session.engine, restorer.root, restorer.row, target, None, paths)
    contents: dict[bytes, tuple[Entry, bytes]] = {}
    for change in changes:
        if change.old is None or change.new is None or change.old.kind != "f" or change.new.kind != "f":
            session.remark(f"{_show(change.path)}: not a change within a text file; restore it by its path.")
            continue
        now, then = change.new_content() or b"", change.old_content() or b""
        diff = compare(now, then)
        if diff.binary:
            session.remark(f"{_show(change.path)}: binary file; restore it by its path.")
            continue
        chosen, stopped = _ask(session, change.path, diff.hunks)
        if chosen:
            contents[change.path] = change.new, apply(now, diff.hunks, chosen)
        if stopped:
            break
    return contents


def _ask(session: Session, path: bytes, hunks: list[Hunk]) -> tuple[set[int], bool]:
    chosen: set[int] = set()
    for number, hunk in enumerate(hunks):
        session.print(session.paint("bold", _show(path)))
        session.print(
            session.paint("cyan", f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@")
        )
        for kind, line in hunk.lines:
            colour = {"+": "green", "-": "red"}.get(kind, "")
            text = kind + _show(line.rstrip(b"\n"))
            session.print(session.paint(colour, text) if colour else text)
        while True:
            answer = click.prompt(f"Restore hunk {number + 1} of {len(hunks)}? [y,n,a,d,q,?]", default="n", err=True)
            if answer in tuple("yn"):
                break
            if answer == "a":
                return chosen | set(range(number, len(hunks))), False
            if answer == "d":
                return chosen, False
            if answer == "q":
                return chosen, True
            session.warn(HELP)
        if answer == "y":
            chosen.add(number)
    return chosen, False


def _show(path: bytes) -> str:
    return show(path)
