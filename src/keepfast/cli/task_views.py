"""`keepfast task list`, `show`, `log`, `inbox`: what tasks do, and what they wait for."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import datetime
from time import sleep
from typing import Any

import click

from keepfast.cli.session import Session, common, write_bytes, write_json
from keepfast.cli.task_session import REF, asked, clock, remark_unsupervised, tasks_of, trouble
from keepfast.model.errors import KeepfastError, NotFound
from keepfast.present.terminal import SECOND, age

SHOWN = 10
LABEL = 9
"""The width of what stands before a fact."""


@click.command("list")
@click.option("--state", metavar="STATE", default="", help="Show only tasks in this state.")
@click.option("--all", "archived", is_flag=True, help="Also show archived tasks.")
@common
def list_(session: Session, state: str, archived: bool) -> None:
    """List tasks and what each is waiting for."""
    with tasks_of(session) as tasks:
        found = tasks.views.listing(state=state, archived=archived)
        if not found and not tasks.views.is_any():
            _say_lost(session)
        if session.json:
            write_json(found)
            return
        if not found:
            session.remark("No tasks.")
            return
        rows = [
            [one["id"], one["status"], _phase(one), f"{one['progress']}%", _why(one), one["title"]] for one in found
        ]
        for line in session.paint.table(["TASK", "STATUS", "PHASE", "DONE", "WAITS FOR", "TITLE"], rows, give=5):
            session.print(line)
        if any(_goes_on(one) for one in found):
            remark_unsupervised(session)
        why = trouble(session)
        if why:
            session.warn(f"The supervisor cannot work: {why}")


def _goes_on(one: dict[str, Any]) -> bool:
    """Would a supervisor do something for this task, without a person?"""
    return one["state"] in ("queued", "active") and not (one["hold"] and one["hold"]["needs_you"])


def _say_lost(session: Session) -> None:
    """The database knows of no task: name folders with documents of some, as after it was lost."""
    from keepfast.runner.actions.recovery import workspaces

    with suppress(KeepfastError):  # without a store, no folder is known
        known = [os.fsdecode(row.path) for row in session.repository.workspaces() if row.path]
        folders = dict.fromkeys([*known, *workspaces(session.settings["supervisor.roots"])])
        found = [folder for folder in folders if os.path.isfile(folder + "/.metadata/task.json")]
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            session.warn(
                f"The task database has no tasks, but task documents were found in {', '.join(found[:SHOWN])}{more}."
                " Run `keepfast rebuild` to restore them."
            )


def _phase(one: dict[str, Any]) -> str:
    return f"{one['phase']}/{len(one['phases'])}" if one["phase"] else ""


def _why(one: dict[str, Any]) -> str:
    hold = one["hold"]
    if one["frozen"]:
        return "frozen (you)"
    if hold is None:
        return f"{one['waits_for'][0]}" if one["waits_for"] else ""
    left = f", {clock(hold['seconds_left'])}" if hold["seconds_left"] is not None else ""
    return f"{hold['kind']}{left}{' (you)' if hold['needs_you'] else ''}"


@click.command("show")
@REF
@common
def show(session: Session, ref: str) -> None:
    """Show a task: why it waits, its runs, questions and checkpoints."""
    with tasks_of(session) as tasks:
        one = tasks.views.show(ref)
    if session.json:
        write_json(one)
        return
    session.print(f"{session.paint('bold', one['title'])}  {one['id']}  {one['status']}")
    waiting = [prompt for prompt in one["prompts"] if prompt["status"] in ("pending", "presented")]
    for label, text in [*_facts(one), *[(prompt["kind"], f"{_asked(prompt)} ({prompt['id']})") for prompt in waiting]]:
        session.print(f"{label:<{LABEL}} {text}")
    runs = [[run["id"].rpartition(":")[2], run["outcome"] or run["state"], run["reason"] or ""] for run in one["runs"]]
    kept = [[each["version"], each["reason"], _age(session, each["created_at"])] for each in one["checkpoints"]]
    for head, rows in ((["RUN", "OUTCOME", "WHY"], runs[-SHOWN:]), (["KEPT", "REASON", "WHEN"], kept[:SHOWN])):
        if rows:
            session.print()
            for line in session.paint.table(head, rows, give=2):
                session.print(line)
            all_of_them = len(runs) if head[0] == "RUN" else one["checkpoints_total"]
            if all_of_them > len(rows):
                session.print(
                    f"… and {all_of_them - len(rows)} older ones (run `keepfast task show {one['id']} --json`)"
                )
    session.print()
    session.print(f"you can: {', '.join(one['actions'])}")


def _facts(one: dict[str, Any]) -> list[tuple[str, str]]:
    """What a task is at, a line each: a label and its text."""
    hold, used, found = one["hold"], one["used"], []
    if one["frozen"]:
        found.append(("frozen", "the agent's processes are stopped until `keepfast task resume`"))
    elif hold is not None:
        left = f", {clock(hold['seconds_left'])} left" if hold["seconds_left"] is not None else ""
        found.append(("waits", f"{hold['kind']}{left}: {hold['reason'] or ''}"))
    elif one["reason"] and one["state"] != "done":
        found.append(("because", one["reason"]))
    if one["save_failed"] is not None:
        failed = one["save_failed"]
        found.append(("not saved", f"{failed['reason']}: {failed['error']}"))
    if one["missing_keys"]:
        found.append(
            (
                "no key",
                (f"contents sealed with {', '.join(one['missing_keys'])} cannot be decrypted (see `keepfast key`)"),
            )
        )
    found += [("warning", text) for text in dict.fromkeys([warning["message"] for warning in one["warnings"]])]
    if one["phase"]:
        found.append(("phase", f"{one['phase']} of {len(one['phases'])}, {one['phases'][one['phase'] - 1]}"))
    found.append(("used", f"{used['tokens']:,} tokens, ${used['money']:.2f}, {clock(used['seconds'])}"))
    found.append(("where", one["workspace"]))
    return found


def _asked(one: dict[str, Any]) -> str:
    """What a person is asked or told, and what can be answered or done."""
    choices = one["options"] or one.get("actions") or []
    return asked(one, one["task"]) + (f" [{' | '.join(choices)}]" if choices else "")


def _age(session: Session, moment: str) -> str:
    """How long ago a moment of a task's JSON form is."""
    then = int(datetime.fromisoformat(moment).timestamp()) * SECOND
    return age(then, session.now())


