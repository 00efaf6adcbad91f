"""`keepfast daemon`: the process that answers hooks."""

from __future__ import annotations

import os

import click

from keepfast.cli.lazy import OrderedGroup
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Failed, Usage
from keepfast.present import resident
from keepfast.present.json_forms import of_resident
from keepfast.present.terminal import age_in_words, plural
from keepfast.resident import address
from keepfast.resident.address import LOG

LINES = 20


@click.group(cls=OrderedGroup)
def daemon() -> None:
    """Show, start or stop the process that answers hooks without starting Python."""


@daemon.command("status")
@common
def status(session: Session) -> None:
    """Show whether it runs, since when, and what it answered."""
    seen = resident.state(session.environment, session.settings)
    if session.json:
        write_json(of_resident(seen))
        return
    session.print(summary(session, seen))
    for reason, count in sorted(dict((seen.facts or {}).get("declined", {})).items(), key=lambda pair: -pair[1]):
        session.print(f"  left to a process of their own: {count:,} ({reason})")
    for path in (seen.facts or {}).get("stores", []):
        session.print(f"  store {path}")


@daemon.command("start")
@common
def start(session: Session) -> None:
    """Start it. Hooks do that by themselves."""
    if session.environment.is_agents():
        raise Usage("An agent's shell does not start the resident.", "Its hooks do; or run this in your own shell.")
    if session.settings[resident.SETTING] == resident.OFF:
        raise Usage("The setting `resident` is off.", "Run `keepfast config set resident auto`.")
    seen = resident.state(session.environment)
    if not seen.runs:
        try:
            resident.start(session.environment)
        except OSError as error:
            raise Failed(f"The resident cannot be started: {error.strerror}.") from None
        seen = resident.await_start(session.environment)
    if seen.facts is None:
        raise Failed("The resident does not answer.", "See `keepfast daemon log`. Hooks work without it.")
    session.say(f"The resident is running, pid {seen.process}.")


@daemon.command("stop")
@common
def stop(session: Session) -> None:
    """Stop it after the requests that it has begun. The next hook starts it again; see the setting `resident`."""
    try:
        stopped = resident.stop(session.environment)
    except (TimeoutError, OSError) as error:
        raise Failed(f"The resident was not stopped: {error}.", "Hooks work without it.") from None
    session.say("The resident has ended." if stopped else "No resident is running.")


@daemon.command("log")
@click.option("-n", "--lines", default=LINES, show_default=True, metavar="N", help="Show the last N lines.")
@common
def log(session: Session, lines: int) -> None:
    """Show when it started and ended, and what went wrong."""
    path = address.folder_of(session.environment.data) + LOG
    if not os.path.exists(path):
        session.say("There is no log: no resident has run yet.")
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        texts = file.read().splitlines()[-lines:] if lines > 0 else []
    if session.json:
        write_json(texts)
        return
    for text in texts:
        session.print(text)


def summary(session: Session, seen: resident.ResidentState) -> str:
    """Return one line: whether it runs, or why not."""
    if not seen.runs:
        return f"not running: {seen.why}"
    if seen.facts is None:
        return f"pid {seen.process}, {seen.why}; hooks run by themselves"
    since = age_in_words(int(seen.facts["started"]), session.now())
    return f"pid {seen.process}, started {since}, answered {plural(int(seen.facts['answered']), 'hook')}"
