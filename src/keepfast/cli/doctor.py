"""`keepfast doctor`: is everything in place, and what to do if not."""

from __future__ import annotations

import click

from keepfast.cli.checks import Check, run
from keepfast.cli.session import Session, common, write_json
from keepfast.present.terminal import pad, plural, width

SIGNS = {"fine": ("green", "✓"), "note": ("yellow", "!"), "problem": ("bold red", "✗")}


@click.command()
@common
def doctor(session: Session) -> int:
    """Check the installation, the settings, the store and this workspace.

    Exit code 1 if there are problems, else 0, even with notes.
    """
    checks = run(session)
    problems = [check for check in checks if check.level == "problem"]
    if session.json:
        listed = [
            {"name": check.name, "level": check.level, "text": check.text, "advice": check.advice} for check in checks
        ]
        write_json({"ok": not problems, "checks": listed})
    else:
        _as_text(session, checks, len(problems))
    return 1 if problems else 0


def _as_text(session: Session, checks: list[Check], problems: int) -> None:
    column = max(width(check.name) for check in checks)
    for check in checks:
        colour, sign = SIGNS[check.level]
        if session.quiet and check.level == "fine":
            continue
        session.print(f"{session.paint(colour, sign)} {pad(check.name, column)}  {check.text}")
        if check.advice:
            session.print(f"  {' ' * column}  {check.advice}")
    if problems:
        session.print(f"{plural(problems, 'problem')} found.")
    else:
        notes = sum(check.level == "note" for check in checks)
        session.say(f"No problems found; {plural(notes, 'note')}." if notes else "No problems found.")
