"""`keepfast cat`: print a file from a checkpoint."""

from __future__ import annotations

import os
from base64 import b64encode
from itertools import islice

import click

from keepfast.cli.paths import candidates
from keepfast.cli.reference import REFERENCE
from keepfast.cli.session import Session, common, write_bytes, write_json
from keepfast.model.entry import FILE, FOLDER, LEFT_OUT, LINK, REASONS, Entry
from keepfast.model.errors import KeepfastError, NotFound, Usage
from keepfast.present.json_forms import of_entry, of_path
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.marker import show

MAX_COMPLETIONS = 200


def _paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete to files of the checkpoint below the current folder, whether they are on disk or not."""
    session = ctx.find_object(Session)
    if session is None:
        return []
    try:
        root, workspace = session.workspace()
        row = session.resolve(workspace, ctx.params["reference"])
        here = candidates(".", session.cwd, root)[0]
        start = here + b"/" if here else b""
        entries = session.repository.state(row.workspace, row.version)
        paths = (
            os.fsdecode(entry.path[len(start) :])
            for entry in entries
            if entry.kind in (FILE, LINK) and entry.path.startswith(start)
        )
        return list(islice((path for path in paths if path.startswith(incomplete)), MAX_COMPLETIONS))
    except (KeepfastError, OSError):
        return []


@click.command()
@click.argument("reference", metavar="REF", type=REFERENCE)
@click.argument("path", metavar="PATH", shell_complete=_paths)
@common
def cat(session: Session, reference: str, path: str) -> None:
    """Print the file PATH of checkpoint REF, unchanged.

    PATH is relative to the current folder, else to the root of the workspace. For a symbolic link, print its target.
    With --json the content is base64.
    """
    root, workspace = session.workspace()
    row = session.resolve(workspace, reference)
    entry = _find(session, root, row, path)
    if session.json:
        content = entry.content if entry.kind == LINK else session.repository.contents.load(entry.content)
        facts = of_entry(entry) or {}
        write_json(
            {
                "version": f"v{row.version}",
                **of_path(entry.path),
                **facts,
                "content_base64": b64encode(content).decode("ascii"),
            }
        )
    elif entry.kind == LINK:
        write_bytes(entry.content)
    else:
        for part in session.repository.contents.stream(entry.content):
            write_bytes(part)


def _find(session: Session, root: bytes, row: CheckpointRow, path: str) -> Entry:
    for name in candidates(path, session.cwd, root):
        entry = session.repository.at(row.workspace, row.version, name)
        if entry is None:
            continue
        if entry.kind == FOLDER:
            raise Usage(f"{show(name)} is a folder in v{row.version}.", "Give a file inside it.")
        if entry.kind in LEFT_OUT:
            raise NotFound(f"{show(name)} was excluded from v{row.version}: {REASONS[entry.kind]}.", "")
        return entry
    text = show(path.encode("utf-8", "surrogateescape"))
    raise NotFound(f"v{row.version} has no {text}.", f"Run `keepfast search {text}` to find versions that have it.")