@click.command("log")
@REF
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the task ends.")
@click.option("--output", is_flag=True, help="Show the agent's output instead of events.")
@common
def log(session: Session, ref: str, follow: bool, output: bool) -> None:
    """Show the events of a task."""
    import json

    from keepfast.cli.event_lines import log_line

    with tasks_of(session) as tasks:
        found = tasks.views.find(ref)
        if output:
            run = tasks.tables.last_run(found.id)
            if run is None:
                raise NotFound("The task has not run yet.")
            try:
                with open(f"{run.folder}/out.log", "rb") as file:
                    write_bytes(file.read())
            except FileNotFoundError:
                pass
            return
        since = 0
        while True:
            for event in tasks.views.log(found.id, since):
                since = event["sequence"]
                if session.json:
                    write_bytes(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
                else:
                    session.print(log_line(event))
            sys.stdout.flush()
            if not follow or tasks.views.find(found.id).state in ("done", "failed", "cancelled"):
                return
            sleep(0.5)


@click.command("inbox")
@common
def inbox(session: Session) -> None:
    """List everything that needs you, most urgent first."""
    with tasks_of(session) as tasks:
        found = tasks.views.inbox()
    if session.json:
        write_json(found)
        return
    for one in found:
        session.print(f"{one['id'] or one['task']}  {one['hold'] or one['kind']}  {one['title']}: {_asked(one)}")
    if not found:
        session.remark("Nothing needs you.")
