"""`keepfast report`: what unattended tasks did, and what needs you."""

from __future__ import annotations

import click

from keepfast.cli.numbers import Number
from keepfast.cli.session import Session, common, write_json
from keepfast.cli.task_session import clock, open_runtime
from keepfast.runner.actions.report import report as make

HOUR = 3_600_000_000_000


@click.command()
@click.option("--hours", type=Number(0), metavar="N", default=24.0, help="Report the last N hours (default 24).")
@common
def report(session: Session, hours: float) -> None:
    """Report what tasks ran, waited, cost and changed, and what needs you."""
    with open_runtime(session) as runtime:
        result = make(runtime, session.now() - int(hours * HOUR))
    if session.json:
        write_json(result)
        return
    if result["needs_you"]:
        session.print("Needs you:")
        for entry in result["needs_you"]:
            name, kind = entry["id"] or entry["task"], entry["hold"] or entry["kind"]
            session.print(f"  {name}  {kind}  {entry['title']}: {entry['text']}")
    lost = [entry for entry in result["tasks"] if entry["save_failed"] is not None]
    if lost:
        session.print("Not saved:")
        for entry in lost:
            session.print(
                f"  {entry['id']}  {entry['save_failed']['reason']}  {entry['title']}: {entry['save_failed']['error']}"
            )
    if result["missing_keys"]:
        session.print(
            f"Key missing: contents sealed with {', '.join(result['missing_keys'])} cannot be decrypted (see "
            "`keepfast key`)."
        )
    warned = [(entry, warning) for entry in result["tasks"] for warning in entry["warnings"]]
    if warned:
        session.print("Warnings:")
        for entry, warning in warned:
            session.print(f"  {entry['id']}  {entry['title']}: {warning['message']}")
    if not result["tasks"]:
        session.print("No task ran.")
        return
    rows = []
    for entry in result["tasks"]:
        waited = ", ".join([f"{kind} {clock(int(seconds))}" for kind, seconds in entry["waited_seconds"].items()])
        changed = "" if entry["changed_files"] is None else str(entry["changed_files"])
        rows.append(
            [
                entry["id"],
                entry["status"],
                clock(entry["ran_seconds"]),
                waited,
                f"{entry['tokens']:,}",
                changed,
                entry["title"],
            ]
        )
    head = ["TASK", "STATUS", "RAN", "WAITED", "TOKENS", "FILES", "TITLE"]
    for line in session.paint.table(head, rows, give=6):
        session.print(line)
    session.print(f"Total: {result['tokens']:,} tokens, ${result['money']:.2f}.")
