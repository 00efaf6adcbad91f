"""`keepfast forget` and `keepfast compact`: forget checkpoints, and free their space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from keepfast.cli.reference import REFERENCE
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Busy, Conflict, Failed, KeepfastError, NotCompacted, Usage

if TYPE_CHECKING:
    from keepfast.store.maintenance.space import Compaction
    from keepfast.store.rows import CheckpointRow

NOTHING_LEFT = "the remaining checkpoints are pinned, named, manual or the newest"
MAX_SHOWN = 20
LEFT_BYTES_WORTH_REPORTING = 64 << 10
"""Unneeded bytes left in packs are reported from this size on; a few documents always remain."""


@click.command()
@click.argument("references", metavar="[REF]...", type=REFERENCE, nargs=-1)
@click.option("--policy", is_flag=True, help="Apply the retention policy (default if no REF is given).")
@click.option(
    "--keep-size",
    default=None,
    metavar="SIZE",
    help="Forget automatic checkpoints until the store fits in SIZE (default: retention.max_size).",
)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be forgotten, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@common
def forget(
    session: Session, references: tuple[str, ...], policy: bool, keep_size: str | None, dry_run: bool, yes: bool
) -> int:
    """Forget the checkpoints REF, or those that the retention policy selects, and free their space.

    The policy keeps checkpoints that are pinned, named or manual, those made before a destructive command in the last
    day, the newest automatic ones of each session, then one per hour, then one per day. If the store is still larger
    than retention.max_size, the oldest automatic checkpoints of all workspaces are forgotten.
    """
    if references and (policy or keep_size is not None):
        raise Usage("References and policy options cannot be combined.")
    _, workspace = session.workspace()
    max_bytes = _size_limit(session, keep_size)
    chosen = _by_reference(session, references) if references else _by_policy(session, workspace.id)
    contents = _unneeded(session, workspace.id, chosen)
    staying = _unneeded(session, workspace.id, chosen, with_newest=True) - contents
    lost, talk = _conversations(session, workspace.id, chosen)
    freed = contents + talk
    over, thinnable = (0, []) if references else _over_size(session, chosen, max_bytes)
    if dry_run:
        _dry_run(session, chosen, thinnable, over, max_bytes, freed, staying, lost)
        return 0
    if chosen:
        _print_chosen(session, chosen, "Forgetting" if yes else "Would forget")
        _warn_of_conversations(session, lost)
    _confirm(session, chosen, thinnable, over, max_bytes, yes)
    from keepfast.store.maintenance.space import forget as forget_versions

    reason = "asked" if references else "policy"
    versions, folder = [row.version for row in chosen], session.engine.place.path
    if chosen:
        forget_versions(session.repository, workspace.id, versions, reason, folder)
    failures: list[NotCompacted] = []
    compaction = _compact_after_forgetting(session, failures) if chosen else None
    thinned = [] if references or failures else _forget_for_size(session, max_bytes, failures)
    failed = failures[0] if failures else None
    _print_result(session, chosen, thinned, freed, compaction, max_bytes, staying, failed, lost)
    return _exit_code(session, failed)


@click.command()
@click.option(
    "--everything", is_flag=True, help="Rewrite every pack with unneeded data, even if little space is freed."
)
@common
def compact(session: Session, everything: bool) -> None:
    """Free the space of data that no checkpoint needs, and merge small packs."""
    from keepfast.present.terminal import plural, size

    compaction = _compact(session, everything, must=True)
    assert compaction is not None
    if session.json:
        write_json(_compaction(compaction))
        return
    if compaction.packs_before == compaction.packs_after and not compaction.given_back:
        session.say("Nothing to compact.")
    else:
        session.say(
            f"Compacted {plural(compaction.packs_before, 'pack')} ({size(compaction.bytes_before)}) to"
            f" {plural(compaction.packs_after, 'pack')} ({size(compaction.bytes_after)}): "
            + (f"freed {size(compaction.given_back)}." if compaction.given_back else "no space freed.")
        )
    _name_left(session, compaction)


def _by_reference(session: Session, references: tuple[str, ...]) -> list[CheckpointRow]:
    _, workspace = session.workspace()
    rows = {row.version: row for row in [session.resolve(workspace, text) for text in references]}
    for row in rows.values():
        if row.pinned:
            raise Conflict(f"v{row.version} is pinned.", f"Run `keepfast unpin v{row.version}` first.")
    return [rows[version] for version in sorted(rows)]


def _by_policy(session: Session, workspace: str) -> list[CheckpointRow]:
    from keepfast.app.tidy import by_policy

    return by_policy(session.engine, workspace, session.now())


def _unneeded(session: Session, workspace: str, chosen: list[CheckpointRow], with_newest: bool = False) -> int:
    from keepfast.store.maintenance.space import bytes_freed_by

    return bytes_freed_by(session.repository, workspace, [row.version for row in chosen], with_newest)


def _conversations(session: Session, workspace: str, chosen: list[CheckpointRow]) -> tuple[dict[str, int], int]:
    """Return the sessions whose conversation is in no other checkpoint, and the bytes of conversations that are freed."""
    from keepfast.store.maintenance.space import conversation_bytes_freed_by, conversations_lost_by

    versions = [row.version for row in chosen]
    if not versions:
        return {}, 0
    repository = session.repository
    lost = conversations_lost_by(repository, workspace, versions)
    return lost, conversation_bytes_freed_by(repository, workspace, versions)


def _warn_of_conversations(session: Session, lost: dict[str, int]) -> None:
    """Name conversations that no other checkpoint has."""
    if session.json:
        return
    for name, version in list(lost.items())[:MAX_SHOWN]:
        session.warn(f"No other checkpoint has the conversation of session {name}; v{version} is the last with it.")
    if len(lost) > MAX_SHOWN:
        session.warn(f"… and {len(lost) - MAX_SHOWN:,} more conversations.")


def _forget_for_size(session: Session, max_bytes: int, failures: list[NotCompacted]) -> list[CheckpointRow]:
    from keepfast.app.tidy import thin

    give_back = lambda: _compact_after_forgetting(session, failures) is not None  # noqa: E731
    return thin(session.repository, session.engine.place.path, max_bytes, give_back)


def _compact_after_forgetting(session: Session, failures: list[NotCompacted]) -> Compaction | None:
    """Compact after forgetting; an error is added to `failures`, because the checkpoints are forgotten anyway."""
    try:
        return _compact(session)
    except KeepfastError as error:
        failures.append(NotCompacted(f"Forgotten, but not compacted: {error}", error.hint or None))
        return None


def _compact(session: Session, everything: bool = False, must: bool = False) -> Compaction | None:
    """Compact the store. Return None if another process compacts or mounts it; with `must`, raise `Busy`."""
    from keepfast.store.maintenance.space import compact as give_back

    with session.progress("Compacting") as progress:
        try:
            return give_back(session.repository, session.engine.place.path, everything=everything, progress=progress)
        except Busy as busy:
            if must:
                raise
            session.remark(f"{busy} Run `keepfast compact` later to free the space.")
            return None


def _size_limit(session: Session, keep_size: str | None) -> int:
    if keep_size is None:
        max_bytes: int = session.settings["retention.max_size"]
        return max_bytes
    from keepfast.model.setting_values import size

    limit = size(keep_size)
    if limit is None:
        raise Usage(f"--keep-size {keep_size!r} is not a size.", "Give a size such as 5GB.")
    return limit


def _over_size(session: Session, chosen: list[CheckpointRow], max_bytes: int) -> tuple[int, list[CheckpointRow]]:
    """Return by how many bytes the store is over the limit, and which others the limit may remove, oldest first."""
    from keepfast.app.tidy import thinnable
    from keepfast.store.maintenance.space import store_size

    over = max(0, store_size(session.repository) - max_bytes)
    if not over:
        return 0, []
    versions = {(row.workspace, row.version) for row in chosen}
    rows = thinnable(session.repository, session.engine.place.path)
    return over, [row for row in rows if (row.workspace, row.version) not in versions]


def _thinning(rows: list[CheckpointRow], over: int, max_bytes: int) -> str:
    from keepfast.present.terminal import plural, size

    return (
        f"The store is {size(over)} over {size(max_bytes)}: up to {plural(len(rows), 'automatic checkpoint')} of all"
        " workspaces, the oldest first, until it fits."
    )


def _confirm(
    session: Session, chosen: list[CheckpointRow], thinnable: list[CheckpointRow], over: int, max_bytes: int, yes: bool
) -> None:
    """Ask before anything is forgotten. Raises `Failed` if the answer is no."""
    if thinnable and not session.json:
        session.print(_thinning(thinnable, over, max_bytes))
    if (chosen or thinnable) and not session.confirm(_question(len(chosen), len(thinnable)), yes):
        raise Failed("Nothing was forgotten.")


def _question(chosen: int, thinnable: int) -> str:
    if not chosen:
        return "Forget as many as needed? This cannot be undone."
    count = f"{chosen:,} checkpoints" if chosen > 1 else "it"
    return f"Forget {count}{', and as many more as needed' if thinnable else ''}? This cannot be undone."


def _dry_run(
    session: Session,
    chosen: list[CheckpointRow],
    thinnable: list[CheckpointRow],
    over: int,
    max_bytes: int,
    freed: int,
    staying: int,
    lost: dict[str, int],
) -> None:
    from keepfast.present.json_forms import of_checkpoint
    from keepfast.present.terminal import size

    if session.json:
        listed = [of_checkpoint(row) for row in chosen]
        write_json(
            {
                "dry_run": True,
                "forgotten": listed,
                "conversations_lost": sorted(lost),
                "bytes_unneeded": freed,
                "bytes_staying": staying,
                "over_size": over,
                "at_most": [of_checkpoint(row) for row in thinnable],
            }
        )
        return
    if chosen:
        _print_chosen(session, chosen, "Would forget")
        _warn_of_conversations(session, lost)
        session.print(f"Would free {size(freed)} of contents.")
        _name_staying(session, staying)
    elif not thinnable:
        session.print("Nothing would be forgotten.")
    if thinnable:
        session.print(f"Would forget more. {_thinning(thinnable, over, max_bytes)}")
    elif over:
        session.print(f"The store is {size(over)} over {size(max_bytes)}; {NOTHING_LEFT}.")


def _print_chosen(session: Session, chosen: list[CheckpointRow], verb: str) -> None:
    from keepfast.present.json_forms import title
    from keepfast.present.terminal import age, plural

    if session.json:
        return
    session.say(f"{verb} {plural(len(chosen), 'checkpoint')}:")
    for row in chosen[:MAX_SHOWN]:
        session.say(f"  {title(row)}, {row.trigger}, {age(row.created_at, session.now())}")
    if len(chosen) > MAX_SHOWN:
        session.say(f"  … and {len(chosen) - MAX_SHOWN:,} more")


def _print_result(
    session: Session,
    chosen: list[CheckpointRow],
    thinned: list[CheckpointRow],
    freed: int,
    compaction: Compaction | None,
    max_bytes: int,
    staying: int,
    failed: NotCompacted | None,
    lost: dict[str, int],
) -> None:
    from keepfast.present.json_forms import of_checkpoint
    from keepfast.present.terminal import plural, size
    from keepfast.store.maintenance.space import store_size

    try:
        now = store_size(session.repository)
    except KeepfastError:
        if failed is None:
            raise
        now = None  # the error that stopped compaction stops this too
    if session.json:
        write_json(
            {
                "dry_run": False,
                "forgotten": [of_checkpoint(row) for row in chosen],
                "thinned": [of_checkpoint(row) for row in thinned],
                "conversations_lost": sorted(lost),
                "bytes_unneeded": freed,
                "bytes_staying": staying,
                "compaction": _compaction(compaction) if compaction is not None else None,
                "not_compacted": not_compacted(failed),
                "store_bytes": now,
            }
        )
        return
    if not chosen and not thinned:
        session.say("Nothing to forget.")
    if chosen:
        freeable = f"; {size(freed)} of contents can be freed" if compaction is None else ""
        session.say(f"Forgot {plural(len(chosen), 'checkpoint')}{freeable}.")
        _name_staying(session, staying)
    if compaction is not None:
        session.say(_describe_freed(compaction))
        _name_left(session, compaction)
    if thinned:
        count = plural(len(thinned), "oldest automatic checkpoint")
        has = f" Its size is {size(now)} now." if now is not None else ""
        session.say(f"The store was over {size(max_bytes)}: forgot the {count} too.{has}")
    if now is not None and now > max_bytes and failed is None and not (chosen and not thinned and compaction is None):
        session.warn(f"The store takes {size(now)}, over {size(max_bytes)}: {NOTHING_LEFT}.")


def _describe_freed(compaction: Compaction) -> str:
    from keepfast.present.terminal import size

    if not compaction.given_back:
        return f"No space freed (store {size(compaction.bytes_after)})."
    return f"Freed {size(compaction.given_back)} (store {size(compaction.bytes_before)} -> {size(compaction.bytes_after)})."


def _exit_code(session: Session, failed: NotCompacted | None) -> int:
    """Return the exit code; raise `failed` unless --json already reported it."""
    if failed is not None and not session.json:
        raise failed
    return failed.exit_code if failed is not None else 0


def not_compacted(failed: NotCompacted | None) -> dict[str, str] | None:
    """Return the JSON form of the reason why space was not freed."""
    return {"message": str(failed), "hint": failed.hint} if failed is not None else None


def _name_staying(session: Session, staying: int) -> None:
    """Print a remark about contents of the newest version that stay although it is forgotten."""
    from keepfast.present.terminal import size

    if staying:
        session.remark(
            f"{size(staying)} of the newest checkpoint's contents are not freed: the next save builds on "
            "them. `keepfast purge` removes them too."
        )


def _name_left(session: Session, compaction: Compaction) -> None:
    """Print a remark about unneeded data that stays because most of its packs is needed."""
    from keepfast.present.terminal import size

    if compaction.bytes_left >= LEFT_BYTES_WORTH_REPORTING:
        session.remark(
            f"{size(compaction.bytes_left)} of unneeded data remain in packs that are mostly in use. Run "
            "`keepfast compact --everything` to free them."
        )


def _compaction(compaction: Compaction) -> dict[str, int]:
    return {
        "bytes_before": compaction.bytes_before,
        "bytes_after": compaction.bytes_after,
        "packs_before": compaction.packs_before,
        "packs_after": compaction.packs_after,
        "bytes_given_back": compaction.given_back,
        "bytes_left": compaction.bytes_left,
    }
