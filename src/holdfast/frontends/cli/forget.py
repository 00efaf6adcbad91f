"""`holdfast forget` and `holdfast compact`: let checkpoints go, and give their space back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.core.errors import Busy, Conflict, Failed, Usage
from holdfast.frontends.cli.reference import REFERENCE
from holdfast.frontends.cli.session import Session, common, write_json

if TYPE_CHECKING:
    from holdfast.store.rows import CheckpointRow
    from holdfast.store.upkeep import Compaction

SHOWN = 20


@click.command()
@click.argument("references", metavar="[REF]...", type=REFERENCE, nargs=-1)
@click.option("--policy", is_flag=True, help="Apply the retention policy; the same as giving no REF.")
@click.option(
    "--keep-size", default=None, metavar="SIZE", help="Thin until the store fits in SIZE (retention.max_size)."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be forgotten.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@common
def forget(
    session: Session, references: tuple[str, ...], policy: bool, keep_size: str | None, dry_run: bool, yes: bool
) -> None:
    """Forget the checkpoints REF, or those that the retention policy lets go, and give their space back.

    The policy keeps what is pinned, named or made by hand, the newest automatic ones of each session, then one an hour,
    then one a day. If the store is larger than retention.max_size after that, the oldest automatic ones go, those of
    other workspaces included.
    """
    if references and (policy or keep_size is not None):
        raise Usage("Give either references or the policy's options.")
    _, workspace = session.workspace()
    most = _size(session, keep_size)
    chosen = _named(session, references) if references else _by_policy(session, workspace.id)
    if dry_run:
        _dry_run(session, chosen, bool(references), most)
        return
    if chosen:
        _print_chosen(session, chosen, "Forgetting" if yes else "Would forget")
        if not session.agreed(
            f"Forget {len(chosen):,} of them for good?" if len(chosen) > 1 else "Forget it for good?", yes
        ):
            raise Failed("Nothing was forgotten.")
    from holdfast.store.upkeep import forget as forget_versions

    reason = "asked" if references else "policy"
    versions, folder = [row.version for row in chosen], session.engine.place.path
    freed = forget_versions(session.repository, workspace.id, versions, reason, folder) if chosen else 0
    done = _compact(session) if chosen else None
    thinned = [] if references else _thin(session, most)
    _answer(session, chosen, thinned, freed, done, most)


@click.command()
@click.option("--everything", is_flag=True, help="Rewrite every pack that holds something unneeded, however little.")
@common
def compact(session: Session, everything: bool) -> None:
    """Give back the space of what no checkpoint needs, and merge small packs."""
    from holdfast.frontends.paint import plural, size

    done = _compact(session, everything, must=True)
    assert done is not None
    if session.json:
        write_json(_compaction(done))
        return
    saved = done.bytes_before - done.bytes_after
    session.say(
        f"{plural(done.packs_before, 'pack')} of {size(done.bytes_before)} became"
        f" {plural(done.packs_after, 'pack')} of {size(done.bytes_after)}"
        + (f": {size(saved)} given back." if saved > 0 else ".")
    )


def _named(session: Session, references: tuple[str, ...]) -> list[CheckpointRow]:
    _, workspace = session.workspace()
    rows = {row.version: row for row in [session.resolve(workspace, text) for text in references]}
    for row in rows.values():
        if row.pinned:
            raise Conflict(f"v{row.version} is pinned.", f"Run `holdfast unpin v{row.version}` first.")
    return [rows[version] for version in sorted(rows)]


def _by_policy(session: Session, workspace: str) -> list[CheckpointRow]:
    from holdfast.tidying import by_policy

    return by_policy(session.repository, session.settings, workspace, session.now())


def _thin(session: Session, most: int) -> list[CheckpointRow]:
    from holdfast.tidying import thin

    return thin(session.repository, session.engine.place.path, most, lambda: _compact(session) is not None)


def _compact(session: Session, everything: bool = False, must: bool = False) -> Compaction | None:
    """None if another process is at it, or has the store mounted; with `must` that raises `Busy`."""
    from holdfast.store.upkeep import compact as give_back

    with session.progress("Compacting") as progress:
        try:
            return give_back(session.repository, session.engine.place.path, everything=everything, progress=progress)
        except Busy as busy:
            if must:
                raise
            session.remark(f"{busy} The space is given back by a later `holdfast compact`.")
            return None


def _size(session: Session, keep_size: str | None) -> int:
    if keep_size is None:
        most: int = session.settings["retention.max_size"]
        return most
    from holdfast.core.checking import size

    given = size(keep_size)
    if given is None:
        raise Usage(f"--keep-size {keep_size!r} is not a size.", "Give a size such as 5GB.")
    return given


def _dry_run(session: Session, chosen: list[CheckpointRow], named: bool, most: int) -> None:
    from holdfast.frontends.facts import of_checkpoint
    from holdfast.frontends.paint import size
    from holdfast.store.upkeep import store_size

    over = 0 if named else max(0, store_size(session.repository) - most)
    if session.json:
        write_json({"dry_run": True, "forgotten": [of_checkpoint(row) for row in chosen], "over_size": over})
        return
    if chosen:
        _print_chosen(session, chosen, "Would forget")
    else:
        session.print("Nothing would be forgotten.")
    if over:
        session.print(f"The store is {size(over)} over {size(most)}; the oldest automatic ones would be thinned too.")


def _print_chosen(session: Session, chosen: list[CheckpointRow], verb: str) -> None:
    from holdfast.frontends.facts import title
    from holdfast.frontends.paint import age, plural

    if session.json:
        return
    session.say(f"{verb} {plural(len(chosen), 'checkpoint')}:")
    for row in chosen[:SHOWN]:
        session.say(f"  {title(row)}, {row.trigger}, {age(row.created_at, session.now())}")
    if len(chosen) > SHOWN:
        session.say(f"  … and {len(chosen) - SHOWN:,} more")


def _answer(
    session: Session,
    chosen: list[CheckpointRow],
    thinned: list[CheckpointRow],
    freed: int,
    done: Compaction | None,
    most: int,
) -> None:
    from holdfast.frontends.facts import of_checkpoint
    from holdfast.frontends.paint import plural, size
    from holdfast.store.upkeep import store_size

    now = store_size(session.repository)
    if session.json:
        write_json(
            {
                "dry_run": False,
                "forgotten": [of_checkpoint(row) for row in chosen],
                "thinned": [of_checkpoint(row) for row in thinned],
                "bytes_unneeded": freed,
                "compaction": _compaction(done) if done is not None else None,
                "store_bytes": now,
            }
        )
        return
    if not chosen and not thinned:
        session.say("Nothing to forget.")
    if chosen:
        session.say(f"Forgot {plural(len(chosen), 'checkpoint')}; {size(freed)} of contents are no longer needed.")
    if done is not None:
        session.say(f"The store went from {size(done.bytes_before)} to {size(done.bytes_after)}.")
    if thinned:
        count = plural(len(thinned), "oldest automatic checkpoint")
        session.say(f"The store was over {size(most)}: the {count} went too. It has {size(now)} now.")
    if now > most and not (chosen and not thinned and done is None):
        session.warn(
            f"The store has {size(now)}, over {size(most)}: what is left is pinned, named, made by hand or the newest."
        )


def _compaction(done: Compaction) -> dict[str, int]:
    return {
        "bytes_before": done.bytes_before,
        "bytes_after": done.bytes_after,
        "packs_before": done.packs_before,
        "packs_after": done.packs_after,
    }
