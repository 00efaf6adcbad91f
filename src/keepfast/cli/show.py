"""`keepfast show`: one checkpoint, as a page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from keepfast.app.inspect import Change, Coverage, as_compared, compare, not_covered
from keepfast.app.state_document import state, too_large
from keepfast.cli.reference import REFERENCE
from keepfast.cli.session import Session, common, write_json
from keepfast.model.document import Git, Header
from keepfast.model.entry import ATTRIBUTES, LEFT_OUT, UNSTEADY, Entry, why
from keepfast.present.json_forms import (
    COLOURS,
    KINDS,
    changed_line,
    counted_from,
    excluded_counts,
    git_folders,
    of_change,
    of_checkpoint,
    of_coverage,
    of_path,
    of_state,
    of_work,
    saved_counts,
    title,
)
from keepfast.present.terminal import age_in_words, local, plural, printable, size
from keepfast.store.bases import previous_version
from keepfast.store.conversations import conversation_from_json
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.marker import show as show_path

MAX_SHOWN = 40
AGENT_MEMBERS = (
    "agent", "summary", "command", "tool_call", "tokens_used", "token_budget", "active_files", "key_points", "notes",
)  # fmt: skip
"""Members of a document that only checkpoints of agents' sessions have."""


@click.command()
@click.argument("reference", metavar="[REF]", type=REFERENCE, default="latest")
@click.option("--excluded", "all_left_out", is_flag=True, help="List only the excluded paths.")
@click.option("--left-out", "former_option", is_flag=True, hidden=True)
@click.option("--all", "everything", is_flag=True, help="List every changed path.")
@common
def show(session: Session, reference: str, all_left_out: bool, former_option: bool, everything: bool) -> None:
    """Show a checkpoint (default: the newest): trigger, changes, and excluded paths."""
    all_left_out = all_left_out or former_option
    root, workspace = session.workspace()
    row = session.resolve(workspace, reference)
    header, own = session.repository.document(row)
    before = previous_version(session.repository, row)
    (row,) = as_compared(session.repository, [row])
    changes = compare(session.engine, root, workspace, before, row)
    entries: Iterable[Entry] = session.repository.state(workspace.id, row.version) if all_left_out else own
    notable_entries = [entry for entry in entries if entry.kind in LEFT_OUT or _losses(entry)]
    git = not_covered(session.repository, row)
    coverage = Coverage(header.counts)
    if session.json:
        if all_left_out:
            facts = {
                "coverage": of_coverage(coverage),
                "left_out": [_entry_as_json(entry) for entry in notable_entries],
            }
            write_json({"version": f"v{row.version}", **facts, "not_covered": [of_path(path) for path in git]})
            return
        write_json(
            {
                **of_checkpoint(row),
                **_of_work(session, row, header, root),
                "stored": row.added,
                "cwd": header.cwd,
                "git": header.members.get("git"),
                "tool": header.members.get("tool"),
                "tree": row.tree,
                "previous": f"v{before.version}" if before is not None else None,
                "coverage": of_coverage(coverage),
                "changes": [of_change(change) for change in changes],
                "left_out": [_entry_as_json(entry) for entry in notable_entries],
                "not_covered": [of_path(path) for path in git],
                "notices": _notices(session, row, header, root),
                **{key: header.members[key] for key in AGENT_MEMBERS if key in header.members},
                "conversation": _conversation(header),
            }
        )
        return
    if all_left_out:
        _print_excluded(session, coverage, notable_entries, all_left_out)
        return
    _print_head(session, row, header, git, _notices(session, row, header, root))
    _print_changes(session, row, changes, before, everything)
    if coverage.left_out or notable_entries:
        session.print()
    _print_excluded(session, coverage, notable_entries, all_left_out)


def _of_work(session: Session, row: CheckpointRow, header: Header, root: bytes) -> dict[str, Any]:
    """Return the JSON form of the agent's work in the checkpoint, with its state document."""
    described = state(session.repository, row, header, show_path(root), session.settings)
    work = {**of_work(row, header), "state_left_out": described.left_out}
    return {**work, "state": of_state(described.document)} if described.document is not None else work


def _notices(session: Session, row: CheckpointRow, header: Header, root: bytes) -> list[str]:
    """Return the notices stored with the checkpoint, and those about files too large for its state document now."""
    large = too_large(session.repository, row, header, show_path(root), session.settings)
    return [*header.notices, *large]


