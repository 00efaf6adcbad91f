"""`keepfast diff`: changes between two checkpoints, or between a checkpoint and the disk."""

from __future__ import annotations

import os
from typing import Any

import click

from keepfast.app.inspect import Change, compare, lies_below
from keepfast.cli.paths import candidates
from keepfast.cli.reference import REFERENCE
from keepfast.cli.session import Session, common, write_bytes, write_json
from keepfast.model.errors import Usage
from keepfast.present.json_forms import COLOURS as LETTER_COLOURS
from keepfast.present.json_forms import changed_line, of_change
from keepfast.present.patches import count_lines, patch, without_implied
from keepfast.present.terminal import plural
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.diff import Stat, stat_table
from keepfast.workspace.marker import show

COLOURS = {"header": "bold", "@@": "cyan", "+": "green", "-": "red", "remark": "dim"}
PATHS = "keepfast.paths"


class WithPaths(click.Command):
    """A command that takes the words after `--` as paths, and those before it as references."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[PATHS] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command(cls=WithPaths, options_metavar="[OPTIONS]")
@click.argument("references", metavar="[A] [B] [-- PATH...]", type=REFERENCE, nargs=-1)
@click.option("--stat", is_flag=True, help="Print changed lines per file instead of the patch.")
@click.option(
    "--name-only",
    is_flag=True,
    help="Print only file names, each with a letter: A (added), D (deleted), M (modified) or T (type changed).",
)
@common
def diff(session: Session, references: tuple[str, ...], stat: bool, name_only: bool) -> None:
    """Show the changes from checkpoint A to checkpoint B.

    Without B, compare with the files on disk. Without A, compare with the checkpoint last saved or restored. `git
    apply` accepts the patch.
    """
    if len(references) > 2:
        raise Usage("More than two references given.", "Put paths after `--`: keepfast diff v1 v2 -- src")
    root, workspace = session.workspace()
    typed: list[str] = click.get_current_context().meta.get(PATHS, [])
    paths = [candidates(path, session.cwd, root)[0] for path in typed]
    old = session.resolve(workspace, references[0] if references else "@")
    new = session.resolve(workspace, references[1]) if len(references) == 2 else None
    with session.progress("Looking") as progress:
        session.engine.progress = progress
        changes = compare(session.engine, root, workspace, old, new, paths)
    for name, path in zip(typed, paths, strict=True):
        if not any(lies_below(change.path, [path]) for change in changes):
            _tell_unknown(session, root, name, path, [row for row in (old, new) if row is not None])
    if session.json:
        _as_json(changes, old, new, with_lines=not name_only)
    elif name_only:
        _names(session, without_implied(changes))
    elif stat:
        _table(session, changes)
    else:
        for change in without_implied(changes):
            _patch(session, change)


def _tell_unknown(session: Session, root: bytes, name: str, path: bytes, versions: list[CheckpointRow]) -> None:
    """Print a remark if a path without changes exists on neither side: it may be relative to another folder."""
    if not path or any(session.repository.at(row.workspace, row.version, path) is not None for row in versions):
        return
    if len(versions) == 1 and os.path.lexists(os.path.join(root, path)):
        return
    states = " nor ".join([f"in v{row.version}" for row in versions] + ["here"] * (len(versions) == 1))
    session.remark(f"{name} is neither {states}. Paths are relative to the current folder; this one is {show(path)}.")


def _names(session: Session, changes: list[Change]) -> None:
    for change in changes:
        letter, text = changed_line(change)
        session.print(f"{session.paint(LETTER_COLOURS[letter], letter)}  {text}")


def _table(session: Session, changes: list[Change]) -> None:
    stats = [stat for stat in (_stat_of(change) for change in changes) if stat is not None]
    for label, added, removed in stat_table(stats, session.paint.columns or 80):
        session.print(label + session.paint("green", added) + session.paint("red", removed))
    if stats:
        lines = f"{sum(stat.added for stat in stats):,} added, {sum(stat.removed for stat in stats):,} removed"
        session.print(f" {plural(len(stats), 'file')} changed, lines: {lines}")


def _stat_of(change: Change) -> Stat | None:
    file_diff = count_lines(change)
    if file_diff is None:
        return None
    sizes = (change.old.size if change.old else 0, change.new.size if change.new else 0)
    return Stat(change.path, file_diff.added, file_diff.removed, sizes if file_diff.binary else None)


def _patch(session: Session, change: Change) -> None:
    for kind, line in patch(change):
        _write(session, COLOURS.get(kind, ""), line)


def _write(session: Session, style: str, line: bytes) -> None:
    if session.paint.columns is not None or session.paint.enabled:
        # A terminal would obey control characters in files; show them as escapes.
        line = b"\t".join([show(part).encode("utf-8", "backslashreplace") for part in line.rstrip(b"\r").split(b"\t")])
    if session.paint.enabled and style:
        start, _, end = session.paint(style, "\0").partition("\0")
        line = start.encode("ascii") + line + end.encode("ascii")
    write_bytes(line + b"\n")


def _as_json(changes: list[Change], old: CheckpointRow, new: CheckpointRow | None, with_lines: bool) -> None:
    listed: list[dict[str, Any]] = []
    for change in changes:
        facts = of_change(change)
        file_diff = count_lines(change) if with_lines else None
        if file_diff is not None:
            facts.update(
                {"binary": file_diff.binary, "lines_added": file_diff.added, "lines_removed": file_diff.removed}
            )
        listed.append(facts)
    write_json({"old": f"v{old.version}", "new": f"v{new.version}" if new is not None else None, "changes": listed})
