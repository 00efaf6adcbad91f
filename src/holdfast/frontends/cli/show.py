"""`holdfast show`: one checkpoint, as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.core.entry import (
    ATTRIBUTES,
    BY_IGNORE,
    BY_MARKER,
    BY_NAME,
    EXCLUDED,
    LEFT_OUT,
    REASONS,
    SEALED,
    UNREADABLE,
    UNSTEADY,
)
from holdfast.frontends.cli.reference import REFERENCE
from holdfast.frontends.cli.session import Session, common, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.entry import Entry
    from holdfast.looking import Change
    from holdfast.store.rows import CheckpointRow

SHOWN = 40
TOLD = ("agent", "summary", "tokens_used", "token_budget", "active_files", "key_points", "notes")
"""What only checkpoints made for an agent say."""
WHY_EXCLUDED = {
    BY_NAME: "excluded by its name",
    BY_IGNORE: "ignored, and large or made again",
    BY_MARKER: "marked as a cache",
}


@click.command()
@click.argument("reference", metavar="[REF]", type=REFERENCE, default="latest")
@click.option(
    "--left-out", "all_left_out", is_flag=True, help="Name everything that was left out, not only what is new."
)
@click.option("--all", "everything", is_flag=True, help="Name every changed path.")
@common
def show(session: Session, reference: str, all_left_out: bool, everything: bool) -> None:
    """Show a checkpoint, by default the newest: why it was made, what changed, what was left out."""
    from holdfast.looking import Coverage, compare
    from holdfast.store.rows import Query

    root, workspace = session.workspace()
    row = session.resolve(workspace, reference)
    header, own = session.repository.document(row)
    before = session.repository.ledger.find(Query(workspace=workspace.id, before=row.version, limit=1))
    changes = compare(session.engine, root, workspace, before[0] if before else None, row)
    entries: Iterable[Entry] = session.repository.ledger.state(workspace.id, row.version) if all_left_out else own
    odd = [entry for entry in entries if entry.kind in LEFT_OUT or _losses(entry)]
    coverage = Coverage(header["counts"])
    if session.json:
        from holdfast.frontends.facts import of_change, of_checkpoint, of_coverage

        write_json(
            {
                **of_checkpoint(row),
                **_of_work(session, row, header, root),
                "stored": row.added,
                "cwd": header.get("cwd", ""),
                "git": header.get("git"),
                "tool": header.get("tool"),
                "tree": row.tree,
                "previous": f"v{before[0].version}" if before else None,
                "coverage": of_coverage(coverage),
                "changes": [of_change(change) for change in changes],
                "left_out": [_odd_as_json(entry) for entry in odd],
                "notices": header.get("notices", []),
                **{key: header[key] for key in TOLD if key in header},
                "conversation": _conversation(header),
            }
        )
        return
    _print_head(session, row, header)
    _print_changes(session, changes, before, everything)
    _print_odd(session, coverage, odd, all_left_out)


def _of_work(session: Session, row: CheckpointRow, header: dict[str, Any], root: bytes) -> dict[str, Any]:
    """What the checkpoint tells of the agent's work, by the sources' names (docs/format/checkpoint.md)."""
    from holdfast.describing import state
    from holdfast.frontends.paint import rfc3339
    from holdfast.workspace.find import show as show_path

    found = state(session.repository, row, header, show_path(root), session.settings)
    for file in found.document["files"].values() if found.document is not None else ():
        file["last_modified"] = rfc3339(file["last_modified"])
    told = {
        "summary": header.get("summary") or row.message.split("\n")[0][:80],
        "description": row.message.partition("\n")[2].strip(),
        **{key: header.get(key) for key in ("agent", "tokens_used", "token_budget")},
        **{key: header.get(key) or [] for key in ("active_files", "key_points")},
        "state_left_out": found.left_out,
    }
    return {**told, "state": found.document} if found.document is not None else told


def _print_head(session: Session, row: CheckpointRow, header: dict[str, Any]) -> None:
    from holdfast.frontends.facts import kept, title
    from holdfast.frontends.paint import age_in_words, local, printable, size
    from holdfast.looking import Coverage

    session.print(session.paint("bold", title(row)))
    for line in row.message.splitlines()[1:]:
        session.print("  " + printable(line))
    git = header.get("git")
    facts = [
        ("id", row.id),
        ("name", row.name),
        ("tags", ", ".join(row.tags.split("\n"))),
        ("pinned", "yes" if row.pinned else ""),
        ("made", f"{local(row.created_at)}, {age_in_words(row.created_at, session.now())}"),
        ("why", f"{row.trigger}, by {row.created_by}"),
        ("session", row.session),
        ("task", row.task),
        ("folder", printable(header.get("cwd") or "")),
        ("git", _git(git) if git else ""),
        ("agent", header.get("agent") or ""),
        ("tokens", _tokens(header)),
        ("talk", _talk(header)),
        ("kept", kept(Coverage(header["counts"]))),
        ("stored", f"{size(row.added)} for what was new"),
    ]
    for name, value in facts:
        if value:
            session.print(f"{name:<8} {value}")
    for notice in header.get("notices", []):
        session.print(f"{'notice':<8} {printable(notice)}")


def _print_changes(session: Session, changes: list[Change], before: list[CheckpointRow], everything: bool) -> None:
    from holdfast.frontends.facts import COLOURS, changed_line
    from holdfast.frontends.paint import plural

    since = f" since v{before[0].version}" if before else ""
    session.print()
    session.print(f"{plural(len(changes), 'change')}{since}{':' if changes else '.'}")
    for change in changes if everything else changes[:SHOWN]:
        letter, text = changed_line(change)
        session.print(f"  {session.paint(COLOURS[letter], letter)}  {text}")
    if len(changes) > SHOWN and not everything:
        session.print(f"  … and {len(changes) - SHOWN:,} more; `--all` shows them.")


def _print_odd(session: Session, coverage: Any, odd: list[Entry], all_left_out: bool) -> None:
    from holdfast.frontends.facts import left_out
    from holdfast.workspace.find import show as show_path

    if not coverage.left_out and not odd:
        return
    session.print()
    if coverage.left_out:
        session.print(f"Left out: {left_out(coverage)}.")
    for entry in odd if all_left_out else odd[:SHOWN]:
        session.print(f"  {show_path(entry.path)}: {_why(entry)}")
    named = sum(entry.kind in LEFT_OUT for entry in odd[:SHOWN])
    if not all_left_out and named < sum(coverage.left_out.values()):
        session.print("  `holdfast show --left-out` names all of them.")


def _conversation(header: dict[str, Any]) -> dict[str, Any] | None:
    from holdfast.store.conversations import checked

    told = checked(header.get("conversation"))
    return {key: told.get(key) for key in ("agent", "session", "bytes", "last")} if told is not None else None


def _talk(header: dict[str, Any]) -> str:
    from holdfast.frontends.paint import size

    told = _conversation(header)
    return f"{size(told['bytes'])}, sealed; `holdfast restore --both` goes back to it" if told is not None else ""


def _tokens(header: dict[str, Any]) -> str:
    used, budget = header.get("tokens_used"), header.get("token_budget")
    return f"{used:,} of {budget:,}" if isinstance(used, int) and isinstance(budget, int) else ""


def _git(git: dict[str, Any]) -> str:
    where = git.get("branch") or "detached"
    commit = f" at {git['commit'][:12]}" if git.get("commit") else ", no commit yet"
    return f"{where}{commit}" + (f", {git['in_progress']} in progress" if git.get("in_progress") else "")


def _why(entry: Entry) -> str:
    if entry.kind == UNREADABLE and entry.flags & SEALED:
        return "sealed, and left out of a bundle"
    if entry.kind == EXCLUDED:
        return WHY_EXCLUDED.get(entry.flags & BY_MARKER, REASONS[EXCLUDED])
    return REASONS[entry.kind] if entry.kind in REASONS else ", ".join(_losses(entry))


def _losses(entry: Entry) -> list[str]:
    """What could not be kept of something that was."""
    losses = []
    if entry.flags & UNSTEADY and entry.kind not in LEFT_OUT:
        losses.append("changed while it was read")
    if entry.flags & ATTRIBUTES and b'"xattr_lost"' in entry.extra:
        losses.append("extended attributes too large, lost")
    return losses


def _odd_as_json(entry: Entry) -> dict[str, Any]:
    from holdfast.frontends.facts import KINDS, of_path

    return {**of_path(entry.path), "kind": KINDS[entry.kind], "reason": _why(entry), "size": entry.size}