def _print_head(session: Session, row: CheckpointRow, header: Header, git: list[bytes], notices: list[str]) -> None:
    session.print(session.paint("bold", title(row)))
    for line in row.message.splitlines()[1:]:
        session.print("  " + printable(line))
    facts = [
        ("id", row.id),
        ("name", row.name),
        ("tags", ", ".join(row.tags.split("\n"))),
        ("pinned", "yes" if row.pinned else ""),
        ("created", f"{local(row.created_at)}, {age_in_words(row.created_at, session.now())}"),
        ("trigger", f"{row.trigger}, by {row.created_by}"),
        ("command", printable(" ".join(header.command.split()))),
        ("prompt", printable(str(header.tool_call.get("prompt", "")))),
        ("session", row.session),
        ("task", row.task),
        ("folder", header.cwd),
        ("git", _git(header.git) if header.git is not None else ""),
        ("agent", header.agent),
        ("tokens", _tokens(header)),
        ("conversation", _conversation_line(header)),
        ("saved", saved_counts(Coverage(header.counts))),
        ("not saved", git_folders(git)),
        ("stored", f"{size(row.added)} of new contents"),
    ]
    for name, value in facts:
        if value:
            session.print(f"{name:<12} {value}")
    for notice in notices:
        session.print(f"{'notice':<12} {printable(notice)}")


def _print_changes(
    session: Session, row: CheckpointRow, changes: list[Change], before: CheckpointRow | None, everything: bool
) -> None:
    since = f" since v{before.version}" if before is not None else " against an empty folder" if row.version > 1 else ""
    after = counted_from(row, before, len(changes))
    session.print()
    if after:
        session.print(f"{plural(row.changed, 'change')} since v{after}, the version directly before.")
    session.print(f"{plural(len(changes), 'change')}{since}{':' if changes else '.'}")
    for change in changes if everything else changes[:MAX_SHOWN]:
        letter, text = changed_line(change)
        session.print(f"  {session.paint(COLOURS[letter], letter)}  {text}")
    if len(changes) > MAX_SHOWN and not everything:
        session.print(f"  … and {len(changes) - MAX_SHOWN:,} more; `--all` shows them.")


def _print_excluded(session: Session, coverage: Coverage, notable_entries: list[Entry], all_left_out: bool) -> None:
    if not coverage.left_out and not notable_entries:
        if all_left_out:
            session.print("Nothing was excluded.")
        return
    if coverage.left_out:
        session.print(f"Excluded: {excluded_counts(coverage)}.")
    for entry in notable_entries if all_left_out else notable_entries[:MAX_SHOWN]:
        session.print(f"  {show_path(entry.path)}: {_why(entry)}")
    named = sum(entry.kind in LEFT_OUT for entry in notable_entries[:MAX_SHOWN])
    if not all_left_out and named < sum(coverage.left_out.values()):
        session.print("  Run `keepfast show --excluded` to list all of them.")


def _conversation(header: Header) -> dict[str, Any] | None:
    conversation = conversation_from_json(header.conversation)
    if conversation is None:
        return None
    return {
        "agent": conversation.agent,
        "session": conversation.session,
        "bytes": conversation.transcript.size,
        "last": conversation.last,
    }


def _conversation_line(header: Header) -> str:
    conversation = conversation_from_json(header.conversation)
    if conversation is None:
        return ""
    return f"{size(conversation.transcript.size)}, sealed; `keepfast restore --both` restores it"


def _tokens(header: Header) -> str:
    return f"{header.tokens_used:,} of {header.token_budget:,}" if header.tokens_used and header.token_budget else ""


def _git(git: Git) -> str:
    commit = f" at {git.commit[:12]}" if git.commit else ", no commit yet"
    return f"{git.branch or 'detached'}{commit}" + (f", {git.in_progress} in progress" if git.in_progress else "")


def _why(entry: Entry) -> str:
    return why(entry) if entry.kind in LEFT_OUT else ", ".join(_losses(entry))


def _losses(entry: Entry) -> list[str]:
    """Return what is incomplete about a saved file."""
    losses = []
    if entry.flags & UNSTEADY and entry.kind not in LEFT_OUT:
        losses.append("changed while it was read")
    if entry.flags & ATTRIBUTES and b'"xattr_lost"' in entry.extra:
        losses.append("extended attributes too large, not saved")
    return losses


def _entry_as_json(entry: Entry) -> dict[str, Any]:
    return {**of_path(entry.path), "kind": KINDS[entry.kind], "reason": _why(entry), "size": entry.size}
